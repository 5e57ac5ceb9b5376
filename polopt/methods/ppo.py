"""PPO: a clipped surrogate objective, with advantages from a critic."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE, WhitenedAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, EntropyBonus, Regulariser, Surrogate, TokenRatio, ValueLoss
from polopt.rewards import EnvironmentReward, KLPenalty, OutcomeReward, Reward, SumOfRewards
from polopt.sampling import Fragments, Rollouts


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

    with L_V = 0.5 max((V - R)^2, (clip(V, V_old +- value_clip) - R)^2), R = A + V_old before whitening. As for
    language: gamma 1, the reward r_t = -kl (logp_t - ref_t) plus the outcome on the last token, as RLHF does (0 drops
    the reference); the paper's control runs have kl 0, gamma 0.99 and entropy up to 0.01. Whitening and value clipping
    are the reference implementation's, not the paper's. TRL weighs L_V by 0.1; verl has a critic and an optimiser
    apart. An answer truncated at the token limit has value 0 from there on, as in both; `control_ppo` goes on from the
    critic's value, which for language was observed to reward endless answers.
    """
    reward: Reward = SumOfRewards(terms=[OutcomeReward(), KLPenalty(coefficient=kl)]) if kl else OutcomeReward()
    extra: list[Regulariser] = [ValueLoss(coefficient=value, clip=value_clip)]
    extra += [EntropyBonus(coefficient=entropy)] if entropy else []
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=reward,
        credit=WhitenedAdvantage(credit=GAE(gamma=gamma, lam=lam, cut="zero")),
        objective=Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), regularise=extra),
    )


def control_ppo(*, gamma: float, lam: float, clip: float, entropy: float, steps: int) -> Algorithm:
    """Returns PPO on fragments of `steps` decisions with an environment's rewards, without reference or value clip."""
    return ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, kl=0.0, value_clip=None).but(
        sampling=Fragments(steps=steps), reward=EnvironmentReward(), **{"credit.credit.cut": "bootstrap"}
    )
