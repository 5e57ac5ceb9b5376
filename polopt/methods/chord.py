"""CHORD: supervised fine-tuning as a voice inside reinforcement learning, faded globally and token by token."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.lab import train
from polopt.lab.demonstrations import another_style
from polopt.method import Finding, Paper, method
from polopt.methods.sft import sft
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    IsDemonstration,
    PolicyGradient,
    Surrogate,
    TokenMean,
    TokenRatio,
    UncertaintyWeight,
    Weight,
)
from polopt.sampling import Rollouts, WithDemonstrations
from polopt.schedules import Schedule, Shape


def fading(peak: float = 0.9, valley: float = 0.05, *, warmup: int = 0, decay: int = 200) -> Schedule:
    """CHORD-mu's share of the demonstrations: `peak` t / warmup in batch t < warmup, then half a cosine from `peak`
    down to `valley`, which stays; with decay 0 `valley` follows the rise at once."""
    if decay:
        knots = {0: 0.0, warmup: peak, warmup + decay: valley}
    else:  # a jump between two batches
        knots = {0: 0.0, warmup - 1: peak * (warmup - 1) / warmup, warmup: valley} if warmup else {0: valley}
    fall: list[Shape] = ["cosine"] if decay else []
    rise: list[Shape] = ["linear"] * (len(knots) - 1 - len(fall))
    return Schedule(knots=sorted(knots.items()), shape=rise + fall)


@method(
    paper=Paper(
        title="On-Policy RL Meets Off-Policy Experts: Harmonizing Supervised Fine-Tuning and Reinforcement Learning "
        "via Dynamic Weighting",
        authors="Zhang, Wenhao and others",
        year=2025,
        arxiv="2508.11408",
    ),
    changes="GRPO and the likelihood of expert rows in one loss, weighed 1 - mu and mu; a token counts as p (1 - p).",
    room="objectives",
    tier="faithful",
)
def chord(
    *,
    group: int = 8,
    clip: float = 0.2,
    mu: float | Schedule = 0.1,
    weight: Weight | None = UncertaintyWeight(),  # noqa: B008
    each: float = 0.25,
) -> Algorithm:
    """With p = exp(logp) of an expert's token, over the batch's rollouts and its expert rows apart,

        L = (1 - mu) mean_t max(-A r, -A clip(r, 1 - clip, 1 + clip)) - mu mean_t sg(p (1 - p)) logp

    and A GRPO's z-score of the rollouts alone. The defaults are CHORD-phi. CHORD-mu is mu=fading(), weight=None;
    weight=ProbabilityWeight() is the paper's variant with the importance weight p. p (1 - p) goes to 0 with p, so
    what is truly new is hardly learned: a larger mu, or no weight, is for that.

    each: expert rows for every rollout (64 to 256 in the reference code), from the tasks that come next. Both means
    are over the tokens of the optimiser batch; the reference code averages micro-batches.
    """
    rest = mu.but(knots=[(t, 1 - value) for t, value in mu.knots]) if isinstance(mu, Schedule) else 1 - mu
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithDemonstrations(each=each)]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=BranchedObjective(
            routes=[
                Branch(
                    objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean()),
                    rows=IsDemonstration(invert=True),
                    weight=rest,
                ),
                Branch(
                    objective=Surrogate(
                        ratio=None,
                        trust=PolicyGradient(),
                        weights=[weight.but()] if weight else [],
                        aggregate=TokenMean(),
                    ),
                    rows=IsDemonstration(),
                    weight=mu.but() if isinstance(mu, Schedule) else mu,
                ),
            ]
        ),
    )


def course(*stages: tuple[Algorithm, float], steps: int = 100, rate: float = 80.0) -> tuple[list[float], float]:
    """Expected reward along training on an expert with another style, and the entropy in the end. Each algorithm gets
    an equal share of the steps, at its multiple of the rate."""
    tree, policy, shown = another_style()
    seen = [tree.value(policy).item()]
    for algorithm, times in stages:
        seen += train(
            algorithm,
            tree,
            policy,
            steps=steps // len(stages),
            rate=times * rate,
            rows=tree.prompts,
            demonstrations=shown,
            watch=lambda: tree.value(policy).item(),
        )
    return seen, tree.entropy(policy).item()


@chord.claim(
    "No dip while an expert of another style is mixed in, and nothing lost in the end.", baseline="SFT, then RL"
)
def no_dip() -> Finding:
    alone = chord(mu=0.0)
    (phi, _), (after, _), (grpo, _) = course((chord(), 1.0)), course((sft(), 0.1), (alone, 1.0)), course((alone, 1.0))
    plain, slow = (course((chord(weight=None), 1.0), rate=rate)[0] for rate in (80.0, 20.0))
    measured = {"lowest": min(phi), "SFT then GRPO: lowest": min(after), "without weight: lowest": min(plain)}
    measured |= {"without weight, a quarter of the rate: lowest": min(slow)}
    measured |= {"final": phi[-1], "SFT then GRPO: final": after[-1], "GRPO: final": grpo[-1]}
    return Finding(
        measured=measured,
        criterion="lowest >= 0.75 where SFT first falls below 0.6; final >= the better of the others - 0.01",
        holds=min(phi) >= 0.75 and min(after) < 0.6 and phi[-1] >= max(after[-1], grpo[-1]) - 0.01,
        note="Without p (1 - p) the same share dips too, unless the rate is small enough for RL to keep up.",
    )


@chord.claim("It ends with at least twice the entropy of the plain mix.", baseline="no weight", refuted=True)
def entropy_kept() -> Finding:
    (_, phi), (_, plain) = course((chord(), 1.0), rate=20.0), course((chord(weight=None), 1.0), rate=20.0)
    return Finding(
        measured={"entropy": phi, "without weight": plain},
        criterion=">= 2x without weight",
        holds=phi >= 2 * plain,
        note="There is no dip because the expert is not followed: of a style of probability 0.01 a token weighs 0.01. "
        "The policy stays in its own style and grows certain of it; the plain mix goes over to the expert's, which it "
        "is still learning.",
    )
