"""These programs measure what the paper of NLHF claims of its policy gradient, Nash-MD-PG."""

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab import TabularPolicy, TreeSource
from polopt.lab.comparisons import ComparedSequences, compared_sequences, cyclic_arms, played
from polopt.lab.effects import Less, effect
from polopt.lab.measure import LeafGradient
from polopt.lab.tree import flat_gradient
from polopt.methods.nash_md import nash_md
from polopt.methods.online_dpo import online_dpo
from polopt.methods.rloo import rloo
from polopt.rewards import WinRate
from polopt.sampling import OpponentRollouts, PolicyMixture, ReferenceMixture, RolloutRequest
from polopt.support import PLAIN

TAU = 0.1
STEPS, ROWS = 200, 8


Side = Callable[..., Algorithm]


def nash(**settings: Any) -> Callable[[], Side]:
    """Returns a builder of the method with two answers of the policy and two of the opponent, as a function of
    `preference`."""
    return lambda: functools.partial(nash_md, group=2, opponents=2, **settings)


def learned(side: Side, problem: ComparedSequences, seed: int, step_size: float) -> dict[str, float]:
    """Trains on the comparisons, and returns what `played` measures."""
    return played(side(preference=problem.preference), problem, steps=STEPS, step_size=step_size, rows=ROWS, seed=seed)


