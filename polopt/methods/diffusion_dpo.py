"""Diffusion-DPO: DPO on generative policies, whose errors of denoising stand for log-probabilities."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.objectives import DenoisingReward


@method(
    paper=Paper(
        title="Diffusion Model Alignment Using Direct Preference Optimization",
        authors="Wallace, Bram and others",
        year=2023,
        arxiv="2311.12908",
    ),
    changes="DPO with errors of denoising in the place of log-probabilities.",
    room="objectives",
    tier="faithful",
)
def diffusion_dpo(*, beta: float = 2000.0) -> Algorithm:
    """L = -log sigmoid(-(beta / 2) [D(x_w) - D(x_l)]),  D(x) = |e - e_theta(x_t)|^2 - |e - e_ref(x_t)|^2

    with x_w the preferred point of a pair, means over dimensions and over the draws of noise e and level t, which both
    points of a pair share. The bound by which the paper comes to this holds for weights of the levels that are then
    dropped.

    beta (> 0): beta T of the paper, T its 1000 levels; 2000 to 5000 for Stable Diffusion. Errors are those of the
    noise, also for a policy that predicts velocities.
    """
    return dpo().but(**{"objective.implicit": DenoisingReward(scale=beta / 2)})
