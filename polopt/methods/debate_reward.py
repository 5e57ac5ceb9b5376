"""Debate as a reward: decisions earn more if their evidence wins at a judge."""

from __future__ import annotations

from polopt.method import Paper, method
from polopt.solvers import Debate, JustifiableSolver, MinimaxDebate, PreferenceJudge


@method(
    paper=Paper(
        title="Reward Design for Justifiable Sequential Decision-Making",
        authors="Sukovic, Aleksa and Radanovic, Goran",
        year=2024,
        arxiv="2402.15826",
    ),
    changes="The reward of a decision has a term for winning a debate, at a judge, against a baseline's decision.",
    room="solvers",
    tier="proven",
)
def debate_reward(
    *,
    lam: float = 0.5,
    bonus: float = 1 / 3,
    evidence: int = 4,
    masks: int = 32,
    ridge: float = 1e-4,
    seed: int = 0,
) -> JustifiableSolver:
    """A state is n features, the evidence. Two sides, one for the action a and one for the baseline's, reveal a feature
    in turn until `evidence` of them are revealed, and a judge J, who sees these and which they are, compares the two:

        reward = (1 - lam) r(s, a) + lam bonus 1[ J(s, a | revealed) > J(s, baseline(s) | revealed) ]

    A policy is learned for it from a log. The judge was fitted to preferences between actions, with random evidence of
    the same size: J maximises the likelihood of P(a > b) = sigmoid(J(a) - J(b)).

    lam: weight of the debates in [0, 1]; 0 is offline learning of the environment's reward.
    bonus: the reward of a debate that is won, where the environment rewards a good decision by about 1.
    evidence: revealed features, an even number; all of them make the judge see the state, and 0 leaves it blind.
    masks, ridge, seed: of the judge, see `solvers.PreferenceJudge`.

    The authors' program has 44 features and evidence of 4 or 6, bonus 5 or 10 where an outcome earns 15, and lam from 0
    to 1 in steps of 0.25.

    Deviations. The debaters are exact, by backward induction, and the mean of both orders of speech, so that an action
    may win half; theirs are trained by PPO, alone or in self-play, and `solvers.GreedyDebate` is for many features. The
    judge is linear in what it sees; theirs is a network. The learner is fitted Q iteration on a table with the logged
    actions; theirs is a double duelling DQN. Judge, debate and learner are slots of `solvers.JustifiableSolver`. Our
    policies are measured in the process itself; theirs from the log, by weighted importance sampling. The baseline is
    the problem's.
    """
    debate: Debate = MinimaxDebate(evidence=evidence)
    judge = PreferenceJudge(evidence=evidence, masks=masks, ridge=ridge, seed=seed)
    return JustifiableSolver(judge=judge, debate=debate, lam=lam, bonus=bonus)
