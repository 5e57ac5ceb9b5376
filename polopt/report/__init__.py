"""Reports: a page for one run, a page for a comparison, plots for notebooks."""

from polopt.report.plot import learning_curve
from polopt.report.write import compare_report, run_notices, write_comparison, write_report

__all__ = ["compare_report", "learning_curve", "run_notices", "write_comparison", "write_report"]
