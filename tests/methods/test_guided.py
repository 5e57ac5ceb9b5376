"""Rollouts that begin elsewhere, and second tries of what failed."""

from __future__ import annotations

import math

import pytest
import torch
from sentences import same, slope

import polopt as po
from polopt import Evaluation, Experience, Support
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.features.groupings import SamePrompt, SameTask
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.helped import Reading, lock, rulebook
from polopt.lab.problems import digits
from polopt.methods.policyrollout import RulePrompts
from polopt.methods.pope import SolutionPrefixes
from polopt.methods.rex_rag import MixtureRatio, RetryRollouts
from polopt.objectives import TokenRatio
from polopt.ops import NOTHING
from polopt.part_diff import diff
from polopt.sampling import Rollouts

# Beginnings of solutions --------------------------------------------------------------------------------------


def half_known(steps: int = 12, known: int = 7) -> tuple[TokenTree, TabularPolicy]:
    """A lock whose steps from `known` on the policy never misses, and whose step before it never takes."""
    tree, policy = lock(steps=steps)
    code = max(tree.answers, key=len) if steps == 1 else tree.answers[-1]
    with torch.no_grad():
        for k, right in enumerate(code):
            row = next(r for r, a in enumerate(tree.answers) if a[:k] == code[:k] and len(a) > k)
            node = tree.nodes[row, tree.start + k]
            policy.logits[node, right] = 60.0 if k >= known else (-60.0 if k == known - 1 else 0.0)
    return tree, policy


@pytest.mark.parametrize(("most", "tries", "expected"), [(1.0, 3, 7), (0.5, 3, 6), (1.0, 0, 11), (0.0, 3, 0)])
def test_the_shortest_beginning_from_which_it_works(most: float, tries: int, expected: int) -> None:
    """Twelve checkpoints: of 1.0, one a decision. Nothing shorter than 7 works; half of it is 6; one is always left."""
    tree, policy = half_known()
    source = TreeSource(tree, policy, rows=2)
    guide = SolutionPrefixes(checkpoints=12, most=most, tries=tries)
    tasks, starts = guide(source, torch.tensor([0]))
    assert tasks.tolist() == [0, 0]
    assert [s.given for s in starts] == [0, expected]
    tried = {(1.0, 3): 8, (0.5, 3): 13, (1.0, 0): 0, (0.0, 3): 13}[most, tries]
    assert source.drawn == tried * tries
    # It was found once for all.
    guide(source, torch.tensor([0]))
    assert source.drawn == tried * tries


def test_the_beginning_is_read_and_not_learned() -> None:
    tree, policy = half_known()
    source = TreeSource(tree, policy, rows=16)
    algorithm = po.method("pope", checkpoints=12, most=1.0, tries=3)
    batch = algorithm.sampling(source)
    assert batch.extras["given"].tolist() == [0] * 8 + [7] * 8
    assert batch.outcome.tolist() == [0.0] * 8 + [1.0] * 8
    assert batch.group.tolist() == [0] * 8 + [1] * 8
    guided = batch[batch.group == 1]
    assert not guided.mask[:, : tree.start + 7].any()
    assert guided.mask[:, tree.start + 7 :].all()
    # Each version has a baseline of its own: nothing is learned of either, though one pays and the other does not.
    assert (algorithm.compute_advantages(batch).advantage == 0).all()
    with torch.no_grad():
        policy.logits[tree.nodes[-1, tree.start + 9]] = torch.zeros(4, dtype=torch.double)
    source.refresh()
    found = slope(algorithm, algorithm.sampling(source), policy)
    own = {int(n) for n in tree.nodes[-1, tree.start + 7 :]}
    moved = set(found.abs().amax(1).nonzero().flatten().tolist())
    assert moved
    assert moved <= own


