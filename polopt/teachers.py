"""Teachers that are evaluated on the policy's own decisions, and the hints in their prompts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.anchor import check_anchor
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.features import IsCorrect, RowMask
from polopt.fields import policy_field
from polopt.part import Part

__all__ = ["ContrastTeacher", "Feedback", "First", "Hint", "SelfTeacher", "Sibling", "TeacherSpec"]

# The fields that the training loop fills in for an algorithm with a teacher, if some part declares them. In
# rows without a teacher's signal the numbers are 0 and the ids -1.
#   has_teacher_signal [B] bool: whether the row has a hint for the teacher.
#   teacher_logp, teacher_entropy [B, T]: of the decisions taken, over the batch's support.
#   candidates [B, T, K] int32: ids, -1 padding; teacher_candidate_logp [B, T, K].
TEACHER_FIELDS = frozenset(
    f"extras.{name}"
    for name in ("has_teacher_signal", "teacher_logp", "teacher_entropy", "candidates", "teacher_candidate_logp")
)
# Those of `ContrastTeacher`. extrapolation [B, T]: the weight of the contrast at each decision.
CONTRAST_FIELDS = TEACHER_FIELDS - {"extras.teacher_logp", "extras.teacher_entropy"} | {"extras.extrapolation"}


def check_wording(part: Any, *names: str) -> None:
    """Raises ValueError unless a wording has exactly these placeholders.

    Raises:
        ValueError: naming the part and the placeholders.
    """
    places = dict.fromkeys(names, "")
    try:
        part.wording.format(**places)
        complete = all(f"{{{name}}}" in part.wording for name in names)
    except (KeyError, IndexError, ValueError):
        complete = False
    if not complete:
        required = " and ".join(f"{{{name}}}" for name in names)
        raise ValueError(
            f"teachers.{type(part).__name__}: wording must have {required} and no other place, found {part.wording!r}"
        )


class Hint(Part):
    """`hint(experience) -> [str | None]` returns the text added to a teacher's prompt for each row; None for no hint.

    The argument is the whole batch.
    """

    def forward(self, experience: Experience) -> list[str | None]:
        raise NotImplementedError


class Sibling(Hint):
    """Returns as hint the answer of the first other row of the group that is `right`.

    right: the rows whose answers are hints.
    rows: "all", or only the "wrong" ones, which are not right.
    wording: the text around the {answer}.

    For an episode of many turns the hint is the last answer.
    """

    right: RowMask = IsCorrect()
    rows: Literal["all", "wrong"] = "all"
    wording: str = "\n\nCorrect answer: {answer}"

    reads = frozenset({"group", "outcome", "extras.answer"})

    def setup(self) -> None:
        check_wording(self, "answer")

    def forward(self, experience: Experience) -> list[str | None]:
        right: dict[int, list[int]] = {}
        solved = self.right(experience).tolist()
        groups, answers = experience.group.tolist(), experience.extras["answer"]
        for row, group in enumerate(groups):
            if solved[row]:
                right.setdefault(group, []).append(row)
        hints: list[str | None] = []
        for row, group in enumerate(groups):
            needs_hint = self.rows == "all" or not solved[row]
            other = next((i for i in right.get(group, []) if i != row), None) if needs_hint else None
            hints.append(None if other is None else self.wording.format(answer=answers[other]))
        return hints


class Feedback(Hint):
    """Returns as hint the environment's feedback on the row's own answer, `extras["feedback"]`: a text, or None.

    wording: the text around the {feedback}.
    """

    wording: str = "\n\nFeedback on an earlier answer: {feedback}"

    reads = frozenset({"extras.feedback"})

    def setup(self) -> None:
        check_wording(self, "feedback")

    def forward(self, experience: Experience) -> list[str | None]:
        feedback = experience.extras["feedback"]
        return [None if text is None else self.wording.format(feedback=text) for text in feedback]


class First(Hint):
    """Returns the first of several hints that is not None for a row."""

    hints: Sequence[Hint]

    def setup(self) -> None:
        if not len(self.hints):
            raise ValueError("teachers.First needs at least one hint, found none")

    def forward(self, experience: Experience) -> list[str | None]:
        every = [hint(experience) for hint in self.hints]
        return [next((text for text in row if text is not None), None) for row in zip(*every, strict=True)]


class TeacherSpec(Part):
    """The settings of a teacher: a policy that the loop evaluates on the learner's decisions.

    signals: the fields that it fills in. keeps_copy: whether it keeps a copy of the learner's weights.
    names_candidates: whether the learner is evaluated once more, for the candidates.
    """

    tags = frozenset({"supervision=teacher"})

    signals: ClassVar[frozenset[str]] = TEACHER_FIELDS

    @property
    def keeps_copy(self) -> bool:
        return False

    @property
    def names_candidates(self) -> bool:
        return False


class SelfTeacher(TeacherSpec):
    """The policy itself as teacher, with a moving average of its weights and a hint in its prompt.

    hint: computes each row's hint.
    rate: after every batch that was learned from, average <- average + rate (policy - average). 0 keeps the policy of
        the stage's beginning, 1 takes the current policy; neither averages anything.
    top: the number of candidates on which policy and teacher are compared, all if there are fewer.
    chosen_by: the source of the likeliest ids, "teacher" or "policy" (before its first update on the batch; costs one
        more pass).
    wording: the template of the teacher's prompt from the {prompt} and the {hint}. A row whose teacher prompt exceeds
        the model's positions has no teacher signal.

    Source: SDPO, arXiv:2601.20802.
    """

    hint: Hint = Sibling()
    rate: float = 0.05
    top: int = 100
    chosen_by: Literal["teacher", "policy"] = "teacher"
    wording: str = "{prompt}{hint}"

    def setup(self) -> None:
        check_wording(self, "prompt", "hint")
        if not 0 <= self.rate <= 1 or self.top < 1:
            raise ValueError(
                f"teachers.SelfTeacher: need 0 <= rate <= 1 and top >= 1, found {self.rate} and {self.top}"
            )

    @property
    def keeps_copy(self) -> bool:
        return self.rate < 1

    @property
    def names_candidates(self) -> bool:
        return self.chosen_by == "policy"

    def forward(self, experience: Experience) -> list[str | None]:
        """Returns the hint of each row."""
        return self.hint(experience)


class ContrastTeacher(TeacherSpec):
    """Two frozen policies that the stage names, p and q, as one teacher, which goes on from q to p and beyond:

        log teacher = log p + w (log p - log q) - log Z,    w = kappa D + floor,    D = sum_a |p(a) - q(a)|

    at every decision, so that it goes further where the two differ more. D is in [0, 2].

    policy, contrast: the names of p and q.
    kappa (>= 0): 0 gives every decision the weight `floor`.
    floor (> 0): the least weight.
    top: the number of candidates, the likeliest under p; all if there are fewer. The other choices are one more, for
        which D counts their sums, and whose weight counts only as far as both sums exceed rounding.

    Source: AlignDistil, arXiv:2503.02832.
    """

    policy: str = "dpo"
    contrast: str = "reverse"
    kappa: float = 15.0
    floor: float = 1e-3
    top: int = 100

    signals = CONTRAST_FIELDS

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({policy_field(self.policy), policy_field(self.contrast)})

    def setup(self) -> None:
        for name in (self.policy, self.contrast):
            check_anchor(self, name)
        if self.kappa < 0 or self.floor <= 0 or self.top < 1:
            raise ValueError(
                f"teachers.ContrastTeacher: need kappa >= 0, floor > 0 and top >= 1, found {self.kappa}, {self.floor} "
                f"and {self.top}"
            )

    def forward(self, policy: Tensor, contrast: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the teacher's log-probabilities of the candidates [..., C], and the weight w [...].

        policy, contrast: log-probabilities [..., C] of the candidates under p and q.
        """
        p, q = ops.with_rest(policy), ops.with_rest(contrast)
        weight = self.kappa * (p.exp() - q.exp()).abs().sum(-1) + self.floor
        gap = p - q
        least = torch.finfo(p.dtype).eps ** 0.5
        rest = [x[..., -1:].clamp(min=math.log(least)) for x in (p, q)]
        gap = torch.cat([gap[..., :-1], rest[0] - rest[1]], -1)
        return (p + weight[..., None] * gap).log_softmax(-1)[..., :-1], weight


