"""A plain loss with one mistake breaks the checks that look for it, and no others; the examples fail when pasted."""

from __future__ import annotations

import functools
import re

import pytest
import torch
import wrong_losses as wrong
from pasted import error_of

from polopt.checks import check

# Everything that does not hold, by what was checked.
EXPECTED = {
    "right": {},
    "summed": {},
    "pair": {},
    "token_mean": {"micro-batches": "choice"},
    "row_mean": {"micro-batches": "choice", "length": "choice"},
    "row_mean_unguarded": {"micro-batches": "choice", "no decisions": "breaks", "length": "choice"},
    "row_mean_of_occupied": {"micro-batches": "choice", "length": "choice"},
    "padded_mean": {"padding": "breaks", "micro-batches": "choice"},
    "maskless": {
        "padding": "breaks",
        "micro-batches": "choice",
        "no decisions": "breaks",
        "off the mask": "breaks",
        "at ratio 1": "choice",
    },
    "by_column": {"padding": "breaks", "at ratio 1": "choice", "length": "choice"},
    "by_row": {"row order": "breaks", "micro-batches": "breaks", "at ratio 1": "choice", "length": "choice"},
    "whitened": {"padding": "breaks", "micro-batches": "breaks", "at ratio 1": "choice", "length": "choice"},
    "multiplied": {"off the mask": "breaks"},
    "numbers": {"off the mask": "breaks"},
    "peeking": {"padding": "breaks", "micro-batches": "breaks", "off the mask": "breaks"},
    "frozen": {"micro-batches": "breaks", "finite differences": "breaks"},
    "unguarded": {"micro-batches": "choice", "no decisions": "breaks"},
    "unbounded": {"extremes": "breaks"},
    "widened": {"float32": "breaks"},
    "halved": {"float32": "breaks"},
    "restless": {"no advantage": "breaks", "at ratio 1": "choice"},
    "upside_down": {"at ratio 1": "breaks"},
    "bold": {"at ratio 1": "breaks"},
    "deaf": {"at ratio 1": "choice"},
    "stopping": {"finite differences": "choice"},
    "drawn": {"random numbers": "choice"},
}


@functools.cache
def report(name: str):
    made_by = [f"from wrong_losses import {name} as loss"]
    (found,) = check(getattr(wrong, name), name, made_by=made_by, lab=False)
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_what_breaks_and_what_does_not(name):
    found = {f.title: f.verdict for f in report(name).findings if f.verdict != "holds"}
    assert found == EXPECTED[name]
    assert report(name).kind == "plain loss"


@pytest.mark.parametrize("name", [n for n, found in EXPECTED.items() if "breaks" in found.values()])
def test_every_break_has_an_example_that_fails_when_pasted(name):
    for finding in report(name).breaks:
        error = error_of(finding.example)
        assert isinstance(error, AssertionError), f"{finding.title}: {error!r}\n{finding.example}"
        assert finding.why


@pytest.mark.parametrize("name", [n for n, found in EXPECTED.items() if "breaks" in found.values()])
def test_examples_are_small(name):
    """No more than two rows or two columns are given to any call, and each number is a short one."""
    for finding in report(name).breaks:
        for rows in re.findall(r"=torch\.tensor\((\[\[.*?\]\])", finding.example):
            shape = torch.tensor(eval(rows, {"nan": float("nan"), "inf": float("inf")})).shape
            assert shape.numel() <= 4, finding.example
            if finding.title not in ("finite differences", "float32"):  # those are about the digits
                assert all(len(n) <= 5 for n in re.findall(r"[\d.]+", rows)), finding.example


def test_every_check_of_a_plain_loss_is_shown_to_fail():
    titles = {f.title for f in report("right").findings}
    broken = {title for found in EXPECTED.values() for title, verdict in found.items() if verdict == "breaks"}
    # How lengths enter is a choice, whatever they do.
    assert titles - broken == {"length"}


