"""Many runs from one file: models × data × folds × seeds, trained side by side and shown in one table."""
