"""Numbers from papers, printed next to ours."""
