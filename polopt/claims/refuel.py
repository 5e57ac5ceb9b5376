"""These programs measure what the paper of REFUEL claims."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import LinearPolicy, TabularPolicy, TokenTree, TreeSource
from polopt.lab.effects import More, effect
from polopt.lab.measure import learning
from polopt.lab.preferences import fitted
from polopt.methods.rebel import rebel
from polopt.methods.refuel import RestartedTurn, TurnRestarts, refuel
from polopt.sampling import RolloutRequest

STATES, ANSWERS, TURNS = 8, 4, 3


def dialogues(seed: int, shared: bool) -> tuple[TokenTree, TabularPolicy]:
    """Returns conversations of three turns with a user in one of eight states, and a uniform policy.

    A turn is one of four answers, which puts the user into another state; the score, uniform on [0, 1], is of the last
    state and answer. shared: whether the policy's logits depend on state and turn, by features of the state and of
    both, so that what is learned at one turn applies to others; otherwise each history has its own.
    """
    generator = torch.Generator().manual_seed(seed)
    after = torch.randint(STATES, (STATES, ANSWERS), generator=generator).tolist()
    score = torch.rand(STATES, ANSWERS, generator=generator, dtype=torch.double).tolist()

    def states(first: int, answer: Sequence[int]) -> list[int]:
        return list(itertools.accumulate(answer[:-1], lambda state, a: after[state][a], initial=first))

    tree = TokenTree.full(
        ANSWERS, TURNS, lambda first, answer: score[states(first, answer)[-1]][answer[-1]], prompts=STATES
    ).in_turns(1)
    if not shared:
        return tree, TabularPolicy(tree)
    state = torch.zeros(len(tree.choices), dtype=torch.long)
    walks = [states(first, answer) for first in range(STATES) for answer in tree.answers]
    state[tree.nodes[:, tree.start :]] = torch.tensor(walks)
    both = one_hot(state + STATES * tree.positions, STATES * TURNS)
    return tree, LinearPolicy(tree, torch.cat([one_hot(state, STATES), both], 1) / 2**0.5)


@dataclasses.dataclass(frozen=True)
class Trained:
    """The training of a policy. offline: conversations are those of the first policy, which the present one only
    continues."""

    algorithm: Algorithm
    offline: bool = False


class OfflineBeginnings(TreeSource):
    """A source whose new rollouts are those of the first policy; `extend` continues them with the present one."""

    def __init__(self, tree: TokenTree, policy: TabularPolicy, **settings: Any) -> None:
        super().__init__(tree, policy, **settings)
        self.first = TreeSource(tree, copy.deepcopy(policy), **settings)

    def rollout(self, request: RolloutRequest) -> Experience:
        batch = self.first.rollout(request)
        self.drawn, self.decided = self.drawn + len(batch), self.decided + int(batch.lengths.sum())
        return batch


def conversed(side: Trained, seed: int, step_size: float, shared: bool, batches: int = 80) -> dict[str, float]:
    """Returns the exact score after so many batches of 16 conversations, four steps on each, as a share of the way from
    the uniform policy to the best."""
    tree, policy = dialogues(seed, shared)
    algorithm = side.algorithm
    make = OfflineBeginnings if side.offline else TreeSource
    rows = 16 * algorithm.sampling.group_size
    source = make(tree, policy, rows=rows, seed=seed, needs=algorithm.required_fields)
    before, best = tree.outcome.mean().item(), tree.outcome.max(1).values.mean().item()
    for _ in itertools.islice(learning(algorithm, source, policy, rate=step_size, epochs=4), batches):
        pass
    score = (tree.value(policy).item() - before) / (best - before)
    return {"score": score, "turns": float(source.decided), "conversations": float(source.drawn)}


def of_turn(turn: str = "random", reuse: bool = True, offline: bool = False) -> Trained:
    return Trained(refuel(eta=3.0).but({"sampling.turn": turn, "sampling.reuse": reuse}), offline)


STEP_SIZES = (1.0, 3.0, 10.0, 20.0, 40.0)


@effect(
    "In conversations whose score depends on what earlier turns led to, it learns more than REBEL on the last turn, be "
    "the turns before it the first policy's, as in a data set, or its own.",
    kind="headline",
    method=of_turn,
    controls={
        "last turn, first policy's conversations": lambda: of_turn("last", reuse=False, offline=True),
        "last turn, own conversations": lambda: of_turn("last", reuse=False),
    },
    step_sizes=STEP_SIZES,
    criteria=[More("score", by=0.05)],
    seeds=10,
    budget="conversations",
    cost="slow",
    note="Each has five turns a pair on average. The policy shares parameters between turns.",
)
def plans(side: Trained, *, seed: int, step_size: float) -> dict[str, float]:
    return conversed(side, seed, step_size, shared=True)


@effect(
    "It learns more in the states of its own conversations than in those of the first policy's.",
    kind="part",
    method=lambda: of_turn(reuse=False),
    controls={"first policy's conversations": lambda: of_turn(reuse=False, offline=True)},
    step_sizes=STEP_SIZES,
    criteria=[More("score", by=0.05)],
    seeds=10,
    budget="conversations",
    cost="slow",
    note="Turns are chosen at random by both, and every history is a state of its own.",
)
def covariate_shift(side: Trained, *, seed: int, step_size: float) -> dict[str, float]:
    return conversed(side, seed, step_size, shared=False)


@effect(
    "It learns more than REBEL on whole conversations, from as many batches.",
    kind="part",
    method=of_turn,
    controls={"rebel": lambda: Trained(rebel(eta=3.0))},
    step_sizes=STEP_SIZES,
    criteria=[More("score", by=0.0)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="REBEL on whole conversations learns from three turns of each, REFUEL from one: it leads by 0.09 on own seeds "
    "and by 0.03 on ten fresh ones. The user is deterministic.",
)
def than_whole_conversations(side: Trained, *, seed: int, step_size: float) -> dict[str, float]:
    return conversed(side, seed, step_size, shared=True)


def enumerated(turns: Sequence[int] | None) -> tuple[TokenTree, TabularPolicy, Experience]:
    """Returns conversations of three turns of two answers, a policy whose probabilities are thirds, and a batch.

    In the batch every continuation of every state occurs as often as it is sampled.

    turns: the turns of which there are states; None takes whole conversations, and marks no turn.
    """
    generator = torch.Generator().manual_seed(4)
    tree = TokenTree.full(2, 3, torch.randn(2, 8, generator=generator, dtype=torch.double), prompts=2).in_turns(1)
    counts = 1 + torch.randint(2, (len(tree.choices), 1), generator=generator)
    counts = torch.cat([counts, 3 - counts], 1)
    policy = TabularPolicy(tree).set_probabilities(counts.double() / 3)
    leaves = tree.leaves()
    leaves = leaves.replace(rollout_logp=policy.evaluate(leaves).logp.detach())
    often = torch.where(leaves.mask, counts[tree.nodes, leaves.extras["tokens"]], 1)
    rows, groups, marks = list[Tensor](), list[Tensor](), list[Tensor]()
    for turn in [0] if turns is None else turns:
        column = tree.start + turn
        copies = often[:, column:].prod(1)
        leaf = torch.arange(len(leaves)).repeat_interleave(copies)
        rows.append(leaf)
        groups.append(tree.nodes[leaf, column])
        marks.append((torch.arange(leaves.mask.shape[1]) == column).expand(len(leaf), -1))
    batch = leaves[torch.cat(rows)].replace(group=torch.cat(groups))
    return tree, policy, batch if turns is None else batch.replace(extras={"restarted": torch.cat(marks)})


def from_target(algorithm: Algorithm, eta: float, turns: Sequence[int] | None = (0, 1, 2)) -> float:
    """Returns the largest distance of the fitted policy's probabilities from pi_t exp(eta Q) / Z, over all states."""
    tree, policy, batch = enumerated(turns)
    leaves, before = tree.leaves(), policy.logits.detach().log_softmax(1)
    chance = tree.log_probabilities(policy).detach().exp().flatten()
    mass, worth = torch.zeros_like(before), torch.zeros_like(before)
    for leaf, column in leaves.mask.nonzero().tolist():
        at = tree.nodes[leaf, column], leaves.extras["tokens"][leaf, column]
        mass[at] += chance[leaf]
        worth[at] += chance[leaf] * leaves.outcome[leaf]
    fitted(algorithm, batch, policy)
    target = (before + eta * worth / mass).softmax(1)
    return (policy.logits.detach().softmax(1) - target).abs().max().item()


