"""These programs measure what the paper of RLUF claims."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from polopt.backends import TextScorer, fit_scorer
from polopt.backends.scorer import ScorerShape
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.reactions import ARMS, CLOSING, Audience, TextTreeSource
from polopt.lab import TabularPolicy, learning
from polopt.lab.effects import More, effect
from polopt.methods import rluf as sentence
from polopt.methods.rluf import rluf
from polopt.metrics import auroc, calibration_error, chronological, release_gate, tic_rate
from polopt.rewards import LearnedJudge
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support


@functools.cache
def studied(
    seed: int = 0, *, rate: float = 1e-2, rows: int = 20_000, steps: int = 300
) -> tuple[Audience, TextScorer, dict[str, float]]:
    """An audience, a scorer trained on the first three quarters of its logged answers, and what it is worth on the
    last quarter."""
    audience, generator = Audience.make(seed), torch.Generator().manual_seed(seed)
    prompts, answers, liked = audience.log(rows, generator)
    early, late = chronological(range(rows), heldout=0.25)
    scorer = TextScorer(ScorerShape(width=16, layers=0, window=4))
    fit_scorer(scorer, ([prompts[i] for i in early], [answers[i] for i in early], liked[early]), steps=steps, rate=rate)
    with torch.no_grad():
        known = dict(
            zip(zip(*audience.texts(), strict=True), scorer(*audience.texts()).sigmoid().tolist(), strict=True)
        )
    scores = [known[prompts[i], answers[i]] for i in late]
    found = {"AUROC": auroc(scores, liked[late]), "calibration error": calibration_error(scores, liked[late])}
    style = torch.randn(10, 3, generator=generator, dtype=torch.double) @ torch.tensor(ARMS).T.double()
    chance = torch.tensor([known[pair] for pair in zip(*audience.texts(), strict=True)]).view_as(audience.chances)
    offline, online = ((style.softmax(1)[:, None] * x).sum(2).mean(1) for x in (chance, audience.chances))
    found["offline against online"] = torch.corrcoef(torch.stack([offline, online]))[0, 1].item()
    return audience, scorer, found


@effect(
    "A model of logged reactions ranks later answers, and candidates as their users would.",
    kind="part",
    method=lambda: functools.partial(studied, rows=60_000, steps=700),
    controls={"chance": lambda: _chance},
    step_sizes=(3e-3, 1e-2, 3e-2),
    criteria=[More("AUROC", by=0.3), More("offline against online", by=0.9)],
    trials=1,
    cost="slow",
    note="2 % of 60,000 random answers were liked; each seed has an audience of its own. Scorers read 45,000 once. "
    "Criteria: AUROC above 0.8, a correlation of 10 candidates' mean score and true rate above 0.9; of chance they are "
    "0.5 and 0. After 300 steps on them, not 700, AUROC is 0.80 to 0.81.",
)
def predicts_users(
    study: Callable[..., tuple[Audience, TextScorer, dict[str, float]]], *, seed: int, step_size: float
) -> dict[str, float]:
    return study(seed, rate=step_size)[2]


def _chance(seed: int, rate: float) -> tuple[None, None, dict[str, float]]:
    return None, None, {"AUROC": 0.5, "offline against online": 0.0}


@claim(
    "The reward is helpfulness plus the weighted chance of love.",
    kind="identity",
    baseline="the scorer's logit in place of the chance",
)
def adds_chances() -> Finding:
    audience, scorer = Audience.make(), TextScorer(ScorerShape(width=16, layers=0, window=4), seed=1)
    judge = LearnedJudge(link="sigmoid").judges_with(scorer)
    source = TextTreeSource(audience, TabularPolicy(audience.tree()), rows=64)
    batch = rluf(love=judge, weight=3.0).sampling(source)
    with torch.no_grad():
        logit = scorer.double()([task.prompt for task in batch.extras["task"]], batch.extras["answer"])
    found = rluf(love=judge, weight=3.0).compute_advantages(batch).reward
    chance, plain = ((batch.outcome + 3 * x - found).abs().max().item() for x in (logit.sigmoid(), logit))
    return Finding(
        measured={"largest error": chance, "of the logit": plain},
        criterion="< 1e-6 on 64 answers at weight 3; of the logit > 0.1",
        holds=chance < 1e-6 and plain > 0.1,
    )


def _trained(weight: float, *, seed: int = 0, rate: float = 4.0) -> tuple[TabularPolicy, TextTreeSource, Audience]:
    """Returns a policy that was trained with this weight, its source, and the audience."""
    audience, scorer, _ = studied(seed)
    policy = TabularPolicy(audience.tree())
    algorithm = rluf(love=LearnedJudge(link="sigmoid").judges_with(scorer), weight=weight, kl=0)
    source = TextTreeSource(audience, policy, rows=64, seed=seed)
    for _ in zip(range(150), learning(algorithm, source, policy, rate=rate), strict=False):
        pass
    return policy, source, audience


def _truth(policy: TabularPolicy, audience: Audience) -> dict[str, float]:
    """Measures by the truth, and exactly, how much the policy's answers are loved, and how helpful they are."""
    p = policy.tree.log_probabilities(policy).detach().exp()
    return {
        "love": (p * audience.chances).sum(1).mean().item(),
        "helpful": (p * audience.helpful).sum(1).mean().item(),
    }


