"""What a person looks at: a page for one run, a page for a comparison."""

from polopt.report.write import compare_report, write_report

__all__ = ["compare_report", "write_report"]
