"""The methods of ratios, trust regions and off-policy data: formulas once more in plain Python, and identities."""

from __future__ import annotations

import math

import loops
import pytest
import torch
from batches import SampleBatch, random_batch
from sentences import batch_of, same, slope

import polopt as po
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.problems import digits, longer_is_better
from polopt.objectives import Clip, SequenceMean

SEEDS = pytest.mark.parametrize("seed", range(4))


def one_advantage_a_row(seed: int) -> SampleBatch:
    batch = random_batch(seed)
    first = random_batch(seed, clean=True).experience.advantage[:, :1]
    return SampleBatch(batch.experience.replace(advantage=first.expand_as(batch.mask).contiguous()), batch.leaves)


class Numbers:
    """What the loops read of a batch."""

    def __init__(self, batch: SampleBatch) -> None:
        e = batch.experience
        self.rows = loops.decisions(e)
        self.now, self.then, self.A = batch.leaves["logp"].tolist(), e.rollout_logp.tolist(), e.advantage.tolist()

    def log_ratio(self, i: int, t: int) -> float:
        return self.now[i][t] - self.then[i][t]

    def sequence(self, i: int) -> float:
        return math.exp(sum(self.log_ratio(i, t) for t in self.rows[i]) / max(1, len(self.rows[i])))


def agree(objective: po.objectives.Objective, batch: SampleBatch, weigh, term) -> None:
    """Loss and gradient by logp against `term(i, t) -> (value, {column: derivative})` with row weights."""
    loss = objective(batch.experience, batch.evaluation()).loss
    (grad,) = torch.autograd.grad(loss, batch.leaves["logp"])
    expected, slopes = loops.total(loops.decisions(batch.experience), weigh, term)
    assert loss.item() == pytest.approx(expected, abs=1e-10, rel=1e-10)
    assert any(abs(s) > 1e-6 for s in slopes.values())
    for i in range(grad.shape[0]):
        for t in range(grad.shape[1]):
            assert grad[i, t].item() == pytest.approx(slopes.get((i, t), 0.0), abs=1e-10, rel=1e-10)


# LUSPO --------------------------------------------------------------------------------------------------------


@SEEDS
def test_luspo_is_the_length_times_the_sequence_loss(seed: int) -> None:
    """A row's loss |y| max(-A s, -A clip(s)), the mean over all rows; written on each decision as one share of |y|."""
    batch = one_advantage_a_row(seed)
    x = Numbers(batch)

    def term(i: int, t: int):
        s = x.sequence(i)
        value, by_ratio = loops.clipped(s, x.A[i][0], 0.02, 0.03)
        return value, dict.fromkeys(x.rows[i], by_ratio * s / len(x.rows[i]))

    agree(po.method("luspo", low=0.02, high=0.03).objective, batch, lambda i: 1 / len(batch.mask), term)


def test_luspo_on_answers_of_one_length_is_gspo_times_that_length() -> None:
    tree = TokenTree.full(2, 3, lambda prompt, answer: float(sum(answer) == 2))
    policy, old = TabularPolicy(tree, spread=0.5, seed=1), TabularPolicy(tree, spread=0.5, seed=2)
    batch = batch_of(tree, policy, behaviour=old)
    clip = {"low": 0.05, "high": 0.05}
    same(slope(po.method("luspo", **clip), batch, policy), 3 * slope(po.method("gspo", **clip), batch, policy))


def test_luspo_on_policy_is_dr_grpo_with_length_1() -> None:
    tree, policy = longer_is_better(prompts=2)
    batch = batch_of(tree, policy)
    centred = po.method("luspo").but(**{"credit.scale": None})
    same(slope(centred, batch, policy), slope(po.method("dr-grpo", length=1), batch, policy))


def test_luspo_on_answers_of_one_token_is_grpo() -> None:
    tree = TokenTree.bandit([[0.0, 1.0, 0.5], [1.0, 0.0, 0.2]])
    policy, old = TabularPolicy(tree, spread=0.5, seed=1), TabularPolicy(tree, spread=0.5, seed=2)
    batch = batch_of(tree, policy, behaviour=old)
    clip = {"objective.trust": Clip()}
    same(slope(po.method("luspo").but(clip), batch, policy), slope(po.method("grpo", kl=0), batch, policy))