def test_pope_without_a_beginning_is_grpo() -> None:
    tree, policy = digits()
    pope, grpo = po.method("pope", most=0.0, tries=0), po.method("grpo", group=8, kl=0)
    assert [path for path, *_ in diff(pope, grpo)] == ["sampling.guide"]
    source = TreeSource(tree, policy, rows=64, demonstrations=tree.outcome)
    batch = pope.sampling(source)
    assert len(batch) == 64
    assert (batch.extras["given"] == 0).all()
    assert torch.equal(batch.mask, tree.leaves().mask[batch.extras["leaf"]])
    assert batch.extras["index"].view(4, 2, 8).unique(dim=1).shape == (4, 1, 8)
    same(slope(pope, batch, policy), slope(grpo, batch, policy))


def test_a_moving_beginning_follows_its_groups() -> None:
    tree, policy = half_known()
    source = TreeSource(tree, policy, rows=16)
    sampling = Rollouts(guide=SolutionPrefixes(checkpoints=12, most=1.0, tries=0, moving=True))
    seen = [int(sampling(source).extras["given"].max()) for _ in range(9)]
    # From the last checkpoint, 11 of 12 decisions, as from the one before it, down to where it stops working, and back.
    assert seen == [11, 11, 10, 9, 8, 7, 6, 7, 6]
    state = sampling.state_dict()
    other = sampling.but()
    other.load_state_dict(state)
    assert torch.equal(other.guide.table.column("checkpoint"), sampling.guide.table.column("checkpoint"))
    sampling.eval()
    sampling(source)
    assert torch.equal(other.guide.table.column("checkpoint"), sampling.guide.table.column("checkpoint"))


def test_what_a_guide_cannot_do_is_refused() -> None:
    for make in (
        lambda: SolutionPrefixes(checkpoints=0),
        lambda: SolutionPrefixes(most=1.5),
        lambda: SolutionPrefixes(tries=-1),
    ):
        with pytest.raises(ValueError, match=r"methods\.pope\.SolutionPrefixes: need checkpoints >= 1"):
            make()
    with pytest.raises(ValueError, match="rules must be a text"):
        RulePrompts(rules="")
    with pytest.raises(ValueError, match="stage must be 1, 2 or 3"):
        po.method("policyrollout", stage=4)


# A book of rules ----------------------------------------------------------------------------------------------


def with_book(rows: int = 64) -> tuple[TreeSource, TabularPolicy, Reading]:
    tree, _, right = rulebook(actions=6)
    policy = TabularPolicy(tree, spread=0.5, seed=3)
    reader = Reading(policy, right, pull=2.0)
    return TreeSource(tree, policy, rows=rows, hinted={"rules": reader}), policy, reader


def test_half_of_a_group_was_sampled_with_the_rules_at_hand() -> None:
    source, policy, reader = with_book()
    batch = po.method("policyrollout", rules="rules").sampling(source)
    told = batch.extras["hinted"]
    assert len(batch) == 64
    assert told.view(8, 2, 4).tolist() == [[[False] * 4, [True] * 4]] * 8
    with torch.no_grad():
        own, theirs = policy.evaluate(batch).logp, reader.evaluate(batch).logp
    same(batch.rollout_logp[told], theirs[told])
    same(batch.rollout_logp[~told], own[~told])
    same(batch.old_logp, own)
    assert (own - theirs)[told].abs().max() > 0.1


def test_policyrollout_compares_both_halves_and_learns_them_alike() -> None:
    source, policy, _ = with_book()
    algorithm = po.method("policyrollout", rules="rules")
    batch = algorithm.sampling(source)
    found = algorithm.compute_advantages(batch).advantage[:, -1].tolist()
    outcome, index = batch.outcome.tolist(), batch.extras["index"].tolist()
    for row in range(len(batch)):
        mates = [outcome[i] for i in range(len(batch)) if index[i] == index[row]]
        mean = sum(mates) / len(mates)
        std = math.sqrt(sum((m - mean) ** 2 for m in mates) / (len(mates) - 1))
        expected = 0.0 if outcome[row] == mean else (outcome[row] - mean) / (std + 1e-6)
        assert found[row] == pytest.approx(expected, rel=1e-10, abs=1e-12)
    # As if the policy had sampled all of it: GRPO on one group a task, whose logp is the learner's own.
    alike = batch.replace(rollout_logp=batch.old_logp, group=batch.extras["index"])
    same(slope(algorithm, batch, policy), slope(po.method("grpo", kl=0), alike, policy))
    # Or not: then the ratio is that to whoever sampled it.
    true = po.method("policyrollout", rules="rules", correct="behaviour")
    together = batch.replace(group=batch.extras["index"])
    same(slope(true, batch, policy), slope(po.method("grpo", kl=0), together, policy))


