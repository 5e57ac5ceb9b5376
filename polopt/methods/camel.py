"""CAMEL: TD3 whose actions lie near those of programs, less and less often."""

from typing import Any

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.td3 import td3
from polopt.networks import Program, ProgramInterval
from polopt.sampling import BernoulliInput
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="CAMEL: Continuous Action Masking Enabled by Large Language Models for Reinforcement Learning",
        authors="Zhao, Yanxiao and Qian, Yangge and Shan, Jingyang and Qin, Xiaolin",
        year=2025,
        arxiv="2502.11896",
    ),
    changes="Actions lie in an interval around those of programs, with a chance that falls to 0 during training.",
    room="sampling",
    tier="reading",
)
def camel(
    *,
    programs: tuple[Program, ...] = (),
    margin: float = 0.25,
    spread: float = 1.0,
    anneal: int = 100_000,
    gamma: float = 0.99,
    tau: float = 0.005,
    smoothing: float = 0.2,
    smoothing_clip: float = 0.5,
    delay: int = 2,
    noise: float = 0.1,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With c_k programs, m ~ Bernoulli(epsilon_t) drawn for each decision, and half = (high - low) / 2,

        [l, u] = mean_k c_k(s) -+ (spread std_k c_k(s) + margin half)  if m = 1,  else [low, high]
        mu(s, l, u) = l + (u - l) (tanh f(s, l, u) + 1) / 2
        epsilon_t = max(0, 1 - t / anneal)

    within the bounds. mu is learned as in TD3; its noise, and the random actions at first, stay in [l, u], and its
    action at s_next in the interval there, with another m. Evaluations act without it. The head is deterministic.

    programs: written down, by a person or a language model; one at least. anneal: batches; with 0 m is 1. The others:
    as in `td3`, hidden of mu, too. The text was not at hand: interval, draws of m and defaults are our reading.
    """
    made: Any = td3(
        gamma=gamma, tau=tau, smoothing=smoothing, smoothing_clip=smoothing_clip, delay=delay, noise=noise,
        batch=batch, start=start, capacity=capacity, steps=steps, hidden=hidden,
    )  # fmt: skip
    given = BernoulliInput(chance=Schedule(knots=[(0, 1.0), (anneal, 0.0)]) if anneal else 1.0)
    trunk = ProgramInterval(programs=programs, spread=spread, margin=margin, hidden=hidden)
    return made.but({"sampling.policy_input": given}, trunk=trunk)  # type: ignore[no-any-return]
