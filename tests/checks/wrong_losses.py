"""Plain losses with one deliberate mistake each, and some that are right. `polopt check` must tell them apart."""

from __future__ import annotations

import torch
from torch import Tensor


def right(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, decisions: Tensor) -> Tensor:
    """PPO's clip over the decisions of the whole batch: nothing breaks."""
    log_ratio = torch.where(mask, logp - old_logp, 0).clamp(-20, 20)
    ratio, advantage = log_ratio.exp(), torch.where(mask, advantage, 0)
    terms = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    return torch.where(mask, terms, 0).sum() / decisions.clamp(min=1)


def terms(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, -torch.where(mask, advantage, 0) * torch.where(mask, logp, 0), 0)


def summed(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    return terms(logp, advantage, mask).sum()


def token_mean(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Choice: divides by the decisions of its own micro-batch."""
    return terms(logp, advantage, mask).sum() / mask.sum().clamp(min=1)


def row_mean(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Choice: every row weighs the same, whatever its length; divides by the rows of its own micro-batch."""
    return (terms(logp, advantage, mask).sum(1) / mask.sum(1).clamp(min=1)).mean()


def row_mean_unguarded(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """0 / 0 for each row without decisions, which must not hide what else there is to find."""
    return (terms(logp, advantage, mask).sum(1) / mask.sum(1)).mean()


def row_mean_of_occupied(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Choice: as row_mean, but rows without decisions do not count."""
    rows = terms(logp, advantage, mask).sum(1) / mask.sum(1).clamp(min=1)
    return rows.sum() / mask.any(1).sum().clamp(min=1)


def padded_mean(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Divides by the width of the batch."""
    return terms(logp, advantage, mask).mean()


def maskless(logp: Tensor, advantage: Tensor) -> Tensor:
    """Takes no mask at all."""
    return -(logp * advantage).mean()


def by_column(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Weighs decisions by the column in which they stand."""
    return (terms(logp, advantage, mask) * torch.arange(1, 1 + mask.shape[1])).sum()


def by_row(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Weighs rows by where in the batch they stand."""
    return (terms(logp, advantage, mask) * torch.arange(1, 1 + len(mask))[:, None]).sum()


def whitened(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Compares the rows of a micro-batch with each other."""
    own = torch.where(mask, advantage, 0)
    centred = torch.where(mask, own - own.sum() / mask.sum().clamp(min=1), 0)
    return terms(logp, centred / (centred.square().mean().sqrt() + 1e-2), mask).sum()


def multiplied(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Multiplies by the mask, which keeps NaN."""
    return -(logp * advantage * mask).sum()


def peeking(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Reads the advantages off the mask, whatever they are."""
    return terms(logp, advantage, mask).sum() * (1 + advantage[:, -1].mean().tanh())


def frozen(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Takes a number out of the graph and puts it back as if nothing had happened."""
    size = sum(logp[mask].tolist())
    return summed(logp, advantage, mask) * (2 + size / 100)


def unguarded(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """0 / 0 without decisions."""
    return terms(logp, advantage, mask).sum() / mask.sum()


def unbounded(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """exp without a limit."""
    ratio = torch.where(mask, logp - old_logp, 0).exp()
    return -(ratio * torch.where(mask, advantage, 0)).sum()


def widened(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Float64 out, whatever came in."""
    return terms(logp, advantage, mask).double().sum()


def halved(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Rounds more in float32 than float32 does."""
    coarse = logp.half().float() if logp.dtype == torch.float32 else logp
    return terms(coarse, advantage, mask).sum()


def restless(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Moves although there is no advantage."""
    return terms(logp, advantage + 0.1, mask).sum()


def upside_down(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Maximises where it should minimise."""
    return -summed(logp, advantage, mask)


def bold(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Only ever learns from what went well: advantages that are not positive are turned round."""
    return terms(logp, advantage.abs(), mask).sum()


def drawn(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Drops decisions by chance."""
    return terms(logp, advantage * (torch.rand(()) + 0.5), mask).sum()


def tensor_out(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    return terms(logp, advantage, mask)


def strange(logp: Tensor, wisdom: Tensor) -> Tensor:
    return (logp * wisdom).sum()


def no_policy(advantage: Tensor, mask: Tensor) -> Tensor:
    return advantage[mask].sum()


def numbers(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Needs the mask as numbers."""
    return -(logp * advantage * (1 - (1 - mask))).sum()


def pair(log_probs: Tensor, advantages: Tensor, response_mask: Tensor) -> tuple[Tensor, dict[str, float]]:
    return summed(log_probs, advantages, response_mask), {"metric": 1.0}


def deaf(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Takes the advantage and does not listen."""
    return -torch.where(mask, logp, 0).sum()


def stopping(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    """Right, with a weight that is held still."""
    with torch.no_grad():
        weight = torch.where(mask, logp - old_logp, 0).clamp(-20, 20).exp().clamp(max=2)
    return (weight * terms(logp, advantage, mask)).sum()


def blind(logp: Tensor, mask: Tensor) -> Tensor:
    return logp.detach()[mask].sum()


def falls(logp: Tensor) -> Tensor:
    return {}["nowhere"]