@claim(
    "The minimiser of a round is pi_t exp(eta Q) / Z in every state, with Q the value of a turn under pi_t.",
    kind="theory",
    baseline="REBEL on whole conversations, and on the last turn",
)
def one_round() -> Finding:
    etas = (0.5, 2.0)
    ours = max(from_target(refuel(eta=eta), eta) for eta in etas)
    whole = min(from_target(rebel(eta=eta), eta, turns=None) for eta in etas)
    last = min(from_target(refuel(eta=eta), eta, turns=(2,)) for eta in etas)
    return Finding(
        measured={"error": ours, "whole conversations": whole, "last turn": last},
        criterion="largest error of a probability < 1e-9 at eta 0.5 and 2, of both others > 0.02",
        holds=ours < 1e-9 and min(whole, last) > 0.02,
    )


@claim(
    "Each turn is restarted alike often; rows of a group are the same before it, and from there on independent answers "
    "of the policy.",
    kind="identity",
    baseline="the last turn, always",
)
def restarts() -> Finding:
    tree, policy, _ = enumerated((0,))
    chance = policy.logits.detach().softmax(1)
    worst = {"random": 0.0, "last": 0.0}
    for turn, reuse in (("random", True), ("random", False), ("last", True)):
        source = TreeSource(tree, policy, rows=20_000, seed=0)
        batch = TurnRestarts(turn=turn, reuse=reuse)(source)  # type: ignore[arg-type]
        marked, tokens = batch.extras["restarted"], batch.extras["tokens"]
        column = marked.to(torch.uint8).argmax(1)
        often = torch.bincount(column - tree.start, minlength=3) / len(batch)
        prefix = torch.arange(tokens.shape[1]) < column[:, None]
        first, second = torch.where(prefix, tokens, -1).view(-1, 2, tokens.shape[1]).unbind(1)
        errors = [(often - 1 / 3).abs().max().item(), float((first != second).any())]
        node = tree.nodes[batch.extras["leaf"]].gather(1, column[:, None])[::2, 0]
        alike = torch.stack([tokens[i::2].gather(1, column[i::2, None])[:, 0] for i in (0, 1)])
        alike = (alike[0] == alike[1]).double().mean() - chance[node].square().sum(1).mean()
        errors.append(abs(alike.item()))
        for state in range(len(chance)):
            chosen = tokens[(tree.nodes[batch.extras["leaf"]] == state) & batch.mask & ~prefix]
            if len(chosen) > 2000:
                errors.append(abs((chosen == 0).double().mean().item() - chance[state, 0].item()))
        worst[turn] = max(worst[turn], *errors)
    return Finding(
        measured={"largest error": worst["random"], "of the last turn": worst["last"]},
        criterion="largest error of a frequency < 0.05, with and without reuse, of the last turn's > 0.3",
        holds=worst["random"] < 0.05 and worst["last"] > 0.3,
    )


@mutation("Turns after the restarted one are learned from too.", kills=one_round)
def whole_rest(replace: Replace) -> None:
    def forward(self: RestartedTurn, experience: Experience) -> Experience:
        return experience.restrict(experience.extras["restarted"].cumsum(1) > 0)

    replace(RestartedTurn, "forward", forward)


@mutation("The turn after the one that is marked begins anew.", kills=restarts)
def late_restart(replace: Replace) -> None:
    extend = TreeSource.extend

    def late(self: TreeSource, experience: Experience, copies: int, at: Tensor) -> Experience:
        last = self.tree.start + experience.lengths - 1
        return extend(self, experience, copies, at=torch.minimum(at + 1, last))

    replace(TreeSource, "extend", late)
