"""These programs measure what the paper of CoT2 claims."""

import copy
import functools
import itertools
from typing import Any, cast

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.mnns import MixtureSource, SignedSums, accuracy, fit, signed_sums
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import More, effect
from polopt.methods.cot2 import DrawMeanRatio, cot2
from polopt.objectives import Surrogate
from polopt.policies.mixture import Certain, MixturePolicy, Tokens


@claim(
    "The product of K ratios is unbiased, E_old[prod r f] = E_new[f]; their geometric mean is not.",
    kind="theory",
    baseline="the geometric mean",
)
def unbiased() -> Finding:
    g = torch.Generator().manual_seed(0)
    old, new = (torch.randn(3, generator=g, dtype=torch.double).log_softmax(0) for _ in range(2))
    worth = torch.rand(3, 3, 3, generator=g, dtype=torch.double)
    off: dict[str, float] = {}
    for K in (1, 2, 3):
        draws = torch.tensor(list(itertools.product(range(3), repeat=K)))
        # Of the thought alone, in whatever order it was drawn.
        f = worth[tuple(draws.sort(1).values[:, [0, K // 2, K - 1]].T)]
        p, exact = old[draws].sum(1).exp(), new[draws].sum(1).exp() @ f
        batch = Experience(
            mask=torch.ones(len(draws), 1).bool(),
            rollout_logp=old[draws].sum(1, keepdim=True),
            extras={"drawn": torch.full((len(draws), 1), K)},
        )
        evaluation = Evaluation(logp=new[draws].sum(1, keepdim=True))
        for name, root in (("product", False), ("geometric mean", True)):
            part = cast(Surrogate, cot2(root=root).objective).ratio
            assert part is not None
            ratio = part(batch, evaluation).exp()[:, 0]
            off[f"{name}, K={K}"] = (p @ (ratio * f) - exact).abs().item()
    product = max(v for n, v in off.items() if "product" in n)
    return Finding(
        measured=off,
        criterion="product < 1e-12 for K = 1, 2, 3; the geometric mean > 0.01 for K = 2 or 3",
        holds=product < 1e-12 and max(off["geometric mean, K=2"], off["geometric mean, K=3"]) > 0.01,
    )


# The paper's one layer and one head; three numbers up to 8 in place of four up to 9.
SMALL: dict[str, Any] = {"width": 16, "layers": 1, "heads": 1}


@effect(
    "A small policy that learned all partial sums at once answers better than one that learned a best path.",
    kind="headline",
    method=lambda: "continuous",
    controls={"discrete chain of thought": lambda: "discrete"},
    step_sizes=(3e-3, 1e-2, 3e-2),
    criteria=[More("accuracy", by=0.1)],
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="Discrete: the same policy, one best path as hard targets, greedy tokens. Accuracy on held-out numbers. In "
    "steps of 0.01 a run of it reached 0.82, discrete 0.74; in those of 0.03, which one trial found best for both, "
    "some of its runs fail.",
)
def parallel(side: str, *, seed: int, step_size: float) -> dict[str, float]:
    task = signed_sums(3, 8, seed=seed)
    known, unseen = ~task.held_out, task.held_out.nonzero().flatten()
    targets = task.every if side == "continuous" else task.path
    policy = task.policy(Tokens(), **SMALL, seed=seed)
    source = MixtureSource(policy, task.prompts[known], task.right[known], targets[known], rows=64, seed=seed)
    fit(cot2(stage=1), source, steps=1200, rate=step_size)
    return {"accuracy": accuracy(policy, task, unseen, Certain(likeliest=side == "discrete"))}


ROWS = 256


@functools.cache
def _supervised(seed: int) -> tuple[SignedSums, MixturePolicy]:
    """Returns the numbers of a seed, and a policy after continuous supervision; more of it adds little."""
    task = signed_sums(3, 8, seed=seed)
    policy = task.policy(Tokens(count=3), **SMALL, seed=seed)
    fit(cot2(stage=1), _source(task, policy, rows=64, seed=seed), steps=1200, rate=1e-2)
    return task, policy


def _source(task: SignedSums, policy: MixturePolicy, *, rows: int, seed: int) -> MixtureSource:
    known = ~task.held_out
    return MixtureSource(policy, task.prompts[known], task.right[known], task.every[known], rows=rows, seed=seed)


@effect(
    "GRPO on drawn thoughts improves what continuous supervision left.",
    kind="headline",
    method=cot2,
    controls={"as much more supervision": lambda: cot2(stage=1), "no more training": lambda: None},
    step_sizes=(1e-4, 3e-4, 1e-3, 3e-3),
    criteria=[More("accuracy", by=0.02)],
    seeds=8,
    trials=2,
    cost="slow",
    note="Accuracy on held-out numbers, K = 3, after 1,200 batches of supervision and 200 more of 256 rows. Rows that "
    "are sampled cost more than those that are read. What is not trained has no step size.",
)
def improves(algorithm: Algorithm | None, *, seed: int, step_size: float) -> dict[str, float]:
    task, before = _supervised(seed)
    policy = copy.deepcopy(before)
    if algorithm is not None:
        fit(algorithm, _source(task, policy, rows=ROWS, seed=seed + 1), steps=200, rate=step_size)
    return {"accuracy": accuracy(policy, task, task.held_out.nonzero().flatten())}


@mutation("The root is taken of the product, too.", kills=unbiased)
def root_always(replace: Replace) -> None:
    forward = DrawMeanRatio.forward
    replace(DrawMeanRatio, "forward", lambda self, *given: forward(self.but(root=True), *given))


@mutation("The root is never taken.", kills=unbiased)
def root_never(replace: Replace) -> None:
    forward = DrawMeanRatio.forward
    replace(DrawMeanRatio, "forward", lambda self, *given: forward(self.but(root=False), *given))
