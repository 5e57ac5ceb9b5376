"""The smallest sum that is not negative: add or subtract each of a few numbers, and answer the least total from 0 on.

A policy that follows one path of partial sums must know the right signs beforehand; a mixture of tokens can hold all
partial sums at once, and choose in the end. Source: the MNNS task of continuous chain of thought, arXiv:2505.23648.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.policies.mixture import MixturePolicy, Thoughts
from polopt.sampling.parts import RolloutRequest


@dataclasses.dataclass(frozen=True, eq=False)
class SignedSums:
    """All sequences of `count` numbers from 1 to `most`: a beginning, the numbers, then `count` steps of partial sums.

    prompts [N, 1 + count] ids. right [N] id of the answer. every: [N, count, V] at each step the distribution of all
    partial sums, 2^step of them, the answer alone at the last. path: the same of one best path, one-hot. held_out:
    [N] bool, a fifth: all orders of the numbers that are in it.
    """

    prompts: Tensor
    right: Tensor
    every: Tensor
    path: Tensor
    held_out: Tensor

    @property
    def vocabulary(self) -> int:
        return self.every.shape[-1]

    @property
    def length(self) -> int:
        return self.prompts.shape[1] + self.every.shape[1]

    def policy(self, thoughts: Thoughts, **settings: Any) -> MixturePolicy:
        return MixturePolicy(self.vocabulary, self.length, thoughts, **settings)


def signed_sums(count: int = 4, most: int = 9, seed: int = 0) -> SignedSums:
    """Tokens: a beginning, the numbers 1 to `most`, the sums from -count * most to count * most."""
    zero = 1 + most + count * most  # the token of sum 0
    numbers = torch.tensor(list(itertools.product(range(1, most + 1), repeat=count)))
    signs = torch.tensor(list(itertools.product([1, -1], repeat=count)))
    partial = (numbers[:, None] * signs).cumsum(2) + zero  # [N, 2^count, count]
    total = partial[:, :, -1]
    right, best = torch.where(total >= zero, total, 2 * zero).min(1)
    V = zero + count * most + 1
    every = torch.zeros(len(numbers), count, V)
    every.scatter_add_(2, partial.transpose(1, 2), torch.full((len(numbers), count, len(signs)), 1 / len(signs)))
    last = torch.nn.functional.one_hot(right, V).float()
    every[:, -1] = last
    path = torch.nn.functional.one_hot(partial[torch.arange(len(numbers)), best], V).float()
    kinds = torch.unique(numbers.sort(1).values, dim=0, return_inverse=True)[1]
    order = torch.randperm(int(kinds.max()) + 1, generator=torch.Generator().manual_seed(seed))
    beginning = torch.zeros(len(numbers), 1, dtype=torch.long)
    held_out = order[kinds] < len(order) // 5
    return SignedSums(torch.cat([beginning, numbers], 1), right, every, path, held_out)


class MixtureSource:
    """Rollouts of a mixture policy on prompts that are right or wrong by their last token, 1 or 0.

    prompts [N, P], right [N] ids. targets: [N, steps, V] the distributions that demonstrations show. rows: of one
    optimiser batch. reference: fills `ref_logp`.
    """

    def __init__(
        self,
        policy: MixturePolicy,
        prompts: Tensor,
        right: Tensor,
        targets: Tensor,
        *,
        rows: int,
        seed: int = 0,
        reference: MixturePolicy | None = None,
    ) -> None:
        self.policy, self.prompts, self.right, self.targets = policy, prompts, right, targets
        self.rows, self.size, self.reference = rows, len(prompts), reference
        self.generator = torch.Generator().manual_seed(seed)
        self._queue = torch.zeros(0, dtype=torch.long)

    def refresh(self) -> None:
        """Nothing is remembered of the policy."""

    def take(self, count: int) -> Tensor:
        """[count] numbers of the next prompts: in random order, all of them before any comes again."""
        while len(self._queue) < count:
            self._queue = torch.cat([self._queue, torch.randperm(self.size, generator=self.generator)])
        taken, self._queue = self._queue[:count], self._queue[count:]
        return taken

    def rollout(self, request: RolloutRequest) -> Experience:
        """As `Source.rollout`, whole rows from their beginning alone.

        Raises:
            SupportError: the support is not plain. ValueError: the request has max_decisions or starts.
        """
        if request.max_decisions is not None or request.starts is not None:
            raise ValueError(
                "MixtureSource: rows are drawn whole, from their beginning; leave out max_decisions and starts"
            )
        group = request.group
        rows = request.tasks[group]
        references = () if self.reference is None else (self.reference,)
        batch = self.policy.sample(self.prompts[rows], self.targets.shape[1], self.generator, beside=references)
        return self._with_outcome(batch.replace(support=request.support), rows, group)

    def demonstrate(self, rows: int) -> Experience:
        """The next prompts with their targets read as thoughts: teacher forcing. `extras["targets"]` [B, T, V]."""
        tasks = self.take(rows)
        prompts, targets = self.prompts[tasks], self.targets[tasks].to(self.policy.token.dtype)
        B, P = prompts.shape
        distributions = torch.cat([torch.nn.functional.one_hot(prompts, targets.shape[2]).to(targets), targets], 1)
        columns = torch.arange(distributions.shape[1]).expand(B, -1)
        ended, thought = torch.ones(B, dtype=torch.bool), (columns >= P) & (columns < distributions.shape[1] - 1)
        extras = {
            "mixture": distributions,
            "targets": distributions,
            "thought": thought,
            "support_mask": torch.ones_like(distributions).bool(),
        }
        extras |= {"drawn": torch.ones_like(columns), "tokens": distributions.argmax(-1), "is_demonstration": ended}
        batch = Experience(mask=columns >= P, terminated=ended, truncated=~ended, extras=extras)
        return self._with_outcome(batch, tasks, torch.arange(B)).replace(
            outcome=torch.ones(B), rollout_logp=torch.zeros(columns.shape)
        )

    def _with_outcome(self, batch: Experience, tasks: Tensor, group: Tensor) -> Experience:
        reward = (batch.extras["tokens"][:, -1] == self.right[tasks]).to(self.policy.token.dtype)
        batch = batch.replace(outcome=reward, reward=reward, group=group, extras={"index": tasks})
        if self.reference is None:
            return batch
        with torch.no_grad():
            return batch.replace(ref_logp=self.reference.evaluate(batch).logp)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """The current policy's evaluation, without gradient."""
        with torch.no_grad():
            return self.policy.evaluate(experience, needs)


