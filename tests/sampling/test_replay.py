"""What a part remembers: whole, movable, resumable; and which of it is replayed."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from batches import random_batch
from sentences import same
from small_trees import stop_tree

import polopt as po
from polopt.fields import SHAPES
from polopt.lab import TabularPolicy, TreeSource, training
from polopt.lab.problems import digits
from polopt.methods.remix import CentredClip
from polopt.objectives import Clip, ReferenceKL, SequenceRatio, Surrogate, TokenRatio
from polopt.sampling import EntropyTemperature, MixedGroups, Replay, Rollouts
from polopt.sampling.batch_buffer import BatchBuffer, packed, unpacked
from polopt.schedules import Schedule
from polopt.support import ByEntropy


def equal(a: po.Experience, b: po.Experience) -> None:
    for name in SHAPES:
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        assert x is None or (torch.equal(x, y) and x.dtype == y.dtype), name
    assert (a.support, a.horizon) == (b.support, b.horizon)


def batch_of(seed: int, rows: int) -> po.Experience:
    batch = random_batch(seed, B=rows, T=5 + seed, clean=True).experience
    extras = {"tokens": torch.arange(rows)[:, None].expand(rows, 5 + seed).clone()}
    return batch.replace(support=po.Support(temperature=0.7, top_k=3, top_p=0.95), extras=extras)


def test_a_batch_survives_being_packed() -> None:
    batch = batch_of(0, 9)
    tensors = packed(batch)
    assert all(isinstance(v, torch.Tensor) for v in tensors.values())
    again = unpacked(tensors)
    equal(again, batch)
    assert torch.equal(again.extras["tokens"], batch.extras["tokens"])
    assert "answer" not in again.extras
    # Copies: what happens to the batch later does not reach what was kept, and no two share their memory.
    assert not {v.data_ptr() for v in tensors.values()} & {batch.rollout_logp.data_ptr(), batch.outcome.data_ptr()}
    assert len({v.data_ptr() for v in tensors.values()}) == len(tensors)
    rule = ByEntropy(0.05, -1.5, -0.1, 0.7, released=True)
    other = dataclasses.replace(batch, horizon=None, support=po.Support(temperature=0.9, by_entropy=rule))
    equal(unpacked(packed(other)), other)


def test_memory_is_state_of_any_shape() -> None:
    memory, batches = BatchBuffer(), [batch_of(0, 9), batch_of(1, 12)]
    assert memory.batches() == []
    memory.keep(batches)
    state = {k: v.clone() for k, v in memory.state_dict().items()}
    for other in (BatchBuffer(), copy.deepcopy(memory)):
        other.keep([batch_of(2, 10)])  # another number of batches, other shapes: all of it goes
        other.load_state_dict(state)
        for found, expected in zip(other.batches(), batches, strict=True):
            equal(found, expected)
    memory.keep([])
    assert memory.batches() == []
    assert list(memory.state_dict()) == ["count"]
    single = BatchBuffer()
    single.keep(batches)
    single.to(torch.float32)
    assert single.batches()[0].rollout_logp.dtype == torch.float32
    assert torch.equal(single.batches()[0].group, batches[0].group)


def source_of(seed: int = 0, rows: int = 24) -> tuple[TreeSource, TabularPolicy]:
    tree, policy = digits()
    needs = frozenset({"value", "prev_logp", "entropy"})
    return TreeSource(tree, policy, rows=rows, seed=seed, reference=TabularPolicy(tree), needs=needs), policy


def test_rows_come_back_as_they_were_sampled_and_are_judged_anew() -> None:
    source, policy = source_of()
    part = Replay(group=4, share=0.7, batches=3)
    known: dict[int, list[tuple[tuple[float, ...], ...]]] = {}
    seen = set()
    for step in range(30):
        source.refresh()
        batch = part(source)
        assert len(batch) == 24
        groups = [batch[batch.group == g] for g in batch.group.unique()]
        assert [len(g) for g in groups] == [4] * 6
        fresh = batch[batch.extras["age"] == 0]
        assert len(fresh) >= 4
        torch.testing.assert_close(fresh.rollout_logp, fresh.old_logp, rtol=0, atol=0)
        known[step] = [signature(g) for g in groups if g.extras["age"][0] == 0]
        old = [g for g in groups if g.extras["age"][0] > 0]
        for g in old:
            (age,) = set(g.extras["age"].tolist())
            assert signature(g) in known[step - age]
            seen.add(age)
            now = policy.evaluate(g).logp
            same(g.old_logp[g.mask], now[g.mask].detach())
            assert (g.rollout_logp - g.old_logp)[g.mask].abs().max() > 1e-6
        with torch.no_grad():
            policy.logits.add_(0.3 * torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(step)))
    assert seen == {1, 2, 3}


def signature(group: po.Experience) -> tuple[tuple[float, ...], ...]:
    """Who sampled what: leaves and the sampler's log-probabilities and entropies."""
    logp, entropy = (torch.where(group.mask, x, 0).sum(1).tolist() for x in (group.rollout_logp, group.entropy))
    return tuple(group.extras["leaf"].tolist()), tuple(logp), tuple(entropy)


