"""PPO-max: the settings of PPO that stabilise RLHF, combined."""

from polopt.algorithm import Algorithm
from polopt.credit import GAE, ClippedAdvantage, Credit, WhitenedAdvantage
from polopt.method import Paper, method
from polopt.objectives import (
    Clip,
    EntropyTarget,
    Regulariser,
    Surrogate,
    TokenMean,
    TokenRatio,
    ValueLoss,
    with_imitation,
)
from polopt.rewards import ClippedReward, KLPenalty, OutcomeReward, Reward, ScaledReward, SumOfRewards
from polopt.sampling import Rollouts, WithDemonstrations


@method(
    paper=Paper(
        title="Secrets of RLHF in Large Language Models Part I: PPO",
        authors="Zheng, Rui and others",
        year=2023,
        arxiv="2307.04964",
    ),
    changes="PPO on outcomes in units of their running spread, without whitening, with less KL and more value loss; "
    "clips, an entropy target and pre-training data are settings.",
    room="rewards",
    tier="faithful",
)
def secrets_rlhf_ppo_max(
    *,
    group: int = 1,
    clip: float = 0.2,
    lam: float = 0.95,
    value: float = 1.0,
    value_clip: float | None = 0.2,
    kl: float = 0.01,
    scale: bool = True,
    centred: bool = False,
    whiten: bool = False,
    reward_clip: float | None = None,
    advantage_clip: float | None = None,
    entropy: tuple[float, float] | None = None,
    ptx: float = 0.0,
) -> Algorithm:
    """PPO on the reward r_t = -kl (logp_t - ref_t), plus clip(S / std, +-reward_clip) on the last token, std that of
    all scores so far; advantages by GAE, whitened over the batch if `whiten`, then clipped; and

        L = mean_t [ max(-A r, -A clip(r, 1 - clip, 1 + clip)) + value L_V ] + w |H - H*| - ptx mean_t logp of others

    with L_V as in `ppo`, entropy = (w, H*) if given, and a demonstration for each rollout if ptx is not 0 (`.but` the
    mix to `sampling.WithTexts` for raw texts). Scaling and both loss clips are on and the rest off, as in the authors'
    English script; the text also recommends (S - mean) / std with a clip, as centred=True, reward_clip=0.3 would be,
    and whitened advantages, for which their code divides by the population's standard deviation, ours by n - 1.

    Left out: a critic apart from the policy, made from the reward model and with a rate of its own; and the warm-up by
    inverse square root. Our scores are scaled by earlier batches alone, the authors' by the current one too. The
    paper's monitors are logged by every run: `reference_kl`, `perplexity`, `length/mean`.
    """
    score: Reward = OutcomeReward()
    score = ScaledReward(reward=score, centred=centred) if scale else score
    score = ClippedReward(reward=score, limit=reward_clip) if reward_clip else score
    gae = GAE(lam=lam, cut="zero")
    credit: Credit = WhitenedAdvantage(credit=gae) if whiten else gae
    credit = ClippedAdvantage(credit=credit, limit=advantage_clip) if advantage_clip else credit
    extra: list[Regulariser] = [ValueLoss(coefficient=value, clip=value_clip)]
    extra += [EntropyTarget(coefficient=entropy[0], target=entropy[1])] if entropy else []
    objective = Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean(), regularise=extra)
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithDemonstrations(each=1.0)] if ptx else []),
        reward=SumOfRewards(terms=[score, KLPenalty(coefficient=kl)]) if kl else score,
        credit=credit,
        objective=with_imitation(objective, ptx) if ptx else objective,
    )
