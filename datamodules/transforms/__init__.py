"""Transforms of photos: geometry, augmentation and the continuity view."""