def test_share_of_replayed_groups_and_what_it_costs() -> None:
    source, _ = source_of(rows=400)
    part = Replay(group=4, share=0.3)
    ages = [part(source).extras["age"] for _ in range(41)][1:]
    old = torch.cat(ages) > 0
    assert old.double().mean().item() == pytest.approx(0.3, abs=3 * (0.3 * 0.7 / (40 * 100)) ** 0.5)
    assert source.drawn == 400 + (~old).sum()
    # Of the last two batches alike. Newer ones hold as many new groups as older ones, on average.
    both = torch.cat(ages)[4:]
    assert (both == 1).sum().item() == pytest.approx((both == 2).sum().item(), rel=0.15)


def test_a_group_comes_at_most_once_and_one_is_always_new() -> None:
    source, _ = source_of(rows=24)
    part, kept = Replay(group=4, share=1.0), [0, 0]
    for _ in range(8):
        ages = part(source).extras["age"]
        replayed = min(5, sum(kept))  # all that there is, but for one new group
        assert (ages > 0).sum() == 4 * replayed
        kept = [6 - replayed, kept[0]]
        assert len(ages) == 24


def test_share_0_is_rollouts_number_for_number() -> None:
    for share in (0.0, Schedule(knots=[(0, 0.0)])):
        (one, _), (two, _) = source_of(3), source_of(3)
        replay, plain = Replay(group=4, share=share, select=[MixedGroups()]), Rollouts(group=4, select=[MixedGroups()])
        for _ in range(3):
            equal(replay(one), plain(two))
        assert torch.equal(one.generator.get_state(), two.generator.get_state())


def test_a_schedule_ends_replay() -> None:
    source, _ = source_of()
    part = Replay(group=4, share=Schedule(knots=[(0, 0.8), (4, 0.0)], shape="step"))
    old = []
    for _ in range(8):
        old.append(bool((part(source).extras["age"] > 0).any()))
        part.step()
    assert old[1:4] == [True] * 3
    assert old[4:] == [False] * 4


def test_replay_resumes_bit_for_bit() -> None:
    """Into a part built from YAML, with the source's generator: the same rows of the same ages."""
    (through, _), (stopped, _) = source_of(5), source_of(5)
    one, two = Replay(group=4, share=0.5), Replay(group=4, share=0.5)
    for _ in range(3):
        one(through), two(stopped)
    resumed, (later, _) = po.from_yaml(two.to_yaml()), source_of(9)
    resumed.load_state_dict(two.state_dict())
    later.generator.set_state(stopped.generator.get_state())
    later._queue = list(stopped._queue)
    for _ in range(3):
        a, b = one(through), resumed(later)
        equal(a, b)
        assert torch.equal(a.extras["age"], b.extras["age"])


def test_memory_stands_still_outside_training() -> None:
    source, _ = source_of()
    part = Replay(group=4).eval()
    part(source)
    assert part.memory.batches() == []


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], found 1.5"):
        Replay(share=1.5)
    with pytest.raises(ValueError, match="batches must be >= 1, found 0"):
        Replay(batches=0)
    with pytest.raises(ValueError, match="low >= 0"):
        CentredClip(low=-0.1)
    with pytest.raises(ValueError, match=r"reference_tau must be in \[0, 1\], found 2"):
        po.Algorithm(reference_tau=2)


@pytest.mark.parametrize("seed", range(4))
def test_centred_clip_case_by_case(seed: int) -> None:
    batch = random_batch(seed, clean=True)
    e, v = batch.experience, batch.evaluation()
    terms, held = CentredClip(low=0.1, high=0.3)(TokenRatio()(e, v), e, v)
    stopped = 0
    for i, t in e.mask.nonzero().tolist():
        r = (v.logp[i, t] - e.rollout_logp[i, t]).exp().item()
        r0 = (e.old_logp[i, t] - e.rollout_logp[i, t]).exp().item()
        A = e.advantage[i, t].item()
        inside = min(max(r, r0 - 0.1), r0 + 0.3)
        assert terms[i, t].item() == pytest.approx(max(-A * r, -A * inside), abs=1e-12)
        assert bool(held[i, t]) == (-A * inside > -A * r)
        stopped += int(held[i, t])
    assert 0 < stopped < e.mask.sum()


def test_centred_clip_is_clip_on_rows_of_the_learner() -> None:
    batch = random_batch(1, clean=True)
    fresh = batch.experience.replace(rollout_logp=batch.experience.old_logp)
    for ratio in (TokenRatio(), SequenceRatio()):
        centred = Surrogate(ratio=ratio, trust=CentredClip(centre=ratio))
        same(
            centred(fresh, batch.evaluation()).loss,
            Surrogate(ratio=ratio, trust=Clip())(fresh, batch.evaluation()).loss,
        )


