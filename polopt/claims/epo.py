"""These programs measure what the paper of EPO claims."""

import itertools
import math

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.lab.measure import training
from polopt.lab.recurring import lock, sharing
from polopt.methods.epo import EntropyHistory, EntropySmoothing, epo
from polopt.methods.grpo import grpo
from polopt.objectives import TurnMean

STEPS = 60


@effect(
    "Entropy swings less over the second half of the training than under a plain entropy bonus of the same strength.",
    kind="headline",
    method=lambda: epo(strength=0.1, smoothing=1.0, middle=STEPS // 2),
    controls={"entropy bonus": lambda: epo(strength=0.1, smoothing=0.0)},
    step_sizes=(24.0, 48.0, 96.0, 192.0, 384.0),
    trials=5,
    criteria=[Less("swing", times=0.6), More("success", by=-0.02)],
    best=More("success", by=0.0),
    seeds=10,
    cost="slow",
    refuted=True,
    note="24 locks of 3 places in 6 turns, which share 24 features; 60 batches of 8 rollouts of each. The swing is the "
    "standard deviation over batches of the policy's entropy. The strength is that at which the bonus acts here, and"
    " a hundred times the paper's.",
)
def swings_less(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, states = lock(seed, prompts=24)
    policy = sharing(tree, states, seed=seed)
    entropies = list[float]()
    for _ in itertools.islice(training(algorithm, tree, policy, rate=step_size, rows=24, seed=seed), STEPS):
        entropies.append(tree.entropy(policy).item() / tree.horizon)
    half = torch.tensor(entropies[STEPS // 2 :], dtype=torch.double)
    return {"swing": half.std().item(), "success": tree.value(policy).item()}


def _batch(seed: int) -> tuple[Experience, torch.Tensor]:
    """Returns rows of turns of different lengths, with the sampler's entropies, and present entropies."""
    draw = torch.Generator().manual_seed(seed)
    turn = torch.tensor([[0, 0, -1, 1, 1, 1], [0, 1, -1, 2, -1, -1], [0, 0, 0, 0, 0, 1]])
    noted, now = (2 * torch.rand(turn.shape, generator=draw, dtype=torch.double) for _ in range(2))
    outcome = torch.tensor([1.0, 0.0, 0.0]).double()
    blank = torch.zeros_like(noted)
    batch = Experience(
        mask=turn >= 0,
        turn=turn,
        rollout_logp=blank,
        entropy=torch.where(turn >= 0, noted, math.nan),
        reward=outcome,
        outcome=outcome,
        group=torch.zeros(3, dtype=torch.long),
    )
    return batch, now


def _nested(values: torch.Tensor, turn: torch.Tensor) -> float:
    """Returns the mean over rows of the mean over turns of the mean over tokens."""
    rows = []
    for value, own in zip(values.tolist(), turn.tolist(), strict=True):
        turns = [[v for v, h in zip(value, own, strict=True) if h == number] for number in sorted(set(own) - {-1})]
        rows.append(sum(sum(t) / len(t) for t in turns) / len(turns))
    return sum(rows) / len(rows)


@claim(
    "The loss is GRPO's plus the paper's bonus and penalty, at the history's mean and the phase of each batch.",
    kind="identity",
    baseline="GRPO's loss, and the loss in the first batch, which has no history",
)
def is_the_formula() -> Finding:
    strength, alpha, low, high, decay, middle = 0.3, 0.5, 0.9, 1.1, 2.0, 3
    algorithm = epo(group=3, strength=strength, smoothing=alpha, low=low, high=high, decay=decay, middle=middle).train()
    base, history, off, penalties = grpo(group=3, kl=0.0), list[float](), 0.0, list[float]()
    for k in range(4):
        batch, now = _batch(k)
        entropy = now.clone().requires_grad_()
        evaluation = Evaluation(logp=torch.zeros_like(now), entropy=entropy, support=batch.support)
        loss = algorithm.objective(algorithm.credit.credited(batch), evaluation).loss
        (slope,) = torch.autograd.grad(loss, entropy)
        own = base.objective(base.credit.credited(batch), evaluation).loss.detach()
        mean = sum(history) / k if k else math.nan
        outside = (low * mean - now).clamp(min=0) + (now - high * mean).clamp(min=0)
        phase = 1 + math.exp(-decay * k / middle)
        penalty = phase * alpha * _nested(outside.nan_to_num(), batch.turn) if k else 0.0
        off = max(off, abs(float(loss.detach() - own) + strength * (_nested(now, batch.turn) - penalty)))
        sign = (now > high * mean).double() - (now < low * mean).double()
        weights = torch.autograd.grad(TurnMean()(batch, now.requires_grad_()), now)[0]
        expected = -strength * weights * (1 - phase * alpha * sign * (k > 0))
        off = max(off, (slope - expected).abs().max().item())
        penalties.append(penalty)
        history.append(_nested(torch.where(batch.mask, batch.entropy, 0), batch.turn))
        for part in algorithm.modules():
            if isinstance(part, EntropySmoothing):
                part.on_step()
    return Finding(
        measured={"largest error": off, "least penalty after the first batch": min(penalties[1:])},
        criterion="error of loss and gradient < 1e-12 over four batches, penalties > 0.01 after the first",
        holds=off < 1e-12 and min(penalties[1:]) > 0.01,
    )


@claim(
    "Tokens inside the band have no penalty and no gradient of it, tokens outside have one of one sign each.",
    kind="limit",
    baseline="a band of no width, outside of which all tokens are",
)
def free_inside() -> Finding:
    batch, now = _batch(3)
    history = torch.full((3,), 1.0).double()
    batch = batch.replace(extras={"entropy_history": history})

    def slopes(low: float, high: float) -> torch.Tensor:
        entropy = now.clone().requires_grad_()
        terms = EntropySmoothing(low=low, high=high)(
            batch, Evaluation(logp=torch.zeros_like(now), entropy=entropy, support=batch.support)
        )
        return torch.autograd.grad(terms.sum(), entropy)[0]

    inside, found = slopes(0.0, 100.0).abs().max().item(), slopes(1.0, 1.0)
    least = found.abs().min().item()
    right = bool(((found > 0) == (now > 1)).all())
    return Finding(
        measured={"largest slope inside": inside, "least slope outside": least},
        criterion="0 inside; at least 1 outside, upwards above the band and downwards below",
        holds=inside == 0 and least >= 1 and right,
    )


@mutation("The history holds the present batch.", kills=is_the_formula)
def knows_the_present(replace: Replace) -> None:
    def credited(self: EntropyHistory, experience: Experience) -> Experience:
        entropy = torch.where(experience.mask, experience.entropy, 0).double()
        self.get_buffer("total").add_(TurnMean()(experience, entropy))
        self.get_buffer("batches").add_(1)
        mean = (self.get_buffer("total") / self.get_buffer("batches")).expand(len(experience))
        return self.credit.credited(experience).replace(extras={"entropy_history": mean.clone()})

    replace(EntropyHistory, "credited", credited)


@mutation("The penalty is a constant, as in the authors' code, and has no gradient.", kills=is_the_formula)
def without_gradient(replace: Replace) -> None:
    own = EntropySmoothing.forward
    replace(
        EntropySmoothing, "forward", lambda self, experience, evaluation: own(self, experience, evaluation).detach()
    )
