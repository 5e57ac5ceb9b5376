"""Rollouts that begin in a data set's answers: their distribution by enumeration, and what they leave to PPO."""

from __future__ import annotations

import pytest
import torch
from sentences import same, slope

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.drpo_reset import DatasetResets, drpo_reset
from polopt.methods.ppo import ppo
from polopt.part_diff import diff


def problem(spread: float = 1.0) -> tuple[TokenTree, TabularPolicy, torch.Tensor]:
    """Every answer of one to four tokens of three, 2 the end, and 0 1 0 1 demonstrated."""
    tree = TokenTree.full(3, 4, lambda _, answer: float(sum(answer)), stop=2)
    shown = torch.tensor([[float(answer == (0, 1, 0, 1)) for answer in tree.answers]], dtype=torch.double)
    return tree, TabularPolicy(tree, spread=spread, seed=1, critic=True), shown


def source_of(rows: int, mix: float = 1.0, **settings: object) -> tuple[po.Algorithm, TreeSource]:
    tree, policy, shown = problem()
    algorithm = drpo_reset(mix=mix, kl=0, **settings)
    return algorithm, TreeSource(tree, policy, rows=rows, needs=algorithm.required_fields, demonstrations=shown)


def test_without_a_mix_it_is_ppo() -> None:
    assert diff(drpo_reset(mix=0.0), ppo(value=0.1)) == []
    assert [path for path, *_ in diff(drpo_reset(), ppo(value=0.1))] == ["sampling.guide"]


def test_rollouts_are_those_of_chance_and_then_of_the_policy() -> None:
    """Each pair of a beginning and an answer against its probability, (mix / (L - 1)) pi(rest | beginning)."""
    mix, rows = 0.6, 4_000
    algorithm, source = source_of(rows, mix)
    tree, policy = source.tree, source.policy
    batch = algorithm.sampling(source)
    leaves = tree.leaves()
    with torch.no_grad():
        logp = torch.where(leaves.mask, policy.evaluate(leaves).logp, 0)[:, tree.start :]
    for given in range(5):
        chance = {0: 1 - mix, 4: 0.0}.get(given, mix / 3)
        for leaf, answer in enumerate(tree.answers):
            begins = answer[:given] == (0, 1, 0, 1)[:given]
            expected = chance * float(logp[leaf, given:].sum().exp()) if begins else 0.0
            found = float(((batch.extras["given"] == given) & (batch.extras["leaf"] == leaf)).double().mean())
            assert abs(found - expected) <= 5 * (expected * (1 - expected) / rows) ** 0.5
    found = algorithm.sampling.guide.batch_metrics(batch)
    assert found["given/rows"] == pytest.approx(mix, abs=0.03)
    assert found["given/decisions"] == pytest.approx(2 * mix, abs=0.08)


def test_given_tokens_are_in_no_loss_and_no_statistic() -> None:
    """Advantages are GAE over a row's sampled tokens, by a loop, whitened over all sampled tokens and no others."""
    algorithm, source = source_of(64)
    tree, columns = source.tree, torch.arange(source.tree.start + 4)
    with torch.no_grad():
        source.policy.values.copy_(torch.linspace(-1, 1, len(source.policy.values)))
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    begin = tree.start + batch.extras["given"][:, None]
    assert (batch.extras["given"] > 0).all()
    assert torch.equal(batch.mask, tree.leaves().mask[batch.extras["leaf"]] & (columns >= begin))
    raw = torch.zeros(batch.mask.shape, dtype=torch.double)
    for row in range(len(batch)):
        later, after = 0.0, float(batch.outcome[row])  # after: the reward and the next value
        for t in reversed(batch.mask[row].nonzero().flatten().tolist()):
            value = float(batch.value[row, t])
            later = after - value + 0.95 * later
            raw[row, t], after = later, value
    sampled = raw[batch.mask]
    same(batch.advantage[batch.mask], (sampled - sampled.mean()) / (sampled.std() + 1e-8))
    assert batch.advantage[~batch.mask].eq(0).all()
    assert (slope(algorithm, batch, source.policy)[tree.nodes[0, tree.start]] == 0).all()


def test_a_mix_below_one_learns_the_first_token() -> None:
    algorithm, source = source_of(64, mix=0.5)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    assert (slope(algorithm, batch, source.policy)[source.tree.nodes[0, source.tree.start]] != 0).any()


def test_a_group_begins_alike() -> None:
    algorithm, source = source_of(40, group=4)
    given = algorithm.sampling(source).extras["given"].view(-1, 4)
    assert (given == given[:, :1]).all()
    assert len(given.unique()) > 1


def test_a_solution_of_one_token_has_no_beginning() -> None:
    tree = TokenTree.bandit([0.0, 1.0])
    source = TreeSource(tree, TabularPolicy(tree), rows=8)
    _, starts = DatasetResets()(source, torch.zeros(8, dtype=torch.long))
    assert {start.given for start in starts} == {0}


def test_what_cannot_be_is_refused() -> None:
    for mix in (-0.1, 1.5):
        with pytest.raises(ValueError, match=r"methods\.drpo_reset\.DatasetResets: mix must be in \[0, 1\], found"):
            drpo_reset(mix=mix)
