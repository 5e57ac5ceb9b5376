"""A controlled task of preferences: the true reward of every answer is known, and every probability is exact.

A prompt is three letters of eight, an answer three more and a stop token. The true reward is a sum of tables,

    r(x, y) = sum_i A[x_i, y_i] + sum_i B[y_i, y_i+1] + C[x_1, y_3],

scaled to a standard deviation of 2 over all answers; labels are drawn by Bradley and Terry's model of it. The proxy is
the likeliest reward for the labels that has no C: what a reward model learned from the pairs, and its error. Answers of
another form have the smallest reward of all.

A policy's KL, true reward and win rate are sums over the 512 answers to each held-out prompt. The rest of its
probability counts as one more answer, so that the KL is a lower bound, which is exact for policies that keep to the
form.
"""

from __future__ import annotations

import functools
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polopt.claims.problems.judged import fitted_reward
from polopt.experience import Experience
from polopt.policies.language import LanguagePolicy
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.support import PLAIN
from polopt.training.episode_record import to_experience
from polopt.training.replayer import EpisodeReplayer
from polopt.worlds.protocol import RatedAnswer, Task, Tasks

LETTERS, LENGTH = "abcdefgh", 3
ANSWERS = ["".join(letters) for letters in itertools.product(LETTERS, repeat=LENGTH)]
SIZE = len(LETTERS)
# Prompts to learn from, held-out ones of the ranking accuracy, and those over whose answers is summed.
TRAIN, RANKED, EXACT = 192, 96, 10
PENALTY, SPREAD = 1.0, 2.0


class RewardTables:
    """A reward by tables A [8, 8], B [8, 8] and C [8, 8]; `scale` and `shift` standardise it, and `floor` is the reward
    of an answer of another form."""

    def __init__(self, tables: Tensor, scale: float = 1.0, shift: float = 0.0, floor: float = 0.0) -> None:
        self.tables, self.scale, self.shift, self.floor = tables, scale, shift, floor

    def __call__(self, prompts: list[str], answers: list[str]) -> Tensor:
        """Returns the reward of each answer to its prompt, [N]."""
        regular = torch.tensor([is_answer(answer) for answer in answers])
        rows = [answer if is_answer(answer) else ANSWERS[0] for answer in answers]
        found = (features(prompts, rows) @ self.tables.flatten() - self.shift) * self.scale
        return torch.where(regular, found, self.floor)

    def record(self) -> dict[str, Any]:
        """Returns the reward as plain data."""
        return {"tables": self.tables.tolist(), "scale": self.scale, "shift": self.shift, "floor": self.floor}

    @classmethod
    def of(cls, record: dict[str, Any]) -> RewardTables:
        return cls(
            torch.tensor(record["tables"], dtype=torch.double), *(record[k] for k in ("scale", "shift", "floor"))
        )


def is_answer(text: str) -> bool:
    """Returns whether a text has the form of an answer."""
    return len(text) == LENGTH and set(text) <= set(LETTERS)


def features(prompts: list[str], answers: list[str]) -> Tensor:
    """Returns the counts of the tables' entries in each answer, [N, 3 * 64]."""
    x, y = (torch.tensor([[LETTERS.index(c) for c in text] for text in texts]) for texts in (prompts, answers))
    found = torch.zeros(len(x), 3, SIZE * SIZE, dtype=torch.double)
    for table, first, second in ((0, x, y), (1, y[:, :-1], y[:, 1:]), (2, x[:, :1], y[:, -1:])):
        for place in (first * SIZE + second).T:
            found[:, table].scatter_add_(1, place[:, None], torch.ones(len(x), 1, dtype=torch.double))
    return found.flatten(1)


def true_reward(seed: int) -> RewardTables:
    """Returns the true reward of a seed."""
    generator = torch.Generator().manual_seed(seed)
    found = RewardTables(torch.randn(3, SIZE, SIZE, generator=generator, dtype=torch.double))
    prompts = ["".join(LETTERS[i] for i in row) for row in torch.randint(SIZE, (256, LENGTH), generator=generator)]
    values = found([x for x in prompts for _ in ANSWERS], ANSWERS * len(prompts))
    scale = SPREAD / float(values.std())
    return RewardTables(found.tables, scale, float(values.mean()), float((values.min() - values.mean()) * scale))


def prompts_of(seed: int) -> tuple[list[str], list[str], list[str]]:
    """Returns the prompts to learn from, those of the ranking accuracy and those of the exact sums, all different."""
    order = np.random.default_rng(seed).permutation(ANSWERS).tolist()
    return order[:TRAIN], order[TRAIN : TRAIN + RANKED], order[TRAIN + RANKED : TRAIN + RANKED + EXACT]


