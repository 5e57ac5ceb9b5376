"""GRPO: a group of rollouts is its own critic."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.lab.claims import norms_by_success
from polopt.lab.kl import kl_table, three_actions
from polopt.method import Finding, Paper, method
from polopt.objectives import Clip, ReferenceKL, SequenceMean, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
        authors="Shao, Zhihong and others",
        year=2024,
        arxiv="2402.03300",
    ),
    changes="PPO without a critic: the advantage is the outcome's z-score within the group of one prompt.",
    room="credit",
    tier="proven",
)
def grpo(*, group: int = 64, clip: float = 0.2, kl: float = 0.04) -> Algorithm:
    """A_i = (R_i - mean_g R) / (std_g R + eps), on every token of answer i, and

        L = mean_i (1/|y_i|) sum_t [ max(-A_i r_it, -A_i clip(r_it, 1 - clip, 1 + clip)) + kl k3_it ]

    with r the token ratio to the sampler and k3 = exp(ref - logp) - (ref - logp) - 1.

    An all-equal group and a group of one have advantage 0 (verl gives a group of one A = R). std divides by
    n - 1, as in TRL and verl; the paper does not say. kl = 0 drops the reference policy. TRL calls this mean over
    answers loss_type="grpo"; "bnpo" and "dapo" there are means over tokens.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=clip, high=clip),
            aggregate=SequenceMean(),
            regularise=[ReferenceKL(coefficient=kl)] if kl else [],
        ),
    )


@grpo.claim(
    "With rewards 0 and 1 a prompt of success rate p pulls as sqrt(p (1 - p)): hard and easy prompts count more.",
    baseline="no std: p (1 - p)",
)
def difficulty() -> Finding:
    ours = norms_by_success(grpo(group=512, kl=0), power=0.5)
    plain = norms_by_success(grpo(group=512, kl=0).but(**{"credit.scale": None}), power=1.0)
    return Finding(
        measured={"largest relative error": ours, "without std, against p (1 - p)": plain},
        criterion="both < 0.02",
        holds=ours < 0.02 and plain < 0.02,
    )


@grpo.claim("On policy, k3 as a loss pulls along KL(reference || policy), not the other way.", baseline="k1, k2")
def kl_direction() -> Finding:
    rows = {(r.estimator, r.ratio, r.on_policy): r for r in kl_table(*three_actions())}
    k1, k2, k3 = (rows[k, False, True] for k in ("k1", "k2", "k3"))
    off = rows["k3", False, False]
    measured = {"k3 to KL(ref || policy)": k3.to_forward, "k3 to KL(policy || ref)": k3.to_reverse}
    measured |= {"k2 to KL(policy || ref)": k2.to_reverse, "k1 to 0": k1.to_zero, "k3 off policy": off.to_forward}
    return Finding(
        measured=measured,
        criterion="k3 to KL(ref || policy), k2 to KL(policy || ref), k1 to 0 < 1e-10; the others > 0.1",
        holds=max(k3.to_forward, k2.to_reverse, k1.to_zero) < 1e-10 and min(k3.to_reverse, off.to_forward) > 0.1,
    )
