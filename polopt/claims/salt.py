"""These programs measure what the paper of SALT claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import EdgeMeanAdvantage, RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import TabularPolicy
from polopt.lab.effects import More, effect
from polopt.lab.measure import expectation
from polopt.lab.progress import learned
from polopt.lab.recurring import lock, sharing
from polopt.methods.grpo import grpo
from polopt.methods.salt import salt


@effect(
    "More locks are opened over the whole training than with GRPO, by a policy that reads its whole history.",
    kind="headline",
    method=salt,
    controls={"GRPO": lambda: grpo(group=8, kl=0.0)},
    step_sizes=(48.0, 96.0, 192.0, 384.0, 768.0),
    trials=5,
    criteria=[More("mean success", by=0.01)],
    seeds=10,
    cost="slow",
    refuted=True,
    note="24 locks of 3 places in 6 turns; each history has random features of its own, so that a step is merged with "
    "others that the policy reads apart. 60 batches of 8 rollouts of each. A wrong step that all rollouts of a hard "
    "lock take is as neutral as a right one.",
)
def learns_sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, states = lock(seed, prompts=24)
    nodes = torch.arange(len(states)) + int(states.max()) + 1
    policy = sharing(tree, states, seed=seed)
    own = sharing(tree, nodes - nodes.min(), seed=seed + 1)
    policy.features = (policy.features + own.features) / 2**0.5
    found = learned(algorithm, (tree, policy), steps=60, step_size=step_size, seed=seed)
    return {name: found[name] for name in ("mean success", "success")}


END = -1


def _rows() -> Experience:
    """Returns two groups of rollouts: turns of one or two tokens, a shared end, a step that one takes twice and another
    once, and a shared word elsewhere."""
    turn = [[0, 0, 1, 2, -1], [0, 0, 1, 1, 2], [0, 0, 1, 2, 3], [0, 1, 2, -1, -1], [0, 1, 2, 3, -1], [0, 1, -1, -1, -1]]
    tokens = [
        [1, 2, 3, 4, -1],
        [1, 2, 3, 3, 4],
        [1, 2, 3, 3, 4],
        [1, 3, 4, -1, -1],
        [3, 3, 3, 4, -1],
        [3, 5, -1, -1, -1],
    ]
    state = [[7, 7, 8, 9, 0], [7, 7, 8, 8, 9], [7, 7, 8, 8, 9], [7, 8, 9, 0, 0], [8, 8, 8, 9, 0], [8, 8, 0, 0, 0]]
    turns = torch.tensor([*turn, [0, 0, 1, -1, -1]])
    outcome = torch.tensor([1.0, 0.0, 0.25, 0.5, 0.75, 0.0, 1.0]).double()
    return Experience(
        mask=turns >= 0,
        turn=turns,
        reward=outcome,
        outcome=outcome,
        group=torch.tensor([1, 1, 1, 1, 1, 1, 0]),
        extras={
            "turn_state": torch.tensor([*state, [7, 7, 8, 0, 0]]),
            "tokens": torch.tensor([*tokens, [1, 2, 3, -1, -1]]),
        },
    )


def _steps(rows: Experience) -> list[tuple[int, int, tuple[int, ...], list[int]]]:
    """Returns row, turn, the tokens of the turn, and the row's states from the first to the one after the turn."""
    found = []
    for i in range(len(rows)):
        decided = [t for t in range(rows.mask.shape[1]) if rows.mask[i, t]]
        numbers = sorted({int(rows.turn[i, t]) for t in decided})
        places = {h: [t for t in decided if rows.turn[i, t] == h] for h in numbers}
        states = [int(rows.extras["turn_state"][i, places[h][0]]) for h in numbers] + [END]
        for k, h in enumerate(numbers):
            words = tuple(int(rows.extras["tokens"][i, t]) for t in places[h])
            found.append((i, h, words, states[: k + 2]))
    return found


