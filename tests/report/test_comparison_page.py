"""The page of a comparison: its table, and what was compared."""

import re

import fake_run
from report_reader import Reader

from polopt.metrics import Comparison
from polopt.report import compare_report


def test_comparison_page_shows_the_table(tmp_path):
    comparison = Comparison.from_dict(fake_run.comparison())
    words = Reader(compare_report(comparison, tmp_path / "new" / "compare.html").read_text()).words
    _, second, third = comparison.table()
    assert f"+{100 * second.difference.estimate:.1f}" in words
    assert f"{100 * third.difference.estimate:.1f}".replace("-", "−") in words
    assert re.search(r"bnpo 10 .*, paired", words)


def test_a_star_stands_where_the_difference_remains_after_correction(tmp_path):
    seeds = [1, 2, 3, 4]
    base, better, alike = [0.50, 0.52, 0.48, 0.51], [0.90, 0.93, 0.87, 0.92], [0.51, 0.50, 0.50, 0.49]
    methods = [{"name": n, "seeds": seeds, "final": f} for n, f in (("a", base), ("b", better), ("c", alike))]
    comparison = Comparison.from_dict({"methods": methods})
    assert [row.significant for row in comparison.table()] == [None, True, False]
    page = compare_report(comparison, tmp_path / "three.html").read_text()
    words = Reader(page).words
    assert "+40.3 *" in words
    assert words.count(" *") == 1
    assert "of 2 equal methods 0.1 would differ from a by chance" in words
    assert "100 %58 – 100 %" in words
    assert page.count("n strong clear") == 1
    page = compare_report(Comparison.from_dict({"methods": methods[:2]}), tmp_path / "two.html").read_text()
    assert " *" not in Reader(page).words
    assert "Holm" not in page
    assert page.count("n strong clear") == 1


def test_one_seed_each_still_compares(tmp_path):
    data = {"methods": [{"name": n, "seeds": [0], "final": [f]} for n, f in (("a", 0.5), ("b", 0.6))]}
    page = compare_report(Comparison.from_dict(data), tmp_path / "c.html").read_text()
    assert "One seed says nothing about spread" in Reader(page).words
    assert "inf" not in Reader(page).json


def test_intervals_for_any_time(tmp_path):
    """They say so; three seeds of little difference have no bound yet, and no column of improvement stands there."""
    methods = [{"name": n, "seeds": [0, 1], "final": f} for n, f in (("a", [0.5, 0.6]), ("b", [0.6, 0.65]))]
    page = compare_report(Comparison.from_dict({"methods": methods, "anytime": True}), tmp_path / "c.html").read_text()
    words = Reader(page).words
    assert "hold however often one looks" in words
    assert "eats it" not in words
    assert "inf" not in words
    assert (
        "hold however often"
        not in Reader(compare_report(Comparison.from_dict({"methods": methods}), tmp_path / "d.html").read_text()).words
    )


def test_comparison_page_says_what_was_compared(tmp_path):
    about = fake_run.about()
    about["methods"]["bnpo"]["runs"][0] = "bnpo(kl=0.1) & <b>-seed-0"
    read = Reader(compare_report(Comparison.from_dict(fake_run.comparison()), tmp_path / "c.html", about).read_text())
    _, _, compared = read.words.partition("What was compared")
    for fact in (
        "1,234,567",
        "1,234,568",
        "100.2",
        "92.0 %",
        "33.0 %",
        "8 cores",
        "2.13.0",
        "GroupStd()",
        "BatchStd()",
    ):
        assert fact in compared, fact
    assert "grpo → bnpo" in compared
    assert "grpo → rloo" in compared
    assert "grpo → grpo" not in compared
    assert fake_run.RECIPE in "".join(read.text)
    links = [value for name, value in read.attributes if name == "href" and value != "data:,"]
    assert links[0] == "grpo-seed-0/report.html"
    assert links[10] == "bnpo%28kl%3D0.1%29%20%26%20%3Cb%3E-seed-0/report.html"
    assert len(links) == 24


def test_a_comparison_without_a_record_of_it_has_no_such_section(tmp_path):
    page = compare_report(Comparison.from_dict(fake_run.comparison()), tmp_path / "c.html").read_text()
    assert "What was compared" not in Reader(page).words
