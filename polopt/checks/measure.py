"""Measurements of a loss: its normaliser, the direction in which it moves the policy, and its dependence on length."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from polopt.checks.calls import call_part
from polopt.checks.cases import STEP, PartRow, lines, occupied, on_policy
from polopt.checks.finding import CheckResult
from polopt.checks.plain_loss import PlainLoss
from polopt.checks.sample_batches import SampleBatch
from polopt.checks.stop_gradients import StopGradientMismatch, StopGradients
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.part import Part

Maker = Callable[..., SampleBatch]

SEEDS = range(4)
CLOSE = 1e-6

# Candidates for the normaliser of a micro-batch, simplest first.
SIZES: dict[str, Callable[[Experience], float]] = {
    "decisions": lambda e: float(e.mask.sum()),
    "rows that hold decisions": lambda e: float(e.mask.any(1).sum()),
    "rows": lambda e: float(len(e)),
    "rows times columns": lambda e: float(e.mask.numel()),
}
AVERAGED = {
    "decisions": "sum the micro-batches' sums and divide by the decisions of all of them",
    "rows that hold decisions": "micro-batches with equally many of them may be averaged, others may not",
    "rows": "micro-batches of equal size may be averaged, a smaller last one must count for less",
    "rows times columns": "padding counts, too: sum, and divide by the decisions of all",
}


# Normaliser ---------------------------------------------------------------------------------------------


def normaliser(part: Part, make: Maker) -> tuple[str, dict[str, float]] | None:
    """Finds the quantity by which a loss that sees only its micro-batch divides; None if none of `SIZES` explains it.

    Also returns how much the weight of a decision then varies under plain averaging over micro-batches of one row.
    """
    batches = [make(seed, clean=True) for seed in SEEDS]
    for name, size in SIZES.items():
        full = all(_scaled(part, occupied(b), size, rows) for b in batches for rows in (1, 3))
        if full and all(_scaled(part, b, size, 3) for b in batches):
            whole = occupied(batches[0]).experience
            each = [size(micro) for micro in whole.split(1)]
            factors = [size(whole) / (len(each) * s) for s in each]
            return name, {"least weight": min(factors), "most weight": max(factors)}
    return None


def _scaled(part: Part, batch: SampleBatch, size: Callable[[Experience], float], rows: int) -> bool:
    """Tests whether size x loss, and size x gradient, of the micro-batches add up to those of the whole batch."""
    whole, start = call_part(part, batch), 0
    total, grads = torch.zeros_like(whole.value), []
    for micro in batch.experience.split(rows):
        piece = call_part(part, batch.rows(torch.arange(start, start + len(micro))), micro)
        total = total + size(micro) * piece.value
        grads.append(size(micro) * piece.grads["logp"])
        start += len(micro)
    n = size(batch.experience)
    same = lambda x, y: torch.allclose(x, y, rtol=CLOSE, atol=1e-9)  # noqa: E731
    return same(total, n * whole.value) and same(torch.cat(grads), n * whole.grads["logp"])


# Stopped gradients ----------------------------------------------------------------------------------------------------


def stopped(row: PartRow) -> bool:
    """Tests whether the gradient is the value's slope once every detached tensor is held constant."""
    for seed in SEEDS:
        batch = row.batch(seed, clean=True)
        evaluation, stops = batch.evaluation(), StopGradients()
        loss = stops.recorded(functools.partial(_loss, row.part, batch, evaluation))
        grads = torch.autograd.grad(loss, list(batch.leaves.values()), materialize_grads=True)
        for line in lines(batch).values():
            along = [(g * line[k]).sum() for k, g in zip(batch.leaves, grads, strict=True) if k in line]
            found = torch.stack(along).sum()
            try:
                up, down = (_moved_loss(row.part, stops, batch, line, sign) for sign in (1, -1))
            except StopGradientMismatch:
                return False
            if not torch.allclose(found, (up - down) / (2 * STEP), rtol=1e-5, atol=1e-7):
                return False
    return True


def _moved_loss(part: Part, stops: StopGradients, batch: SampleBatch, line: dict[str, Tensor], sign: int) -> Tensor:
    moved = batch.nudged({k: sign * STEP * v for k, v in line.items()})
    leaves = {k: v.detach().requires_grad_() for k, v in moved.leaves.items()}
    evaluation = dataclasses.replace(moved, leaves=leaves).evaluation()
    return stops.replayed(functools.partial(_loss, part, batch, evaluation)).detach()


def _loss(part: Part, batch: SampleBatch, evaluation: Evaluation) -> Tensor:
    return part(batch.experience, evaluation).loss


# Direction -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Push:
    """-d loss / d logp on policy compared with A.

    cosine: between the two.
    scale: the factor that fits best.
    fitted: the cosine once each row's advantages may be divided by its length.
    unit: whether a decision's gradient follows its own advantage ("token") or its row's ("row").
    """

    cosine: float
    scale: float
    fitted: float
    unit: str


def push(part: Part, batch: SampleBatch) -> Push:
    """Measures how a loss moves log-probabilities before the first update, each decision with an advantage of its own;
    with one advantage for each row, if that explains more."""
    found = _push(part, batch, "token")
    if found.fitted > 1 - CLOSE or not math.isfinite(found.fitted):
        return found
    first = batch.experience.advantage.gather(1, batch.mask.int().argmax(1, keepdim=True))
    rows = _push(part, batch.replace(advantage=first.expand_as(batch.mask).contiguous()), "row")
    return rows if rows.fitted > 1 - CLOSE else found