@effect(
    "With weight on love it earns more of it, and is as helpful.",
    kind="headline",
    method=lambda: 1.0,
    controls={"weight 0": lambda: 0.0},
    step_sizes=(1.0, 2.0, 4.0, 8.0, 16.0),
    criteria=[More("love", times=1.2), More("helpful", times=0.98)],
    best=More("objective", by=0.0),
    cost="slow",
    note="150 batches of 64 answers; the weight is 1, and the best step size that of each side's own sum of rewards. "
    "Love and helpfulness are the audience's, each seed with an audience and a scorer of its own.",
)
def trades_off(weight: float, *, seed: int, step_size: float) -> dict[str, float]:
    policy, _, audience = _trained(weight, seed=seed, rate=step_size)
    found = _truth(policy, audience)
    return {**found, "objective": found["helpful"] + weight * found["love"]}


def released(weight: float) -> dict[str, float]:
    """Measures what a policy that was trained with this weight is like, by the truth and in its answers."""
    policy, source, audience = _trained(weight)
    source.refresh()
    answers = source.rollout(RolloutRequest(torch.arange(source.size).repeat(25), 1, Support())).extras["answer"]
    return {
        **_truth(policy, audience),
        "phrase": sum(answer.endswith(CLOSING) for answer in answers) / len(answers),
        "tic rate": tic_rate(answers)[0],
    }


@claim(
    "Beyond a point more weight earns a closing phrase; the gate before a release sees that, and lets a mix pass.",
    kind="limit",
    baseline="weight 1",
    cost="slow",
)
def too_much() -> Finding:
    plain, mix, much = (released(weight) for weight in (0.0, 1.0, 10.0))
    gates = [release_gate(plain, other, drops={"helpful": 0.02}) for other in (mix, much)]
    names = zip(("0", "1", "10"), (plain, mix, much), strict=True)
    alike = [any("end alike" in reason for reason in gate.reasons) for gate in gates]
    return Finding(
        measured={f"weight {name}: {key}": value for name, found in names for key, value in found.items()},
        criterion="weight 1: gate open; weight 10: more love still, the phrase in > 0.5 of the answers, and the gate "
        "shut for endings that are alike",
        holds=gates[0].open and much["love"] > mix["love"] and much["phrase"] > 0.5 and alike == [False, True],
        note="Of five fresh seeds the policy of weight 10 never takes to the phrase on two, and stays as it is at 1.",
    )


@mutation("The weight of love is ignored.", kills=adds_chances)
def no_weight(replace: Replace) -> None:
    right = sentence.SumOfRewards
    replace(sentence, "SumOfRewards", lambda terms, weights: right(terms=terms))
