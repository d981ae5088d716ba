"""The base of all data sets of photos in files."""