def moved(values: Tensor, source: Tensor, target: Tensor, blank: int = 0) -> Tensor:
    """Moves values [B, T, ...] from the decisions of `source` [B, T] to those of `target` [B, T'], as many in each row,
    with `blank` elsewhere."""
    found = values.new_full((*target.shape, *values.shape[2:]), blank)
    found[target] = values[source]
    return found


def without_teacher(experience: Experience, names: frozenset[str], like: Tensor) -> dict[str, Tensor]:
    """Returns the `TEACHER_FIELDS` of a batch without teacher signals, with blank values.

    like: a tensor of their dtype.
    """
    B, T = experience.mask.shape
    blank: dict[str, Tensor] = {
        "has_teacher_signal": torch.zeros(B, dtype=torch.bool, device=experience.device),
        "teacher_logp": like.new_zeros(B, T),
        "teacher_entropy": like.new_zeros(B, T),
        "candidates": torch.full((B, T, 1), -1, dtype=torch.int32, device=experience.device),
        "teacher_candidate_logp": like.new_zeros(B, T, 1),
    }
    return {name: value for name, value in blank.items() if f"extras.{name}" in names}


def filled(
    experience: Experience, names: frozenset[str], rows: Tensor, hinted: Experience, evaluation: Evaluation
) -> Experience:
    """Returns the batch with a teacher's outputs on its `rows` [R], whose decisions are those of `hinted`, in order.

    hinted: the rows with the teacher's prompts.
    evaluation: logp; and entropy, extras["candidates"] (or `hinted`'s own) and extras["candidate_logp"] if in `names`.
    """
    mask = experience.mask[rows]
    found = without_teacher(experience, frozenset({"extras.has_teacher_signal"} & names), evaluation.logp)
    if "has_teacher_signal" in found:
        found["has_teacher_signal"][rows] = True
    given: dict[str, Any] = {
        "teacher_logp": evaluation.logp,
        "teacher_entropy": evaluation.entropy,
        "candidates": evaluation.extras.get("candidates", hinted.extras.get("candidates")),
        "teacher_candidate_logp": evaluation.extras.get("candidate_logp"),
    }
    for name, values in given.items():
        if f"extras.{name}" in names:
            blank = -1 if name == "candidates" else 0
            full = values.new_full((len(experience), *mask.shape[1:], *values.shape[2:]), blank)
            full[rows] = moved(values, hinted.mask, mask, blank)
            found[name] = full
    return experience.replace(extras=found)


# Evaluates the policy of a field of the batch: (field, batch, outputs, top).
EvaluateField = Callable[[str, Experience, frozenset[str], int], Evaluation]


@torch.no_grad()
def contrasted(
    experience: Experience, names: frozenset[str], spec: ContrastTeacher, evaluate: EvaluateField
) -> Experience:
    """Returns the batch with those of `CONTRAST_FIELDS` that are among `names`."""
    mask = experience.mask
    own = evaluate(policy_field(spec.policy), experience, frozenset(), spec.top).extras
    others = experience.replace(extras={"candidates": own["candidates"]})
    theirs = evaluate(policy_field(spec.contrast), others, frozenset({"extras.candidate_logp"}), 0).extras
    p, q = (torch.where(mask[..., None], x["candidate_logp"], ops.NOTHING) for x in (own, theirs))
    logp, weight = spec(p, q)
    found = {
        "has_teacher_signal": mask.any(1),
        "candidates": torch.where(mask[..., None], own["candidates"], -1),
        "teacher_candidate_logp": torch.where(mask[..., None], logp, 0),
        "extrapolation": torch.where(mask, weight, 0),
    }
    return experience.replace(extras={name: value for name, value in found.items() if f"extras.{name}" in names})