@effect(
    "Where preferences are not transitive, the last policy nears the equilibrium of answers of several tokens.",
    kind="headline",
    method=nash(mixture=0.25, tau=TAU),
    controls={
        "a reward fitted to the comparisons": lambda: lambda preference: rloo(group=4, kl=TAU),
        "self-play, not regularised": nash(mixture=0.0, tau=0.0),
        "online DPO": lambda: functools.partial(online_dpo, group=4, beta=TAU),
    },
    step_sizes=(0.03, 0.1, 0.3, 1.0, 3.0),
    criteria=[Less("gap", times=0.5)],
    budget="answers",
    cost="slow",
    note="The duality gap of P_tau with tau = 0.1, exact, after 200 batches of 8 prompts with 4 answers each; nine "
    "answers of two tokens, a new game and reference each seed. At their smallest step sizes the controls stay near "
    "the reference.",
)
def nears(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(side, compared_sequences(seed), seed, step_size)


@effect(
    "So it does in the game of three answers that beat each other in a cycle.",
    kind="part",
    method=nash(mixture=0.25, tau=TAU),
    controls={
        "a reward fitted to the comparisons": lambda: lambda preference: rloo(group=4, kl=TAU),
        "self-play, not regularised": nash(mixture=0.0, tau=0.0),
    },
    step_sizes=(0.03, 0.1, 0.3, 1.0, 3.0),
    criteria=[Less("gap", times=0.5)],
    budget="answers",
    cost="slow",
)
def nears_in_a_cycle(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(side, cyclic_arms(), seed, step_size)


@effect(
    "Nash-EMA, against averaged parameters, nears it as well.",
    kind="part",
    method=nash(opponent="average", decay=0.9, tau=TAU),
    controls={"the same without regularisation": nash(opponent="average", decay=0.9, tau=0.0)},
    step_sizes=(0.03, 0.1, 0.3, 1.0, 3.0),
    criteria=[Less("gap", times=0.5)],
    budget="answers",
    cost="slow",
)
def averages(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(side, cyclic_arms(), seed, step_size)


@effect(
    "The mixture leads nearer to the equilibrium than self-play that is regularised alike.",
    kind="part",
    method=nash(mixture=0.25, tau=TAU),
    controls={"self-play, regularised alike": nash(mixture=0.0, tau=TAU)},
    step_sizes=(0.03, 0.1, 0.3, 1.0, 3.0),
    criteria=[Less("gap", times=0.9)],
    budget="answers",
    cost="slow",
    refuted=True,
    note="Regularisation by tau is what leads there. The limit of exact gradients is the equilibrium without a mixture "
    "and lies beside it with one, see `displaced`. The paper's gains of a mixture are of language models.",
)
def mixture_helps(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(side, compared_sequences(seed), seed, step_size)


def formula(problem: ComparedSequences, policy: TabularPolicy, share: float, tau: float) -> Tensor:
    """Returns the exact gradient of the paper, flat: the sum over answers of pi(y) grad log pi(y) (P(y > mix) - 1/2 -
    tau log pi(y)/ref(y)), with the mixture of logits written out token by token."""
    tree, leaves = problem.tree, problem.tree.leaves()
    mixed = ((1 - share) * policy.table() + share * problem.reference.table()).detach()
    table = mixed.masked_fill(~tree.choices, -torch.inf).log_softmax(-1)
    tokens = table[tree.nodes, leaves.extras["tokens"]]
    mix = torch.where(leaves.mask, tokens, 0).sum(1).exp()
    logp, ref = (tree.log_probabilities(p)[0] for p in (policy, problem.reference))
    bracket = problem.game.win_rates(mix) - 0.5 - tau * (logp - ref)
    return flat_gradient((logp.exp().detach() * bracket.detach() * logp).sum(), policy)


class RequestedMixture:
    """A source that returns the mixture of a request in place of rollouts."""

    def rollout(self, request: RolloutRequest) -> PolicyMixture | None:
        return request.mixture


def expected(algorithm: Algorithm, problem: ComparedSequences, policy: TabularPolicy) -> Tensor:
    """Returns the exact expectation of -d loss, flat, over all groups of the policy's answers and all answers of
    the opponent that the algorithm samples from."""
    tree, N = problem.tree, len(problem.tree.answers)
    source = TreeSource(tree, policy, rows=2, reference=problem.reference, needs=algorithm.required_fields)
    mixer = algorithm.sampling.mixers[0]
    assert isinstance(mixer, OpponentRollouts)
    mixture = mixer.policy(RequestedMixture(), RolloutRequest(torch.tensor([0]), 1))
    table, own = source.leaf_table()
    mix = source.leaf_table(mixture=mixture)[1][0]
    probe = LeafGradient(algorithm, tree, policy, PLAIN)
    found, weights = list[Tensor](), list[Tensor]()
    group = algorithm.sampling.group_size
    flags = torch.arange(group + 1) == group
    for rows in itertools.product(range(N), repeat=group + 1):
        batch = table[torch.tensor(rows)].replace(extras={"is_opponent": flags})
        found.append(probe(algorithm.compute_advantages(algorithm.sampling.mark(batch))))
        weights.append(own[0, list(rows[:group])].prod() * mix[rows[group]])
    return -(torch.stack(weights) @ probe.vjp(torch.stack(found)))


@claim(
    "Its expected gradient is the paper's, of self-play (mixture 0) and of the best response to the reference (1) too.",
    kind="identity",
    baseline="the gradient with TRL's KL term, in which a token's log-ratio multiplies that token's log-probability",
)
def is_the_formula() -> Finding:
    problem = compared_sequences(3)
    policy = TabularPolicy(problem.tree, spread=1.0, seed=11)
    apart = []
    for share, group in ((0.0, 1), (0.3, 2), (1.0, 1)):
        algorithm = nash_md(mixture=share, tau=TAU, group=group, preference=problem.preference)
        exact = formula(problem, policy, share, TAU)
        apart.append(float((expected(algorithm, problem, policy) - exact).abs().max()))
    leaves = problem.tree.leaves()
    logp, ref = policy.evaluate(leaves).logp, problem.reference.evaluate(leaves).logp.detach()
    answer = torch.where(leaves.mask, logp, 0).sum(1)
    p, ratio = answer.exp().detach(), torch.where(leaves.mask, logp - ref, 0).detach()
    apart_by_token = answer * ratio.sum(1) - torch.where(leaves.mask, logp * ratio, 0).sum(1)
    without = TAU * float(flat_gradient((p * apart_by_token).sum(), policy).abs().max())
    return Finding(
        measured={
            "largest difference, mixture 0": apart[0],
            "mixture 0.3": apart[1],
            "mixture 1": apart[2],
            "of the gradient with TRL's term": without,
        },
        criterion="nine answers of two tokens: differences < 1e-12; TRL's > 1e-3",
        holds=max(apart) < 1e-12 and without > 1e-3,
    )


def limit(problem: ComparedSequences, share: float, steps: int = 1500, rate: float = 3.0) -> Tensor:
    """Returns the answers' probabilities after exact gradient steps from the reference."""
    policy = copy.deepcopy(problem.reference)
    for _ in range(steps):
        gradient = formula(problem, policy, share, TAU)
        with torch.no_grad():
            policy.logits.add_(rate * gradient.view_as(policy.logits))
    return problem.tree.log_probabilities(policy).detach()[0].exp()


@claim(
    "A constant mixture moves the limit away from the equilibrium, the further the larger it is; at 1 the limit is the "
    "best response to the reference.",
    kind="limit",
    baseline="self-play that is regularised alike, mixture 0",
)
def displaced() -> Finding:
    problem = cyclic_arms()
    game = problem.game
    found = {share: limit(problem, share) for share in (0.0, 0.125, 0.25, 0.5, 1.0)}
    gaps = {share: game.duality_gap(law) for share, law in found.items()}
    response = (game.reference.log() + game.win_rates(game.reference) / TAU).softmax(0)
    off = float((found[1.0] - response).abs().sum()) / 2
    rises = all(gaps[b] > 2 * gaps[a] for a, b in itertools.pairwise((0.125, 0.25, 0.5, 1.0)))
    return Finding(
        measured={**{f"gap, mixture {share:g}": gap for share, gap in gaps.items()}, "distance to the response": off},
        criterion="three answers in a cycle, exact gradients: gap < 1e-6 at 0; each twofold of the mixture more than "
        "doubles it; total variation to the best response < 1e-3 at 1",
        holds=gaps[0.0] < 1e-6 and gaps[0.125] > 1e-6 and rises and off < 1e-3,
    )


@mutation("The mixture's weights are exchanged.", kills=is_the_formula)
def exchanged(replace: Replace) -> None:
    def forward(self: ReferenceMixture, source: RequestedMixture, request: RolloutRequest) -> object:
        share = float(self.share)  # type: ignore[arg-type]
        return source.rollout(dataclasses.replace(request, mixture=PolicyMixture(self.anchor, 1 - share)))

    replace(ReferenceMixture, "forward", forward)


@mutation("Answers are compared with each other, too.", kills=is_the_formula)
def compared_with_all(replace: Replace) -> None:
    forward = WinRate.forward
    replace(WinRate, "forward", lambda self, experience: forward(self.but(against="all"), experience))


@mutation("Opponents are learned from.", kills=is_the_formula)
def learns_from_opponents(replace: Replace) -> None:
    replace(
        Algorithm,
        "_credited",
        lambda self, experience, rows=None: self.credit.credited(self.reward.rewarded(experience)),
    )