def test_luspo_differs_from_gspo_in_the_reducer_and_the_clip() -> None:
    back = po.method("luspo").but(**{"objective.aggregate": SequenceMean()})
    assert [path for path, *_ in po.diff(back, po.method("gspo"))] == ["objective.trust.low", "objective.trust.high"]


# DHPO ---------------------------------------------------------------------------------------------------------


def inside(ratio: float, low: float, high: float) -> float:
    return min(max(ratio, 1 - low), 1 + high)


@SEEDS
@pytest.mark.parametrize("mix", [0.3, "entropy"])
def test_dhpo(seed: int, mix: float | str) -> None:
    batch = random_batch(seed)
    x, H = Numbers(batch), batch.leaves["entropy"].tolist()

    def weight(i: int, t: int) -> float:
        if mix != "entropy":
            return mix
        row = [H[i][u] for u in x.rows[i]]
        return (H[i][t] - min(row)) / (max(row) - min(row)) if max(row) > min(row) else 0.5

    def term(i: int, t: int):
        w, r, s, A = weight(i, t), math.exp(x.log_ratio(i, t)), x.sequence(i), x.A[i][t]
        r_in, s_in = inside(r, 0.1, 0.2), inside(s, 0.03, 0.05)
        free, held = w * r + (1 - w) * s, w * r_in + (1 - w) * s_in
        if -A * held > -A * free:
            return -A * held, {t: -A * (w * r * (r == r_in) + (1 - w) * s * (s == s_in))}
        return -A * free, {t: -A * free}

    algorithm = po.method("dhpo", mix=mix, token=(0.1, 0.2), sequence=(0.03, 0.05))
    filled = sum(map(bool, x.rows))
    agree(algorithm.objective, batch, lambda i: 1 / filled / len(x.rows[i]), term)


def test_dhpo_at_its_ends_is_grpo_and_gspo_and_on_one_token_ppo() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, behaviour=TabularPolicy(tree, spread=0.9, seed=7, critic=True))
    same(slope(po.method("dhpo", mix=1.0), batch, policy), slope(po.method("grpo", kl=0), batch, policy))
    gspo = slope(po.method("gspo", low=0.1, high=0.2), batch, policy)
    same(slope(po.method("dhpo", mix=0.0, sequence=(0.1, 0.2)), batch, policy), gspo)
    tree = TokenTree.bandit([[0.0, 1.0, 0.5], [1.0, 0.0, 0.2]])
    policy, old = TabularPolicy(tree, spread=0.5, seed=1), TabularPolicy(tree, spread=0.5, seed=2)
    batch = batch_of(tree, policy, behaviour=old)
    alike = po.method("dhpo", mix=0.3, sequence=(0.2, 0.2))
    same(slope(alike, batch, policy), slope(po.method("grpo", kl=0), batch, policy))


def test_a_hesitation_of_rounding_error_is_none() -> None:
    entropy = torch.tensor([[0.7, 0.7 + 1e-9, 0.7], [0.1, 0.5, 0.3]], dtype=torch.double)
    batch = po.Experience(mask=torch.ones(2, 3, dtype=torch.bool))
    found = po.methods.dhpo.NormalisedEntropy()(batch, po.Evaluation(logp=entropy, entropy=entropy))
    torch.testing.assert_close(found, torch.tensor([[0.5] * 3, [0.0, 1.0, 0.5]]).double(), atol=1e-2, rtol=0)


@pytest.mark.parametrize("settings", [{"token": (1.2, 0.2)}, {"sequence": (0.1, -0.2)}, {"weight": 1.5}])
def test_hybrid_clip_refuses(settings) -> None:
    with pytest.raises(ValueError, match=f"HybridClip: {next(iter(settings))}"):
        po.methods.dhpo.HybridClip(**settings)


# BAPO ---------------------------------------------------------------------------------------------------------


def bapo_quotient(x: Numbers, low: float, high: float, share: str) -> float:
    P = N = 0.0
    for i, row in enumerate(x.rows):
        for t in row:
            r, A = math.exp(x.log_ratio(i, t)), x.A[i][t]
            if share == "surrogate":
                P += A * min(r, high) if A > 0 else 0
                N -= A * max(r, low) if A < 0 else 0
            else:
                P += A * r if A > 0 and r <= high else 0
                N -= A * r if A < 0 and low <= r <= 1.5 else 0
    return P / N


