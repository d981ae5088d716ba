"""The base classes of models, their losses, and how a trained one is loaded."""
