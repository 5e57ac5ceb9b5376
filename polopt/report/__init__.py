"""Reports: a page for one run, for a comparison, for an audit of preference pairs; plots for notebooks."""

from polopt.report.audit_page import write_audit
from polopt.report.plot import learning_curve
from polopt.report.write import compare_report, run_notices, write_comparison, write_report

__all__ = ["compare_report", "learning_curve", "run_notices", "write_audit", "write_comparison", "write_report"]
