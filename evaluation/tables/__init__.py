"""Tables and comparisons of evaluations, and of papers beside them."""
