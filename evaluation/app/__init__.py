"""A trained model to try in a browser: what it decides of a photo, and what would change its mind."""
