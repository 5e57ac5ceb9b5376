"""The page of an audit: what stands on it, and how it looks in a browser."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from test_browser import CHROMIUM, browse

from polopt.report import write_audit
from polopt.report.audit_figures import figures
from polopt.training.auditing import FileAudit, audit_file


def file_of(folder: Path) -> Path:
    """Sixty prompts, labelled by two of three annotators each, one of whom is careless, and a row with two answers that
    are the same."""
    draw, rows = random.Random(0), []
    for i in range(60):
        good, bad = f"It is {i + 3}, surely <b>so</b>.", f"It is {i}."
        logps = (-draw.uniform(5, 40), -draw.uniform(5, 40))
        for name in draw.sample(["ann", "bob", "cho"], 2):
            wrong = draw.random() < {"ann": 0.0, "bob": 0.1, "cho": 0.5}[name]
            sign = -1 if wrong else 1
            rows.append(
                {
                    "prompt": f"{i} or {i + 3}?",
                    "chosen": bad if wrong else good,
                    "rejected": good if wrong else bad,
                    "who": name,
                    "ref_chosen_logps": logps[wrong],
                    "ref_rejected_logps": logps[not wrong],
                    "principles": {"right": sign, "brief": -sign if i % 2 else None},
                }
            )
    rows.append({"prompt": "a", "chosen": "x", "rejected": "x"})
    path = folder / "<pairs>.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[FileAudit, Path]:
    folder = tmp_path_factory.mktemp("audit")
    path = file_of(folder)
    audit = audit_file(path, annotator="who")
    return audit, write_audit(audit, path, folder / "audit.html")


def test_the_plots_are_the_audits_numbers(page: tuple[FileAudit, Path]) -> None:
    audit, _ = page
    found = {figure.name: figure for figure in figures(audit)}
    assert [*found] == ["lengths", "biases", "margins", "reach", "agreement", "discretion"]
    assert sum(found["lengths"].data[0]["y"]) == len(audit.rows) == 120
    right, wrong = (sum(trace["y"]) for trace in found["margins"].data)
    assert audit.flips is not None
    assert (right + wrong, wrong) == (120, len(audit.flips.left_wrong))
    # DPO's loss 0.5 is the margin 0.433 at beta 0.1, so gaps beyond 4.33 nats stay wrong.
    margins = [row["ref_chosen_logps"] - row["ref_rejected_logps"] for row in map(json.loads, _rows(page))]
    assert wrong == sum(margin < -10 * np.log(1 / (np.exp(0.5) - 1)) for margin in margins)
    curve = found["reach"].data[0]
    at = dict(zip(curve["x"], curve["y"], strict=True))
    assert at[0.0] == 1, "a loss of 0 turns every pair"
    assert min(curve["y"]) == 0
    assert all(one >= other for one, other in zip(curve["y"], curve["y"][1:], strict=False))


def _rows(page: tuple[FileAudit, Path]) -> list[str]:
    return (page[1].parent / "<pairs>.jsonl").read_text().splitlines()[:-1]


def test_texts_are_escaped_and_lines_are_named(page: tuple[FileAudit, Path]) -> None:
    audit, path = page
    text = path.read_text()
    assert "<b>so</b>" not in text
    assert "&lt;b&gt;so" in text
    assert "&lt;pairs&gt;.jsonl" in text
    assert "hold the same answer; leave the row out" in text
    assert "Krippendorff" in text
    assert audit.agreement is not None
    assert f"{audit.agreement.kappa['ann', 'cho'].estimate:.2f}" in text
    assert "http" not in text.split('<script type="application/json"')[0].replace("http-equiv", "")


def test_a_plain_file_has_a_plain_page(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(json.dumps({"prompt": "a", "chosen": "x", "rejected": "y"}))
    audit = audit_file(path)
    assert [figure.name for figure in figures(audit)] == ["lengths"]
    assert "Annotators" not in write_audit(audit, path, tmp_path / "page.html").read_text()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on this machine")
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_in_a_browser(page: tuple[FileAudit, Path], tmp_path: Path, dark: bool) -> None:
    seen, said = browse(page[1], tmp_path, dark=dark)
    assert said == []
    for view in seen:
        assert view["plots"] == view["drawn"] == 6
        assert view["content"] <= view["width"], "nothing wider than the screen"
        assert view["spilling"] == 0
        assert view["cut"] == []
        assert view["requests"] == 0
        assert view["paper"] == ["#1c1f25" if dark else "#ffffff"]