def test_policyrollout_without_the_rules_is_grpo() -> None:
    source, policy, _ = with_book()
    plain = po.method("policyrollout", correct="behaviour").but(**{"sampling.guide": None})
    assert {path for path, *_ in diff(plain, po.method("grpo", group=4, kl=0))} == {
        "credit.baseline.within",
        "credit.scale.within",
    }
    batch = plain.sampling(source)[:32]  # every task once
    same(slope(plain, batch, policy), slope(po.method("grpo", group=4, kl=0), batch, policy))
    within = {"credit.baseline": GroupMean(within=SamePrompt()), "credit.scale": GroupStd(within=SamePrompt())}
    assert diff(plain.but(within), po.method("grpo", group=4, kl=0)) == []


def test_the_first_stages_read_and_imitate() -> None:
    assert diff(po.method("policyrollout", stage=2), po.method("sft")) == []
    read = po.method("policyrollout", stage=1, length=7)
    assert [path for path, *_ in diff(read, po.method("sft"))] == ["sampling"]
    assert read.sampling.length == 7


# Second tries -------------------------------------------------------------------------------------------------


def deep(seed: int = 1) -> tuple[TokenTree, TabularPolicy]:
    tree = TokenTree.full(3, 4, lambda prompt, a: float(sum(a) % 4 == prompt), prompts=2)
    return tree, TabularPolicy(tree, spread=0.7, seed=seed)


def test_without_a_chance_it_is_rollouts_number_for_number() -> None:
    tree, policy = deep()
    sources = [TreeSource(tree, policy, rows=40, seed=5) for _ in range(2)]
    for _ in range(3):
        one, two = Rollouts(group=5)(sources[0]), RetryRollouts(group=5, texts=["1"], chance=0.0)(sources[1])
        assert torch.equal(one.extras["leaf"], two.extras["leaf"])
        assert not two.extras["probe"].any()
    back = po.method("rex-rag", kl=0.001).but({"sampling": Rollouts(group=5), "objective.ratio": TokenRatio()})
    assert diff(back, po.method("grpo", group=5, kl=0.001)) == []
    alone = po.method("rex-rag", texts=["1"], chance=0.0, kl=0)
    same(slope(alone, two, policy), slope(po.method("grpo", kl=0), two, policy))


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_a_probe_is_a_failure_cut_told_and_continued(kept: float) -> None:
    tree, policy = deep()
    source = TreeSource(tree, policy, rows=400)
    texts = [[1], [2, 0], [2, 2]]
    sampling = RetryRollouts(group=5, texts=["1", "2 0", "2 2"], chance=1.0, keep=1.0, kept=kept)
    batch = sampling(source)
    probe, tokens = batch.extras["probe"], batch.extras["tokens"]
    own, told = batch[~probe], batch[probe]
    failed = own.outcome == 0
    assert len(told) == int(failed.sum())
    per_group = torch.bincount(own.group[failed], minlength=80)
    assert torch.equal(torch.bincount(told.group, minlength=80), per_group)
    # Of 4 decisions half would stay; two of them leave room for two tokens and one more only if one stays.
    stays = 1 if kept else 0
    begin = tree.start + stays
    share = math.log(failed.double().mean().item())
    with torch.no_grad():
        said = policy.evaluate(batch).logp
    count = {0: 0, 1: 0, 2: 0}
    for row in range(len(told)):
        ids = told.extras["tokens"][row].tolist()
        text = next(t for t in texts if ids[begin : begin + len(t)] == t)
        count[texts.index(text)] += 1
        frequency = [math.log(1 / 3)] if text == [1] else [math.log(2 / 3), math.log(1 / 2)]
        now = said[probe][row]
        sampler, m = now.clone(), now.clone()
        for i, value in enumerate(frequency):
            sampler[begin + i] = m[begin + i] = value
        m[tree.start : begin] -= share / max(1, stays)
        mask = told.mask[row]
        same(told.rollout_logp[row][mask], sampler[mask])
        same(told.extras["probe_logp"][row][mask], m[mask])
        same(told.extras["policy_logp"][row][mask], now[mask])
    assert min(count.values()) > 0.2 * len(told)
    same(own.extras["policy_logp"][own.mask], own.rollout_logp[own.mask])
    # What the probe would make of a rollout is known of those that begin like one.
    for row in range(len(own)):
        ids, m = own.extras["tokens"][row].tolist(), own.extras["probe_logp"][row]
        text = next((t for t in texts if ids[begin : begin + len(t)] == t), None)
        if text is None or kept:
            assert (m[own.mask[row]] == NOTHING).all()
        else:
            first = math.log(1 / 3) if text == [1] else math.log(2 / 3) + math.log(1 / 2)
            rest = own.rollout_logp[row, begin + len(text) :].sum().item()
            assert m[own.mask[row]].sum().item() == pytest.approx(first + rest, rel=1e-10)
    assert tokens.shape == batch.mask.shape