def fitted_proxy(pairs: list[dict[str, str]]) -> RewardTables:
    """Returns the likeliest reward without the table C, standardised by the answers of the pairs."""
    prompts = [pair["prompt"] for pair in pairs] * 2
    known = features(prompts, [pair[side] for side in ("chosen", "rejected") for pair in pairs])
    known[:, 2 * SIZE * SIZE :] = 0
    first = torch.arange(len(pairs))
    values = fitted_reward(known, torch.stack([first, first + len(pairs)], 1), PENALTY)
    tables = torch.linalg.lstsq(known, values[:, None], driver="gelsd").solution.view(3, SIZE, SIZE)
    scale = 1 / float(values.std())
    lowest = float((values.min() - values.mean()) * scale)
    return RewardTables(tables, scale, float(values.mean()), lowest - 1)


@functools.cache
def _stored(file: str) -> RewardTables:
    return RewardTables.of(json.loads(Path(file).read_text(encoding="utf-8")))


def proxy_reward(prompts: list[str], completions: list[str], proxy: list[str], **_: Any) -> list[float]:
    """Returns the proxy's rewards: the verifier of the tasks that a policy samples on; each row names its file."""
    found: list[float] = _stored(proxy[0])(prompts, completions).tolist()
    return found


class ProxyJudge(Judge):
    """The proxy as a judge. file: where its tables are."""

    file: str = ""

    def forward(self, prompts: Any, answers: Any, references: Any = None) -> Judgement:
        return Judgement(_stored(self.file)(list(prompts), list(answers)), [{} for _ in answers])


class ExactEvaluation:
    """KL, true reward and win rate of a policy against the reference policy, exactly, and its ranking accuracy on
    held-out pairs, by the implicit reward log pi / ref.

    Both policies have one tokenizer. tasks: any of the world. pairs: in the order of the true reward.
    """

    def __init__(
        self,
        reference: LanguagePolicy,
        tasks: Tasks,
        reward: RewardTables,
        prompts: list[str],
        pairs: list[dict[str, str]],
    ) -> None:
        rows = [(x, y) for x in prompts for y in ANSWERS]
        self.batch = answer_batch(reference, tasks, rows)
        regular = reward([x for x, _ in rows], [y for _, y in rows]).view(len(prompts), -1)
        self.reward = torch.cat([regular, torch.full((len(prompts), 1), reward.floor, dtype=torch.double)], 1)
        both = [(pair["prompt"], pair[side]) for pair in pairs for side in ("chosen", "rejected")]
        self.ranked = answer_batch(reference, tasks, both)
        self.reference = self._probabilities(reference)
        self.reference_rank = answer_logp(reference, self.ranked)
        # Probability that each answer is preferred to the reference's own, [P, 513], a prompt at a time.
        self.preferred = torch.stack(
            [torch.sigmoid(r[:, None] - r) @ p for r, p in zip(self.reward, self.reference, strict=True)]
        )

    def _probabilities(self, policy: LanguagePolicy) -> Tensor:
        """Returns the probabilities of the answers to each prompt and of anything else, [P, 513]."""
        found = answer_logp(policy, self.batch).view(-1, len(ANSWERS)).exp()
        return torch.cat([found, (1 - found.sum(1, keepdim=True)).clamp(min=1e-12)], 1)

    def __call__(self, policy: LanguagePolicy) -> dict[str, float]:
        chance = self._probabilities(policy)
        kl = (chance * (chance.clamp(min=1e-300) / self.reference).log()).sum(1)
        margin = (answer_logp(policy, self.ranked) - self.reference_rank).view(-1, 2)
        margin = margin[:, 0] - margin[:, 1]
        return {
            "kl": max(float(kl.mean()), 0.0),
            "true_reward": float((chance * self.reward).sum(1).mean()),
            "win_rate": float((chance * self.preferred).sum(1).mean()),
            "accuracy": float((0.5 + 0.5 * margin.sign()).mean()),
            "malformed": float(chance[:, -1].mean()),
        }


def answer_batch(policy: LanguagePolicy, tasks: Tasks, rows: list[tuple[str, str]]) -> Experience:
    """Returns a batch of these answers to their prompts. tasks: any of the same world."""
    given = [
        Task(id=str(i), kind="exact", prompt=x, solution=None, row={}, rated=(RatedAnswer(y, 1.0),))
        for i, (x, y) in enumerate(rows)
    ]
    episodes = EpisodeReplayer(policy, tasks, LENGTH + 1).rated(given)
    return to_experience(episodes, PLAIN, horizon=None, policy=policy)


@torch.no_grad()
def answer_logp(policy: LanguagePolicy, batch: Experience, rows: int = 4096) -> Tensor:
    """Returns the summed log-probability of each answer in float64, [B]."""
    found = []
    for piece in (batch[torch.arange(at, min(at + rows, len(batch)))] for at in range(0, len(batch), rows)):
        found.append(torch.where(piece.mask, policy.evaluate(piece).logp, 0).double().sum(1))
    return torch.cat(found)
