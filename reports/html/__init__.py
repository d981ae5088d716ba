"""Reports to be opened in a browser: one folder of pages that need neither network nor scripts."""

from protometry.reports.html.answer import Answer, write_explained
from protometry.reports.html.audit_page import VERDICTS, findings
from protometry.reports.html.comparison import build_comparison, comparison_folder
from protometry.reports.html.evaluation_files import EvaluationFiles, read_evaluation
from protometry.reports.html.report import build_report
from protometry.reports.limits import Limits

__all__ = [
    "VERDICTS",
    "Answer",
    "EvaluationFiles",
    "Limits",
    "build_comparison",
    "build_report",
    "comparison_folder",
    "findings",
    "read_evaluation",
    "write_explained",
]
