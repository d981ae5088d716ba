"""Reports on evaluations: their files, tables next to published numbers, comparisons, and pages to look at."""

from reports.explained_figure import explain
from reports.metrics_json import Result
from reports.paired_comparison import compare
from reports.published import Published, published
from reports.runs import collect
from reports.tables import table

__all__ = ["Published", "Result", "collect", "compare", "explain", "published", "table"]
