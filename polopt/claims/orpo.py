"""These programs measure what the paper of ORPO claims."""

import math

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import LinearPolicy, TabularPolicy, TokenTree
from polopt.lab.effects import Less, effect
from polopt.lab.preferences import paired
from polopt.methods.orpo import orpo
from polopt.methods.sft import sft
from polopt.objectives import LogOddsReward

STEPS = 400


def alike(seed: int, prompts: int = 16, choices: int = 4) -> tuple[TokenTree, LinearPolicy, Experience]:
    """Returns prompts whose preferred and rejected answer, of three tokens, differ in the last one alone, a policy that
    shares parameters, uniform at first, and the pairs."""
    draw = torch.Generator().manual_seed(seed)
    tree = TokenTree.full(choices, 3, lambda prompt, answer: 0.0, prompts=prompts)
    first = torch.randint(choices**2, (prompts,), generator=draw) * choices
    last = torch.rand(prompts, choices, generator=draw).argsort(1)[:, :2]
    rows = torch.arange(prompts)[:, None] * len(tree.answers) + first[:, None] + last
    features = torch.randn(len(tree.choices), 48, generator=draw, dtype=torch.double) / 48**0.5
    policy = LinearPolicy(tree, features)
    pairs = [(int(chosen), int(rejected)) for chosen, rejected in rows]
    return tree, policy, paired(tree, TabularPolicy(tree), pairs)


def rejected_when_learned(algorithm: Algorithm, seed: int, step_size: float, goal: float = 0.5) -> float:
    """Mean log-probability of the rejected answers, less that at the start, when preferred ones have probability `goal`
    on average; NaN if `STEPS` steps do not lead there."""
    _, policy, batch = alike(seed)
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch))
    if "pairs" not in algorithm.sampling.source_capabilities:  # imitation of what is preferred
        ready = ready.restrict(batch.outcome > 0)
    preferred, start = batch.outcome > 0, None
    for _ in range(STEPS):
        evaluation = policy.evaluate(batch)
        total = torch.where(batch.mask, evaluation.logp, 0).sum(1).detach()
        start = total[~preferred].mean() if start is None else start
        if total[preferred].exp().mean() >= goal:
            return (total[~preferred].mean() - start).item()
        (gradient,) = torch.autograd.grad(algorithm.objective(ready, evaluation).loss, policy.weights)
        with torch.no_grad():
            policy.weights.sub_(step_size * gradient)
    return math.nan


@claim(
    "The log odds grow by 1 / (1 - p) for each unit of the mean log-probability.",
    kind="identity",
    baseline="the log-probability, which grows by 1",
)
def odds() -> Finding:
    p = torch.tensor([1e-6, 0.1, 0.5, 0.9, 1 - 1e-6], dtype=torch.double)
    mean = p.log().requires_grad_()
    batch = Experience(mask=torch.ones(5, 3, dtype=torch.bool))
    found = LogOddsReward()(batch, Evaluation(logp=mean[:, None].expand(5, 3)))
    slope = torch.autograd.grad(found.sum(), mean)[0]
    off = max(((found - torch.logit(p)).abs().max().item(), (slope * (1 - p) - 1).abs().max().item()))
    return Finding(
        measured={"largest error": off, "largest slope": slope.max().item()},
        criterion="value is logit(p) and slope 1 / (1 - p) to 1e-6, at p from 1e-6 to 1 - 1e-6; some slope > 10",
        holds=off < 1e-6 and slope.max().item() > 10,
    )


@effect(
    "While it learns preferred answers, rejected ones that are much like them become rarer than by imitation.",
    kind="headline",
    method=lambda: orpo(lam=0.25),
    controls={"sft": sft},
    step_sizes=(16.0,),
    criteria=[Less("log-probability of rejected answers", by=-0.1)],
    note="Compared when preferred answers have probability 0.5 on average. The paper has curves and no number: ours. "
    "Steps are short enough that both go the way of their gradient: none is better than another.",
)
def rejected(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"log-probability of rejected answers": rejected_when_learned(algorithm, seed, step_size)}


@mutation("The odds are those of the sum of log-probabilities, not of their mean.", kills=odds)
def of_the_sum(replace: Replace) -> None:
    def forward(self: LogOddsReward, experience: Experience, evaluation: Evaluation) -> Tensor:
        total = torch.where(experience.mask, evaluation.logp, 0).sum(1)
        return total - (1 - total.exp()).log()

    replace(LogOddsReward, "forward", forward)