def searched(x: Numbers, target: float, share: str) -> tuple[float, float]:
    """The paper's two loops, one step at a time."""
    low, high = 0.6, 1.0
    while bapo_quotient(x, low, high, share) < target and low < 0.9 - 1e-9:
        low += 0.05
    while bapo_quotient(x, low, high, share) < target and high < 1.6 - 1e-9:
        high += 0.05
    return low, high


@SEEDS
@pytest.mark.parametrize("share", ["gradient", "surrogate"])
def test_bapo(seed: int, share: str) -> None:
    batch = random_batch(seed + 3)
    x = Numbers(batch)
    tokens, start, seen = sum(map(len, x.rows)), bapo_quotient(x, 0.6, 1.0, share), set()
    for times in (0.5, 1.001, 1.02, 1.1, 100.0):
        trust = po.methods.bapo_clip.BalancedClip(high=(1.0, 1.6), target=times * start, share=share, dual=1.5)
        low, high = searched(x, times * start, share)
        seen.add((round(low, 2), round(high, 2)))

        def term(i: int, t: int, low: float = low, high: float = high):
            r = math.exp(x.log_ratio(i, t))
            value, by_ratio = loops.clipped(r, x.A[i][t], 1 - low, high - 1, 1.5)
            return value, {t: by_ratio * r}

        objective = po.objectives.Surrogate(trust=trust)
        agree(objective, batch, lambda i: 1 / tokens, term)
        metrics = objective(batch.experience, batch.evaluation()).metrics
        assert metrics["clip/low"].item() == pytest.approx(low)
        assert metrics["clip/high"].item() == pytest.approx(high)
    assert len(seen) > 2
    assert {(0.6, 1.0), (0.9, 1.6)} < seen


def test_bapo_refuses_a_split_without_a_survey() -> None:
    batch = random_batch(0)
    micro = next(batch.experience.split(3))
    with pytest.raises(po.ExperienceError, match="split without one"):
        po.method("bapo-clip").objective(micro, batch.rows(torch.arange(3)).evaluation())


def test_bapo_without_negatives_keeps_its_starts() -> None:
    batch = random_batch(0)
    right = batch.experience.replace(advantage=batch.experience.advantage.abs())
    objective = po.method("bapo-clip", target=100.0).objective
    metrics = objective(right, batch.evaluation()).metrics
    assert (metrics["clip/low"].item(), metrics["clip/high"].item()) == pytest.approx((0.6, 1.2))


@pytest.mark.parametrize("settings", [{"low": (0.9, 0.6)}, {"high": (0.9, 1.2)}, {"step_size": 0.0}, {"dual": 1.0}])
def test_balanced_clip_refuses(settings) -> None:
    with pytest.raises(ValueError, match=f"BalancedClip: .*{next(iter(settings))}"):
        po.methods.bapo_clip.BalancedClip(**settings)


# REC ----------------------------------------------------------------------------------------------------------

SIDES = ("none", "one-side", "two-side", "ring", "gspo-one-side")
WEIGHTS = ("none", "importance", "truncated", "gspo", "advantage")