def test_the_likeliest_texts_stay() -> None:
    tree, policy = deep()
    source = TreeSource(tree, policy, rows=100)
    batch = RetryRollouts(group=5, texts=["1", "2 0", "2 2"], chance=1.0, keep=0.1)(source)
    every = RetryRollouts(group=5, texts=["1", "2 0", "2 2"], chance=1.0, keep=1.0)(TreeSource(tree, policy, rows=100))
    kept, probes = batch[batch.extras["probe"]], every[every.extras["probe"]]
    assert len(kept) == 10

    def likely(rows: Experience) -> torch.Tensor:
        first, second = (rows.extras["policy_logp"][:, tree.start + i] for i in (0, 1))
        one = rows.extras["tokens"][:, tree.start] == 1
        return torch.where(one, first, (first + second) / 2)

    assert likely(kept).min() >= likely(probes).topk(10).values.min() - 1e-12


def test_a_pooled_batch_says_what_the_policy_is_worth() -> None:
    """Of whole rows: within its standard error, where tokens and the plain ratio are far off."""
    tree, old = deep()
    now = TabularPolicy(tree, spread=0.5, seed=9)
    with torch.no_grad():
        now.logits.add_(old.logits)
    source = TreeSource(tree, old, rows=20_000)
    batch = RetryRollouts(group=5, texts=["1", "2 0", "2 2"], chance=1.0, keep=1.0)(source)
    assert 0.3 < batch.extras["probe"].double().mean() < 0.5
    said = Evaluation(logp=now.evaluate(batch).logp.detach())
    truth = tree.value(now).item()

    def z(log_weight: torch.Tensor) -> float:
        x = log_weight.exp() * batch.outcome
        return ((x.mean() - truth) / (x.std() / len(x) ** 0.5)).item()

    assert abs(z(MixtureRatio(unit="row")(batch, said)[:, 0])) < 4
    assert abs(z(torch.where(batch.mask, MixtureRatio()(batch, said), 0).sum(1))) > 20
    assert abs(z(torch.where(batch.mask, said.logp - batch.extras["policy_logp"], 0).sum(1))) > 6


def test_texts_that_make_no_probability_are_refused() -> None:
    tree, policy = deep()
    for texts in (["1", "1 2"], ["1", "1"], ["1", ""]):
        with pytest.raises(ValueError, match="has no tokens or begins another"):
            RetryRollouts(texts=texts)(TreeSource(tree, policy, rows=8))
    with pytest.raises(ValueError, match="at least one text"):
        RetryRollouts(texts=[])
    with pytest.raises(ValueError, match="under top-k and top-p"):
        RetryRollouts(texts=["1"], support=Support(top_k=2))


def test_task_is_prompt_where_each_task_comes_once() -> None:
    tree, policy = deep()
    batch = Rollouts(group=5)(TreeSource(tree, policy, rows=10))
    both = [
        RelativeAdvantage(baseline=GroupMean(within=w), scale=GroupStd(within=w)) for w in (SameTask(), SamePrompt())
    ]
    same(both[0](batch), both[1](batch))