def _push(part: Part, batch: SampleBatch, unit: str) -> Push:
    grad = call_part(part, batch).grads["logp"]
    expected = torch.where(batch.mask, -batch.experience.advantage, 0)
    cosine = lambda x, y: cosine_similarity(x.flatten(), y.flatten(), 0, eps=1e-300).item()  # noqa: E731
    scale = (grad * expected).sum() / expected.square().sum()
    straight, by_length = cosine(grad, expected), cosine(grad, expected / batch.experience.lengths[:, None])
    return Push(straight, scale.item(), max(straight, by_length), unit)


def reads_advantage(part: Part, make: Maker) -> bool:
    """Tests whether other advantages give another gradient."""
    for seed in SEEDS:
        batch = make(seed, clean=True)
        turned = batch.replace(advantage=1 - 2 * batch.experience.advantage)
        first, second = (call_part(part, b).grads for b in (batch, turned))
        if any(not torch.equal(first[leaf], second[leaf]) for leaf in first):
            return True
    return False


def direction(part: Part, make: Maker, title: str, why: str) -> CheckResult:
    """Measures the cosine of the gradient at ratio 1 with A grad log p, for a loss that passes the check of its
    direction.
    """
    found = push(part, on_policy(occupied(make(0, clean=True))))
    measured = {"cosine": found.cosine, "scale": found.scale}
    sentence = f"cosine with A grad log p {found.cosine:.4f}, scale {found.scale:.3g}"
    if found.fitted < 1 - CLOSE:
        sentence += ": the factors are neither all one nor those of the rows' lengths"
        return CheckResult(title, "choice", sentence, why, measured)
    sentence += ", with one advantage for all of a row" if found.unit == "row" else ""
    return CheckResult(
        title, "holds", sentence + ("" if found.cosine > 1 - CLOSE else "; 1 but for the rows' lengths"), why, measured
    )


def lengths(part: Part, make: Maker) -> CheckResult:
    """Measures how a decision's weight depends on the length of its row, on policy, with advantage 1 everywhere."""
    batch = make(0, clean=True)
    T = batch.mask.shape[1]
    sizes = sorted({1, max(1, T // 4), max(1, T // 2), T})[: len(batch.mask)]
    mask = torch.arange(T) < torch.tensor(sizes)[:, None]
    batch = batch.rows(torch.arange(len(sizes)))
    batch = batch.replace(mask=mask, advantage=torch.ones(mask.shape, dtype=torch.float64))
    weights = -call_part(part, on_policy(batch)).grads["logp"]
    each = [weights[i, :n].mean().item() for i, n in enumerate(sizes)]
    title = "length"
    why = (
        "Where each row weighs the same, a decision in a long row counts for less: long wrong answers are punished "
        "less than short ones (arXiv:2503.20783)."
    )
    if not all(math.isfinite(w) and w > 0 for w in each):
        sentence = f"decisions all of advantage 1 weigh {', '.join(f'{w:.3g}' for w in each)} in rows of {sizes}"
        return CheckResult(title, "choice", sentence, why)
    relative, n = [w / each[0] for w in each], sizes[-1]
    measured = {f"weight in a row of {n}": w for n, w in zip(sizes, relative, strict=True)}
    if max(abs(w - 1) for w in relative) < CLOSE:
        return CheckResult(title, "holds", "a decision weighs the same in short rows and in long ones", why, measured)
    if max(abs(w * n - 1) for w, n in zip(relative, sizes, strict=True)) < CLOSE:
        sentence = f"each row weighs the same: in a row of {n} a decision weighs 1/{n}"
        return CheckResult(title, "choice", sentence, why, measured, short="1 / length")
    sentence = f"in a row of {n} a decision weighs {relative[-1]:.3g} of what it does in a row of 1"
    return CheckResult(title, "choice", sentence, why, measured)


def repeats(part: Part, make: Maker) -> bool:
    """Tests whether several calls on one batch return the same loss and gradient, without a fixed seed."""
    part = part.but(seed=None) if isinstance(part, PlainLoss) else part
    for seed in SEEDS:
        batch = make(seed, clean=True)
        first, *others = (call_part(part, batch) for _ in range(3))
        for other in others:
            pairs = ((first.grads["logp"], other.grads["logp"]), (first.value, other.value))
            # Two NaNs count as equal.
            if not all(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True) for a, b in pairs):
                return False
    return True


def decided(make: Maker) -> Maker:
    """Wraps `make`: the batches without the rows that hold no decision."""

    def made(seed: int, clean: bool = False) -> SampleBatch:
        batch = make(seed, clean=clean)
        return batch.rows(batch.mask.any(1).nonzero().flatten())

    return made


def finite(part: Part, make: Maker) -> bool:
    """Tests whether the loss and its gradient are finite on clean batches."""
    found = [call_part(part, make(seed, clean=True)) for seed in SEEDS]
    return all(bool(f.value.isfinite().all() and f.grads["logp"].isfinite().all()) for f in found)
