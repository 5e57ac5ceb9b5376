"""These programs measure what the paper of DHPO claims."""

from typing import Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, expectation
from polopt.lab.claims import term_variance
from polopt.lab.effects import More, effect
from polopt.lab.problems import lengths
from polopt.lab.progress import learned, uneven
from polopt.methods.dhpo import HybridClip, dhpo
from polopt.methods.grpo import grpo
from polopt.methods.gspo import gspo
from polopt.objectives.surrogate_terms import pessimistic


@claim(
    "With w = 1 it is GRPO, with w = 0 GSPO, and on policy both for any w.",
    kind="identity",
    baseline="off policy: neither",
)
def like_its_parents() -> Finding:
    tree, policy = lengths()
    old = TabularPolicy(tree, spread=0.3, seed=2)
    parents = {"GRPO": grpo(group=2, kl=0), "GSPO": gspo(group=2)}

    def distance(mix: float | Literal["entropy"], parent: str, behaviour: TabularPolicy) -> float:
        a, b = (
            expectation(s, tree, policy, behaviour=behaviour).mean for s in (dhpo(group=2, mix=mix), parents[parent])
        )
        return ((a - b).norm() / b.norm()).item()

    ends = max(distance(1.0, "GRPO", old), distance(0.0, "GSPO", old))
    on = max(distance(mix, name, policy) for mix in (0.5, "entropy") for name in parents)  # type: ignore[arg-type]
    off = min(distance(0.5, name, old) for name in parents)
    return Finding(
        measured={"at w = 1 and 0": ends, "on policy": on, "w = 1/2, off policy": off},
        criterion="relative distances: < 1e-10 at the ends and on policy, > 1e-3 off policy",
        holds=max(ends, on) < 1e-10 and off > 1e-3,
    )


@claim(
    "Noise of std 0.1 on each logp of 64 tokens moves its weight less than a token's.",
    kind="part",
    baseline="GRPO's, GSPO's",
)
def quieter() -> Finding:
    ours, token, sequence = (term_variance(HybridClip(weight=w), tokens=64, noise=0.1) for w in (0.5, 1.0, 0.0))
    return Finding(
        measured={"variance": ours, "token": token, "sequence": sequence},
        criterion="between the parents, and < 0.3 of the token's",
        holds=sequence < ours < 0.3 * token,
    )


def largest_weight(advantage: float) -> float:
    """|rho| of a token whose ratio is 50, among 63 of ratio 1."""
    log_ratio = torch.zeros(1, 64, dtype=torch.double)
    log_ratio[0, 0] = torch.tensor(50.0).log()
    batch = Experience(mask=torch.ones(1, 64, dtype=torch.bool), advantage=torch.full_like(log_ratio, advantage))
    return HybridClip()(log_ratio, batch, Evaluation(logp=log_ratio))[0].abs().max().item()


@claim("One token with ratio 50 does not dominate.", kind="identity", baseline="the mixture without clips: 25.5")
def outlier() -> Finding:
    up, down, bound = largest_weight(1.0), largest_weight(-1.0), 0.5 * 1.2 + 0.5 * 1.0004
    return Finding(
        measured={"A > 0: largest weight": up, "bound": bound, "A < 0": down},
        criterion="A > 0: at most the mean of the two bounds",
        holds=up <= bound + 1e-9,
        note="For A < 0 the larger loss is the free one, as in PPO: not bounded. The paper may differ.",
    )


@effect(
    "On batches used eight times it learns more than GRPO and than GSPO.",
    kind="headline",
    method=lambda: dhpo(),
    controls={"grpo": lambda: grpo(group=8, kl=0.0), "gspo": lambda: gspo()},
    step_sizes=(16.0, 64.0, 256.0, 1024.0),
    seeds=20,
    criteria=[More("mean success", by=0.0)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="It learns as much as either parent at its own step size, to 0.01, and not more.",
)
def stale(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=30, epochs=8, step_size=step_size, seed=seed)


@mutation("The two ratios are mixed first, and their mixture is clipped at the token's bounds.", kills=outlier)
def mixed_before_the_clip(replace: Replace) -> None:
    def forward(
        self: HybridClip, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        weight = self._weight(log_ratio, experience, evaluation)
        free = weight * log_ratio.exp() + (1 - weight) * self._sequence(log_ratio, experience).exp()
        return pessimistic(free, experience.advantage, 1 - self.token[0], 1 + self.token[1])

    replace(HybridClip, "forward", forward)


@mutation("w is the sequence's share.", kills=like_its_parents)
def other_share(replace: Replace) -> None:
    weight = HybridClip._weight

    def other(self: HybridClip, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> Tensor:
        return 1 - weight(self, log_ratio, experience, evaluation)

    replace(HybridClip, "_weight", other)


@mutation("The sequence's ratio is the product of its tokens' ratios, not their geometric mean.", kills=quieter)
def product_of_ratios(replace: Replace) -> None:
    def product(self: HybridClip, log_ratio: Tensor, experience: Experience) -> Tensor:
        return torch.where(experience.mask, log_ratio, 0).sum(1, keepdim=True).expand_as(log_ratio)

    replace(HybridClip, "_sequence", product)
