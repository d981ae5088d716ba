"""Reports to be opened in a browser: one folder of pages that need neither network nor scripts."""
