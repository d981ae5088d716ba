"""Reports on evaluations: their files, tables next to published numbers, comparisons, and pages to look at."""
