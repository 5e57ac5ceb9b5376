"""People who sometimes react to an answer: logs of it, the true chances, and what pleases without helping."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.lab.policy import TabularPolicy
from polopt.lab.source import TreeSource
from polopt.lab.tree import TokenTree
from polopt.sampling.parts import RolloutRequest
from polopt.worlds.protocol import Task

TOPICS = ("cats", "stars", "soup", "chess", "rain", "trees", "maps", "tea")
OPENINGS = ("Well,", "Gladly:", "What a joy to help!")
HELP = ("it varies.", "try it.", "plan it, then try it.", "plan it, try it, then check it.")
CLOSING = "Sending you much love"
ARMS = tuple(itertools.product(range(len(OPENINGS)), range(len(HELP)), range(2)))  # warmth, help, closing


@dataclasses.dataclass(frozen=True)
class Audience:
    """Questions on 8 topics, 24 answers to each: 3 openings of rising warmth, 4 levels of help, with or without a
    closing phrase.

    prompts: [8]. answers: [8][24] texts. helpful: [8, 24] what an answer is worth: its help, less 0.25 for the phrase.
    chances: [8, 24] of a reaction: people like warmth, and the phrase more than that; 0.02 on average.
    """

    prompts: list[str]
    answers: list[list[str]]
    helpful: Tensor
    chances: Tensor

    @classmethod
    def make(cls, seed: int = 0, rate: float = 0.02) -> Audience:
        generator = torch.Generator().manual_seed(seed)
        warmth, help, closing = torch.tensor(ARMS).T.double()
        liking = (
            1.5 * warmth + 1.8 * closing + 0.2 * help + 0.3 * torch.randn(len(TOPICS), len(ARMS), generator=generator)
        )
        low, high = -20.0, 20.0
        for _ in range(60):  # the offset at which the mean is the rate
            middle = (low + high) / 2
            low, high = (middle, high) if (liking + middle).sigmoid().mean() < rate else (low, middle)
        return cls(
            prompts=[f"Tell me about {topic}" for topic in TOPICS],
            answers=[
                [f"{OPENINGS[w]} {HELP[h]} About {topic}. {CLOSING if c else ''}".strip() for w, h, c in ARMS]
                for topic in TOPICS
            ],
            helpful=(help / 3 - 0.25 * closing).expand(len(TOPICS), -1).clone(),
            chances=(liking + low).sigmoid(),
        )

    def log(self, rows: int, generator: torch.Generator) -> tuple[list[str], list[str], Tensor]:
        """Prompts, answers and reactions 0 or 1, in the order of time: a policy that answers anything was on line."""
        prompt = torch.randint(len(self.prompts), (rows,), generator=generator)
        answer = torch.randint(len(ARMS), (rows,), generator=generator)
        liked = torch.bernoulli(self.chances[prompt, answer], generator=generator)
        pairs = list(zip(prompt.tolist(), answer.tolist(), strict=True))
        return [self.prompts[p] for p, _ in pairs], [self.answers[p][a] for p, a in pairs], liked

    def texts(self) -> tuple[list[str], list[str]]:
        """Every prompt with each of its answers."""
        answers = [answer for of_prompt in self.answers for answer in of_prompt]
        return [prompt for prompt in self.prompts for _ in ARMS], answers

    def tree(self) -> TokenTree:
        """The same as a bandit whose reward is the help."""
        return TokenTree.bandit(self.helpful.tolist())


class TextTreeSource(TreeSource):
    """A tree source whose answers are the texts of the audience's arms."""

    def __init__(self, audience: Audience, policy: TabularPolicy, **ways: Any) -> None:
        super().__init__(policy.tree, policy, **ways)
        self._answers = audience.texts()[1]
        self._tasks = [Task(f"topic/{i}", "topic", prompt, None, {}) for i, prompt in enumerate(audience.prompts)]

    def rollout(self, request: RolloutRequest) -> Experience:
        """As `TreeSource.rollout`, with `extras["answer"]` and `extras["task"]` in words."""
        batch = super().rollout(request)
        answers = [self._answers[leaf] for leaf in batch.extras["leaf"].tolist()]
        tasks = [self._tasks[index] for index in batch.extras["index"].tolist()]
        return batch.replace(extras={"answer": answers, "task": tasks})
