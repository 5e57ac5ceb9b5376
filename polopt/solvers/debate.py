"""Rewards of decisions that win a debate: judges of partial evidence, debates about it, and offline learners."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from polopt.part import Part
from polopt.problems.justified import JustifiedDecisions
from polopt.solvers.solver import Solver, State

# `scores(masks [M, n]) -> [S, M, A]`: a judge's score of each action, of each state, from this evidence alone.
Scores = Callable[[Tensor], Tensor]
# The most sets of evidence that are enumerated.
MOST_SETS = 20_000


class EvidenceJudge(Part):
    """A judge of actions that sees the features in a mask alone. Its parameters theta are fitted once:

        theta = judge.fit(problem)
        scores = judge.scores(theta, features [S, n], masks [M, n])      # [S, M, A]

    The score is linear in the features that are seen and in which ones are: z = (x * m, m, 1), theta [A, 2 n + 1].
    """

    def fit(self, problem: JustifiedDecisions) -> Tensor:
        raise NotImplementedError

    def scores(self, theta: Tensor, features: Tensor, masks: Tensor) -> Tensor:
        """Returns the scores of every state, mask and action, [S, M, A]."""
        return seen(features, masks) @ theta.T


def seen(features: Tensor, masks: Tensor) -> Tensor:
    """Returns the judge's inputs (x * m, m, 1), [S, M, 2 n + 1], for features [S, n] and masks [M, n] or [S, M, n]."""
    m = masks.to(features).expand(len(features), *masks.shape[-2:])
    return torch.cat([features[:, None] * m, m, m.new_ones(*m.shape[:2], 1)], -1)


class UtilityJudge(EvidenceJudge):
    """Judges by the true utility of what it sees, sum_i m_i x_i weights_i: for problems that know it."""

    def fit(self, problem: JustifiedDecisions) -> Tensor:
        rest = problem.weights.new_zeros(len(problem.weights), problem.weights.shape[1] + 1)
        return torch.cat([problem.weights, rest], 1)