def fit(
    algorithm: Algorithm,
    source: MixtureSource,
    *,
    steps: int,
    rate: float,
    watch: Callable[[], float] | None = None,
    every: int = 100,
) -> list[float]:
    """Adam on so many batches; what `watch` saw after every so many."""
    seen, policy = [], source.policy
    optimiser = torch.optim.AdamW(policy.parameters(), lr=rate, weight_decay=0.01)
    for step in range(steps):
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        loss = algorithm.objective(
            batch, policy.evaluate(batch, algorithm.objective.active_fields("policy_outputs"))
        ).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        algorithm.step()
        if watch is not None and (step + 1) % every == 0:
            seen.append(watch())
    return seen


@torch.no_grad()
def accuracy(policy: MixturePolicy, task: SignedSums, rows: Tensor, thoughts: Thoughts | None = None) -> float:
    """Share of the prompts `rows` that the likeliest last token answers, after thoughts that are drawn as the policy
    draws them, or otherwise."""
    own, steps = policy.thoughts, task.every.shape[1]
    policy.thoughts = thoughts or own
    sampled = policy.sample(task.prompts[rows], steps, torch.Generator().manual_seed(0), greedy=True)
    policy.thoughts = own
    return (sampled.extras["tokens"][:, -1] == task.right[rows]).float().mean().item()
