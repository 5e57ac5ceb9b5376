"""Policies that write letters, each given the one before: many of them, all different, all known exactly."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.worlds.protocol import Task

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Bigrams(nn.Module):
    """A softmax over the next letter for each letter; logits [V, V], row by row. The first letter is any, all alike."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.clone())

    @classmethod
    def any(cls, seed: int, letters: int = 6, spread: float = 1.0) -> Bigrams:
        """One of many: normal logits with this standard deviation."""
        generator = torch.Generator().manual_seed(seed)
        return cls(spread * torch.randn(letters, letters, generator=generator, dtype=torch.double))

    @torch.no_grad()
    def write(self, rows: int, length: int, generator: torch.Generator) -> Tensor:
        """[rows, 1 + length] letters; the first is where it begins."""
        probs = self.logits.softmax(-1)
        letters = [torch.randint(len(probs), (rows,), generator=generator)]
        for _ in range(length):
            letters.append(torch.multinomial(probs[letters[-1]], 1, generator=generator)[:, 0])
        return torch.stack(letters, 1)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Log-probabilities of `extras["tokens"]`, each given the one before."""
        tokens = experience.extras["tokens"]
        logp = self.logits.log_softmax(-1)[tokens[:, :-1], tokens[:, 1:]]
        return Evaluation(logp=nn.functional.pad(logp, (1, 0)), support=experience.support)

    @torch.no_grad()
    def kl(self, other: Bigrams) -> float:
        """KL(self || other) of one letter, in nats, where self goes in the long run."""
        probs = self.logits.softmax(-1)
        where = torch.linalg.matrix_power(probs, 64).mean(0)
        log_ratio = self.logits.log_softmax(-1) - other.logits.log_softmax(-1)
        return float(where @ (probs * log_ratio).sum(1))


def spelled(tokens: Tensor) -> list[str]:
    """Rows of letters as texts."""
    return ["".join(LETTERS[i] for i in row) for row in tokens.tolist()]


class BigramSource:
    """Deals texts of a policy. Each of `size` tasks comes with a text of `target` for its solution.

    rows: of one batch. length: letters in a text. reference: fills `ref_logp`.
    """

    def __init__(
        self,
        policy: Bigrams,
        target: Bigrams,
        *,
        rows: int,
        length: int = 64,
        size: int = 64,
        seed: int = 0,
        reference: Bigrams | None = None,
    ) -> None:
        self.policy, self.rows, self.length, self.size = policy, rows, length, size
        self.reference = reference
        self.generator = torch.Generator().manual_seed(seed)
        texts = spelled(target.write(size, length, self.generator)[:, 1:])
        self.tasks = [Task(f"bigrams/{i}", "bigrams", "", text, {}) for i, text in enumerate(texts)]

    def refresh(self) -> None:
        """Nothing of the policy is remembered."""

    def take(self, count: int) -> Tensor:
        """[count] any tasks."""
        return torch.randint(self.size, (count,), generator=self.generator)

    def rollout(self, request: RolloutRequest) -> Experience:
        """As `Source.rollout`: whole rows from their beginning."""
        tasks, group = request.tasks, request.group
        tokens = self.policy.write(len(group), self.length, self.generator)
        mask = (torch.arange(1 + self.length) > 0).expand(tokens.shape)
        row_tasks: Sequence[Task] = [self.tasks[i] for i in tasks[group].tolist()]
        nothing = torch.zeros(len(group), dtype=torch.double)
        batch = Experience(
            mask=mask,
            outcome=nothing,
            reward=nothing,
            group=group,
            terminated=torch.ones(len(group), dtype=torch.bool),
            truncated=torch.zeros(len(group), dtype=torch.bool),
            support=request.support,
            extras={
                "tokens": tokens,
                "answer": spelled(tokens[:, 1:]),
                "task": list(row_tasks),
                "kind": ["bigrams"] * len(group),
                "index": tasks[group],
            },
        )
        with torch.no_grad():
            batch = batch.replace(rollout_logp=self.policy.evaluate(batch).logp)
            return batch if self.reference is None else batch.replace(ref_logp=self.reference.evaluate(batch).logp)
