"""Doses for a severity that falls with them, and rises with a dose that is too strong for it.

An action a in [-1, 1] is the dose (a + 1) / 2."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.lab.transitions import Log
from polopt.policies.network import NetworkPolicy

HORIZON, DANGER = 20, 0.8


def strongest(severity: Tensor) -> Tensor:
    """Returns the strongest dose that does no harm, 1 - 0.8 severity, and 0.2 at least."""
    return (1 - 0.8 * severity).clamp(min=0.2)


def after(severity: Tensor, dose: Tensor, draw: Generator) -> Tensor:
    """Returns the severity [N], within [0, 5], after doses [N]: it rises by 0.03 by itself, falls by a quarter of the
    dose, and rises by twice what the dose is too strong by, with noise of 0.01."""
    harm = 2 * (dose - strongest(severity)).clamp(min=0)
    noise = 0.01 * torch.randn(severity.shape, generator=draw)
    return (severity + 0.03 - 0.25 * dose + harm + noise).clamp(0, 5)


def careful(severity: Tensor, draw: Generator) -> Tensor:
    """Returns the logged doses: 0.7 of the strongest, with noise of 0.08."""
    return (0.7 * strongest(severity) + 0.08 * torch.randn(severity.shape, generator=draw)).clamp(0, 1)


def first(count: int, draw: Generator, *, grave: int = 0) -> Tensor:
    """Returns severities at first, uniform on [0.4, 0.8], of which the first `grave` are evenly spaced on [1, 5]."""
    usual = 0.4 + 0.4 * torch.rand(count, generator=draw)
    return torch.cat([torch.linspace(1, 5, grave), usual[grave:]])


def careful_log(episodes: int, seed: int) -> Log:
    """Returns episodes of careful doses, each as 20 rows in turn; the reward is minus the severity after a dose, and
    the cost is 1 where it is above 0.8."""
    draw = Generator().manual_seed(seed)
    severity, steps = first(episodes, draw, grave=episodes // 20), list[dict[str, Tensor]]()
    for t in range(HORIZON):
        dose = careful(severity, draw)
        found = after(severity, dose, draw)
        last = torch.full((episodes,), t == HORIZON - 1)
        row = {"observation": severity[:, None], "action": 2 * dose[:, None] - 1, "next_observation": found[:, None]}
        ends = {"terminated": torch.zeros_like(last), "truncated": last}
        steps.append({**row, "reward": -found, "cost": (found > DANGER).float(), **ends})
        severity = found
    log = {name: torch.stack([step[name] for step in steps], 1).flatten(0, 1) for name in steps[0]}
    return log | {"following": torch.where(log["truncated"], 0, 1)}


@torch.no_grad()
def treated(policy: NetworkPolicy | None, seed: int, patients: int = 500) -> float:
    """Returns the mean return of usual patients in reality. policy: its most likely doses; None gives the careful
    ones."""
    draw = Generator().manual_seed(seed)
    severity, total = first(patients, draw), torch.zeros(patients)
    for _ in range(HORIZON):
        if policy is None:
            dose = careful(severity, draw)
        else:
            dose = (policy.act(severity[:, None], draw, greedy=True).action[:, 0].clamp(-1, 1) + 1) / 2
        severity = after(severity, dose, draw)
        total -= severity
    return float(total.mean())
