"""These programs measure what the paper of MPO claims."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Literal

import torch
from torch import Tensor

import polopt.methods.mpo_easyhard as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.stored_pairs import MODEL, LabelledPairs, labelled
from polopt.experience import Experience
from polopt.lab import LinearPolicy
from polopt.lab.effects import More, effect
from polopt.lab.measure import learning
from polopt.methods.dpo import dpo
from polopt.methods.mpo_easyhard import EasyPairs, HardPrompts, mpo_easyhard, reward_gaps
from polopt.methods.ppo import ppo
from polopt.rewards import FieldReward, KLPenalty, Reward, SumOfRewards

BETA, GAMMA = 0.3, 1.0
SCORES = FieldReward(name=f"signal_{MODEL}")


def rlhf() -> Algorithm:
    """Returns PPO on all prompts, with the reward model's scores."""
    terms = [FieldReward(name=f"signal_{MODEL}"), KLPenalty(coefficient=BETA)]
    return ppo(group=4, kl=0.0).but(reward=SumOfRewards(terms=terms))


@dataclasses.dataclass(frozen=True)
class TwoStages:
    """A sequence of two stages. pairs: DPO's, None for none. rollouts: PPO's, None for none. reference: the policy that
    PPO is held to."""

    pairs: Algorithm | None
    rollouts: Algorithm | None
    reference: Literal["fine-tuned", "dpo"] = "dpo"


def stages(reference: Literal["fine-tuned", "dpo"] = "dpo") -> TwoStages:
    """Returns the method's two stages."""
    first, second = (
        mpo_easyhard(stage=stage, reward=FieldReward(name=f"signal_{MODEL}"), gamma=GAMMA, beta=BETA, group=4)
        for stage in (1, 2)
    )
    return TwoStages(first, second, reference)


def descended(problem: LabelledPairs, algorithm: Algorithm, policy: LinearPolicy, rate: float, steps: int) -> None:
    """Takes steps on all pairs that the algorithm selects."""
    batch = algorithm.compute_advantages(algorithm.sampling.mark(problem.batch()))
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(algorithm.objective(batch, policy.evaluate(batch)).loss, policy.weights)
        with torch.no_grad():
            policy.weights.sub_(rate * gradient)


def trained(problem: LabelledPairs, training: TwoStages, seed: int, step_size: float) -> LinearPolicy:
    """Trains the fine-tuned policy. step_size: of the last stage; DPO before PPO has one that is good for it alone."""
    policy = problem.policy()
    if training.pairs is not None:
        descended(problem, training.pairs, policy, step_size if training.rollouts is None else 30.0, 60)
    if training.rollouts is not None:
        reference = problem.policy()
        if training.reference == "dpo":
            with torch.no_grad():
                reference.weights.copy_(policy.weights)
        needs = training.rollouts.required_fields
        source = problem.source(policy, rows=40, seed=seed, reference=reference, needs=needs)
        for _ in itertools.islice(learning(training.rollouts, source, policy, rate=step_size, reference=reference), 10):
            pass
    return policy


