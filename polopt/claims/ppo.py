"""These programs measure what the paper of PPO claims."""

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GAE
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import expectation
from polopt.lab.claims import drift, with_exact_critic
from polopt.lab.effects import More, effect
from polopt.lab.problems import digits
from polopt.lab.progress import learned, uneven
from polopt.methods.ppo import ppo
from polopt.objectives import Clip, SequenceSum, Unclipped


@claim(
    "With an exact critic GAE is unbiased for every lam.",
    kind="identity",
    baseline="the same with a critic that says 0",
)
def any_lam() -> Finding:
    bias = {}
    for critic, (tree, policy) in (("no", digits()), ("exact", with_exact_critic(*digits()))):
        for lam in (0.0, 0.5, 1.0):
            plain = {"objective.aggregate": SequenceSum(length=1), "objective.regularise": []}
            algorithm = ppo(kl=0).but(plain, credit=GAE(lam=lam))
            bias[f"{critic} critic, lam {lam}"] = expectation(algorithm, tree, policy).relative_bias
    return Finding(
        measured=bias,
        criterion="exact critic: relative bias < 1e-10 at every lam; no critic: > 0.1 at lam 0.5",
        holds=all(b < 1e-10 for n, b in bias.items() if "exact" in n) and bias["no critic, lam 0.5"] > 0.1,
    )


@claim("Many steps on one batch stay near it.", kind="part", baseline="no clip, the same 20 steps")
def stays_near() -> Finding:
    algorithm = ppo(group=32, kl=0, lam=1.0).but(**{"objective.regularise": []})
    clip, free = drift(algorithm), drift(algorithm.but(**{"objective.trust": Unclipped()}))
    return Finding(
        measured={"KL(before || after)": clip, "no clip": free},
        criterion="with clip < 0.5 of without",
        holds=clip < 0.5 * free,
    )


def unclipped() -> Algorithm:
    """PPO without a clip."""
    return ppo(group=4, kl=0, lam=1.0).but(**{"objective.trust": Unclipped()})


@effect(
    "From as many answers eight clipped steps on each batch learn more than one step, and than eight unclipped ones.",
    kind="headline",
    method=lambda: (ppo(group=4, kl=0, lam=1.0), 8),
    controls={"one step": lambda: (ppo(group=4, kl=0, lam=1.0), 1), "no clip": lambda: (unclipped(), 8)},
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0),
    criteria=[More("mean success", by=0.02)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="At a step size of its own, an eighth of PPO's, the loss without a clip learns as much. One step on each "
    "batch is behind by 0.03, which ten seeds do not show.",
)
def learns_more(side: tuple[Algorithm, int], *, seed: int, step_size: float) -> dict[str, float]:
    algorithm, epochs = side
    problem = uneven(seed, tasks=8, features=0)
    return learned(algorithm, problem, steps=40, epochs=epochs, step_size=step_size, seed=seed)


@mutation("The value of the state is added, and that of the next one taken away.", kills=any_lam)
def critic_turned_round(replace: Replace) -> None:
    right = ops.gae
    replace(ops, "gae", lambda reward, value, *rest: right(reward, -value, *rest))


@mutation("Of the clipped and the unclipped term the better one counts.", kills=stays_near)
def optimistic(replace: Replace) -> None:
    def forward(self: Clip, log_ratio: Tensor, experience: Experience, _: Evaluation) -> tuple[Tensor, Tensor]:
        ratio, advantage = log_ratio.exp(), experience.advantage
        clipped = ratio.clamp(1 - self.low, 1 + self.high)
        return torch.minimum(-advantage * ratio, -advantage * clipped), torch.zeros_like(ratio)

    replace(Clip, "forward", forward)
