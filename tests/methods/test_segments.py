"""Values inside rows: cuts and their credit, trees of rollouts, what is in doubt. Against walks in plain Python."""

from __future__ import annotations

import pytest
import torch
from batches import random_batch
from sentences import same, slope
from small_trees import stop_tree

import polopt as po
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.methods.spo import SegmentAdvantage, SegmentRollouts
from polopt.methods.spo_tree import TreeRollouts
from polopt.sampling import NonZeroAdvantage, Rollouts, UncertainTokens


class Counting(TreeSource):
    """Notes what it was asked to go on from."""

    def extend(
        self, experience: po.Experience, copies: int, max_decisions: int | None = None, at: torch.Tensor | None = None
    ):  # type: ignore[no-untyped-def]
        self.asked = getattr(self, "asked", 0) + len(experience)
        return super().extend(experience, copies, max_decisions, at)


def source_of(tree: TokenTree, rows: int = 48, spread: float = 1.5) -> Counting:
    return Counting(tree, TabularPolicy(tree, spread=spread, seed=3), rows=rows, seed=1, reference=None)


@pytest.mark.parametrize(("threshold", "interval"), [(0.9, 1), (0.9, 2), (0.6, 3), (1.01, 1)])
def test_cuts_row_by_row(threshold: float, interval: int) -> None:
    tree = TokenTree.full(3, 5, lambda p, a: float(sum(a) % 3 == 0), stop=2, prompts=2)
    batch = SegmentRollouts(group=8, threshold=threshold, interval=interval, rollouts=2)(source_of(tree))
    for b in range(len(batch)):
        expected, count = [], 0
        for t in batch.mask[b].nonzero().flatten().tolist():
            if batch.rollout_logp[b, t].exp().item() < threshold:
                if count % interval == 0:
                    expected.append(t)
                count += 1
        assert batch.extras["cut"][b].nonzero().flatten().tolist() == expected
    assert (batch.extras["cut_value"][~batch.extras["cut"]] == 0).all()
    assert 0 < batch.extras["cut"].sum() < batch.mask.sum() or threshold > 1


def test_values_at_cuts_are_unbiased_and_states_share_them() -> None:
    tree = stop_tree()
    source, n = source_of(tree, rows=8), 2000
    batch = SegmentRollouts(group=4, interval=1, rollouts=n)(source)
    exact = tree.state_values(source.policy)[batch.extras["leaf"]]
    cut, value = batch.extras["cut"], batch.extras["cut_value"]
    assert ((value - exact)[cut].abs() < 5 * 0.6 / n**0.5).all()
    states: dict[tuple[int, ...], set[float]] = {}
    for b, t in cut.nonzero().tolist():
        key = (int(batch.group[b]), *batch.extras["tokens"][b, :t].tolist())
        states.setdefault(key, set()).add(value[b, t].item())
    assert all(len(found) == 1 for found in states.values())
    assert source.asked == len(states) < cut.sum()


def test_a_batch_without_doubt_asks_for_nothing() -> None:
    source = source_of(stop_tree())
    batch = SegmentRollouts(group=4, threshold=1e-9)(source)
    assert not batch.extras["cut"].any()
    assert not hasattr(source, "asked")
    assert SegmentAdvantage()(batch).count_nonzero() == 0


@pytest.mark.parametrize("seed", range(5))
def test_credit_between_cuts_by_hand(seed: int) -> None:
    e = random_batch(seed, B=18).experience
    g = torch.Generator().manual_seed(seed)
    cut = torch.rand(e.mask.shape, generator=g) < 0.4  # off the mask too, where nobody may look
    value = torch.rand(e.mask.shape, generator=g).double()
    found = SegmentAdvantage()(e.replace(extras={"cut": cut, "cut_value": value}))
    for b in range(len(e)):
        columns = e.mask[b].nonzero().flatten().tolist()
        cuts = [t for t in columns if cut[b, t]]
        for t in columns:
            before = [c for c in cuts if c <= t]
            after = [c for c in cuts if c > t]
            expected = 0.0
            if before:
                following = value[b, after[0]].item() if after else e.outcome[b].item()
                expected = following - value[b, before[-1]].item()
            assert found[b, t].item() == pytest.approx(expected, abs=1e-12)