@claim(
    "A step has the mean advantage of the rollouts of its group that take it, each once.",
    kind="identity",
    baseline="GRPO's advantage, which the steps have that no other rollout takes",
)
def is_the_formula() -> Finding:
    rows, off, moved = _rows(), 0.0, 0.0
    base = grpo(group=6, kl=0.0).credit(rows)
    worth = [float(base[i][rows.mask[i]][0]) for i in range(len(rows))]
    steps, groups = _steps(rows), rows.group.tolist()
    for window in (0, 1, 5):
        found = salt(group=6, window=window).credit(rows)
        for i, h, words, states in steps:
            edge = (groups[i], states[-2 - window :] if window + 2 <= len(states) else states, words)
            takers = {
                j
                for j, _, other, path in steps
                if (groups[j], path[-2 - window :] if window + 2 <= len(path) else path, other) == edge
            }
            expected = sum(worth[j] for j in takers) / len(takers)
            off = max(off, (found[i][rows.turn[i] == h] - expected).abs().max().item())
            moved = max(moved, abs(expected - worth[i]))
    return Finding(
        measured={"largest error": off, "largest change": moved},
        criterion="error < 1e-12 on 21 steps at three windows, a change > 0.1",
        holds=off < 1e-12 and moved > 0.1,
    )


@claim(
    "A step that all rollouts share is not moved by their lengths, and the decisive one keeps its credit.",
    kind="part",
    baseline="GRPO, which weighs a decision by one over its row's length and so learns the shared step of short rows",
)
def shared_is_neutral() -> Finding:
    # Four rollouts take the same first step; two then stop and are right, two go on and are wrong.
    turn = torch.tensor([[0, 1, -1, -1, -1, -1], [0, 1, -1, -1, -1, -1], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]])
    tokens = torch.tensor([[1, 2, -1, -1, -1, -1], [1, 2, -1, -1, -1, -1], [1, 3, 4, 5, 6, 7], [1, 3, 4, 5, 6, 8]])
    outcome = torch.tensor([1.0, 1.0, 0.0, 0.0]).double()
    state = torch.where(turn >= 0, 100 + turn, 0)
    batch = Experience(
        mask=turn >= 0,
        turn=turn,
        reward=outcome,
        outcome=outcome,
        group=torch.zeros(4, dtype=torch.long),
        extras={"turn_state": state, "tokens": tokens},
    )

    def pull(algorithm: Algorithm, column: int, rows: slice) -> float:
        weighed = algorithm.credit(batch) / batch.lengths[:, None]
        return weighed[rows, column].sum().item()

    plain, merged = grpo(group=4, kl=0.0), salt(group=4)
    shared, right = slice(0, 4), slice(0, 2)
    found = abs(pull(merged, 0, shared)), abs(pull(plain, 0, shared))
    decisive = pull(merged, 1, right) / pull(plain, 1, right)
    return Finding(
        measured={"shared step": found[0], "of GRPO": found[1], "decisive step over GRPO's": decisive},
        criterion="shared step < 1e-9, GRPO's > 0.2; the decisive step keeps its credit to 1e-9",
        holds=found[0] < 1e-9 and found[1] > 0.2 and abs(decisive - 1) < 1e-9,
    )


@claim(
    "For a policy that reads the state alone, rows of one length and no step twice, the expected update is GRPO's.",
    kind="limit",
    baseline="a policy that reads its whole history",
)
def same_update() -> Finding:
    tree, states = lock(1, prompts=1, actions=2, length=2, turns=4, timed=True)
    gaps = []
    for tied in (states, None):
        policy = TabularPolicy(tree, tied=tied, spread=0.7, seed=2)
        both = [expectation(a, tree, policy).mean for a in (salt(group=2), grpo(group=2, kl=0.0))]
        gaps.append((both[0] - both[1]).abs().max().item())
    return Finding(
        measured={"largest difference": gaps[0], "of a policy of histories": gaps[1]},
        criterion="difference < 1e-12, otherwise > 1e-7",
        holds=gaps[0] < 1e-12 and gaps[1] > 1e-7,
    )


@mutation("A rollout that takes a step twice counts twice.", kills=is_the_formula)
def counts_visits(replace: Replace) -> None:
    from polopt import ops

    replace(ops, "group_first", lambda visit: torch.arange(len(visit)))


@mutation("Steps are merged whatever follows them.", kills=is_the_formula)
def ignores_the_end(replace: Replace) -> None:
    own = EdgeMeanAdvantage._edges

    def edges(self: EdgeMeanAdvantage, experience: Experience, number: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(experience.extras["turn_state"])
        return own(self, experience.replace(extras={"turn_state": state}), number, row)

    replace(EdgeMeanAdvantage, "_edges", edges)


@mutation("A shared step has the advantage of its own rollout.", kills=shared_is_neutral)
def not_merged(replace: Replace) -> None:
    replace(EdgeMeanAdvantage, "forward", lambda self, experience: RelativeAdvantage()(experience))