def test_a_reference_follows_as_told() -> None:
    """Renewed after 2 batches, then left; or an average of the past."""
    tree, policy = digits()
    renewed = po.method("grpo", group=4, kl=0.1).but(
        reference_tau=Schedule(knots=[(0, 0.0), (2, 1.0), (3, 0.0)], shape="step")
    )
    reference = TabularPolicy(tree, spread=0.7, seed=3, critic=True)
    start, past = reference.logits.detach().clone(), []
    loop = training(renewed, tree, policy, rate=0.5, rows=4, reference=reference)
    for k in range(4):
        next(loop)
        past.append(policy.logits.detach().clone())
        assert torch.equal(reference.logits, start if k == 0 else past[1])
    tree, policy = digits()
    reference = TabularPolicy(tree, spread=0.7, seed=3, critic=True)
    loop = training(renewed.but(reference_tau=0.25), tree, policy, rate=0.5, rows=4, reference=reference)
    expected = start
    for _ in range(4):
        next(loop)
        expected = 0.75 * expected + 0.25 * policy.logits.detach()
        torch.testing.assert_close(reference.logits.detach(), expected, rtol=1e-12, atol=1e-14)


def test_the_previous_policy_is_that_of_one_batch_earlier() -> None:
    tree, policy = digits()
    sentence = po.method("grpo", group=4, kl=0.1).but(**{"objective.regularise": [ReferenceKL(anchor="previous")]})
    assert "ref_logp" not in sentence.required_fields
    past = [copy.deepcopy(policy), copy.deepcopy(policy)]  # before the first batch it is its own past
    loop = training(sentence, tree, policy, rate=0.5, rows=4, epochs=2)
    for _ in range(4):
        batch, _ = next(loop)
        mask = batch.mask
        torch.testing.assert_close(batch.prev_logp[mask], past[-2].evaluate(batch).logp[mask].detach())
        torch.testing.assert_close(batch.old_logp[mask], past[-1].evaluate(batch).logp[mask].detach())
        past.append(copy.deepcopy(policy))


def test_two_anchors_pull_towards_their_mixture() -> None:
    """Against the exact gradient of w KL(pi || reference) + (1 - w) KL(pi || previous), listed over a one-token tree,
    although another policy sampled."""
    tree = po.lab.TokenTree.bandit([0.0, 0.0, 0.0])
    policy, reference, previous, sampler = (TabularPolicy(tree, spread=0.7, seed=s) for s in range(4))
    leaves, w, beta = tree.leaves(), 0.7, 0.3
    odds = tree.log_probabilities(sampler).detach().exp().flatten()
    said = {
        name: p.evaluate(leaves).logp.detach()
        for name, p in {
            "rollout_logp": sampler,
            "old_logp": policy,
            "ref_logp": reference,
            "prev_logp": previous,
        }.items()
    }
    # Rows repeated as often as the sampler draws them: weights through the mean over many copies.
    rows = torch.repeat_interleave(torch.arange(3), (odds * 100_000).round().long())
    batch = leaves.replace(**said)[rows].replace(advantage=torch.zeros(len(rows), leaves.mask.shape[1]).double())
    sentence = po.method("remix", kl=beta, restart=None).objective.but(
        **{"regularise.0.coefficient": beta * w, "regularise.1.coefficient": beta * (1 - w)}
    )
    found = torch.autograd.grad(sentence(batch, policy.evaluate(batch)).loss, policy.logits)[0]
    exact = beta * (w * tree.kl(policy, reference) + (1 - w) * tree.kl(policy, previous))
    torch.testing.assert_close(found, torch.autograd.grad(exact, policy.logits)[0], rtol=1e-3, atol=1e-5)


def test_remix_without_its_changes_is_grpo() -> None:
    tree, found = stop_tree(), []
    for sentence in (
        po.method("remix", group=4, share=0.0, restart=None),
        po.method("grpo", group=4).but(**{"objective.regularise.0.ratio": TokenRatio()}),
    ):
        policy = TabularPolicy(tree, spread=0.5, seed=2)
        loop = training(sentence, tree, policy, rate=0.5, rows=4, seed=1, reference=TabularPolicy(tree))
        for _ in range(3):
            next(loop)
        found.append(policy.logits.detach())
    same(*found)


def test_advantages_of_replayed_rows_come_from_their_own_group() -> None:
    source, _ = source_of()
    algorithm = po.method("remix", group=4, share=0.7, kl=0.0)
    for _ in range(4):
        batch = algorithm.compute_advantages(algorithm.sampling(source))
    assert (batch.extras["age"] > 0).any()
    for g in batch.group.unique():
        mine = batch[batch.group == g]
        expected = (mine.outcome - mine.outcome.mean()) / (mine.outcome.std() + 1e-6)
        torch.testing.assert_close(mine.advantage[mine.mask], expected[:, None].expand_as(mine.mask)[mine.mask])


@pytest.mark.parametrize(
    "settings",
    [{"adapt": EntropyTemperature()}, {"support": po.Support(by_entropy=ByEntropy(0.1, -1.0, 0.0, 1.0))}],
    ids=str,
)
def test_temperatures_of_single_decisions_are_not_kept(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="Replay: memory holds no temperatures"):
        Replay(**settings)