def test_exact_values_give_exact_token_advantages() -> None:
    """A cut before every token, with the perfect critic: Q - V, whose mean over tokens is 0."""
    tree = TokenTree.full(3, 4, lambda p, a: float(sum(a) % 3 == 0), stop=2)
    policy = TabularPolicy(tree, spread=1.0, seed=4)
    leaves, values = tree.leaves(), tree.state_values(policy)
    found = SegmentAdvantage()(leaves.replace(extras={"cut": leaves.mask, "cut_value": values}))
    odds = tree.log_probabilities(policy).exp().flatten().detach()
    for t in range(tree.start, leaves.mask.shape[1]):
        on = leaves.mask[:, t]
        mean = torch.zeros(len(tree.choices)).double().index_add(0, tree.nodes[on, t], (odds[:, None] * found)[on, t])
        assert mean.abs().max() < 1e-12
    assert found.abs().max() > 0.1


def test_one_segment_is_a_baseline_of_fresh_rollouts() -> None:
    """An interval beyond the row's length leaves one cut at the first token: R - V(prompt) on every token."""
    source = source_of(stop_tree())
    batch = SegmentRollouts(group=4, threshold=1.01, interval=99, rollouts=64)(source)
    found = SegmentAdvantage()(batch)
    start = source.tree.start
    expected = (batch.outcome - batch.extras["cut_value"][:, start])[:, None].expand_as(found)
    same(found[batch.mask], expected[batch.mask])
    for g in batch.group.unique():
        assert len(batch.extras["cut_value"][batch.group == g][:, start].unique()) == 1


def grown(factors: tuple[int, ...], window: int = 2, rows: int = 60, tree: TokenTree | None = None) -> po.Experience:
    tree = tree or TokenTree.full(3, 6, lambda p, a: float(sum(a) % 3 == 0), stop=2, prompts=3)
    return TreeRollouts(factors=factors, window=window)(source_of(tree, rows, spread=0.7))


def test_a_tree_of_rollouts_node_by_node() -> None:
    batch = grown((4, 3, 2), rows=3 * (4 + 12 + 24))
    tokens, mask = batch.extras["tokens"], batch.mask
    # Every edge as its path of tokens: prompt, then what was decided up to its end.
    paths = [tuple(tokens[b, : int(mask[b].nonzero().max()) + 1].tolist()) for b in range(len(batch))]
    begins = [int(mask[b].nonzero().min()) for b in range(len(batch))]
    level = batch.extras["level"].tolist()
    children: dict[int, list[int]] = {}
    for b in range(len(batch)):
        assert mask[b, begins[b] : len(paths[b])].all()
        assert len(paths[b]) - begins[b] <= 2 or level[b] == 2
        if level[b] == 0:
            assert begins[b] == 1
        else:
            # Its siblings go on from one open node, the same for all of them.
            mates = [c for c in range(len(batch)) if batch.group[c] == batch.group[b]]
            assert len(mates) == (4, 3, 2)[level[b]]
            assert {paths[c][: begins[c]] for c in mates} == {paths[b][: begins[b]]}
            children.setdefault(level[b], []).append(b)
    # Level by level, open nodes and sibling groups come in the same order.
    for depth in (0, 1):
        nodes = [b for b in range(len(batch)) if level[b] == depth and not batch.terminated[b]]
        below = [b for b in range(len(batch)) if level[b] == depth + 1]
        groups = [below[i : i + (3, 2)[depth]] for i in range(0, len(below), (3, 2)[depth])]
        assert len(groups) == len(nodes)
        for node, group in zip(nodes, groups, strict=True):
            assert {paths[c][: begins[c]] for c in group} == {paths[node]}
            mean = sum(batch.outcome[c].item() for c in group) / len(group)
            assert batch.outcome[node].item() == pytest.approx(mean, abs=1e-12)
    assert batch.terminated[torch.tensor(level) == 2].all()
    assert any(batch.terminated[b] for b in range(len(batch)) if level[b] == 0)
    ended = batch.terminated & (batch.extras["level"] < 2)
    leaf_worth = torch.tensor([float(sum(p[1:]) % 3 == 0) for p in paths]).double()
    same(batch.outcome[ended], leaf_worth[ended])
    assert torch.equal(batch.reward, batch.outcome)


