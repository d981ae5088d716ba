"""``python -m protometry.metrics``: print the tables of all metrics, which the guide's site shows as a page."""

from protometry.metrics.page import tables
from protometry.metrics.suite import FAMILIES

if __name__ == "__main__":
    print(tables(FAMILIES.values()))
