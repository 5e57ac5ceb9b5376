"""These programs measure what the paper of LOOP claims."""

import math
from collections.abc import Callable

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import LeaveOneOut
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.measure import expectation
from polopt.lab.progress import learned, uneven
from polopt.lab.shapes import norms_in_one_batch
from polopt.methods.grpo import grpo
from polopt.methods.loop import loop
from polopt.methods.rloo import rloo
from polopt.objectives import ProductRatio, TurnMean


@effect(
    "More is learned than by RLOO from the same rollouts, by four clipped passes over each batch in place of one.",
    kind="headline",
    method=lambda: (loop(), 4),
    controls={
        "RLOO": lambda: (rloo(group=6, kl=0.0), 1),
        "RLOO, four passes": lambda: (rloo(group=6, kl=0.0), 4),
    },
    step_sizes=(3.0, 9.0, 30.0, 90.0, 300.0),
    trials=5,
    criteria=[More("mean success", by=0.0)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="16 tasks with success from 0.02 to 0.5 at the start, which share parameters; 60 batches of 6 rollouts "
    "of each. One long step on each batch is as good as four clipped ones.",
)
def learns_sooner(side: tuple[Algorithm, int], *, seed: int, step_size: float) -> dict[str, float]:
    algorithm, epochs = side
    problem = uneven(seed, hardest=0.02, easiest=0.5, features=48)
    found = learned(algorithm, problem, steps=60, step_size=step_size, seed=seed, epochs=epochs)
    return {name: found[name] for name in ("mean success", "success")}


@claim(
    "The expected first update is the exact policy gradient, for the ratio of tokens, of turns and of rollouts.",
    kind="theory",
    baseline="GRPO, whose deviation bends it",
)
def unbiased() -> Finding:
    tree = TokenTree.full(2, 3, lambda prompt, answer: [0.0, 1.0, 0.3, 0.9][answer[0] + 2 * answer[2]]).in_turns(2)
    policy = TabularPolicy(tree, spread=0.8, seed=4)
    units = [expectation(loop(group=2, unit=unit), tree, policy) for unit in ("token", "turn", "row")]
    off = max(found.relative_bias for found in units)
    plain = expectation(grpo(group=2, kl=0.0), tree, policy)
    length = plain.mean.norm() / plain.exact.norm()
    bent = (plain.mean / length - plain.exact).norm().item() / plain.exact.norm().item()
    return Finding(
        measured={"largest relative bias": off, "GRPO's, at the same length": bent},
        criterion="bias < 1e-10; GRPO's > 0.01",
        holds=off < 1e-10 and bent > 0.01,
    )


@claim(
    "A task that seldom fails is not weighed up: each task's part of the update is as long as in the exact gradient.",
    kind="theory",
    baseline="GRPO, whose deviation lengthens it",
)
def keeps_proportions() -> Finding:
    rates = [0.5, 0.95]
    exact = [math.sqrt(2) * p * (1 - p) for p in rates]

    def apart(algorithm: Algorithm) -> float:
        found = norms_in_one_batch(algorithm, rates)
        return (found[1] / found[0]) / (exact[1] / exact[0])

    ours, plain = apart(loop(group=32)), apart(grpo(group=32, kl=0.0))
    return Finding(
        measured={"proportion over the exact one": ours, "GRPO's": plain},
        # The counts of right answers with a chance below 1e-6 are left out.
        criterion="within 1e-4 of 1; GRPO's > 1.5",
        holds=abs(ours - 1) < 1e-4 and plain > 1.5,
    )


def _batch(seed: int) -> tuple[Experience, torch.Tensor]:
    """Returns rows of turns of different lengths with read tokens between them, and present log-probabilities."""
    draw = torch.Generator().manual_seed(seed)
    turn = torch.tensor(
        [[0, 0, -1, 1, 2, 2, 2], [-1, 0, 1, 1, -1, -1, -1], [0, 1, -1, 2, 3, 3, 4], [0, 0, 0, 0, 0, 1, 1]]
    )
    outcome = torch.tensor([1.0, 0.0, 0.5, 0.0]).double()
    old = -2 - torch.rand(turn.shape, generator=draw, dtype=torch.double)
    now = old + 0.3 * torch.randn(turn.shape, generator=draw, dtype=torch.double)
    batch = Experience(
        mask=turn >= 0, turn=turn, rollout_logp=old, reward=outcome, outcome=outcome, group=torch.tensor([0, 0, 1, 1])
    )
    return batch, now


@claim(
    "The loss is the paper's clipped sum over tokens, turns or rollouts.",
    kind="identity",
    baseline="the sum over tokens, for the other two",
)
def is_the_formula() -> Finding:
    batch, now = _batch(0)
    advantage = [1.0, -1.0, 0.5, -0.5]  # of groups of two: the difference of their outcomes
    losses: dict[str, float] = {}
    off = 0.0
    for unit, key in (("token", lambda i, t: (i, t)), ("turn", lambda i, t: (i, int(batch.turn[i, t]))), ("row", _row)):
        algorithm = loop(group=2, clip=0.2, unit=unit)  # type: ignore[arg-type]
        credited = batch.replace(advantage=algorithm.credit(batch))
        logp = now.clone().requires_grad_()
        loss = algorithm.objective(credited, Evaluation(logp=logp, support=batch.support)).loss
        (slope,) = torch.autograd.grad(loss, logp)
        logs: dict[object, float] = {}
        for i, t in batch.mask.nonzero().tolist():
            logs[key(i, t)] = logs.get(key(i, t), 0.0) + float(now[i, t] - batch.rollout_logp[i, t])
        expected, slopes = 0.0, torch.zeros_like(now)
        for unit_key, log in logs.items():
            worth = advantage[unit_key[0] if isinstance(unit_key, tuple) else unit_key]  # type: ignore[index, call-overload]
            ratio = math.exp(log)
            clipped = min(max(ratio, 0.8), 1.2)
            expected -= min(ratio * worth, clipped * worth) / 4
            if ratio * worth <= clipped * worth:
                for i, t in batch.mask.nonzero().tolist():
                    if key(i, t) == unit_key:
                        slopes[i, t] -= ratio * worth / 4
        losses[unit] = float(loss.detach())
        off = max(off, abs(losses[unit] - expected), (slope - slopes).abs().max().item())
    apart = min(abs(losses["token"] - losses[unit]) for unit in ("turn", "row"))
    return Finding(
        measured={"largest error": off, "least difference from tokens": apart},
        criterion="error of loss and gradient < 1e-12 for three units; losses differ by more than 0.01",
        holds=off < 1e-12 and apart > 0.01,
    )


def _row(i: int, t: int) -> int:
    return i


@mutation("The baseline contains the row itself.", kills=is_the_formula)
def own_row_in_the_mean(replace: Replace) -> None:
    from polopt.credit import GroupMean

    replace(LeaveOneOut, "forward", lambda self, experience, returns: GroupMean()(experience, returns))


@mutation("A turn's ratio is its geometric mean.", kills=is_the_formula)
def shortened(replace: Replace) -> None:
    own: Callable[..., tuple[torch.Tensor, torch.Tensor]] = ProductRatio._summed

    def forward(self: ProductRatio, experience: Experience, evaluation: Evaluation) -> torch.Tensor:
        total, count = own(self, experience, evaluation)
        return total / count.clamp(min=1)

    replace(ProductRatio, "forward", forward)


@mutation("A turn counts once for each of its tokens.", kills=unbiased)
def counts_tokens(replace: Replace) -> None:
    replace(TurnMean, "weights", lambda self, experience: experience.mask.double())
