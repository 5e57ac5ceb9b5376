"""These programs measure what the paper of CISPO claims."""

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.claims import push, rare_arm
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods.cispo import cispo
from polopt.methods.grpo import grpo
from polopt.objectives import Clip, ClipWeight


@claim("Outside PPO's band each token still has the gradient clip(r) A.", kind="identity", baseline="PPO's clip: none")
def keeps_gradient() -> Finding:
    ratios = (1.5, 2.0, 10.0)
    error = max(abs(push(ClipWeight(), ratio) - min(ratio, 5.0)) for ratio in ratios)
    clipped = max(abs(push(Clip(), ratio)) for ratio in ratios)
    return Finding(
        measured={"largest error": error, "PPO's clip": clipped},
        criterion="error < 1e-12 at ratios 1.5, 2, 10; PPO's clip 0",
        holds=error < 1e-12 and clipped == 0,
    )


@claim("One rare success keeps growing through 32 small steps on its batch.", kind="part", baseline="PPO's clip 0.2")
def rare_success() -> Finding:
    ours = rare_arm(cispo(), steps=32)
    clipped = rare_arm(cispo().but(**{"objective.trust": Clip()}), steps=32)
    return Finding(
        measured={"growth": ours, "PPO's clip": clipped},
        criterion="growth - 1 is > 1.5x that of PPO's clip",
        holds=ours - 1 > 1.5 * (clipped - 1),
    )


@effect(
    "On batches used sixteen times, as in the paper, it has learned more of tasks of very different difficulty.",
    kind="headline",
    method=lambda: cispo(group=8),
    controls={"grpo": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0, 256.0),
    criteria=[More("mean success", by=0.02)],
    cost="slow",
    refuted=True,
    note="With steps as large as GRPO's clip needs to learn best, its lead is within the noise of 10 seeds: 0.03.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=15, epochs=16, step_size=step_size, seed=seed)


@mutation("The importance weight is not detached.", kills=keeps_gradient)
def weight_with_gradient(replace: Replace) -> None:
    def forward(
        self: ClipWeight, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, ...]:
        weight = log_ratio.exp().clamp(0 if self.low is None else 1 - self.low, 1 + self.high)
        return -weight * experience.advantage * evaluation.logp, weight.detach()

    replace(ClipWeight, "forward", forward)


@mutation("Tokens whose weight is clipped at PPO's bounds lose their gradient.", kills=rare_success)
def stopped_beyond_the_clip(replace: Replace) -> None:
    forward = ClipWeight.forward

    def stopped(
        self: ClipWeight, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, ...]:
        terms, clipped = forward(self.but(low=0.2, high=0.2), log_ratio, experience, evaluation)
        return terms.where(clipped == 0, 0), clipped

    replace(ClipWeight, "forward", stopped)
