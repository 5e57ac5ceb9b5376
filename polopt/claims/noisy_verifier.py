"""These programs measure what the paper on noisy verifiers claims."""

from typing import Any, Literal

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.verifier import expected_push, learned
from polopt.credit import RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.methods.grpo import grpo
from polopt.methods.noisy_verifier import (
    BackwardCorrected,
    FixedRates,
    ForwardCorrected,
    NotedRates,
    RejudgedRates,
    noisy_verifier,
)
from polopt.rewards import OutcomeReward

ALONE = RelativeAdvantage(baseline=None, scale=None)


def _bandit() -> tuple[TokenTree, TabularPolicy]:
    """Two questions of four arms, two of them right at the first and one at the second."""
    tree = TokenTree.bandit([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    return tree, TabularPolicy(tree, spread=1.0, seed=1)


@claim(
    "Under noise the expected gradient is the clean one: exactly, or in proportion.",
    kind="identity",
    baseline="the verdicts as they are",
)
def unbiased() -> Finding:
    tree, policy = _bandit()
    rho0, rho1 = torch.full((2, 4), 0.15, dtype=torch.double), torch.full((2, 4), 0.3, dtype=torch.double)
    clean, left = tree.gradient(policy), 1 - 0.15 - 0.3

    def push(correction: Literal["backward", "forward"]) -> Tensor:
        algorithm = noisy_verifier(correction=correction, false_positive=0.15, false_negative=0.3)
        return expected_push(algorithm.but(credit=ALONE), policy, tree, rho0, rho1)

    raw = expected_push(grpo(group=8, kl=0).but(credit=ALONE), policy, tree, rho0, rho1)
    found = {
        "backward": (push("backward") - clean).abs().max().item(),
        "forward": (push("forward") / left - clean).abs().max().item(),
        "raw": (raw - clean).abs().max().item(),
        "raw, in proportion": (raw / left - clean).abs().max().item(),
    }
    return Finding(
        measured=found,
        criterion="backward and forward / (1 - rho0 - rho1) < 1e-10 off, all answers and verdicts enumerated; raw > "
        "1e-3",
        holds=max(found["backward"], found["forward"]) < 1e-10 and found["raw"] > 1e-3,
        note="With one pair of rates raw verdicts too are right in proportion: nothing but the step's length is lost.",
    )


def _fooled(seed: int) -> tuple[TokenTree, Tensor, Tensor]:
    """Returns four arms, the first right, and how often the verdicts on each are wrong: right answers are refused so
    often that one wrong answer is accepted more often than they are."""
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(4, generator=generator, dtype=torch.double)
    refused = 0.4 + 0.3 * draws[0]
    rho0 = (0.1 * draws)[None].clone()
    rho0[0, 1] = 1 - refused + 0.1 + 0.1 * draws[1]
    rho1 = torch.full((1, 4), 0.1, dtype=torch.double)
    rho1[0, 0] = refused
    return TokenTree.bandit([1.0, 0.0, 0.0, 0.0]), rho0, rho1


@effect(
    "Where the verifier errs more on some answers than on others, the right one is learned.",
    kind="headline",
    method=lambda: noisy_verifier(correction="backward").but(credit=ALONE, **{"reward.rates": NotedRates()}),
    controls={"grpo": lambda: grpo(group=8, kl=0).but(credit=ALONE)},
    step_sizes=(0.5, 2.0, 8.0),
    criteria=[More("right answer", by=0.9)],
    trials=1,
    note="Exact gradients over answers and verdicts, 200 steps; each seed draws how often each answer is misjudged. "
    "The method knows these rates. One wrong answer fools the verifier: it is accepted more often than the right one.",
)
def hackable(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, rho0, rho1 = _fooled(seed)
    policy = learned(algorithm, tree, rho0, rho1, steps=200, rate=step_size)
    right, fools, *_ = tree.log_probabilities(policy).detach().exp()[0].tolist()
    return {"right answer": right, "answer that fools": fools}


def _speeds(change: dict[str, Any]) -> tuple[float, float]:
    """Batches until half of the policy's errors are gone, on 8 questions of an honest kind and 8 of a kind whose
    verdicts are turned round with probability 0.35; mean of 2 seeds."""
    found = []
    for seed in range(2):
        tree = TokenTree.bandit(torch.eye(4).repeat(4, 1).tolist(), kinds=["honest"] * 8 + ["noisy"] * 8)
        policy = TabularPolicy(tree)

        def draw(batch: Experience, generator: torch.Generator) -> Tensor:
            noisy = torch.tensor([kind == "noisy" for kind in batch.extras["kind"]])
            wrong = (torch.rand(len(batch), generator=generator) < 0.35) & noisy
            return torch.where(wrong, 1 - batch.outcome, batch.outcome)

        values = list[Tensor]()

        def watch(tree: TokenTree = tree, policy: TabularPolicy = policy, values: list[Tensor] = values) -> float:
            probs = tree.log_probabilities(policy).exp()
            values.append((probs * tree.outcome).sum(1).view(2, 8).mean(1))
            return 0.0

        algorithm = noisy_verifier(group=8, correction="backward").but(change)
        train(algorithm, tree, policy, steps=100, rate=4.0, rows=16, seed=seed, draw=draw, watch=watch)
        there = torch.stack(values) >= 0.625  # from 0.25
        found.append([int(side.int().argmax()) + 1 if side.any() else 100 for side in there.T])
    honest, noisy = torch.tensor(found).double().mean(0).tolist()
    return honest, noisy


KINDS = FixedRates(false_positive=0.0, false_negative=0.0, kinds=[("noisy", 0.35, 0.35)])


@claim(
    "With each kind of task's own rates, the kind that is judged badly is learned about as fast as the others.",
    kind="part",
    baseline="raw verdicts; and the same correction before a z-score",
)
def by_kind() -> Finding:
    names = ("corrected", "raw", "corrected, z-score", "raw, z-score")
    rewards = (BackwardCorrected(rates=KINDS), OutcomeReward(), BackwardCorrected(rates=KINDS), OutcomeReward())
    times = {}
    for i, (name, reward) in enumerate(zip(names, rewards, strict=True)):
        honest, noisy = _speeds({"reward": reward} | ({"credit": RelativeAdvantage()} if i > 1 else {}))
        times[name] = noisy / honest
    return Finding(
        measured=times,
        criterion="batches for the noisy kind over those for the honest one: <= 1.5 corrected, >= 2 raw; with a "
        "z-score the correction changes it by < 2 %",
        holds=times["corrected"] <= 1.5
        and times["raw"] >= 2
        and abs(times["corrected, z-score"] / times["raw, z-score"] - 1) < 0.02,
    )


@claim(
    "Judging a tenth of the refused answers again finds how often right answers are refused.",
    kind="part",
    baseline="the rate that it began with, 0",
)
def appeals() -> Finding:
    found = [_estimate(seed) for seed in range(20)]
    mean = sum(found) / len(found)
    return Finding(
        measured={"mean estimate": mean, "least": min(found), "largest": max(found), "truth": 0.3},
        criterion="mean of 20 runs within 0.025 of the truth, after 60 batches of 128 answers each",
        holds=abs(mean - 0.3) < 0.025,
        note="A single estimate has a standard deviation of about 0.03.",
    )


def _estimate(seed: int) -> float:
    """The estimated rate of refused right answers, where 0.3 are refused."""
    algorithm = noisy_verifier(correction="forward", judge="signal_true", false_positive=0.0, false_negative=0.0)
    reward = algorithm.but(**{"reward.rates.seed": seed}).reward
    tree, policy = _bandit()
    generator = torch.Generator().manual_seed(seed)
    leaves, probs = tree.leaves(), tree.log_probabilities(policy).detach().exp().flatten()
    for _ in range(60):
        batch = leaves[torch.multinomial(probs, 128, replacement=True, generator=generator)]
        passed = torch.rand(len(batch), generator=generator) >= 0.3
        reward(batch.replace(outcome=batch.outcome * passed, extras={"signal_true": batch.outcome}))
    return reward.rates.estimates()[1].item()  # type: ignore[union-attr, operator]


@mutation("The two error rates are swapped.", kills=hackable)
def swapped(replace: Replace) -> None:
    def forward(self: BackwardCorrected, experience: Experience) -> Tensor:
        rho1, rho0 = self.rates(experience)
        return (self.verdict(experience).to(rho0) - rho0) / (1 - rho0 - rho1).clamp(min=self.least)

    replace(BackwardCorrected, "forward", forward)


@mutation("The forward weight of a refused answer is -1.", kills=unbiased)
def refused_by_one(replace: Replace) -> None:
    def forward(self: ForwardCorrected, experience: Experience) -> Tensor:
        _, rho1 = self.rates(experience)
        return torch.where(self.verdict(experience), rho1, -1.0)

    replace(ForwardCorrected, "forward", forward)


@mutation("The rate of refused right answers is the share of refusals that are overturned.", kills=appeals)
def wrong_denominator(replace: Replace) -> None:
    def estimates(self: RejudgedRates) -> tuple[Tensor, Tensor]:
        _, judged, overturned = self.get_buffer("counts").unbind(-1)
        share = overturned / judged.clamp(min=1)
        return share[:, 1], share[:, 0]

    replace(RejudgedRates, "estimates", estimates)
