"""Identities between the ancestor methods, exact in float64."""

from __future__ import annotations

import torch
from sentences import batch_of, same, slope

import polopt as po
from polopt import objectives, sampling
from polopt.credit import GroupStd, RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.problems import digits, lengths
from polopt.objectives import Clip, SequenceMean, SequenceSum, TokenMean, TokenRatio
from polopt.part_diff import diff
from polopt.rewards import OutcomeReward
from polopt.sampling.parts import RolloutRequest


def test_rloo_advantage_is_dr_grpo_advantage_times_g_over_g_minus_1() -> None:
    tree, policy = digits()
    batch = po.method("rloo", kl=0).compute_advantages(batch_of(tree, policy))
    same(batch.advantage, po.method("dr-grpo").compute_advantages(batch).advantage * 4 / 3)


def test_gspo_is_grpo_on_answers_of_one_token() -> None:
    tree = TokenTree.bandit([[0.0, 1.0, 0.5], [1.0, 0.0, 0.2]])
    policy, old = TabularPolicy(tree, spread=0.5, seed=1), TabularPolicy(tree, spread=0.5, seed=2)
    batch = batch_of(tree, policy, behaviour=old)
    clip = {"objective.trust": Clip()}
    same(slope(po.method("gspo").but(clip), batch, policy), slope(po.method("grpo", kl=0), batch, policy))


def test_on_policy_the_ratio_and_its_clip_do_not_matter() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    grpo = po.method("grpo", kl=0)
    same(slope(po.method("gspo"), batch, policy), slope(grpo, batch, policy))
    plain = grpo.but(**{"objective.ratio": None, "objective.trust": objectives.PolicyGradient()})
    same(slope(plain, batch, policy), slope(grpo, batch, policy))
    same(
        slope(po.method("cispo"), batch, policy),
        slope(grpo.but(**{"objective.aggregate": TokenMean()}), batch, policy),
    )
    centred = po.method("rloo", kl=0).but(credit=po.method("dr-grpo").credit)
    same(slope(po.method("dr-grpo"), batch, policy) * tree.horizon, slope(centred, batch, policy))


def test_raft_on_right_answers_is_reinforce_over_the_share_of_right_ones() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    algorithm = po.method("raft", group=4, keep=4, threshold=1.0).but(**{"objective.aggregate": SequenceSum(length=1)})
    kept = algorithm.sampling.select[0](batch)
    assert 0 < len(kept) < len(batch)
    same(slope(algorithm, kept, policy) * len(kept) / len(batch), slope(po.method("reinforce"), batch, policy))


def test_dapo_with_its_four_changes_undone_is_grpo() -> None:
    undone = {"sampling.select": [], "sampling.refills": 0, "objective.trust.high": 0.2, "reward": OutcomeReward()}
    back = po.method("dapo").but(undone, **{"objective.aggregate": SequenceMean()})
    assert diff(back, po.method("grpo", group=16, kl=0)) == []
    assert {path for path, *_ in diff(po.method("dapo"), po.method("grpo", group=16, kl=0))} == {
        "sampling.select", "sampling.refills", "objective.trust.high", "reward", "objective.aggregate"
    }  # fmt: skip


def test_dr_grpo_with_its_two_normalisers_back_is_grpo() -> None:
    back = po.method("dr-grpo", group=64).but(
        credit=RelativeAdvantage(scale=GroupStd()), **{"objective.aggregate": SequenceMean()}
    )
    assert diff(back, po.method("grpo", kl=0)) == []


def test_remax_with_worthless_greedy_answers_is_reinforce() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    batch = batch.replace(extras={"greedy_reward": torch.zeros_like(batch.outcome)})
    same(slope(po.method("remax", kl=0), batch, policy), slope(po.method("reinforce"), batch, policy))


def test_ppo_without_critic_whitening_and_clip_is_reinforce_over_tokens() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)  # the critic says 0
    bare = po.method("ppo", kl=0, lam=1.0).but(**{"objective.regularise": []})
    bare = bare.but(credit=bare.credit.credit)
    same(
        slope(bare, batch, policy),
        slope(po.method("reinforce").but(**{"objective.aggregate": TokenMean()}), batch, policy),
    )


def test_sft_on_its_own_right_answers_is_rft_without_distinct() -> None:
    keep_all = po.method("rft", group=4).but(**{"sampling.select": [sampling.TopK(count=4, threshold=1.0)]})
    assert {path for path, *_ in diff(keep_all, po.method("sft"))} == {"sampling"}


def test_dapo_stops_refilling() -> None:
    tree = TokenTree.bandit([1.0, 1.0])
    asked = []

    class Counting(TreeSource):
        def rollout(self, request: RolloutRequest) -> po.Experience:
            asked.append(len(request.tasks))
            return super().rollout(request)

    algorithm = po.method("dapo", group=4, refills=3)
    policy = TabularPolicy(tree)
    batch = algorithm.compute_advantages(algorithm.sampling(Counting(tree, policy, rows=8)))
    assert asked == [2] * 4
    assert len(batch) == 0
    assert slope(algorithm, batch, policy).abs().max() == 0


def test_lengths_problem_is_what_the_claims_say() -> None:
    tree, _ = lengths()
    assert sorted({len(a) for a in tree.answers}) == [1, 4, 16]
    assert isinstance(po.method("grpo").objective.ratio, TokenRatio)
