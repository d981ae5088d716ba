"""Reports on evaluations: their files, tables of many runs next to published numbers, and paired comparisons."""

from reports.metrics_json import Result
from reports.paired_comparison import compare
from reports.published import Published, published
from reports.runs import collect
from reports.tables import table

__all__ = ["Published", "Result", "collect", "compare", "published", "table"]
