"""These programs measure what the paper of SimPO claims."""

import math

import torch

import polopt.methods.simpo as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.effects import Less, effect
from polopt.lab.preferences import length_and_reward
from polopt.methods.dpo import dpo
from polopt.methods.simpo import simpo
from polopt.objectives import LogisticLink, LogProbReward


@claim(
    "Its reward hardly depends on how long an answer is.",
    kind="part",
    baseline="the sum of log-probabilities in place of the mean",
)
def length() -> Finding:
    summed = simpo().but({"objective.implicit.decisions": "sum"})
    mean, total = (length_and_reward(algorithm, prompts=320) for algorithm in (simpo(), summed))
    return Finding(
        measured={"mean": mean, "sum": total},
        criterion="correlation of reward and length after learning 320 pairs, |mean| < 0.2, |sum| > 0.4",
        holds=abs(mean) < 0.2 and abs(total) > 0.4,
        note="It is not 0 either: of 320 pairs its standard error is 0.03.",
    )


@claim(
    "The pull on a pair falls to a half where the mean log-probabilities are gamma / beta apart.",
    kind="identity",
    baseline="no margin: at equal log-probabilities",
)
def margin() -> Finding:
    pull = {}
    for name, gamma in (("with the margin", 1.0), ("without", 0.0)):
        algorithm = simpo(beta=2.0, gamma=gamma)
        lead = torch.tensor([0.0, 0.5], dtype=torch.double)  # in nats a token, for the answer that is preferred
        mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 0]]).bool()
        logp = torch.where(mask, -2.0, 0.0).double()
        logp[0], logp[2] = logp[0] + lead[0], logp[2] + lead[1]
        leaf = logp.requires_grad_()
        batch = Experience(
            mask=mask,
            outcome=torch.tensor([1.0, 0.0, 1.0, 0.0]).double(),
            group=torch.tensor([0, 0, 1, 1]),
            advantage=torch.zeros_like(logp),
        )
        (slope,) = torch.autograd.grad(algorithm.objective(batch, Evaluation(logp=leaf)).loss, leaf)
        # Of a pair: beta / (|y| pairs) sigmoid(gamma - beta lead) on each token of the preferred answer.
        pull[name] = (-slope[[0, 2], 0] * 2 * 2 / 2.0).tolist()
    expected = [1 / (1 + math.exp(-1)), 0.5]
    off = max(abs(a - b) for a, b in zip(pull["with the margin"], expected, strict=True))
    return Finding(
        measured={"pull, equal": pull["with the margin"][0], "pull, gamma / beta apart": pull["with the margin"][1]}
        | {"no margin, equal": pull["without"][0]},
        criterion="sigmoid(1) and 1/2 within 1e-9 (beta 2, gamma 1); without the margin 1/2 at equal ones",
        holds=off < 1e-9 and abs(pull["without"][0] - 0.5) < 1e-9,
    )


@mutation("The sum of an answer's log-probabilities takes the place of their mean.", kills=length)
def sums(replace: Replace) -> None:
    replace(module, "LogProbReward", lambda scale: LogProbReward(scale=scale, decisions="sum"))


@mutation("The margin has the wrong sign.", kills=margin)
def margin_backwards(replace: Replace) -> None:
    replace(module, "LogisticLink", lambda shift: LogisticLink(shift=-shift))


@effect(
    "Its reward depends less on an answer's length than DPO's.",
    kind="headline",
    method=simpo,
    controls={"dpo": dpo},
    step_sizes=(10.0,),
    criteria=[Less("correlation with length", by=-0.2)],
    seeds=8,
    cost="slow",
    refuted=True,
    note="|correlation| over the answers of 60 pairs, whose lengths have nothing to do with the preference. DPO sums, "
    "but so does its reference, which takes the length out. The higher win rate of the paper needs language models.",
)
def less_by_length(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"correlation with length": abs(length_and_reward(algorithm, seed=seed, rate=step_size))}
