"""CAMEL: TD3 within bounds that programs give for each state, and that are taken away by and by."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.td3 import td3
from polopt.networks import Space, Trunk
from polopt.networks.perceptron import Activation, perceptron
from polopt.part import Part
from polopt.sampling import PolicyInput
from polopt.schedules import Schedule, now

# Actions are kept so far from the ends of the environment's bounds, in half widths, where a head squashes by tanh.
INSIDE = 1e-6


@method(
    paper=Paper(
        title="CAMEL: Continuous Action Masking Enabled by Large Language Models for Reinforcement Learning",
        authors="Zhao, Yanxiao and Qian, Yangge and Shan, Jingyang and Qin, Xiaolin",
        year=2025,
        arxiv="2502.11896",
    ),
    changes="Actions are kept near those of programs that solve the task badly, ever more seldom.",
    room="sampling",
    tier="reading",
)
def camel(
    *,
    programs: Sequence[Part] = (),
    low: float = -1.0,
    high: float = 1.0,
    margin: float = 0.2,
    until: int = 10_000,
    gamma: float = 0.99,
    tau: float = 0.005,
    noise: float = 0.1,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With c_k(s) the actions of K programs, m and sd their mean and standard deviation over k, and actions scaled to
    [-1, 1],

        l, u = clip(m -+ (sd + margin), -1, 1) with chance eps, else -1, 1
        a = l + (tanh(x(s, l, u)) + 1) / 2 (u - l)
        eps = max(0, 1 - batches / until)

    and TD3 on a, whose target has bounds of its own in s_next. programs: parts whose call gives the actions [N, A] of
    observations [N, D], as those of `worlds.control.ControlRule`: {part: "programs.py:Pump"}. low, high: the bounds of
    all numbers of an action in the environment. until: batches. gamma, tau, noise, batch, start, capacity, steps,
    hidden: as in `td3`.

    The paper's programs are written by a language model and looked through by people. They run in this process: read
    them first. No more than its abstract was at hand: that bounds are the programs' mean and spread, and that the chance
    is of a step and falls in a line, is a reading. Noise may leave the bounds, within the environment's, and the first
    `start` actions are uniform in the latter.
    """
    epsilon = Schedule(knots=[(0, 1.0), (until, 0.0)])
    bounds = ActionBounds(programs=programs, low=low, high=high, margin=margin, epsilon=epsilon)
    parent = td3(
        gamma=gamma, tau=tau, noise=noise, batch=batch, start=start, capacity=capacity, steps=steps, hidden=hidden
    )
    return parent.but({"sampling.policy_input": bounds}, trunk=BoundedActor(hidden=hidden))


