"""Reports to be opened in a browser: one folder of pages that need neither network nor scripts."""

from protometry.evaluation.limits import Limits
from protometry.evaluation.pages.answer import Answer, write_explained
from protometry.evaluation.pages.audit_page import VERDICTS, findings
from protometry.evaluation.pages.comparison import build_comparison, comparison_folder
from protometry.evaluation.pages.evaluation_files import EvaluationFiles, read_evaluation
from protometry.evaluation.pages.report import build_report

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
