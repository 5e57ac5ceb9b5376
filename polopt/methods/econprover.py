"""EconProver: imitation of the shortest right answers, then PPO with diverse prompt prefixes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.methods.raft import raft
from polopt.sampling.parts import PromptAugmenter, Select, Start
from polopt.sampling.source_protocols import Source


@method(
    paper=Paper(
        title="EconProver: Towards More Economical Test-Time Scaling for Automated Theorem Proving",
        authors="Li, Mukai and Song, Linfeng and Liang, Zhenwen and Xu, Jiahao and Gong, Shansan and Liu, Qi and "
        "Mi, Haitao and Yu, Dong",
        year=2025,
        arxiv="2509.12603",
    ),
    changes="First the cheapest right answer to each task is imitated, then PPO with prefixes, each on its part of the "
    "tasks.",
    room="sampling",
    tier="reading",
)
def econprover(
    *,
    stage: int = 2,
    group: int = 8,
    prefixes: int = 8,
    wording: str = " #{number}",
    clip: float = 0.2,
    kl: float = 0.05,
) -> Algorithm:
    """Stage 1, the switch: of each task's answers the right one with the fewest tokens is imitated,

        L = -(1 / sum_i |y_i|) sum_it logp_it over y_i = argmin |y| among the group's right answers,

    so that the policy answers directly where that suffices, and with a chain of thought where only that is right.
    Stage 2, diversity: the tasks are split into m parts, each has a prefix after its prompts, " #0" to " #7", and PPO
    trains all of them in one policy. To solve a task in k passes, spread them over the prefixes:
    `metrics.cost_curve` measures the cost in tokens, not passes.

    prefixes=1 with wording="" is PPO. The paper's text beyond its summary was not available. Ours are: imitation for
    the switch, where the paper reportedly prefers a successful direct proof over one with a chain of thought;
    text tags for its trainable prefixes, with all weights trained (`train` of a stage can freeze some); parts by the
    tasks' order, which should be that of difficulty.

    Raises:
        ValueError: another stage than 1 or 2.
    """
    if stage == 1:
        return raft(group=group).but({"sampling.select": [ShortestCorrect()]})
    if stage != 2:
        raise ValueError(f"econprover: stage must be 1, the switch, or 2, the prefixes, found {stage}")
    guide = TaggedPrompts(count=prefixes, wording=wording) if prefixes > 1 or wording else None
    return ppo(group=group, clip=clip, kl=kl).but({"sampling.guide": guide})


class TaggedPrompts(PromptAugmenter):
    """Appends to every task's prompt one of `count` texts, that of the task's part of the data.

    Part j holds the tasks of numbers from j n / count to before (j + 1) n / count, of n: an order of the tasks by
    difficulty or subject determines the parts.

    count: number of parts.
    wording: the text, with {number} for j.

    Each text is trained on its own part alone, so that the policy's answers with different texts diverge; to solve a
    task, sample it with all of them. Source: the trainable prefixes of EconProver, arXiv:2509.12603.
    """

    count: int = 8
    wording: str = " #{number}"

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"methods.econprover.TaggedPrompts: count must be >= 1, found {self.count}")
        if "{number}" not in self.wording and self.count > 1:
            raise ValueError(
                f"methods.econprover.TaggedPrompts: the wording must hold {{number}}, or all prefixes are one; found "
                f"{self.wording!r}"
            )

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        numbers = (tasks * self.count // source.size).tolist()
        return tasks, [Start(hint=self.text(number)) for number in numbers]

    def text(self, number: int) -> str:
        """Returns the text that is appended to a prompt of part `number`."""
        return self.wording.replace("{number}", str(number))


class ShortestCorrect(Select):
    """Keeps, of each group, the `count` right rows with the fewest decisions; ties: the earlier row.

    A row is right if its outcome is at least `right`. If only some answers contain a reasoning part, the kept rows show
    which tasks need it. Source: the preferences behind the switch of EconProver, arXiv:2509.12603.
    """

    tags = frozenset({"filter=outcome"})

    count: int = 1
    right: RowMask = IsCorrect()

    reads = frozenset({"outcome", "group"})

    def setup(self) -> None:
        if self.count < 1:
            raise ValueError(f"methods.econprover.ShortestCorrect: count must be >= 1, found {self.count}")

    def forward(self, experience: Experience) -> Experience:
        right = self.right(experience)
        length = torch.where(right, experience.lengths.double(), torch.inf)
        return experience[(ops.group_place(-length, experience.group) < self.count) & right]
