"""What is shown of the methods without importing them is what their files hold."""

from __future__ import annotations

import re

import pytest

from polopt import catalogue, index
from polopt.absent import ABSENT, unknown_method
from polopt.outline import outline
from polopt.part import Part


def test_the_index_is_current() -> None:
    assert index.FILE.read_text(encoding="utf-8") == index.text(), "run: python -m polopt.index"


def test_an_entry_is_read_from_the_index_as_the_method_gives_it() -> None:
    assert index.entry("DR_GRPO") == index.made("dr-grpo")


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


def test_a_name_is_guessed_only_from_a_slip() -> None:
    known = catalogue.slugs()
    for name in (
        "dpo",
        "kto",
        "orpo",
        "simpo",
        "online-dpo",
        "ipo",
        "vapo",
        "gmpo",
        "reinforce++",
        "sac",
        "td3",
        "a2c",
    ):
        assert "did you mean" not in unknown_method(name, known)
    assert unknown_method("grppo", known).startswith("; did you mean 'grpo'?")
