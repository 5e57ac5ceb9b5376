"""These programs measure what the paper of ASPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import ModulatedAdvantage, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.masks import IsCorrect
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.lab.shapes import coin
from polopt.methods.aspo_tir import EarlyCall, FirstCall, aspo_tir
from polopt.methods.dapo import dapo

PROMPTS, TURNS = 16, 4
# Chance of a right answer in each turn's way; the arms call first in turn 0, 0, 3 and 3.
CHANCES, CALLS = (0.9, 0.3, 0.9, 0.3), (0, 0, 3, 3)


@effect(
    "Calls move to the first turn where early and late calls are right as often, at DAPO's share of right answers.",
    kind="headline",
    method=aspo_tir,
    controls={"DAPO": lambda: dapo(group=8)},
    step_sizes=(0.3, 1.0, 3.0, 10.0),
    criteria=[More("early", by=0.2), More("right", by=-0.02)],
    best=More("right", by=0.0),
    seeds=5,
    cost="slow",
    note="Four ways to answer in four turns: a call in the first or in the last, right with chance 0.9 or 0.3; 16 "
    "prompts a seed, 300 groups of 8 each. Step sizes are chosen by the share of right answers, which is within 0.001 "
    "of 0.9, the most, from 3 on.",
)
def calls_earlier(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    answers = [(way, 0, 0, 0) for way in range(4)]
    tree = TokenTree(4, answers, torch.tensor([CHANCES] * PROMPTS), PROMPTS).in_turns(1)
    policy, first = TabularPolicy(tree), torch.tensor([CALLS] * PROMPTS).double()
    train(
        *(algorithm, tree, policy),
        steps=300,
        rate=PROMPTS * step_size,
        rows=PROMPTS,
        seed=seed,
        draw=coin,
        signals={"first_call": first},
    )
    probability = tree.log_probabilities(policy).detach().exp()
    return {
        "early": (probability * (first == 0)).sum(1).mean().item(),
        "right": (probability * torch.tensor(CHANCES)).sum(1).mean().item(),
    }


def _batch(right: list[float], turns: list[list[int]], calls: list[float], group: list[int]) -> Experience:
    """Returns rows of decisions with the turns of these numbers, -1 where there is none, and their first calls."""
    turn = torch.tensor(turns)
    return Experience(
        mask=turn >= 0,
        outcome=torch.tensor(right, dtype=torch.double),
        reward=torch.tensor(right, dtype=torch.double),
        group=torch.tensor(group),
        turn=turn,
        extras={"signal_first_call": torch.tensor(calls, dtype=torch.double)},
    )


NO_CALL = -1.0
# Three prompts: with a wrong row and one without a call, with a single eligible row, and with none.
ROWS = _batch(
    [1, 1, 0, 1, 1, 1, 0, 0, 1],
    [
        [0, 0, 1, 2, 2],
        [0, 1, 1, -1, -1],
        [0, 0, 0, 1, 1],
        [0, 0, -1, -1, -1],
        [-1, 0, 1, -1, 2],
        [0, 1, 1, 1, 1],
        [0, 1, 2, 3, 4],
        [0, 0, 0, 0, 0],
        [0, 0, 1, -1, -1],
    ],
    [1, 0, 0, NO_CALL, 1, 0, 2, 0, NO_CALL],
    [0, 0, 0, 0, 0, 1, 1, 2, 2],
)
# Positions of the first prompt's eligible rows 0, 1 and 4: 3, 1 and 2 of 5, 3 and 3 decisions.
SHIFTS = {0: (3 - 2) / (11 / 3), 1: (1 - 2) / (11 / 3), 4: 0.0}


@claim(
    "Right rows that call a tool are shifted by the paper's formula, and no others.",
    kind="identity",
    baseline="DAPO's advantage",
)
def is_the_formula() -> Finding:
    base = RelativeAdvantage()
    plain = base(ROWS)
    off = moved = 0.0
    for delta, k in ((-2.0, 0.7), (-0.1, 0.7), (3.0, 0.2)):
        credit = ModulatedAdvantage(credit=base, plus=EarlyCall(delta=delta), limit=k)
        found = credit(ROWS)
        for row in range(len(ROWS)):
            worth = plain[row][ROWS.mask[row]][0].item()
            bound = k * abs(worth)
            expected = worth + min(bound, max(-bound, delta * SHIFTS.get(row, 0.0)))
            off = max(off, (found[row][ROWS.mask[row]] - expected).abs().max().item())
            moved = max(moved, abs(expected - worth))
    return Finding(
        measured={"largest error": off, "largest shift": moved},
        criterion="error < 1e-12 on nine rows of three prompts at three settings, a shift > 0.1",
        holds=off < 1e-12 and moved > 0.1,
    )


@claim(
    "No right answer loses more than k of its advantage, where a bonus on the reward turns many negative.",
    kind="theory",
    baseline="the same bonus on the reward, clipped at 1, and GRPO's z-score",
)
def keeps_the_sign() -> Finding:
    draw = torch.Generator().manual_seed(0)
    groups, size, k = 2000, 8, 0.7
    length = torch.randint(20, 60, (groups * size,), generator=draw)
    first = (torch.rand(groups * size, generator=draw) * length).long()
    turn = (torch.arange(60) > first[:, None]).long()
    mask = torch.arange(60) < length[:, None]
    right = (torch.rand(groups * size, generator=draw) < 0.7).double()
    right[::size], right[1::size] = 1.0, 0.0
    batch = Experience(
        mask=mask,
        outcome=right,
        reward=right,
        group=torch.arange(groups).repeat_interleave(size),
        turn=torch.where(mask, turn, -1),
        extras={"signal_first_call": torch.zeros(len(right)).double()},
    )
    shifted, base = (algorithm.credit(batch)[:, 0] for algorithm in (aspo_tir(k=k), dapo()))
    share = (shifted / base)[right == 1]
    place = first.view(groups, size).double()
    bonus = -((place - place.mean(1, keepdim=True)) / place.std(1, keepdim=True)).clamp(-1, 1)
    rewarded = 1 + 0.1 * bonus
    turned = ((rewarded - rewarded.mean(1, keepdim=True)) / rewarded.std(1, keepdim=True) < 0).double().mean().item()
    least, most = share.min().item(), share.max().item()
    return Finding(
        measured={"least share": least, "largest share": most, "negative by a bonus, all right": turned},
        criterion="shares within 0.3 and 1.7, and both ends met; by the bonus > 40 % negative",
        holds=0.3 - 1e-9 <= least < 0.31 and 1.69 < most <= 1.7 + 1e-9 and turned > 0.4,
    )


@claim(
    "Without a shift, with one right caller, and where all call alike, advantages are DAPO's.",
    kind="limit",
    baseline="two right callers of two positions",
)
def nothing_to_shift() -> Finding:
    base = RelativeAdvantage()

    def moved(rows: Experience, delta: float = -2.0, k: float = 0.7) -> float:
        credit = ModulatedAdvantage(credit=base, plus=EarlyCall(delta=delta), limit=k)
        return (credit(rows) - base(rows)).abs().max().item()

    turns = [[0, 1, 1], [0, 1, 1], [0, 0, 1]]
    alike, alone = _batch([1, 1, 0], turns, [0, 0, 0], [0] * 3), _batch([1, 0, 0], turns, [1, 0, 0], [0] * 3)
    apart = _batch([1, 1, 0], turns, [0, 1, 0], [0] * 3)
    off = max(moved(alike), moved(alone), moved(apart, delta=0.0), moved(apart, k=0.0))
    return Finding(
        measured={"largest shift": off, "otherwise": moved(apart)},
        criterion="shift < 1e-12, otherwise > 0.1",
        holds=off < 1e-12 and moved(apart) > 0.1,
    )


@mutation("Wrong rows count among the eligible.", kills=is_the_formula)
def of_wrong_rows(replace: Replace) -> None:
    replace(IsCorrect, "forward", lambda self, experience: torch.ones(len(experience), dtype=torch.bool))


@mutation("The position is the turn's number.", kills=is_the_formula)
def counts_turns(replace: Replace) -> None:
    replace(FirstCall, "forward", lambda self, experience: experience.extras["signal_first_call"])


@mutation("The shift is not clipped.", kills=keeps_the_sign)
def unclipped(replace: Replace) -> None:
    own = ModulatedAdvantage.forward

    def forward(self: ModulatedAdvantage, experience: Experience) -> torch.Tensor:
        return own(self.but(limit=None), experience) if self.limit is not None else own(self, experience)

    replace(ModulatedAdvantage, "forward", forward)
