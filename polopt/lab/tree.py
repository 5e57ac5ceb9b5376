"""A finite tree of token sequences: all answers are enumerated, so every expectation is a sum."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.support import PLAIN, Support

Answer = tuple[int, ...]


class TreePolicy(Protocol):
    """The interface of a policy in the lab: log-probabilities, with gradient, and parameters."""

    def evaluate(self, experience: Experience, needs: frozenset[str] = ...) -> Evaluation: ...

    def parameters(self) -> Iterable[Tensor]: ...


class TokenTree:
    """All answers to a few prompts, their outcomes, and exact expectations under any policy.

    vocabulary: number of tokens V, 0 to V - 1.
    answers: the leaves, the same for every prompt; none may begin another.
    reward: `reward(prompt, answer)` returns an outcome, or one reward for each decision; or a table [prompts, answers].
    prompts: number of prompts; a prompt is written in tokens, as a number in base V.
    kinds: each prompt's kind of task; None makes them all alike.

    Raises:
        ValueError: a token outside the vocabulary, an answer that begins another, a table of the wrong shape, more or
            fewer kinds than prompts.
    """

    def __init__(
        self,
        vocabulary: int,
        answers: Sequence[Answer],
        reward: Callable[[int, Answer], float | Sequence[float]] | Tensor,
        prompts: int = 1,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self.vocabulary, self.answers, self.prompts = vocabulary, [tuple(a) for a in answers], prompts
        self.kinds = ["tree"] * prompts if kinds is None else list(kinds)
        self._check()
        self.horizon = max(map(len, self.answers))
        self.start = max(1, math.ceil(math.log(prompts, vocabulary))) if prompts > 1 else 1
        table = [
            [reward(p, a) if callable(reward) else reward[p, i] for i, a in enumerate(self.answers)]
            for p in range(prompts)
        ]
        flat = [torch.as_tensor(r, dtype=torch.float64) for r in itertools.chain(*table)]
        self.outcome = torch.stack([r.sum() for r in flat]).view(prompts, -1)
        self.rewards = self._by_decision(flat) if flat[0].ndim else None

    def _check(self) -> None:
        for answer in self.answers:
            if not answer or not all(0 <= token < self.vocabulary for token in answer):
                raise ValueError(f"TokenTree: answer {answer} needs tokens, all in 0..{self.vocabulary - 1}")
        if len(self.kinds) != self.prompts:
            raise ValueError(f"TokenTree: {self.prompts} prompts need as many kinds, found {len(self.kinds)}")
        finished = set(self.answers)
        if len(finished) < len(self.answers):
            raise ValueError("TokenTree: an answer is listed twice")
        for answer in self.answers:
            for end in range(1, len(answer)):
                if answer[:end] in finished:
                    raise ValueError(f"TokenTree: answer {answer[:end]} begins answer {answer}; where would it stop?")

    def _by_decision(self, flat: list[Tensor]) -> Tensor:
        rows = torch.zeros(len(flat), self.start + self.horizon, dtype=torch.float64)
        for row, (rewards, answer) in enumerate(zip(flat, self.answers * self.prompts, strict=True)):
            rows[row, self.start : self.start + len(answer)] = rewards
        return rows

    @classmethod
    def full(
        cls,
        vocabulary: int,
        horizon: int,
        reward: Callable[[int, Answer], float | Sequence[float]] | Tensor,
        *,
        stop: int | None = None,
        prompts: int = 1,
    ) -> TokenTree:
        """Returns the tree of every sequence that ends at its first `stop` token, or after `horizon` tokens."""
        answers = [
            a[: a.index(stop) + 1] if stop in a else a for a in itertools.product(range(vocabulary), repeat=horizon)
        ]
        return cls(vocabulary, list(dict.fromkeys(answers)), reward, prompts)

    @classmethod
    def bandit(
        cls, means: Sequence[float] | Sequence[Sequence[float]], kinds: Sequence[str] | None = None
    ) -> TokenTree:
        """Returns a tree of one decision: arms of reward `means`, or, for a contextual bandit, a row of arms for each
        context."""
        table = torch.as_tensor(means, dtype=torch.float64)
        table = table[None] if table.ndim == 1 else table
        contexts, arms = table.shape
        return cls(arms, [(a,) for a in range(arms)], table, contexts, kinds)

    def paying(self, outcome: Tensor) -> TokenTree:
        """Returns the tree with other outcomes, [prompts, answers]."""
        tree = copy.copy(self)
        tree.outcome, tree.rewards = outcome.double(), None
        reward = tree.outcome.flatten()
        tree._leaves = self._leaves.replace(outcome=reward, reward=reward)
        return tree

    def in_turns(self, decisions: int, state: Callable[[int, Answer], int] | None = None) -> TokenTree:
        """Returns the tree as conversations: every `decisions` decisions of an answer are a turn, the last one may be
        shorter, and between two turns nothing is read.

        state: the number `extras["turn_state"]` of the state before a turn, given the prompt and the tokens before it,
            for worlds in which different ways lead to one state; None gives the leaves no states.
        """
        tree = copy.copy(self)
        mask = self._leaves.mask
        turn = torch.where(mask, (mask.cumsum(1) - 1) // decisions, -1)
        tree._leaves = self._leaves.replace(turn=turn)
        if state is not None:
            rows = [
                [*[0] * self.start, *[state(prompt, answer[: t - t % decisions]) for t in range(len(answer))]]
                for prompt in range(self.prompts)
                for answer in self.answers
            ]
            padded = [row + [0] * (mask.shape[1] - len(row)) for row in rows]
            tree._leaves = tree._leaves.replace(extras={"turn_state": torch.tensor(padded)})
        return tree

    def in_sections(self, describe: Callable[[int, Answer], Sequence[tuple[int, int, int]]]) -> TokenTree:
        """Returns the tree as conversations whose answers have sections, see `polopt.sections`.

        describe: for a prompt and an answer, the turn, the number of the state before the turn, and the section of each
            decision.
        """
        tree = copy.copy(self)
        fields = torch.tensor([-1, 0, -1]).repeat(*self._leaves.mask.shape, 1)
        rows = itertools.product(range(self.prompts), self.answers)
        for row, (prompt, answer) in enumerate(rows):
            fields[row, self.start : self.start + len(answer)] = torch.tensor(describe(prompt, answer))
        turn, state, section = fields.unbind(-1)
        tree._leaves = self._leaves.replace(turn=turn, extras={"turn_state": state, "section": section})
        return tree

    @functools.cached_property
    def _leaves(self) -> Experience:
        rows, T = self.prompts * len(self.answers), self.start + self.horizon
        padded = [[*answer, *[0] * (self.horizon - len(answer))] for answer in self.answers]
        lines = list[list[int]]()
        for prompt in range(self.prompts):
            digits = [prompt // self.vocabulary**d % self.vocabulary for d in reversed(range(self.start))]
            lines += [digits + answer for answer in padded]
        tokens, columns = torch.tensor(lines, dtype=torch.long).view(rows, T), torch.arange(T)
        ends = self.start + torch.tensor([len(answer) for answer in self.answers]).repeat(self.prompts)
        mask = (self.start <= columns) & (columns < ends[:, None])
        outcome = self.outcome.flatten()
        return Experience(
            mask=mask,
            outcome=outcome,
            reward=outcome if self.rewards is None else self.rewards,
            terminated=torch.ones(rows, dtype=torch.bool),
            truncated=torch.zeros(rows, dtype=torch.bool),
            group=torch.arange(self.prompts).repeat_interleave(len(self.answers)),
            turn=torch.where(mask, 0, -1),
            horizon=self.horizon,
            extras={
                "kind": [kind for kind in self.kinds for _ in self.answers],
                "tokens": tokens,
                "leaf": torch.arange(rows),
                "answer": [" ".join(map(str, a)) for a in self.answers] * self.prompts,
            },
        )

    def leaves(self, support: Support = PLAIN) -> Experience:
        """Returns every answer to every prompt, once, prompt by prompt: [prompts * answers, T].

        `extras["tokens"][b, t]` is the decision at t, after the prompt's tokens; `extras["leaf"]` numbers the rows.
        Every row is terminated, whatever its last token, and consists of one turn.
        """
        return self._leaves.replace(support=support)

    @functools.cached_property
    def nodes(self) -> Tensor:
        """Number of the (prompt, prefix) at which each decision is made, [rows of `leaves`, T]; 0 outside the mask."""
        leaves, number = self._leaves, dict[Answer, int]()
        nodes = list[list[int]]()
        for tokens, length in zip(leaves.extras["tokens"].tolist(), leaves.lengths.tolist(), strict=True):
            decided = range(self.start, self.start + length)
            own = [number.setdefault(tuple(tokens[:t]), len(number)) for t in decided]
            nodes.append([*[0] * self.start, *own, *[0] * (self.horizon - length)])
        return torch.tensor(nodes, dtype=torch.long).view(leaves.mask.shape)

    @functools.cached_property
    def positions(self) -> Tensor:
        """Number of decisions before each node, [nodes]; as `TabularPolicy(tied=...)` it makes a policy whose logits
        depend on a token's position alone."""
        mask = self._leaves.mask
        columns = (torch.arange(mask.shape[1]) - self.start).expand_as(mask)
        return torch.zeros(int(self.nodes.max()) + 1, dtype=torch.long).index_put((self.nodes[mask],), columns[mask])

    @functools.cached_property
    def choices(self) -> Tensor:
        """Mask of the tokens that lead to some answer, [nodes, V]."""
        mask = self._leaves.mask
        choices = torch.zeros(int(self.nodes.max()) + 1, self.vocabulary, dtype=torch.bool)
        choices[self.nodes[mask], self._leaves.extras["tokens"][mask]] = True
        return choices

    def log_probabilities(self, policy: TreePolicy, support: Support = PLAIN) -> Tensor:
        """Log-probability of each answer, [prompts, answers], with gradient.

        Raises:
            ValueError: the policy gives mass to answers outside the tree, so expectations would be wrong.
        """
        leaves = self.leaves(support)
        logp = torch.where(leaves.mask, policy.evaluate(leaves).logp, 0).sum(1).view(self.prompts, -1)
        mass = logp.detach().exp().sum(1)
        if (mass - 1).abs().max() > 1e-6:
            worst = mass[(mass - 1).abs().argmax()].item()
            raise ValueError(f"TokenTree: the answers' probabilities sum to {worst:.6g}, expected 1 for every prompt")
        return logp

    def value(self, policy: TreePolicy, support: Support = PLAIN) -> Tensor:
        """Expected return over uniform prompts, with gradient."""
        return (self.log_probabilities(policy, support).exp() * self.outcome).sum(1).mean()

    def gradient(self, policy: TreePolicy, support: Support = PLAIN) -> Tensor:
        """The exact policy gradient, flat over `policy.parameters()`; 0 for parameters without influence."""
        return flat_gradient(self.value(policy, support), policy)

    def entropy(self, policy: TreePolicy, support: Support = PLAIN) -> Tensor:
        """Entropy of whole answers in nats, mean over prompts, with gradient."""
        logp = self.log_probabilities(policy, support)
        return -(logp.exp() * logp.clamp(min=torch.finfo(logp.dtype).min)).sum(1).mean()

    def kl(self, policy: TreePolicy, other: TreePolicy, support: Support = PLAIN) -> Tensor:
        """KL(policy || other) between whole answers in nats, mean over prompts, with gradient to both."""
        logp, base = self.log_probabilities(policy, support), self.log_probabilities(other, support)
        p = logp.exp()
        return torch.where(p > 0, p * (logp - base), 0).sum(1).mean()

    def uniform_values(self) -> Tensor:
        """Action values [nodes, V] of the uniform policy over the tree's choices:

            Q(s, a) = r + mean over the choices at the next node of Q(s_next, .),

        exact, and -inf for tokens that lead nowhere. With rewards that are never negative, Q(s, a) > 0 if and only if
        some answer below has a positive reward, so that greedy choices reach one. Source: ROVER, arXiv:2509.24981.
        """
        leaves, mask = self._leaves, self._leaves.mask
        share = torch.where(mask, -self.choices.sum(1).double().log()[self.nodes], 0)
        # Probability of this answer among all answers below a choice.
        after = (share.flip(1).cumsum(1).flip(1) - share).exp()
        worth = torch.zeros(self.choices.shape, dtype=torch.double)
        at = (self.nodes[mask], leaves.extras["tokens"][mask])
        worth.index_put_(at, (after * self._to_go)[mask], accumulate=True)
        return worth.masked_fill(~self.choices, -torch.inf)

    @property
    def _to_go(self) -> Tensor:
        """Return from each decision on, [rows of `leaves`, T]."""
        if self.rewards is not None:
            return self.rewards.flip(1).cumsum(1).flip(1)
        return self.outcome.flatten()[:, None].expand(self._leaves.mask.shape)

    def state_values(self, policy: TreePolicy, support: Support = PLAIN) -> Tensor:
        """Expected return from each decision on, [rows of `leaves`, T]: the exact critic."""
        with torch.no_grad():
            p = self.log_probabilities(policy, support).exp().flatten()[:, None].expand(self.nodes.shape)
        mask, to_go = self._leaves.mask, self._to_go
        at, mass = self.nodes[mask], p.new_zeros(len(self.choices))
        reach = mass.index_add(0, at, p[mask])
        worth = mass.index_add(0, at, (p * to_go)[mask])
        return torch.where(mask, (worth / reach)[self.nodes], 0)


def flat_gradient(scalar: Tensor, policy: TreePolicy) -> Tensor:
    """Gradient of a scalar with respect to the policy's parameters, flat."""
    parameters = list(policy.parameters())
    gradients = torch.autograd.grad(scalar, parameters, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if s is None else s).flatten() for p, s in zip(parameters, gradients, strict=True)]
    )
