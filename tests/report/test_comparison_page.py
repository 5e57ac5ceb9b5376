"""The page of a comparison: its table, and what was compared."""

import dataclasses
import json
import re

import fake_run
import pytest
from report_reader import Reader

from polopt.metrics import Comparison
from polopt.report import compare_figures, compare_report
from polopt.training.compare import record


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


@pytest.mark.parametrize("anytime", [False, True])
def test_bands_and_dots_are_the_intervals_of_the_table(anytime):
    scores = {"a": [0.4, 0.5, 0.45, 0.55, 0.5], "b": [0.6, 0.75, 0.7, 0.65, 0.7]}
    curves = {name: [[(0, 0.1), (9, score)] for score in final] for name, final in scores.items()}
    methods = [{"name": n, "seeds": list(range(5)), "final": f, "curves": curves[n]} for n, f in scores.items()]
    comparison = Comparison.from_dict({"methods": methods, "anytime": anytime})
    curve, finals = compare_figures.figures(comparison)
    bands = [trace for trace in curve.data if trace.get("fill") == "toself"]
    dots = [trace for trace in finals.data if "error_x" in trace]
    for row, area, dot in zip(comparison.table(), bands, dots, strict=True):
        ends = [y for x, y in zip(area["x"], area["y"], strict=True) if x == 9]
        assert ends == pytest.approx([row.final.high, row.final.low], rel=1e-3)
        (high,), (low,) = dot["error_x"]["array"], dot["error_x"]["arrayminus"]
        assert (dot["x"][0] - low, dot["x"][0] + high) == pytest.approx((row.final.low, row.final.high))
    assert ("at any number of seeds" in curve.caption) is anytime
    stored = json.loads(json.dumps(record(comparison)))
    for row in comparison.table():
        last = stored["bands"][row.name][-1]
        assert last == {"step": 9, **dataclasses.asdict(row.final)}
    assert Comparison.from_dict(stored) == comparison


def test_too_few_seeds_for_any_time_have_no_band():
    curve = [[(0, 0.1), (9, 0.5)], [(0, 0.2), (9, 0.6)]]
    methods = [{"name": "a", "seeds": [0, 1], "final": [0.5, 0.6], "curves": curve}]
    curve, finals = compare_figures.figures(Comparison.from_dict({"methods": methods, "anytime": True}))
    assert not [trace for trace in curve.data if trace.get("fill") == "toself"]
    assert not [trace for trace in finals.data if "error_x" in trace]


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