class PreferenceJudge(EvidenceJudge):
    """Is fitted to preferences from random evidence: maximises, by Newton steps from 0,

        mean over states, masks and pairs of P(a > b) log sigmoid(J(a) - J(b)) - ridge / 2 |theta|^2

    evidence: features in a mask, drawn uniformly for each state and repetition; None for as many as the debate shows.
    masks: drawn for each state. ridge: keeps theta finite. steps: of Newton. seed: of the masks.
    """

    evidence: int = 4
    masks: int = 32
    ridge: float = 1e-4
    steps: int = 12
    seed: int = 0

    def setup(self) -> None:
        if self.evidence < 0 or min(self.masks, self.steps) < 1 or self.ridge <= 0:
            raise ValueError(
                "solvers.PreferenceJudge: need evidence >= 0, masks >= 1, steps >= 1 and ridge > 0, found "
                f"{self.evidence}, {self.masks}, {self.steps} and {self.ridge}"
            )

    def fit(self, problem: JustifiedDecisions) -> Tensor:
        S, n = problem.features.shape
        check_evidence(self, self.evidence, n)
        g = torch.Generator().manual_seed(self.seed)
        order = torch.rand(S, self.masks, n, generator=g).argsort(-1)
        z = seen(problem.features, order < self.evidence).flatten(0, 1)
        labels = problem.preference.repeat_interleave(self.masks, 0)
        theta = z.new_zeros(labels.shape[-1], z.shape[-1])
        for _ in range(self.steps):
            slope, curvature = self._derivatives(z, labels, theta)
            theta = theta + torch.linalg.solve(curvature, slope.flatten()).view_as(theta)
        return theta

    def _derivatives(self, z: Tensor, labels: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the gradient [A, d] and the negative Hessian [A d, A d] of the objective."""
        A, d = theta.shape
        score, count = z @ theta.T, len(z) * A * (A - 1) / 2
        slope, curvature = -self.ridge * theta, self.ridge * torch.eye(A * d).to(z).view(A, d, A, d)
        for a, b in itertools.combinations(range(A), 2):
            p = torch.sigmoid(score[:, a] - score[:, b])
            pull = (labels[:, a, b] - p) @ z / count
            block = z.T @ ((p * (1 - p))[:, None] * z) / count
            slope[a] += pull
            slope[b] -= pull
            for one, other, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
                curvature[one, :, other] += sign * block
        return slope, curvature.view(A * d, A * d)


def check_evidence(part: Part, evidence: int, features: int) -> None:
    """Checks that there are as many features as evidence.

    Raises:
        ValueError: there are fewer; the fix.
    """
    if evidence > features:
        raise ValueError(
            f"solvers.{type(part).__name__}: evidence = {evidence} of {features} features; lower it to {features}"
        )


class Debate(Part):
    """`debate(scores, opponent [S], features) -> [S, A]`: how probably an action beats the opponent's, at the judge,
    after `evidence` of the n features were revealed. An action does not beat itself.

    evidence: features that the judge sees in the end.
    """

    evidence: int = 4

    def setup(self) -> None:
        if self.evidence < 0:
            raise ValueError(f"solvers.{type(self).__name__}: evidence must be >= 0, found {self.evidence}")

    def forward(self, scores: Scores, opponent: Tensor, features: int) -> Tensor:
        raise NotImplementedError

    def sets(self, features: int, size: int) -> Tensor:
        """Returns all masks of this many features, [M, n], in lexicographic order.

        Raises:
            ValueError: there are more than can be enumerated.
        """
        check_evidence(self, self.evidence, features)
        if (count := math.comb(features, size)) > MOST_SETS:
            raise ValueError(
                f"solvers.{type(self).__name__}: {size} of {features} features are {count} sets of evidence, more than "
                f"{MOST_SETS}; take solvers.GreedyDebate"
            )
        chosen = torch.tensor(list(itertools.combinations(range(features), size)), dtype=torch.long).view(count, size)
        return torch.zeros(count, features, dtype=torch.bool).scatter_(1, chosen, True)


def margins(scores: Scores, masks: Tensor, opponent: Tensor) -> Tensor:
    """Returns how far the judge prefers each action to the opponent's, [S, M, A]."""
    found = scores(masks)
    return found - found.gather(2, opponent[:, None, None].expand(-1, len(masks), 1))


class RandomEvidence(Debate):
    """Random features are revealed: the fraction of sets of evidence on which the action wins, exactly."""

    def forward(self, scores: Scores, opponent: Tensor, features: int) -> Tensor:
        return (margins(scores, self.sets(features, self.evidence), opponent) > 0).double().mean(1)


class IsolatedEvidence(Debate):
    """The action's own side reveals all evidence, the best set for it: nobody contradicts."""

    def forward(self, scores: Scores, opponent: Tensor, features: int) -> Tensor:
        return (margins(scores, self.sets(features, self.evidence), opponent) > 0).any(1).double()


class _Alternating(Debate):
    """Two sides reveal one feature each in turn. Each has half of the evidence.

    first: the side that begins; "both" is the mean of the two debates.
    """

    evidence: int = 4
    first: Literal["action", "opponent", "both"] = "both"

    def setup(self) -> None:
        super().setup()
        if self.evidence % 2:
            raise ValueError(
                f"solvers.{type(self).__name__}: evidence must be even, as each side has half, found {self.evidence}"
            )

    def forward(self, scores: Scores, opponent: Tensor, features: int) -> Tensor:
        check_evidence(self, self.evidence, features)
        beginners = {"action": [True], "opponent": [False], "both": [True, False]}[self.first]
        return torch.stack([self.won(scores, opponent, features, begins) for begins in beginners]).mean(0)

    def won(self, scores: Scores, opponent: Tensor, features: int, begins: bool) -> Tensor:
        """Returns 1 where the action wins, else 0, [S, A]; begins: whether its side has the first word."""
        raise NotImplementedError


class MinimaxDebate(_Alternating):
    """Both sides reveal what is best for them against the best replies: backward induction over sets of evidence."""

    def won(self, scores: Scores, opponent: Tensor, features: int, begins: bool) -> Tensor:
        value = margins(scores, self.sets(features, self.evidence), opponent).sign()
        after = self._numbered(features, self.evidence)
        for size in reversed(range(self.evidence)):
            here = self._numbered(features, size)
            children = torch.tensor(
                [[after[tuple(sorted((*s, i)))] for i in range(features) if i not in s] for s in here],
                dtype=torch.long,
            )
            options = value[:, children]
            value, after = (options.amax(2) if (size % 2 == 0) == begins else options.amin(2)), here
        return (value[:, 0] > 0).double()

    @staticmethod
    def _numbered(features: int, size: int) -> dict[tuple[int, ...], int]:
        return {s: i for i, s in enumerate(itertools.combinations(range(features), size))}


class GreedyDebate(_Alternating):
    """Both sides reveal the feature after which the judge's margin is best for them, without a look at replies: n
    evaluations a turn, for problems with many features."""

    def won(self, scores: Scores, opponent: Tensor, features: int, begins: bool) -> Tensor:
        whole = scores(torch.zeros(1, features, dtype=torch.bool))
        return torch.stack(
            [
                torch.stack([self._debated(scores, opponent, features, begins, s, a) for a in range(whole.shape[2])])
                for s in range(len(whole))
            ]
        )

    def _debated(self, scores: Scores, opponent: Tensor, features: int, begins: bool, s: int, a: int) -> Tensor:
        mask = torch.zeros(1, features, dtype=torch.bool)
        for turn in range(self.evidence):
            options = mask | torch.eye(features, dtype=torch.bool)
            margin = margins(scores, options, opponent)[s, :, a]
            own = (turn % 2 == 0) == begins
            taken = -torch.inf if own else torch.inf
            margin = margin.masked_fill(mask[0], taken)
            mask = options[margin.argmax() if own else margin.argmin()][None]
        return (margins(scores, mask, opponent)[s, 0, a] > 0).double()


class OfflineLearner(Part):
    """`learner(problem, reward [S, A], q [S, A]) -> q`: one iteration of the values of decisions from logged
    transitions, the rewards of which may be others than the environment's."""

    def forward(self, problem: JustifiedDecisions, reward: Tensor, q: Tensor) -> Tensor:
        raise NotImplementedError

    def policy(self, problem: JustifiedDecisions, q: Tensor) -> Tensor:
        """Returns the policy of these values, [S, A]."""
        raise NotImplementedError


class FittedQ(OfflineLearner):
    """Fitted Q iteration with a table, over the actions that were logged in a state:

        Q(s, a) = mean over logged (s, a, s') of reward(s, a) + discount max_a' Q(s', a')

    The policy is greedy, over all best actions alike; in a state without any such action it is uniform.

    least: an action is taken in a state only if it was logged there more often than this.
    """

    least: float = 0.0

    def setup(self) -> None:
        if self.least < 0:
            raise ValueError(f"solvers.FittedQ: least must be >= 0, found {self.least}")

    def known(self, problem: JustifiedDecisions) -> Tensor:
        """Returns where an action was logged often enough, [S, A] bool."""
        return problem.counts.sum(-1) > self.least

    def forward(self, problem: JustifiedDecisions, reward: Tensor, q: Tensor) -> Tensor:
        known, visits = self.known(problem), problem.counts.sum(-1, keepdim=True)
        value = torch.where(known, q, -torch.inf).amax(-1)
        value = torch.where(known.any(-1), value, 0)
        after = (problem.counts / visits.clamp(min=torch.finfo(visits.dtype).tiny)) @ value
        return torch.where(known, reward + problem.process.discount * after, 0)

    def policy(self, problem: JustifiedDecisions, q: Tensor) -> Tensor:
        known = self.known(problem)
        known = known | ~known.any(-1, keepdim=True)
        q = torch.where(known, q, -torch.inf)
        best = (q >= q.amax(-1, keepdim=True) - 1e-9).double()
        return best / best.sum(-1, keepdim=True)


@dataclasses.dataclass(frozen=True)
class DebateFindings:
    """The result of learning from debates.

    won: [S, A] how probably an action wins the debate against the baseline's. policy: [S, A].
    value: the policy's mean reward, and value_alone that of the policy of the environment's reward alone.
    justifiability: the fraction of the policy's decisions, of those that differ from the baseline's, that win their
    debates; and justifiability_alone that of the other policy. NaN if none differs.
    """

    won: Tensor
    policy: Tensor
    value: float
    value_alone: float
    justifiability: float
    justifiability_alone: float

    def record(self) -> dict[str, Any]:
        """Returns the findings as plain data."""
        found = {name: getattr(self, name) for name in ("value", "value_alone")}
        found |= {name: getattr(self, name) for name in ("justifiability", "justifiability_alone")}
        return {**found, "won": self.won.tolist(), "policy": self.policy.tolist()}


class JustifiableSolver(Solver):
    """Learns, from a log, a policy of the reward

        (1 - lam) r(s, a) + lam bonus won(s, a),    won: how probably a wins the debate against the baseline's action

    An iteration is one of the learner's. Judge and debates come before the first.

    judge: of actions, from the evidence that a debate has revealed. debate: who reveals what.
    learner: of the policy. lam: weight of the debates, in [0, 1]. bonus: the reward of a debate that is won.

    The state holds the judge's parameters, the debates' results, Q of the policy and of the environment's reward alone,
    and the number of iterations.
    """

    solves: ClassVar[type] = JustifiedDecisions

    judge: EvidenceJudge = PreferenceJudge()
    debate: Debate = MinimaxDebate()
    learner: OfflineLearner = FittedQ()
    lam: float = 0.5
    bonus: float = 1.0

    def setup(self) -> None:
        if not 0 <= self.lam <= 1 or self.bonus < 0:
            raise ValueError(
                f"solvers.JustifiableSolver: need lam in [0, 1] and bonus >= 0, found {self.lam} and {self.bonus}"
            )

    def start(self, problem: Any) -> dict[str, Tensor]:
        theta = self.judge.fit(problem)
        nothing = torch.zeros_like(problem.reward)
        return {
            "theta": theta,
            "won": self.won(problem, theta, problem.baseline),
            "q": nothing,
            "q_alone": nothing.clone(),
            "iteration": torch.zeros((), dtype=torch.long),
        }

    def won(self, problem: JustifiedDecisions, theta: Tensor, opponent: Tensor) -> Tensor:
        """Returns how probably each action wins the debate against the opponent's [S], [S, A]."""
        x = problem.features
        return self.debate(lambda masks: self.judge.scores(theta, x, masks), opponent, x.shape[1]).to(x)

    def reward(self, problem: JustifiedDecisions, won: Tensor) -> Tensor:
        """Returns the reward that the policy is learned for, [S, A]."""
        return (1 - self.lam) * problem.reward + self.lam * self.bonus * won

    def iterate(self, problem: Any, state: State) -> dict[str, Tensor]:
        return {
            **state,
            "q": self.learner(problem, self.reward(problem, state["won"]), state["q"]),
            "q_alone": self.learner(problem, problem.reward, state["q_alone"]),
            "iteration": state["iteration"] + 1,
        }

    def solution(self, problem: Any, state: State) -> Tensor:
        return self.learner.policy(problem, state["q"])

    def findings(self, problem: JustifiedDecisions, state: State) -> DebateFindings:
        """Returns all that is known from a state."""
        won, both = state["won"], [self.learner.policy(problem, state[name]) for name in ("q", "q_alone")]
        values = [float(problem.process.value(policy, problem.reward)) for policy in both]
        shares = [justifiability(problem, policy, won) for policy in both]
        return DebateFindings(won, both[0], *values, *shares)


def justifiability(problem: JustifiedDecisions, policy: Tensor, won: Tensor) -> float:
    """Returns the fraction of a policy's decisions, of those that differ from the baseline's, that win their debates;
    NaN if none differs."""
    visits = problem.process.occupancy(policy)
    visits = visits * (1 - torch.nn.functional.one_hot(problem.baseline, visits.shape[-1]))
    return float((visits * won).sum() / visits.sum()) if visits.sum() > 1e-12 else math.nan