class TestWhatIsSaid:
    def said(self, name, title):
        return next(f for f in report(name).findings if f.title == title)

    @pytest.mark.parametrize(
        ("name", "size"),
        [
            ("token_mean", "the decisions of its own"),
            ("row_mean", "the rows of its own"),
            ("row_mean_of_occupied", "the rows that hold decisions of its own"),
            ("unguarded", "the decisions of its own"),
        ],
    )
    def test_the_normaliser_is_named(self, name, size):
        assert size in self.said(name, "micro-batches").said

    def test_what_a_token_mean_costs_by_hand(self):
        """One row at a time, averaged: a decision of a row of n among N in R rows weighs 1 / (n R) instead of 1 / N."""
        from polopt.checks.sample_batches import random_batch

        lengths = random_batch(0).experience.lengths
        lengths = lengths[lengths > 0].double()
        factors = lengths.sum() / (len(lengths) * lengths)
        measured = self.said("token_mean", "micro-batches").measured
        assert measured["least weight"] == pytest.approx(factors.min().item())
        assert measured["most weight"] == pytest.approx(factors.max().item())

    def test_numbers_off_the_mask_are_told_from_nan(self):
        assert self.said("multiplied", "off the mask").said.endswith("other numbers there do not matter")
        assert self.said("peeking", "off the mask").said.startswith("other numbers off the mask, in advantage")

    def test_where_the_padding_stands(self):
        assert self.said("padded_mean", "padding").said.startswith("padding on the right")
        assert self.said("by_column", "padding").said.startswith("padding on the left")

    def test_cosine_and_scale_by_hand(self):
        """A sum has scale 1 and a token mean 1 over the decisions; a mean of rows is turned by their lengths."""
        from polopt.checks.sample_batches import random_batch

        batch = random_batch(0, clean=True)
        mask, A = batch.mask, torch.where(batch.mask, batch.experience.advantage, 0)
        by_row = A / mask.sum(1).clamp(min=1)[:, None]
        cosine = (A * by_row).sum() / (A.norm() * by_row.norm())
        for name, scale in (("summed", 1.0), ("token_mean", 1 / mask.sum().item())):
            measured = self.said(name, "at ratio 1").measured
            assert measured == pytest.approx({"cosine": 1.0, "scale": scale})
        found = self.said("row_mean", "at ratio 1")
        assert found.measured["cosine"] == pytest.approx(cosine.item())
        assert "1 but for the rows' lengths" in found.said

    def test_lengths_by_hand(self):
        assert self.said("row_mean", "length").measured == pytest.approx(
            {f"weight in a row of {n}": 1 / n for n in (1, 2, 4, 8)}
        )

    def test_a_mask_in_numbers_and_a_tuple_are_understood(self):
        assert "torch.tensor([[0.0, 1.0]])" in self.said("numbers", "off the mask").example
        assert not report("pair").breaks


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("tensor_out", r"tensor_out must return a scalar tensor, found a tensor of shape \[9, 8\]"),
        ("strange", "strange: argument 'wisdom' is none that a check can give; it has: .*advantage.*logp"),
        ("no_policy", "no_policy takes no log-probabilities of the policy: name one of its arguments logp"),
        ("blind", "blind returns a loss without a gradient to the log-probabilities"),
        ("falls", "falls raises KeyError on a batch of 9 rows and 8 columns: 'nowhere'"),
    ],
)
def test_what_cannot_be_checked_gets_one_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(getattr(wrong, name))


def test_old_logp_is_the_samplers_unless_both_are_asked_for():
    from polopt.checks import PlainLoss, random_batch

    batch = random_batch(0, clean=True)
    e, said = batch.experience, batch.evaluation()
    one = PlainLoss(function=lambda logp, old_logp: logp.sum()).arguments(e, said)
    both = PlainLoss(function=lambda logp, old_logp, sampling_logp: logp.sum()).arguments(e, said)
    assert one["old_logp"] is e.rollout_logp
    assert both["old_logp"] is e.old_logp
    assert both["sampling_logp"] is e.rollout_logp
