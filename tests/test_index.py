"""What is shown of the methods without importing them is what their files hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import polopt as po
from polopt import catalogue, index
from polopt.absent import ABSENT, unknown_method
from polopt.outline import outline
from polopt.part import Part


def test_the_index_is_current() -> None:
    assert index.FILE.read_text(encoding="utf-8") == index.text(), "run: python -m polopt.index"


def test_an_entry_is_read_from_the_index_as_the_method_gives_it() -> None:
    assert index.entry("DR_GRPO") == index.made("dr-grpo")


def test_a_digest_is_of_the_sentence_and_of_its_claims(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A change to either file changes it; so does the loss of the claims' file."""
    sentence, claims = catalogue.files_of("rloo")
    assert (sentence.parent.name, claims.parent.name, sentence.name) == ("methods", "claims", claims.name)
    texts = {folder: (catalogue.HERE / folder / "rloo.py").read_text() for folder in ("methods", "claims")}
    monkeypatch.setattr(catalogue, "HERE", tmp_path)

    def digest(**written: str) -> str:
        for folder, text in written.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "rloo.py").write_text(text)
        return index.digest("rloo")

    digests = [digest(methods=texts["methods"]), digest(claims=texts["claims"])]
    digests += [digest(claims=texts["claims"] + "#"), digest(**texts | {"methods": texts["methods"] + "#"})]
    assert len(set(digests)) == 4
    assert digest(**texts) == digests[1] == index._stored()["rloo"]["digest"]


def test_a_method_file_that_has_changed_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = {"rloo": {**index._stored()["rloo"], "changes": "As it was."}}
    monkeypatch.setattr(index, "_stored", lambda: stored)
    assert index.entry("rloo").changes == "As it was."  # the file is the one that the index was made from
    stored["rloo"]["digest"] = "of another file"
    assert index.entry("rloo").changes == catalogue.find("rloo").changes
    del stored["rloo"]
    assert index.entry("rloo").changes == catalogue.find("rloo").changes


def test_an_outline_holds_every_setting_of_every_part() -> None:
    algorithm = catalogue.method("refcritic")
    shown = "\n".join(f"{line.name} {line.value}" for line in outline(algorithm))

    def plain(part: Part) -> list[str]:
        simple = (int, float, str, bool)
        return [
            f"{k}={v!r}" for p in part.parts() if p is not part for k, v in p.settings().items() if type(v) in simple
        ]

    assert len(plain(algorithm)) > 10
    for setting in plain(algorithm):
        assert setting in shown


def test_methods_that_are_elsewhere_are_not_here() -> None:
    """No reason is given for a method that exists, and those that are pointed to exist."""
    assert not set(ABSENT) & set(catalogue.slugs())
    for reason in ABSENT.values():
        for name in re.findall(r"`([a-z0-9-]+)`", reason):
            assert name in catalogue.slugs()


def test_what_is_told_of_reinforce_plus_plus_is_its_advantage() -> None:
    """(R - mean of the batch) / std of the batch, where GRPO takes both of the prompt's group."""
    reward = torch.tensor([1.0, 0.0, 0.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    batch = po.Experience(mask=torch.ones(6, 1).bool(), reward=reward, group=torch.arange(6) // 3)
    everyone = po.features.WholeBatch()
    grpo = po.method("grpo").but(
        {"credit.baseline": po.credit.GroupMean(within=everyone), "credit.scale": po.credit.GroupStd(within=everyone)}
    )
    wanted = (reward - reward.mean()) / reward.std()
    assert torch.allclose(grpo.credit(batch)[:, 0], wanted, atol=1e-5)
    assert "credit.GroupMean and credit.GroupStd within features.WholeBatch" in ABSENT["reinforce++"]
    # And with a baseline of the group: the paper divides by the std of what is left, `tricks-lite-ppo` by the rewards'.
    centred = reward - torch.tensor([1 / 3] * 3 + [2.5 / 3] * 3, dtype=torch.float64)
    lite = po.method("tricks-lite-ppo").credit(batch)[:, 0]
    assert torch.allclose(lite, centred / reward.std(), atol=1e-5)


def test_a_name_is_guessed_only_from_a_slip() -> None:
    known = catalogue.slugs()
    for name in (
        "cpo",
        "iterative-dpo",
        "vapo",
        "gmpo",
        "reinforce++",
        "c51",
        "tqc",
    ):
        assert "did you mean" not in unknown_method(name, known)
    assert unknown_method("grppo", known).startswith("; did you mean 'grpo'?")
