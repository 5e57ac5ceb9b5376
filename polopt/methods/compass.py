"""COMPASS: imitation, a residual learned by RL for each embodiment, and distillation into one policy for all."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.bc import bc
from polopt.methods.ppo import ppo
from polopt.objectives import GaussianDistillation
from polopt.rewards import EnvironmentReward
from polopt.sampling import Fragments


@method(
    paper=Paper(
        title="COMPASS: Cross-embodiment Mobility Policy via Residual RL and Skill Synthesis",
        authors="Liu, Wei and Zhao, Huihua and Li, Chenran and Biswas, Joydeep and Pouya, Soha and Chang, Yan",
        year=2025,
        arxiv="2502.16372",
    ),
    changes="PPO learns what is added to an imitated action, for each embodiment; one policy learns all of these.",
    room="objectives",
    tier="proven",
)
def compass(
    *,
    stage: int = 2,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    entropy: float = 0.01,
    steps: int = 32,
    batch: int = 256,
) -> Algorithm:
    """Three stages, with mu the mean of the imitated policy,

        1, imitation:     L = -log N(a; mu(s), sigma^2), over logged actions
        2, residual:      a = mu(s) + a_r, a_r ~ N(r(s), std^2), r = 0 at first; the objective of `ppo` of a_r
        3, distillation:  L = mean_d KL(N(m, s^2) || N(mu_g(s, e), sigma_g^2)), over logged states of embodiment e

    In stage 2 the policy is `NetworkPolicy.with_residual` of that of stage 1, in a recipe `policy: {base: RUN}`; the
    log-probability of a is that of a_r. A policy without a base is PPO's. In stage 3 the log has m and log s of the
    embodiment's own policy as columns `teacher_mean` and `teacher_log_std`, and its observations end in a one-hot
    vector of the embodiment.

    gamma, lam, clip, entropy: as in `ppo`. steps: of a fragment. batch: as in `bc`; of stages 1 and 3.

    Deviations. The paper's policy reads the state of a world model, and its critic also depth, speed and route. Step
    sizes do not follow the divergence. Episodes that end by time go on from the critic's value. The authors' mask of
    unused dimensions is the setting `objective.dimensions`, and their squared loss `objective.divergence`.
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"compass: stage must be 1, 2 or 3, found {stage}")
    if stage == 1:
        return bc(batch=batch)
    if stage == 3:
        return bc(batch=batch).but(objective=GaussianDistillation())
    return ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, kl=0.0).but(
        sampling=Fragments(steps=steps), reward=EnvironmentReward(), **{"credit.credit.cut": "bootstrap"}
    )