@effect(
    "From the same pairs and as many answers it ends with a better policy than DPO on all pairs, and than PPO.",
    kind="headline",
    method=stages,
    controls={
        "dpo": lambda: TwoStages(dpo(beta=BETA), None),
        "ppo": lambda: TwoStages(None, rlhf()),
        "ppo near the fine-tuned policy": lambda: stages("fine-tuned"),
    },
    step_sizes=(3.0, 10.0, 30.0, 100.0),
    criteria=[More("worth", by=0.0)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="It is 0.36 ahead of DPO and 0.09 behind PPO on all prompts: the reward model, right but for noise, has as "
    "much to teach on easy ones. Held to the fine-tuned policy the second stage ends 0.02 better. Worth over all "
    "prompts, by the truth, after 60 steps on the pairs and 10 batches of 40 answers.",
)
def better(training: TwoStages, *, seed: int, step_size: float) -> dict[str, float]:
    problem = labelled(seed)
    return {"worth": problem.tree.value(trained(problem, training, seed, step_size)).item()}


@effect(
    "DPO learns a better policy from the easy pairs than from all.",
    kind="part",
    method=lambda: TwoStages(stages().pairs, None),
    controls={"dpo": lambda: TwoStages(dpo(beta=BETA), None)},
    step_sizes=(100.0, 300.0, 1000.0, 3000.0),
    criteria=[More("worth", by=0.0)],
    seeds=30,
    cost="slow",
)
def easy_pairs(training: TwoStages, *, seed: int, step_size: float) -> dict[str, float]:
    problem = labelled(seed)
    return {"worth": problem.tree.value(trained(problem, training, seed, step_size)).item()}


def right_labels(gap: Literal["absolute", "signed"], seed: int) -> tuple[float, float, float]:
    """Returns the share of right labels among the easy pairs, the hard ones and all."""
    problem = labelled(seed, prompts=2000)
    batch = problem.batch()
    easy = mpo_easyhard(stage=1, reward=SCORES, gamma=GAMMA, gap=gap).filtered(batch)
    worth = problem.tree.outcome.flatten()

    def right(rows: Experience) -> torch.Tensor:
        pair = worth[rows.extras["leaf"]].view(-1, 2)
        return (pair[:, 0] > pair[:, 1]).double()

    n, all_right, easy_right = len(batch) // 2, right(batch), right(easy)
    hard = (all_right.sum() - easy_right.sum()) / (n - len(easy_right))
    return easy_right.mean().item(), hard.item(), all_right.mean().item()


@claim(
    "The labels of easy pairs are right more often; of those that have the larger reward, nearly always.",
    kind="part",
    baseline="all pairs, and the hard ones",
)
def labels() -> Finding:
    easy, hard, every = right_labels("absolute", 0)
    signed, *_ = right_labels("signed", 0)
    return Finding(
        measured={"easy": easy, "easy, signed": signed, "hard": hard, "all": every},
        criterion="easy > all + 0.05 > hard + 0.1; signed > 0.98",
        holds=easy > every + 0.05 > hard + 0.1 and signed > 0.98,
    )


def first_batch(algorithm: Algorithm) -> Experience:
    problem = labelled(0)
    policy = problem.policy()
    reference = problem.policy()
    source = problem.source(policy, rows=80, seed=3, reference=reference, needs=algorithm.required_fields)
    return algorithm.compute_advantages(algorithm.sampling(source))


@claim(
    "With gamma below all gaps stage 1 is DPO, with gamma above them stage 2 is PPO; in between, stage 2 has the "
    "prompts that stage 1 left out.",
    kind="identity",
    baseline="gamma at 1",
)
def reduces() -> Finding:
    problem = labelled(0)
    weights = []
    for algorithm in (dpo(beta=BETA), *(mpo_easyhard(stage=1, reward=SCORES, gamma=g, beta=BETA) for g in (-1.0, 1.0))):
        policy = problem.policy()
        descended(problem, algorithm, policy, 30.0, 3)
        weights.append(policy.weights.detach())
    apart = [(weights[0] - other).abs().max().item() for other in weights[1:]]
    second = [mpo_easyhard(stage=2, reward=SCORES, gamma=g, beta=BETA, group=4) for g in (1e9, 1.0)]
    batches = [first_batch(algorithm) for algorithm in (rlhf(), *second)]
    same = torch.equal(batches[0].advantage, batches[1].advantage)
    easy = mpo_easyhard(stage=1, reward=SCORES, gamma=1.0).filtered(problem.batch())
    taught = set((easy.extras["leaf"] // problem.tree.outcome.shape[1]).tolist())
    both = len(taught & set(batches[2].extras["index"].tolist()))
    return Finding(
        measured={"from DPO": apart[0], "from DPO, gamma 1": apart[1], "prompts in both stages": both},
        criterion="weights equal DPO's, and advantages PPO's, bit for bit; at gamma 1 weights differ by > 0.01, and no "
        "prompt is in both stages",
        holds=apart[0] == 0.0 and same and apart[1] > 0.01 and both == 0 and len(taught) > 0,
    )


@mutation("Stage 1 learns from the hard pairs.", kills=labels)
def easy_for_hard(replace: Replace) -> None:
    def hard(self: EasyPairs, experience: Experience) -> Experience:
        return experience[reward_gaps(experience, self.reward, self.gap) <= self.gamma]

    replace(EasyPairs, "forward", hard)


@mutation("The signed gap is taken without its sign.", kills=labels)
def unsigned(replace: Replace) -> None:
    replace(module, "reward_gaps", lambda experience, reward, gap: reward_gaps(experience, reward, "absolute"))


@mutation("The gap is that of rewards added up, not of their difference.", kills=labels)
def added(replace: Replace) -> None:
    def total(experience: Experience, reward: Reward, gap: str) -> Tensor:
        return reward(experience).view(-1, 2).sum(1).abs().repeat_interleave(2)

    replace(module, "reward_gaps", total)


@mutation("Stage 2 takes any prompts.", kills=reduces)
def any_prompts(replace: Replace) -> None:
    replace(HardPrompts, "forward", lambda self, source, count: source.take(count))
