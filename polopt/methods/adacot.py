"""AdaCoT: think only where it pays, and do not unlearn when."""

from collections.abc import Sequence
from typing import Literal

import torch

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.lab.thinking import ThinkingPolicy, frontier, questions, taught
from polopt.method import Finding, Paper, method
from polopt.methods.ppo import ppo
from polopt.methods.sft import sft
from polopt.rewards import AnswerMatches, Mark, SignalAbove, SumOfRewards, TaskKindIs, ThinkOrNot
from polopt.sampling import MaskThinkDecision


@method(
    paper=Paper(
        title="AdaCoT: Pareto-Optimal Adaptive Chain-of-Thought Triggering via Reinforcement Learning",
        authors="Lou, Chenwei and others",
        year=2025,
        arxiv="2505.11896",
    ),
    changes="PPO that is punished for thinking where it was not needed, and for not thinking where it was.",
    room="rewards",
    tier="reading",
)
def adacot(
    *,
    stage: Literal[1, 2, 3] = 3,
    miss: float = 0.2,
    over: float = 0.2,
    form: float = 1.0,
    thought: Mark | None = None,
    need: Mark | None = None,
    malformed: Mark | None = None,
    after: Sequence[int] = (),
    deciding: int = 1,
    kl: float = 0.0,
) -> Algorithm:
    """Answers begin with a think block, empty or filled. Three stages:

        1  supervised warm-up on answers of both sorts;
        2  PPO on tasks that always need thought (mathematics), R = outcome, without the policy loss of the token that
           decides to think (selective loss masking): when to think, learned in stage 1, is kept;
        3  PPO on all tasks,
           R = outcome - miss [needed and left out] - over [not needed and done] - form [malformed].

    Sweeping miss and over walks along the front of accuracy against how often it thinks. thought, need, malformed: how
    to tell; by default a filled `<think>` block, the world's signal "needed" (the paper has another model label it by
    written principles), and an answer that does not begin with a block. Where kinds of tasks differ,
    `need=rewards.TaskKindIs(kinds=(...))` is a rule without labels. after: the ids of the tokens that open a thought;
    () takes the row's first token for the one that decides; deciding: how many tokens it takes.

    Terms, stages and masking are the paper's; its coefficients, reward model and PPO settings are not published, so
    ours are PPO's as published here with the token mean, under which one deciding token among thousands weighs little.
    The critic's loss of the masked token is left out, too.
    """
    if stage == 1:
        return sft()
    plain = ppo(kl=kl)
    if stage == 2:
        return plain.but(select=[MaskThinkDecision(after=after, count=deciding)])
    penalty = ThinkOrNot(
        thought=thought or AnswerMatches(pattern=r"<think>\s*[^\s<]"),
        need=need or SignalAbove(name="needed"),
        malformed=malformed or AnswerMatches(pattern=r"^\s*<think>.*</think>", invert=True),
        miss=miss,
        over=over,
        form=form,
    )
    return plain.but(reward=SumOfRewards(terms=[plain.reward, penalty]))


# On the lab's questions: no critic; the first token, 0 or 1, tells whether an answer was thought about.
BARE = {"credit": RelativeAdvantage(baseline=GroupMean(), scale=None), "objective.regularise": [], "sampling.group": 8}
THOUGHT, NEED = AnswerMatches(pattern="^1"), TaskKindIs(kinds=("hard",))


def _front(weight: float, needed: float) -> tuple[float, float]:
    """Share of questions that are thought about, and how much accuracy is missing to the best with that share."""
    tree, u = questions(needed=needed)
    sentence = adacot(miss=weight, over=weight, thought=THOUGHT, need=NEED).but(
        BARE, **{"reward.terms.1.malformed": None}
    )
    policy = taught(sentence, tree, ThinkingPolicy(tree, u, free=True), steps=150, rate=80.0)
    share = policy.log_odds(u).sigmoid().mean().item()
    return share, frontier(u, share) - tree.value(policy).item()  # type: ignore[arg-type]


@adacot.claim(
    "Sweeping the penalty walks along the exact front of accuracy against thinking.",
    baseline="outcome alone: one point, at which nearly everything is thought about",
)
def pareto() -> Finding:
    found = {weight: _front(weight, needed=0.65) for weight in (0.0, 0.3, 0.65)}
    shares = [share for share, _ in found.values()]
    missing = max(gap for _, gap in found.values())
    return Finding(
        measured={
            **{f"share thought about at {weight:g}": share for weight, (share, _) in found.items()},
            "most accuracy missing": missing,
        },
        criterion="shares fall from >= 0.85 to < 0.4; accuracy within 0.02 of the exact front at each",
        holds=shares[0] >= 0.85 and shares[-1] < 0.4 and shares == sorted(shares, reverse=True) and missing <= 0.02,
        note="Thought is labelled as needed beyond difficulty 0.65. A penalty never asks for less thought than the "
        "labels do: labelled from 0.3 on, 0.7 of the questions is the least, whatever the weight.",
    )


@adacot.claim(
    "On tasks that always need thought, masking the deciding token keeps when to think; without, it is unlearned.",
    baseline="the same stage without the mask",
)
def masking() -> Finding:
    tree, u = questions(least=0.7, count=6)
    easy = torch.linspace(0, 0.3, 31, dtype=torch.double)
    found, ends = {}, {}
    for name, select in (("masked", [MaskThinkDecision()]), ("not masked", [])):
        policy = ThinkingPolicy(tree, u)
        before = policy.log_odds(easy).sigmoid().mean().item()
        sentence = adacot(stage=2).but(BARE, select=select)
        taught(sentence, tree, policy, steps=250, rate=10.0)
        found[name] = policy.log_odds(easy).sigmoid().mean().item()
        ends[name] = policy.end[1].sigmoid().item()
    return Finding(
        measured={
            "thought about where u < 0.3, at first": before,
            **found,
            "masked: right ends": ends["masked"],
        },
        criterion="trained on u > 0.7: not masked > 0.9, masked within 0.05 of the start and right ends > 0.9",
        holds=found["not masked"] > 0.9 and abs(found["masked"] - before) <= 0.05 and ends["masked"] > 0.9,
    )