@SEEDS
@pytest.mark.parametrize(("clip", "weight"), [(c, w) for c in SIDES for w in WEIGHTS])
def test_rec(seed: int, clip: str, weight: str) -> None:
    """Every switch of the family, with both regularisers, as the paper's code has them: one `if` each."""
    batch = random_batch(seed + 3)
    x, tau, alpha = Numbers(batch), 0.3, 0.2
    tokens, filled = sum(map(len, x.rows)), sum(map(bool, x.rows))

    def kept(i: int, t: int) -> bool:
        r = x.sequence(i) if clip == "gspo-one-side" else math.exp(x.log_ratio(i, t))
        A, near = x.A[i][t], 0.9 <= r <= 1.15
        if clip in ("one-side", "gspo-one-side"):
            return (A >= 0 and r <= 1.15) or (A <= 0 and r >= 0.9)
        if clip == "ring":
            return near or (A >= 0 and r <= 0.8) or (A <= 0 and r >= 1.3)
        return clip == "none" or near

    def term(i: int, t: int):
        r, A = math.exp(x.log_ratio(i, t)), x.A[i][t]
        w = {"none": 1.0, "importance": r, "truncated": min(max(r, 0.8), 1.3), "gspo": x.sequence(i)}
        factor = kept(i, t) * (math.exp(A) if weight == "advantage" else w[weight])
        value = -factor * A * x.now[i][t] + tau / 2 * x.log_ratio(i, t) ** 2 - alpha * x.now[i][t]
        return value, {t: -factor * A + tau * x.log_ratio(i, t) - alpha}

    algorithm = po.method("rec", clip=clip, weight=weight, low=0.1, high=0.15, outer=(0.2, 0.3), opmd=tau, asymre=alpha)
    result = algorithm.objective(batch.experience, batch.evaluation())
    by_row = clip == "gspo-one-side"
    agree(algorithm.objective, batch, lambda i: 1 / filled / len(x.rows[i]) if by_row else 1 / tokens, term)
    shut = sum(not kept(i, t) for i, row in enumerate(x.rows) for t in row)
    assert result.metrics["clip_fraction"].item() == pytest.approx(shut / tokens)
    assert shut == 0 if clip == "none" else 0 < shut < tokens


@SEEDS
def test_rec_with_the_ratio_as_weight_has_the_gradient_of_ppo(seed: int) -> None:
    batch = random_batch(seed)
    grads = []
    for objective in (po.method("rec", weight="importance").objective, po.method("dapo", high=0.2).objective):
        loss = objective(batch.experience, batch.evaluation()).loss
        grads.append(torch.autograd.grad(loss, batch.leaves["logp"])[0])
    same(*grads)


def test_rec_with_forward_kl_lowers_the_baseline() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy, behaviour=TabularPolicy(tree, spread=0.9, seed=7, critic=True))
    lowered = po.method("rec", clip="none").compute_advantages(batch)
    lowered = lowered.replace(advantage=lowered.advantage + 0.25 * lowered.mask)
    plain = po.method("rec", clip="none").objective
    by_hand = torch.autograd.grad(plain(lowered, policy.evaluate(lowered)).loss, policy.logits)[0]
    same(slope(po.method("rec", clip="none", asymre=0.25), batch, policy), by_hand)


def test_balanced_drops_the_surplus_below_the_mean() -> None:
    outcome = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 1.0, 1.0, 0.3, 0.3])
    group = torch.tensor([4, 4, 9, 4, 9, 4, 9, 2, 7, 7])
    batch = po.Experience(mask=torch.ones(10, 1, dtype=torch.bool), outcome=outcome, group=group)
    batch = batch.replace(extras={"row": torch.arange(10)})
    kept = po.methods.rec.BalancedGroups()(batch).extras["row"].tolist()
    # Group 4: one right, the first wrong one stays. Group 9: mean 0.5, two are not below it. 2 and 7 are unanimous.
    assert kept == [0, 1, 2, 4, 6, 7, 8, 9]


def test_rec_gives_credit_after_the_drop() -> None:
    tree, policy = digits()
    algorithm = po.method("rec", drop="balance")
    batch = batch_of(tree, policy)
    for select in algorithm.sampling.select:
        batch = select(batch)
    credited = algorithm.compute_advantages(batch)
    for group in credited.group.unique():
        rows = credited.group == group
        right, total = credited.outcome[rows].sum(), rows.sum()
        assert right * 2 >= total or right == 0
        assert credited.advantage[rows][credited.mask[rows]].max() <= 1 - right / total + 1e-12


@pytest.mark.parametrize(
    ("part", "settings"),
    [(po.methods.rec.RatioGate, {"low": 1.5}), (po.methods.rec.RatioGate, {"outer": (0.1, 2.0), "side": "ring"}),
     (po.objectives.ImportanceWeight, {"high": -1.0}),
     (po.objectives.ExponentialAdvantageWeight, {"temperature": 0.0})],
)  # fmt: skip
def test_offpolicy_weights_refuse(part, settings) -> None:
    with pytest.raises(ValueError, match=f"{part.__name__}: .*{next(iter(settings))}"):
        part(**settings)