def test_edges_hold_each_sampled_decision_once() -> None:
    tree = TokenTree.full(2, 6, lambda p, a: float(sum(a) >= 3))
    source = source_of(tree, rows=100)
    batch = TreeRollouts(factors=(3, 2, 2), window=2)(source)
    assert int(batch.mask.sum()) == source.decided == (100 // 21) * 2 * 21
    assert (batch.lengths == 2).all()
    assert (batch.extras["level"].bincount() == torch.tensor([12, 24, 48])).all()


def test_a_tree_of_depth_one_is_a_group_with_its_mean() -> None:
    tree = stop_tree()
    one, two = source_of(tree, rows=12), source_of(tree, rows=12)
    branches, rollouts = TreeRollouts(factors=(6,))(one), Rollouts(group=6)(two)
    assert torch.equal(branches.extras["leaf"], rollouts.extras["leaf"])
    same(po.method("spo-tree").credit(branches), po.method("dr-grpo").credit(rollouts))


def test_the_authors_two_modes() -> None:
    batch = grown((4, 3))
    advantage = {"rloo": po.method("spo-tree").credit(batch)}
    grpo = po.method("spo-tree").but(**{"credit.scale": GroupStd(correction=0, eps=1e-8)})
    advantage["grpo"] = grpo.credit(batch)
    for g in batch.group.unique():
        mine = batch.group == g
        worth = batch.outcome[mine]
        centred = worth - worth.mean()
        scaled = centred / (worth.std(correction=0) + 1e-8)
        for name, expected in (("rloo", centred), ("grpo", scaled)):
            found = advantage[name][mine].amax(1) + advantage[name][mine].amin(1)
            torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_only_what_was_in_doubt_learns() -> None:
    tree = stop_tree()
    algorithm = po.method("spo", group=8, threshold=0.7, interval=1)
    source = source_of(tree)
    batch = algorithm.with_advantages(algorithm.sampling(source))
    chosen = algorithm.filtered(batch)
    doubt = batch.mask & (batch.rollout_logp.exp() < 0.7)
    assert torch.equal(chosen.mask, doubt)
    assert 0 < doubt.sum() < batch.mask.sum()
    # By hand: the mean of -A d logp over the tokens in doubt, on policy.
    policy = source.policy
    said = policy.evaluate(batch).logp
    expected = torch.autograd.grad(-(batch.advantage * said)[doubt].sum() / doubt.sum(), policy.logits)[0]
    found = torch.autograd.grad(algorithm.objective(chosen, policy.evaluate(chosen)).loss, policy.logits)[0]
    same(found, expected)


def test_rows_without_advantage_leave() -> None:
    e = random_batch(0).experience
    advantage = torch.where(torch.arange(len(e)) % 2 == 0, 0.0, e.advantage.T).T
    found = NonZeroAdvantage()(e.replace(advantage=advantage))
    assert found.extras["row"].tolist() == [1, 3, 5, 7]


def test_in_doubt_keeps_context_as_context() -> None:
    e = random_batch(1, clean=True).experience
    found = UncertainTokens(threshold=0.3)(e)
    assert torch.equal(found.mask, e.mask & (e.rollout_logp.exp() < 0.3))
    assert torch.equal(found.rollout_logp, e.rollout_logp)


def test_the_gradient_of_a_chain_is_unbiased() -> None:
    """With every token in doubt, its own segment, and nothing clipped: the mean over batches is the exact gradient per
    token."""
    tree = TokenTree.full(2, 3, lambda p, a: float(sum(a) >= 2))
    policy = TabularPolicy(tree, spread=0.7, seed=1)
    algorithm = po.method("spo", group=16, threshold=1.01, interval=1, rollouts=3)
    source = TreeSource(tree, policy, rows=64, seed=2)
    slopes = torch.stack([slope(algorithm, algorithm.sampling(source), policy).flatten() for _ in range(300)])
    exact = torch.autograd.grad(tree.value(policy), policy.logits)[0].flatten() / 3  # a mean over three tokens
    error = slopes.std(0) / len(slopes) ** 0.5 + 1e-12
    assert (((-slopes.mean(0) - exact) / error).abs() < 4).all()
    assert exact.abs().max() > 5 * error.max()


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="need interval >= 1 and rollouts >= 1, found 0 and 9"):
        SegmentRollouts(interval=0)
    with pytest.raises(ValueError, match=r"need factors >= 1, one a level, and window >= 1, found \[\] and 600"):
        TreeRollouts(factors=())
    e = random_batch(0).experience
    with pytest.raises(po.ExperienceError, match=r"methods.spo.SegmentAdvantage needs experience.extras\['cut'\]"):
        SegmentAdvantage()(e)
    assert RelativeAdvantage()(e) is not None
