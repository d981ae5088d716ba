"""Reports on evaluations: their files, tables next to published numbers, comparisons, and pages to look at."""

from reports.explained_figure import explain
from reports.published.numbers import Published, published
from reports.results.metrics_json import Result
from reports.results.paired_comparison import compare
from reports.results.runs import collect
from reports.results.tables import table

__all__ = ["Published", "Result", "collect", "compare", "explain", "published", "table"]
