"""PPO: a critic says what was expected, a clip how far to go."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE, WhitenedAdvantage
from polopt.lab import expectation
from polopt.lab.claims import drift, with_exact_critic
from polopt.lab.problems import digits
from polopt.method import Finding, Paper, method
from polopt.objectives import (
    Clip,
    EntropyBonus,
    Regulariser,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    Unclipped,
    ValueLoss,
)
from polopt.rewards import KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Proximal Policy Optimization Algorithms",
        authors="Schulman, John and others",
        year=2017,
        arxiv="1707.06347",
    ),
    changes="Several steps on one batch: a pessimistic clip of the ratio, advantages from a critic by GAE.",
    room="objectives",
    tier="faithful",
)
def ppo(
    *,
    group: int = 1,
    clip: float = 0.2,
    gamma: float = 1.0,
    lam: float = 0.95,
    value: float = 0.5,
    value_clip: float | None = 0.2,
    entropy: float = 0.0,
    kl: float = 0.05,
) -> Algorithm:
    """delta_t = r_t + gamma V_next - V_t, A_t = delta_t + gamma lam A_next, whitened over the batch, and

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + value L_V - entropy H ]

    with L_V = 0.5 max((V - R)^2, (clip(V, V_old +- value_clip) - R)^2), R = A + V_old before whitening.
    As for language: gamma 1, the reward r_t = -kl (logp_t - ref_t) plus the outcome on the last token, as
    RLHF does (0 drops the reference); the paper's control runs have kl 0, gamma 0.99 and entropy up to 0.01.
    Whitening and value clipping are the reference implementation's, not the paper's. TRL weighs L_V by 0.1;
    verl has a critic and an optimiser apart. An answer cut off at the token limit is worth 0 from there on, as in
    both; for control, `.but` both GAEs' cut to "bootstrap": here it was seen to pay for never stopping.
    """
    gae = GAE(gamma=gamma, lam=lam, cut="zero")
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    extra: list[Regulariser] = [ValueLoss(target=gae, coefficient=value, clip=value_clip)]
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=reward,
        credit=WhitenedAdvantage(credit=gae),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=Clip(low=clip, high=clip),
            aggregate=TokenMean(),
            regularise=[*extra, EntropyBonus(coefficient=entropy)] if entropy else extra,
        ),
    )


@ppo.claim("With an exact critic GAE is unbiased for every lam.", baseline="the same with a critic that says 0")
def any_lam() -> Finding:
    bias = {}
    for critic, (tree, policy) in (("no", digits()), ("exact", with_exact_critic(*digits()))):
        for lam in (0.0, 0.5, 1.0):
            plain = {"objective.aggregate": SequenceSum(length=1), "objective.regularise": []}
            sentence = ppo(kl=0).but(plain, credit=GAE(lam=lam))
            bias[f"{critic} critic, lam {lam}"] = expectation(sentence, tree, policy).relative_bias
    return Finding(
        measured=bias,
        criterion="exact critic: relative bias < 1e-10 at every lam; no critic: > 0.1 at lam 0.5",
        holds=all(b < 1e-10 for n, b in bias.items() if "exact" in n) and bias["no critic, lam 0.5"] > 0.1,
    )


@ppo.claim("Many steps on one batch stay near it.", baseline="no clip, the same 20 steps")
def stays_near() -> Finding:
    sentence = ppo(group=32, kl=0, lam=1.0).but(**{"objective.regularise": []})
    clip, free = drift(sentence), drift(sentence.but(**{"objective.trust": Unclipped()}))
    return Finding(
        measured={"KL(before || after)": clip, "no clip": free},
        criterion="with clip < 0.5 of without",
        holds=clip < 0.5 * free,
    )