# NFT ----------------------------------------------------------------------------------------------------------


@SEEDS
@pytest.mark.parametrize("omega", ["dr-grpo", "grpo", "none"])
@pytest.mark.parametrize("floor", [1.0, 0.3])
def test_nft(seed: int, omega: str, floor: float) -> None:
    """Right rows by their log ratio, wrong ones by that of the implied policy, the floor in value alone."""
    batch = random_batch(seed)
    x, e = Numbers(batch), batch.experience
    right = [y == 1 for y in e.outcome.tolist()]
    share = [[right[j] for j in loops.group_of(e, i)] for i in range(len(right))]
    p = [sum(s) / len(s) for s in share]
    assert any(0 < q < 1 for q in p)
    assert any(q in (0, 1) for q in p)

    def term(i: int, t: int):
        if p[i] in (0, 1):
            return 0.0, {t: 0.0}
        w = {"dr-grpo": 1 - p[i], "grpo": math.sqrt((1 - p[i]) / p[i]), "none": 1.0}[omega]
        if right[i]:
            return -w * x.log_ratio(i, t), {t: -w}
        R = math.exp(x.log_ratio(i, t))
        implied = (1 - p[i] * R) / (1 - p[i])
        return -w * math.log(max(implied, floor)), {t: w * p[i] * R / (1 - p[i]) / max(implied, floor)}

    objective = po.method("nft", omega=omega, floor=floor).objective
    agree(objective, batch, lambda i: 1 / (len(right) * e.horizon), term)


def test_nft_is_finite_where_the_implied_policy_would_be_negative() -> None:
    logp = torch.tensor([[-0.1], [-0.1]], requires_grad=True)
    batch = po.Experience(
        mask=torch.ones(2, 1, dtype=torch.bool),
        rollout_logp=torch.tensor([[-0.1], [-90.0]]),
        outcome=torch.tensor([1.0, 0.0]),
        group=torch.zeros(2, dtype=torch.long),
        advantage=torch.ones(2, 1),
        horizon=1,
    )
    for floor in (1.0, 1e-6):
        loss = po.method("nft", floor=floor).objective(batch, po.Evaluation(logp=logp)).loss
        assert loss.isfinite()
        assert torch.autograd.grad(loss, logp)[0].isfinite().all()


def test_nft_sees_the_groups_of_the_whole_batch() -> None:
    """A micro-batch of right answers alone still has the rate of all of its group."""
    tree, policy = digits()
    algorithm = po.method("nft", refills=0)
    batch = algorithm.compute_advantages(batch_of(tree, policy))
    order = batch.outcome.argsort()
    batch = batch[order]
    parts = [algorithm.objective(m, policy.evaluate(m)).loss for m in batch.split(3)]
    pulls = [torch.autograd.grad(loss, policy.logits)[0] for loss in parts]
    whole = torch.autograd.grad(algorithm.objective(batch, policy.evaluate(batch)).loss, policy.logits)[0]
    same(sum(pulls), whole)


def test_nft_on_policy_is_dr_grpo_and_grpo_and_on_right_answers_rft() -> None:
    tree, policy = digits()
    batch = batch_of(tree, policy)
    dr_grpo = po.method("dr-grpo")
    same(slope(po.method("nft"), batch, policy), slope(dr_grpo, batch, policy))
    z_scores = dr_grpo.but(**{"credit.scale": po.credit.GroupStd(correction=0, eps=0.0)})
    same(slope(po.method("nft", omega="grpo"), batch, policy), slope(z_scores, batch, policy))
    mixed = po.sampling.MixedGroups()(batch)
    right = mixed[mixed.outcome == 1]
    alone = po.objectives.BranchedObjective(
        routes=[
            po.objectives.Branch(objective=po.method("nft", omega="none").objective, rows=po.features.IsCorrect()),
        ]
    )
    raft = po.method("raft").but(**{"objective.aggregate": po.objectives.SequenceSum()})
    supervised = po.method("nft").but(objective=alone)
    # A route of rows divides by its own.
    same(slope(supervised, mixed, policy), slope(raft, right, policy))
