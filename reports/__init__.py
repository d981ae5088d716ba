"""What is made of evaluations: their files, tables of many runs beside published numbers, and paired comparisons."""

from reports.comparison import compare
from reports.published import Published, published
from reports.runs import Result, collect
from reports.tables import table

__all__ = ["Published", "Result", "collect", "compare", "published", "table"]
