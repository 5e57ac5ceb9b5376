"""Reports: pages of a run, a comparison, audits of data, a measured file; plots for notebooks."""

from polopt.report.audit_page import write_audit
from polopt.report.measure_page import bound_plot, write_measured, write_policies
from polopt.report.plot import learning_curve
from polopt.report.transition_page import write_transition_audit
from polopt.report.write import compare_report, run_notices, write_comparison, write_report

__all__ = [
    "bound_plot",
    "compare_report",
    "learning_curve",
    "run_notices",
    "write_audit",
    "write_comparison",
    "write_measured",
    "write_policies",
    "write_report",
    "write_transition_audit",
]
