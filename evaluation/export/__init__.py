"""Trained models as folders of their own: written, read, described and pushed."""
