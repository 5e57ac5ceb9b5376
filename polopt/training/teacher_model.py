"""A self-teacher: a moving average of the policy's weights, which reads the same answers after another prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.policies.average import Average
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.teachers import SelfTeacher, filled, moved, without_teacher
from polopt.training.process_group import ProcessGroup


class Teacher:
    """The teacher of a language policy with the settings `spec`.

    rows: rows per forward pass, None for all. policy: the learner's. record: of the latest batch, the share of rows
    with a teacher's signal ("teacher/taught"), and of rows with a hint but without a signal ("teacher/too_long"), since
    the teacher's prompt and the answer exceed the model's context, or the row has no decision.
    """

    def __init__(
        self, policy: LanguagePolicy, spec: SelfTeacher, rows: int | None, team: ProcessGroup | None = None
    ) -> None:
        self.policy, self.spec, self.rows = policy, spec, rows
        self.team = ProcessGroup() if team is None else team
        self.average = Average(policy, spec.rate, LanguagePolicy.frozen)
        self.dialogue = Dialogue(policy.tokenizer, policy.chat_template_kwargs)
        self.record: dict[str, float] = {}

    @torch.no_grad()
    def teach(self, experience: Experience, names: frozenset[str]) -> Experience:
        """Computes those of `teachers.TEACHER_FIELDS` that are among `names`."""
        hints = self.spec(experience)
        chosen, teacher_batch = self._with_hints(experience, hints)
        hinted = sum(hint is not None for hint in hints)
        found = {"taught": len(chosen), "too_long": hinted - len(chosen)}
        self.record = {f"teacher/{name}": count / len(experience) for name, count in found.items()}
        if teacher_batch is None:
            like = torch.zeros((), dtype=self.policy.precision, device=experience.device)
            return experience.replace(extras=without_teacher(experience, names, like))
        outputs = {"entropy"} if "extras.teacher_entropy" in names else set()
        top = self.spec.top if names & {"extras.candidates", "extras.teacher_candidate_logp"} else 0
        if top and self.spec.chosen_by == "policy":
            own = self._evaluate(self.policy, experience[chosen], set(), top)
            ids = moved(own.extras["candidates"], experience.mask[chosen], teacher_batch.mask, -1)
            teacher_batch, top = teacher_batch.replace(extras={"candidates": ids}), 0
            outputs.add("extras.candidate_logp")
        evaluation = self._evaluate(self.average.policy, teacher_batch, outputs, top)
        return filled(experience, names, chosen, teacher_batch, evaluation)

    def _evaluate(self, policy: LanguagePolicy, batch: Experience, outputs: set[str], top: int) -> Evaluation:
        return self.team.evaluate_sharded(policy, batch, self.rows or len(batch), outputs, top=top)

    def _with_hints(self, experience: Experience, hints: list[str | None]) -> tuple[Tensor, Experience | None]:
        """Returns the rows with a teacher's signal, and a batch of them in the teacher's context: the same tokens from
        the first decision on, after the teacher's prompt. None in place of the batch if there are none."""
        tokens, mask, tasks = experience.extras["tokens"].tolist(), experience.mask, experience.extras["task"]
        rows, lines, decided = [], [], []
        for row, (hint, marks) in enumerate(zip(hints, mask.tolist(), strict=True)):
            if hint is None or True not in marks:
                continue
            text = self.spec.wording.format(prompt=tasks[row].prompt, hint=hint)
            opening = self.dialogue.opening(text, tasks[row].history)
            first = marks.index(True)
            continuation = [token for token in tokens[row][first:] if token >= 0]
            if self.policy.context_length is None or len(opening) + len(continuation) <= self.policy.context_length:
                rows.append(row)
                lines.append(opening + continuation)
                decided.append([False] * len(opening) + marks[first : first + len(continuation)])
        chosen = torch.tensor(rows, dtype=torch.long, device=experience.device)
        if not rows:
            return chosen, None
        width = max(map(len, lines))
        pad = lambda line, blank: line + [blank] * (width - len(line))  # noqa: E731
        there = torch.tensor([pad(line, False) for line in decided], device=experience.device)
        extras: dict[str, Any] = {"tokens": torch.tensor([pad(line, -1) for line in lines], device=experience.device)}
        if experience.support.truncated:
            extras["kept"] = moved(experience.extras["kept"][chosen], mask[chosen], there, -1)
        return chosen, Experience(mask=there, support=experience.support, extras=extras)

    def follow(self) -> None:
        """Moves the average towards the policy, after one more batch."""
        self.average.follow()

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors that a checkpoint must hold to go on bit for bit, by name."""
        return {f"teacher.{name}": value for name, value in self.average.state().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        self.average.load({k.removeprefix("teacher."): v for k, v in tensors.items() if k.startswith("teacher.")})
