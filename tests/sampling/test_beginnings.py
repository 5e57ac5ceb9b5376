"""Tasks by number, ragged groups, and how rollouts begin, on the tree: frequencies against enumeration."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.sampling import EqualRollouts, PromptAugmenter, Rollouts, Source, Start, TaskTable, UniformTasks
from polopt.sampling.parts import RolloutRequest


def tree_and_policy() -> tuple[TokenTree, TabularPolicy]:
    """Three tokens of three to each of four prompts; in prompt p the answer p p p is right."""
    tree = TokenTree.full(3, 3, lambda prompt, a: float(a == (prompt % 3,) * 3), prompts=4)
    return tree, TabularPolicy(tree, spread=1.0, seed=1)


def frequencies_fit(leaves: torch.Tensor, expected: torch.Tensor) -> None:
    n = len(leaves)
    seen = torch.bincount(leaves, minlength=len(expected)) / n
    error = (expected * (1 - expected) / n).sqrt()
    assert (seen[expected == 0] == 0).all()
    assert ((seen - expected)[expected > 0].abs() / error[expected > 0]).max() < 4.5


def test_ragged_groups() -> None:
    tree, policy = tree_and_policy()
    source = TreeSource(tree, policy, rows=8)
    batch = source.rollout(RolloutRequest(torch.tensor([3, 1, 3]), torch.tensor([2, 0, 5]), po.Support()))
    assert batch.group.tolist() == [0, 0, 2, 2, 2, 2, 2]
    assert batch.extras["index"].tolist() == [3] * 7
    assert (batch.extras["leaf"] // len(tree.answers) == 3).all()


def test_equal_copies_are_one_draw_however_they_are_given() -> None:
    tree, policy = tree_and_policy()
    one, other = (TreeSource(tree, policy, rows=8, seed=3) for _ in range(2))
    tasks = torch.arange(4)
    a, b = (
        one.rollout(RolloutRequest(tasks, 5, po.Support())),
        other.rollout(RolloutRequest(tasks, torch.full((4,), 5), po.Support())),
    )
    assert torch.equal(a.extras["leaf"], b.extras["leaf"])


def test_a_given_prefix_conditions_and_is_never_decided() -> None:
    tree, policy = tree_and_policy()
    source, n = TreeSource(tree, policy, rows=8), 20_000
    batch = source.rollout(RolloutRequest(torch.tensor([1]), n, po.Support(), starts=[Start(given=2)]))
    assert (batch.extras["given"] == 2).all()
    assert batch.mask.sum(1).tolist() == [1] * n
    assert (batch.extras["tokens"][:, tree.start : tree.start + 2] == 1).all()
    p = tree.log_probabilities(policy).exp()[1].detach()
    begins = torch.tensor([a[:2] == (1, 1) for a in tree.answers])
    expected = torch.zeros(tree.prompts, len(tree.answers), dtype=torch.double)
    expected[1] = torch.where(begins, p, 0) / p[begins].sum()
    frequencies_fit(batch.extras["leaf"], expected.flatten())
    torch.testing.assert_close(batch.rollout_logp[batch.mask].exp(), expected.flatten()[batch.extras["leaf"]])
    # One decision at least is the policy's own.
    assert (
        source.rollout(RolloutRequest(torch.tensor([1]), 4, po.Support(), starts=[Start(given=9)])).mask.sum(1).tolist()
        == [1] * 4
    )


def test_rows_with_a_given_prefix_go_on_and_stop_at_a_window() -> None:
    tree, policy = tree_and_policy()
    source = TreeSource(tree, policy, rows=8)
    batch = source.rollout(
        RolloutRequest(torch.tensor([1]), 50, po.Support(), max_decisions=1, starts=[Start(given=1)])
    )
    assert not batch.terminated.any()
    assert batch.mask.sum(1).tolist() == [1] * 50
    whole = source.extend(batch, 1)
    assert whole.terminated.all()
    assert torch.equal(whole.extras["given"], batch.extras["given"])
    assert whole.mask.sum(1).tolist() == [2] * 50
    same = whole.extras["tokens"][:, :-1] == batch.extras["tokens"][:, :-1]
    assert same.all()


def test_a_hidden_hint_is_the_behaviour_of_who_read_it() -> None:
    tree, policy = tree_and_policy()
    reader, n = TabularPolicy(tree, spread=1.5, seed=7), 20_000
    source = TreeSource(tree, policy, rows=8, hinted={"rules": reader})
    batch = source.rollout(
        RolloutRequest(torch.tensor([2]), n, po.Support(), starts=[Start(hint="rules", hidden=True)])
    )
    expected = torch.zeros(tree.prompts, len(tree.answers), dtype=torch.double)
    expected[2] = tree.log_probabilities(reader).exp()[2].detach()
    frequencies_fit(batch.extras["leaf"], expected.flatten())
    assert batch.extras["hinted"].all()
    with torch.no_grad():
        torch.testing.assert_close(
            batch.rollout_logp, torch.where(batch.mask, reader.evaluate(batch).logp, batch.rollout_logp)
        )
        torch.testing.assert_close(batch.old_logp, policy.evaluate(batch).logp)
    with pytest.raises(ValueError, match="no policy is given for the hint 'book'"):
        source.rollout(RolloutRequest(torch.tensor([2]), 1, po.Support(), starts=[Start(hint="book", hidden=True)]))


def test_a_visible_hint_is_another_prompt_of_the_same_task() -> None:
    tree, policy = tree_and_policy()
    source = TreeSource(tree, policy, rows=8, variants={"aloud": torch.tensor([3, 2, 1, 0])})
    batch = source.rollout(RolloutRequest(torch.tensor([0, 0]), 2, po.Support(), starts=[Start(hint="aloud"), Start()]))
    assert (batch.extras["leaf"] // len(tree.answers)).tolist() == [3, 3, 0, 0]
    assert batch.extras["index"].tolist() == [0] * 4


def test_rows_say_what_they_are_told_and_go_on() -> None:
    tree, policy = tree_and_policy()
    source, n = TreeSource(tree, policy, rows=8), 20_000
    row = source.rollout(RolloutRequest(torch.tensor([1]), 1, po.Support()))
    batch = source.extend(row, n, at=torch.tensor([tree.start + 1]), forced_tokens=[[2]])
    first = int(row.extras["tokens"][0, tree.start])
    p = tree.log_probabilities(policy).exp()[1].detach()
    begins = torch.tensor([a[:2] == (first, 2) for a in tree.answers])
    expected = torch.zeros(tree.prompts, len(tree.answers), dtype=torch.double)
    expected[1] = torch.where(begins, p, 0) / p[begins].sum()
    frequencies_fit(batch.extras["leaf"], expected.flatten())
    assert batch.mask[:, tree.start :].all()
    assert (batch.rollout_logp[:, tree.start] == row.rollout_logp[0, tree.start]).all()
    assert (batch.rollout_logp[:, tree.start + 1] == 0).all()  # nobody sampled it
    short = TokenTree.full(3, 2, lambda prompt, a: 0.0, stop=0)
    source = TreeSource(short, TabularPolicy(short), rows=8)
    row = source.rollout(RolloutRequest(torch.tensor([0]), 1, po.Support()))
    with pytest.raises(ValueError, match="no answer of the tree begins"):
        source.extend(row, 1, at=torch.tensor([short.start]), forced_tokens=[[0, 1]])


def test_gradient_norms_against_autograd() -> None:
    tree, policy = tree_and_policy()
    source = TreeSource(tree, policy, rows=8)
    batch = source.rollout(RolloutRequest(torch.arange(4), 3, po.Support()))
    for row, norm in zip(batch.split(1), source.gradient_norms(batch), strict=True):
        said = torch.where(row.mask, policy.evaluate(row).logp, 0).sum()
        torch.testing.assert_close(norm, torch.autograd.grad(said, policy.logits)[0].norm())


class Twice(PromptAugmenter):
    """Every task plainly and with its first decision given."""

    each = 2

    def forward(self, source: Source, tasks: torch.Tensor) -> tuple[torch.Tensor, list[Start]]:
        return tasks.repeat_interleave(2), [Start(), Start(given=1)] * len(tasks)


def test_a_guide_lists_tasks_several_times_within_the_batch() -> None:
    tree, policy = tree_and_policy()
    batch = Rollouts(group=3, guide=Twice())(TreeSource(tree, policy, rows=12))
    assert batch.group.tolist() == [g for g in range(4) for _ in range(3)]
    assert batch.extras["given"].tolist() == [0, 0, 0, 1, 1, 1] * 2
    index = batch.extras["index"].view(2, 6)
    assert (index == index[:, :1]).all()
    assert index[0, 0] != index[1, 0]


class InTwoGoes(EqualRollouts):
    """As `EqualRollouts`, bought one rollout a task first."""

    def forward(self, source, tasks, group, buy):  # type: ignore[no-untyped-def]
        parts = [buy(torch.ones_like(tasks)), buy(torch.full_like(tasks, group - 1))]
        return po.Experience.join(parts)


def test_rows_bought_one_after_the_other_stand_together() -> None:
    tree, policy = tree_and_policy()
    batch = Rollouts(group=3, choice=UniformTasks(), budget=InTwoGoes())(TreeSource(tree, policy, rows=12))
    assert batch.group.tolist() == [g for g in range(4) for _ in range(3)]


def test_a_table_is_part_of_the_state() -> None:
    table = TaskTable(right=1.0, wrong=2.0).sized(5)
    table.column("right")[3] = 7.0
    other = TaskTable(right=1.0, wrong=2.0)
    other.load_state_dict(table.state_dict())
    assert other.column("right").tolist() == [1, 1, 1, 7, 1]
    assert other.column("wrong").tolist() == [2] * 5
    assert other.sized(5) is other
    with pytest.raises(ValueError, match="record of 5 tasks does not belong to an environment of 6"):
        other.sized(6)
