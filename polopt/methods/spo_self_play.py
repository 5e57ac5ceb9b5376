"""SPO in self-play: RLOO on the share of wins against the policy's other and earlier answers to the prompt."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import ClassVar

import torch

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import ConstantBaseline
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.rloo import rloo
from polopt.rewards import KLPenalty, OutcomePreference, Preference, Reward, SumOfRewards, WinRate
from polopt.sampling import BatchMixer, with_opponents
from polopt.sampling.batch_buffer import BatchBuffer, packed, unpacked
from polopt.sampling.source_protocols import RestoringSource


@method(
    paper=Paper(
        title="A Minimaximalist Approach to Reinforcement Learning from Human Feedback",
        authors="Swamy, Gokul and Dann, Christoph and Kidambi, Rahul and others",
        year=2024,
        arxiv="2401.04056",
    ),
    changes="The reward of an answer is its share of wins against other and earlier answers of the policy itself.",
    room="rewards",
    tier="proven",
)
def spo_self_play(
    *, group: int = 4, queue: int = 10, kl: float = 0.0, preference: Preference | None = None
) -> Algorithm:
    """R_i = mean_j P(y_i > y_j) over the group's other answers j and the last `queue` answers to the same prompt that
    the policy gave in earlier batches, and RLOO's gradient on it. No reward is learned, and P may be intransitive.

    group: answers to a prompt. With 1 and a queue it is the paper's form, a new answer against recent ones, with
        baseline 1/2 in place of RLOO's.
    queue: 0 compares within the group alone; then A_i = n / (n - 1) (R_i - 1/2) for a group of n. The paper's number
        was not confirmed.
    kl: as in `rloo`; the paper has none.
    preference: `rewards.JudgedPreference(judge=...)` for a judge that compares; by default the higher outcome wins.

    `spo_minimax` is the exact solver, whose solution is the mean of all policies; here it is the last one, as in the
    paper's experiments, without a guarantee. Any other policy optimisation takes RLOO's place with
    `ppo().but(reward=rewards.WinRate(...), **{"sampling.mix": [RecentAnswers()]})`. The paper pays R_i / T on each of T
    steps, for control. A prompt's queue fills as the prompt returns: in one pass over many prompts it stays empty.
    """
    if group + queue < 2 or queue < 0:
        raise ValueError(
            f"spo-self-play: answers need others to be compared with; set group to 2 or more, or queue to 1 or more, "
            f"found {group} and {queue}"
        )
    wins = WinRate(preference=OutcomePreference() if preference is None else preference)
    reward: Reward = SumOfRewards(terms=[wins, KLPenalty(coefficient=kl)]) if kl else wins
    found = rloo(group=group, kl=0.0).but(reward=reward)
    if group == 1:
        found = found.but(**{"credit.baseline": ConstantBaseline(value=0.5)})
    return found.but(**{"sampling.mix": [RecentAnswers(size=queue)]}) if queue else found


class RecentAnswers(BatchMixer):
    """Adds to each group the policy's last answers to the same prompt in earlier batches, as opponents:
    `extras["is_opponent"]` marks them, and `extras["opponents"]` [B] is their number in the row's group.

    size: answers kept of each prompt. capacity: answers kept in all, of which the oldest leave first.

    The queue is part of checkpoints, and changes in training mode only. Source: SPO, arXiv:2401.04056.
    """

    size: int = 10
    capacity: int = 10_000

    learned: ClassVar[bool] = False
    reads = frozenset({"group", "extras.index"})
    writes = frozenset({"extras.is_opponent", "extras.opponents"})
    source_capabilities = frozenset({"restored_rows"})
    zero_means: ClassVar[Mapping[str, str]] = {
        "opponents/mean": "no prompt of these batches was answered in an earlier one, so the queue is empty and "
        "answers are compared within their group alone; train for more passes over the tasks"
    }

    def setup(self) -> None:
        if self.size < 1 or self.capacity < self.size:
            raise ValueError(
                "methods.spo_self_play.RecentAnswers: need 1 <= size <= capacity, found "
                f"{self.size} and {self.capacity}"
            )
        self.queue = BatchBuffer()

    def forward(self, experience: Experience, source: RestoringSource) -> Experience:
        own = experience[~experience.is_demonstration & ~experience.is_opponent]
        kept = self.queue.batches()
        recalled = self._recalled(kept[0], own) if kept else None
        if self.training:
            self.queue.keep([self._pushed(own, kept)])
        return with_opponents(experience, own[:0] if recalled is None else source.restore_rows(recalled))

    def _pushed(self, own: Experience, kept: list[Experience]) -> Experience:
        """Returns the answers to keep, the latest last."""
        new = unpacked(packed(own))
        old = [batch.replace(support=new.support) for batch in kept]
        found = Experience.cat([*old, new])
        later: Counter[int] = Counter()
        keep: list[int] = []
        for row, task in reversed(list(enumerate(found.extras["index"].tolist()))):
            if later[task] < self.size and len(keep) < self.capacity:
                keep.append(row)
            later[task] += 1
        return found[keep[::-1]]

    def _recalled(self, kept: Experience, own: Experience) -> Experience | None:
        """Returns the kept answers to each group's prompt, in the group; None if there are none."""
        rows: dict[int, list[int]] = defaultdict(list)
        for row, task in enumerate(kept.extras["index"].tolist()):
            rows[task].append(row)
        first = ops.group_first(own.group)
        pairs = [
            (row, group)
            for task, group in zip(own.extras["index"][first].tolist(), own.group[first].tolist(), strict=True)
            for row in rows[task]
        ]
        if not pairs:
            return None
        places, groups = torch.tensor(pairs, device=own.device).unbind(1)
        return kept[places].replace(group=groups, support=own.support)

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the mean number of earlier answers that a row is compared with."""
        return {"opponents/mean": float(experience.extras["opponents"].double().mean())}
