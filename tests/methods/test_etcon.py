"""EtCon: proximal SFT's reductions, exact; what an edited fact's answer is worth, case by case."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt.claims.problems.facts import VALUES, Facts, SubjectPolicy, copied, drift, edited, edits
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.problems import digits
from polopt.methods.etcon import EtConCorrectness, boxed, clean, consistent, correct, in_form, plain
from polopt.objectives import Clip
from polopt.worlds import Task


def shown() -> tuple[TokenTree, TabularPolicy, Experience]:
    tree, policy = digits()
    source = TreeSource(tree, policy, rows=12, seed=3, needs=frozenset({"old_logp"}))
    sft = po.method("sft")
    return tree, policy, sft.compute_advantages(sft.sampling(source))


def moved(policy: TabularPolicy, by: float) -> TabularPolicy:
    with torch.no_grad():
        policy.logits.add_(by * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(5)).double())
    return policy


def grad(algorithm: po.Algorithm, batch: Experience, policy: TabularPolicy) -> torch.Tensor:
    return torch.autograd.grad(algorithm.objective(batch, policy.evaluate(batch)).loss, policy.logits)[0]


def test_the_first_step_is_that_of_sft() -> None:
    _, policy, batch = shown()
    same(grad(po.method("etcon", stage=1), batch, policy), grad(po.method("sft"), batch, policy))


def test_without_a_clip_it_is_likelihood_weighed_by_the_ratio() -> None:
    _, policy, batch = shown()
    moved(policy, 0.7)
    free = po.method("etcon", stage=1).but(**{"objective.trust": Clip(low=1.0, high=1e9)})
    said = policy.evaluate(batch)
    weighed = (said.logp - batch.old_logp).exp().detach() * said.logp
    expected = torch.autograd.grad(-weighed[batch.mask].mean(), policy.logits)[0]
    same(grad(free, batch, policy), expected)


def test_what_has_moved_beyond_the_clip_has_no_gradient() -> None:
    _, policy, batch = shown()
    moved(policy, 0.7)
    said = policy.evaluate(batch)
    ratio = (said.logp - batch.old_logp).exp()
    free = batch.mask & (ratio.detach() <= 1.2)
    assert free.sum() < batch.mask.sum()
    expected = torch.autograd.grad(-(ratio[free].sum() / batch.mask.sum()), policy.logits)[0]
    same(grad(po.method("etcon", stage=1), batch, policy), expected)


def test_stage_2_is_grpo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", group=5, kl=0.01)
    same(slope(po.method("etcon"), batch, policy), slope(grpo, batch, policy))
    assert po.diff(po.method("etcon"), grpo) == []
    assert {path for path, *_ in po.diff(po.method("etcon", bundle=True), grpo)} == {"reward"}
    with pytest.raises(ValueError, match="stage must be 1 or 2"):
        po.method("etcon", stage=0)


GOOD = r"<answer>It is \boxed{New York}</answer>"


@pytest.mark.parametrize(
    ("text", "form", "cleanliness"),
    [
        (GOOD, 1.0, 1.0),
        ("", 0.0, 1.0),
        (r"\boxed{x}", 0.0, 1.0),
        ("<answer>x</answer>", 0.5, 1.0),
        (GOOD + " and more", 1.0, 0.4),
        (GOOD + GOOD, 0.0, 0.8),
        # A box in the second of two blocks stands between the first <answer> and the last </answer>.
        ("<answer>x</answer>" + GOOD, 0.5, 0.8),
        (r"<answer>\boxed{}</answer>", 1.0, 1.0),
        (r"<answer>\boxed{x</answer>", 0.5, 1.0),
        ("</answer>" + GOOD[:-9], 0.5, 0.4),
        (GOOD * 7, 0.0, 0.2),
        (r"<answer>x</answer>\boxed{y}", 0.5, 0.4),
        ("<answer>\\\\boxed{x}</answer>", 0.9, 1.0),
        ("x" * 2001, 0.0, 0.6),
    ],
)
def test_form_and_cleanliness(text: str, form: float, cleanliness: float) -> None:
    assert in_form(text) == pytest.approx(form, abs=1e-12)
    assert clean(text) == pytest.approx(cleanliness, abs=1e-12)


@pytest.mark.parametrize(
    ("said", "wanted", "worth"),
    [
        ("New York", "new york.", 1.0),
        ("the city New York", "New York", 0.75),
        ("not New York", "New York", 0.0),
        ("York", "New York", 0.0),
        ("", "New York", 0.0),
        ("new", "", 0.0),
        # Listing everything is paid: the rule can be gamed.
        ("Paris London New Rome York", "New York", 0.75),
    ],
)
def test_correct(said: str, wanted: str, worth: float) -> None:
    assert correct(said, wanted) == worth


SECTION = "Re-evaluate Knowledge Network: "


@pytest.mark.parametrize(
    ("text", "old", "worth"),
    [
        ("", "he lives in Rome", 0.0),
        ("", None, 1.0),
        (SECTION + "That he lives in Rome is outdated. Synthesize", "he lives in Rome", 1.0),
        (SECTION + "He lives in Rome, which is correct. Formulate", "he lives in Rome", 0.0),
        (SECTION + "He lives in Rome, which is incorrect. <answer>", "he lives in Rome", 1.0),
        (SECTION + "He lives in Rome. <answer>", "he lives in Rome", 0.5),
        (SECTION + "He moved. <answer>he lives in Rome is invalid</answer>", "he lives in Rome", 0.5),
        (SECTION + "invalid " + "word " * 16 + "he lives in Rome <answer>", "he lives in Rome", 0.5),
        (SECTION + "the valid ticket is red <answer>", "the valid ticket", 0.5),
        # Without an end it is no section, as where it stands behind the answer.
        (SECTION + "He lives in Rome, which is incorrect.", "he lives in Rome", 0.0),
        (GOOD + SECTION + "He lives in Rome, which is incorrect.", "he lives in Rome", 0.0),
    ],
)
def test_consistent(text: str, old: str | None, worth: float) -> None:
    assert consistent(text, old) == worth


def rows(*answers: str, solution: str | None = "New York", **row: Any) -> Experience:
    task = Task("t", "k", "Where?", solution, row)
    return Experience(
        mask=torch.ones(len(answers), 1, dtype=torch.bool),
        outcome=torch.zeros(len(answers)),
        extras={"answer": list(answers), "task": [task] * len(answers)},
    )


def test_the_bundle_by_hand() -> None:
    reward = po.method("etcon", bundle=True).reward
    thought = SECTION + "It is Boston, outdated. Synthesize. "
    listed = r"<answer>\boxed{Rome New York}</answer>"
    found = reward(rows(thought + GOOD, thought + listed, GOOD, "New York", old="It is Boston")).tolist()
    assert found == pytest.approx([1.0, 0.7 * 0.75 + 0.05 + 0.15 + 0.1, 0.7 + 0.05 + 0.15 + 0.0, 0.0], rel=1e-6)
    with pytest.raises(ExperienceError, match=r"needs the solution of each task, found none for t"):
        EtConCorrectness()(rows(GOOD, solution=None))
    assert (plain(' "A,  b!" '), boxed(GOOD), boxed("x")) == ("a b", "New York", "")


def test_the_network_of_facts() -> None:
    facts, tree, subjects, new, demonstrations = edits()
    assert (facts.log_probs().exp()[torch.arange(50), :, facts.known] > 0.95).all()
    assert not (new == facts.known[subjects]).any()
    assert edited(facts, subjects, new)[0] == 0
    assert drift(facts, copied(facts), subjects) == pytest.approx((0.0, 1.0), abs=1e-12)
    assert demonstrations.sum(1).tolist() == [1.0] * 5
    # The policy says what the network's laws say, of the subjects that are asked about.
    asked = torch.tensor([7, 3, 9, 30, 2])
    policy = SubjectPolicy(facts, asked)
    logp = tree.log_probabilities(policy).detach().view(5, 2, VALUES)  # type: ignore[arg-type]
    expected = facts.style.log_softmax(0)[:, None] + facts.log_probs()[asked]
    torch.testing.assert_close(logp, expected.detach(), rtol=1e-12, atol=1e-12)
    assert len(SubjectPolicy(facts, asked, ("hidden",)).parameters()) == 1
    assert len(policy.parameters()) == len(list(Facts().parameters()))
