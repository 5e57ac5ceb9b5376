"""A point that moves in a square, without any reward, and skills that are told apart by the states they visit."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.lab.stepped import SteppedWorld, played
from polopt.networks import Relabel
from polopt.objectives import Aggregate, TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput
from polopt.policies.network import NetworkPolicy

SIDE, STEP = 20.0, 0.5
AFTER = NetworkOutput("encoder", next=True)


class Plane(SteppedWorld):
    """A point that begins in the middle of a square of side 20, and moves by at most half a unit a step."""

    observations, dimensions, horizon = 2, 2, 40

    def start(self, count: int, generator: Generator) -> Tensor:
        return torch.zeros(count, 2)

    def step(self, state: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after = (state + STEP * action).clamp(-SIDE / 2, SIDE / 2)
        return after, torch.zeros(len(state)), torch.zeros(len(state), dtype=torch.bool)


def directions(count: int) -> Tensor:
    """Returns points of the unit circle, evenly spaced, [count, 2]."""
    angle = torch.arange(count) * 2 * torch.pi / count
    return torch.stack([angle.cos(), angle.sin()], -1)


def coverage(policy: NetworkPolicy) -> float:
    """Returns the share of the square's 400 unit cells that 64 skills visit in an episode each."""
    states = played(Plane(), policy, torch.zeros(64, 2), directions(64)).reshape(-1, 2)
    cells = (states + SIDE / 2).floor().clamp(0, SIDE - 1)
    return len(torch.unique(cells @ torch.tensor([SIDE, 1.0]))) / SIDE**2


class DiscriminatorReward(Relabel):
    """r = z f(s_next): the log-likelihood of the skill under a von Mises distribution around f, but for a constant."""

    reads = frozenset({"extras.skill"})
    writes = frozenset({"reward"})
    policy_outputs = frozenset({AFTER.name})

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        return experience.replace(reward=_likelihood(experience, evaluation))


class DiscriminatorLoss(NetworkObjective):
    """aggregate( -z f(s_next) )."""

    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.skill"})
    policy_outputs = frozenset({AFTER.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        return Loss(-self.aggregate(experience, _likelihood(experience, evaluation)), {})


def _likelihood(experience: Experience, evaluation: Evaluation) -> Tensor:
    guess = torch.nn.functional.normalize(evaluated(evaluation, AFTER), dim=-1)
    return (guess * experience.extras["skill"]).sum(-1)


def told_apart(made: Algorithm) -> Algorithm:
    """Returns a skill-learning algorithm with the reward of DIAYN (arXiv 1802.06070) in place of its own: how well the
    skill is told from the state. All else is the same."""
    networks = [made.networks[0].but(objective=DiscriminatorLoss()), *list(made.networks)[2:]]
    return made.but(relabel=[DiscriminatorReward()], networks=networks)