class ActionBounds(PolicyInput):
    """Bounds l and u of an action in a state, [2 A], scaled to [-1, 1]: the mean of programs' actions, less and plus
    their standard deviation and a margin, clipped, with chance epsilon; else -1 and 1.

    programs: parts whose call gives actions [N, A], in the environment's units, of observations [N, D].
    low, high: the environment's bounds of an action, the same in all dimensions.
    margin: what is left to the policy around actions that agree.
    epsilon: the chance, a number or a schedule.
    """

    name: str = "bounds"
    programs: Sequence[Part] = ()
    low: float = -1.0
    high: float = 1.0
    margin: float = 0.2
    epsilon: float | Schedule = 1.0

    def setup(self) -> None:
        super().setup()
        if not self.margin >= 0 or not self.low < self.high:
            raise ValueError(
                f"methods.camel.ActionBounds: need margin >= 0 and low < high, found {self.margin}, {self.low} and "
                f"{self.high}"
            )
        if isinstance(self.epsilon, float | int) and not 0 <= self.epsilon <= 1:
            raise ValueError(f"methods.camel.ActionBounds: epsilon must be in [0, 1], found {self.epsilon}")

    def width(self, dimensions: int | None) -> int:
        if dimensions is None:
            raise ValueError("methods.camel.ActionBounds: the environment's actions are choices; it needs a Box")
        if not self.programs:
            raise ValueError(
                "methods.camel.ActionBounds: programs is empty, and bounds come from them; set it to one or more "
                "parts, as [{part: 'programs.py:Pump'}], whose call gives actions [N, A] of observations [N, D]"
            )
        return 2 * dimensions

    def check(self, low: Sequence[float] | None, high: Sequence[float] | None) -> None:
        if low is None or high is None or {*low} != {self.low} or {*high} != {self.high}:
            raise ValueError(
                f"methods.camel.ActionBounds: low = {self.low} and high = {self.high} must be the bounds of actions, "
                f"which are {low and [*low]} and {high and [*high]}; set the method's low and high"
            )

    def draw(self, count: int, width: int, generator: Generator) -> Tensor:
        return self._whole(count, width // 2)

    def _whole(self, count: int, dimensions: int) -> Tensor:
        return torch.cat([-torch.ones(count, dimensions), torch.ones(count, dimensions)], 1)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        low, high = experience.extras[self.name].chunk(2, -1)
        bounded = ((low > -1) | (high < 1)).any(-1)
        return {"bounded": float(bounded.float().mean()), "width": float((high - low).mean())}

    def at(self, observation: Tensor, value: Tensor, generator: Generator) -> Tensor:
        epsilon, rows = now(self.epsilon), observation.flatten(0, -2)
        whole = self._whole(len(rows), value.shape[-1] // 2).to(value)
        if epsilon > 0:
            middle, half = (self.high + self.low) / 2, (self.high - self.low) / 2
            with torch.no_grad():
                said = torch.stack([program(rows, generator) for program in self.programs])
            said = (said.to(value).view(len(said), len(rows), -1) - middle) / half
            reach = said.std(0, correction=0) + self.margin
            found = torch.cat([said.mean(0) - reach, said.mean(0) + reach], 1).clamp(-1, 1)
            masked = torch.rand(len(rows), 1, generator=generator) < epsilon
            whole = torch.where(masked.to(found.device), found, whole)
        return whole.view_as(value)


class BoundedActor(Trunk):
    """A perceptron whose action is between bounds that it reads, of a head that squashes by tanh. The policy's value is
    a perceptron of its own.

    input: name of the policy's input [2 A], l and u in [-1, 1].
    hidden, activation: of both.
    """

    input: str = "bounds"
    hidden: tuple[int, ...] = (256, 256)
    activation: Activation = "relu"

    def build(self, space: Space, outputs: int, generator: Generator) -> nn.Module:
        if space.dimensions is None or space.inputs != ((self.input, 2 * space.dimensions),):
            raise ValueError(
                f"methods.camel.BoundedActor: it reads the bounds of an action, and the policy's inputs are "
                f"{dict(space.inputs) or 'none'}; set sampling.policy_input to methods.camel.ActionBounds"
            )
        if outputs != space.dimensions:
            raise ValueError(
                f"methods.camel.BoundedActor: its outputs are an action, {space.dimensions} numbers, and the policy's "
                f"head takes {outputs}; set policy.head to deterministic"
            )
        return _Bounded(perceptron(self._widths(space, outputs), self.activation, 0.01, generator), outputs)

    def build_value(self, space: Space, generator: Generator) -> nn.Module:
        return perceptron(self._widths(space, 1), self.activation, 1.0, generator)

    def _widths(self, space: Space, outputs: int) -> list[int]:
        return [space.observations + space.width_of([self.input]), *self.hidden, outputs]


class _Bounded(nn.Module):
    def __init__(self, net: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.net, self.dimensions = net, dimensions

    def forward(self, seen: Tensor) -> Tensor:
        """Returns y [..., A] whose tanh is within the bounds that end what is seen."""
        low, high = seen[..., -2 * self.dimensions :].chunk(2, -1)
        action = low + (self.net(seen).tanh() + 1) / 2 * (high - low)
        return action.clamp(INSIDE - 1, 1 - INSIDE).atanh()
