"""These programs measure what the paper of IterResearch claims of its update, EAPO."""

import math

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import RewardToGo
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import Less, More, effect
from polopt.lab.shapes import coin
from polopt.methods.gspo import gspo
from polopt.methods.iterresearch_eapo import iterresearch_eapo
from polopt.objectives import SequenceRatio

PROMPTS, CHANCE = 16, 0.8


def gspo_of_eight() -> Algorithm:
    return gspo(group=8)


# Turns of the ways to answer, all right with the same chance.
WAYS = (2, 6, 4, 6)


@effect(
    "Of ways that are right as often the short one is taken, at the same share of right answers.",
    kind="headline",
    method=iterresearch_eapo,
    controls={"GSPO": gspo_of_eight},
    step_sizes=(0.3, 1.0, 3.0, 10.0),
    criteria=[Less("turns", by=-1.0), More("right", by=-0.02)],
    best=Less("turns", by=0.0),
    seeds=5,
    cost="slow",
    note="Ways of 2, 4 and 6 turns, right with chance 0.8 each; 16 prompts a seed, 300 groups of 8 each.",
)
def fewer_turns(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    answers = [(way, *[0] * (turns - 1)) for way, turns in enumerate(WAYS)]
    tree = TokenTree(4, answers, torch.full((PROMPTS, len(WAYS)), CHANCE), PROMPTS).in_turns(1)
    policy = TabularPolicy(tree)
    train(algorithm, tree, policy, steps=300, rate=PROMPTS * step_size, rows=PROMPTS, seed=seed, draw=coin)
    probability = tree.log_probabilities(policy).detach().exp()
    return {
        "turns": (probability @ torch.tensor(WAYS, dtype=torch.double)).mean().item(),
        "right": (probability * tree.outcome).sum(1).mean().item(),
    }


def _batch() -> tuple[Experience, torch.Tensor]:
    """Returns two right rollouts of 4 and 8 turns and a wrong one, and one of another prompt, with present
    log-probabilities near those of the sampler."""
    turn = torch.full((4, 12), -1)
    turn[0, :6] = torch.tensor([0, 0, 1, 2, 3, 3])
    turn[1, 2:12] = torch.tensor([0, 1, 1, 2, 3, 4, 5, 5, 6, 7])
    turn[2, :3] = torch.tensor([0, 1, 1])
    turn[3, :2] = torch.tensor([0, 1])
    outcome = torch.tensor([1.0, 1.0, 0.0, 1.0]).double()
    draw = torch.Generator().manual_seed(0)
    old = -2 - torch.rand(turn.shape, generator=draw, dtype=torch.double)
    batch = Experience(
        mask=turn >= 0,
        turn=turn,
        rollout_logp=old,
        reward=outcome,
        outcome=outcome,
        group=torch.tensor([0, 0, 0, 1]),
    )
    return batch, old + 1e-3 * torch.randn(turn.shape, generator=draw, dtype=torch.double)


@claim(
    "Advantages, ratios and the mean over turns are the paper's.",
    kind="identity",
    baseline="GSPO, of whole rollouts",
)
def is_the_formula() -> Finding:
    gamma, (batch, now) = 0.9, _batch()
    algorithm = iterresearch_eapo(group=3, gamma=gamma)
    credited = batch.replace(advantage=algorithm.credit(batch))
    logp = now.clone().requires_grad_()
    loss = algorithm.objective(credited, Evaluation(logp=logp, support=batch.support)).loss
    (slope,) = torch.autograd.grad(loss, logp)
    turns = [(i, h) for i in range(4) for h in range(int(batch.turn[i].max()) + 1)]
    count = [int(batch.turn[i].max()) + 1 for i in range(4)]
    worth = {(i, h): gamma ** (count[i] - 1 - h) * float(batch.outcome[i]) for i, h in turns}
    expected, slopes, off = 0.0, torch.zeros_like(now), 0.0
    for i, h in turns:
        same = [worth[j, u] for j, u in turns if int(batch.group[j]) == int(batch.group[i])]
        mean = sum(same) / len(same)
        advantage = (worth[i, h] - mean) / (math.sqrt(sum((x - mean) ** 2 for x in same) / (len(same) - 1)) + 1e-6)
        at = batch.turn[i] == h
        off = max(off, (credited.advantage[i][at] - advantage).abs().max().item())
        ratio = math.exp(float((now[i] - batch.rollout_logp[i])[at].mean()))
        clipped = min(max(ratio, 1 - 3e-4), 1 + 4e-4)
        expected -= min(ratio * advantage, clipped * advantage) / len(turns)
        if ratio * advantage <= clipped * advantage:
            slopes[i, at] = -ratio * advantage / int(at.sum()) / len(turns)
    off = max(off, abs(float(loss.detach()) - expected), (slope - slopes).abs().max().item())
    plain = gspo(group=3).credit(batch)
    apart = (plain - credited.advantage).abs().max().item()
    return Finding(
        measured={"largest error": off, "largest difference from GSPO's advantage": apart},
        criterion="error of advantages, loss and gradient < 1e-9, a difference > 0.1",
        holds=off < 1e-9 and apart > 0.1,
    )


@claim(
    "A right rollout of 4 turns has a larger mean advantage than one of 8, for every gamma below 1.",
    kind="theory",
    baseline="gamma 1, where both have the same",
)
def short_is_better() -> Finding:
    batch, _ = _batch()

    def gap(gamma: float) -> float:
        advantage = iterresearch_eapo(group=3, gamma=gamma).credit(batch)
        short, long = (advantage[i][batch.mask[i]].unique().mean() for i in (0, 1))
        return float(short - long)

    least, same = min(gap(gamma) for gamma in (0.999, 0.995, 0.95, 0.8, 0.5)), abs(gap(1.0))
    return Finding(
        measured={"least gap": least, "at gamma 1": same},
        criterion="least gap > 1e-4, at gamma 1 < 1e-9",
        holds=least > 1e-4 and same < 1e-9,
    )


@mutation("Outcomes are discounted by decisions.", kills=is_the_formula)
def by_decision(replace: Replace) -> None:
    replace(RewardToGo, "forward", lambda self, experience: self.to_go(experience, self.gamma))


@mutation("The ratio is that of the whole rollout.", kills=is_the_formula)
def of_rollouts(replace: Replace) -> None:
    own = SequenceRatio.forward
    replace(
        SequenceRatio,
        "forward",
        lambda self, experience, evaluation: own(
            self.but(unit="row") if self.unit == "turn" else self, experience, evaluation
        ),
    )
