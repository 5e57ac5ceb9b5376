"""A rubric without a language model: marks computed by a program, and an audit that adjusts the trust in each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.names import nearest
from polopt.rewards.rubric import Grader, Item, Meta


def _repeated(answer: str) -> float:
    words = answer.split()
    return 1 - len(set(words)) / len(words) if words else 0.0


# Surface statistics of a text.
SEEN: Mapping[str, Callable[[str], float]] = {
    "characters": lambda answer: float(len(answer)),
    "words": lambda answer: float(len(answer.split())),
    "lines": lambda answer: float(len(answer.splitlines())),
    "digits": lambda answer: float(sum(map(str.isdigit, answer))),
    "repeated words": _repeated,
}

# The statistics that grow with the text's length.
EXTENT = frozenset({"characters", "words", "lines"})


class ProgramGrader(Grader):
    """A grader that computes marks by program.

    An item's name selects the statistic: "outcome", the world's outcome; a name in `SEEN`, of the answer's text; or
    `extras.<name>`, a number that the world or the loop recorded of each row.
    """

    def item_fields(self, items: Sequence[Item]) -> frozenset[str]:
        """Returns the fields of a batch that these items read, see `Grader.item_fields`.

        Raises:
            ValueError: an item that the grader cannot measure.
        """
        found = set()
        for item in items:
            if item.name in SEEN:
                found.add("extras.answer")
            elif item.name == "outcome" or item.name.startswith("extras."):
                found.add(item.name)
            else:
                raise ValueError(
                    f"rewards.ProgramGrader: no item is called {item.name!r}{nearest(item.name, ['outcome', *SEEN])}; "
                    "or write extras.<name> for a number of the batch"
                )
        return frozenset(found)

    def doubts(self, items: Sequence[Item]) -> Iterator[str]:
        extent = [item.name for item in items if item.name in EXTENT and item.weight * item.trust > 0]
        if extent:
            yield (
                f"its items pay for length ({', '.join(extent)}), whether the answer is right or wrong; give items of "
                "your own, or a grader that reads texts, as rewards.HTTPGrader"
            )

    def forward(self, experience: Experience, items: Sequence[Item]) -> Tensor:
        marks = [self._mark(experience, item.name).to(experience.precision) / item.most for item in items]
        return torch.stack(marks, 1).clamp(0, 1)

    def _mark(self, experience: Experience, name: str) -> Tensor:
        if name in SEEN:
            return torch.tensor(
                [SEEN[name](answer) for answer in experience.extras["answer"]], device=experience.device
            )
        if name == "outcome":
            return experience.outcome
        return torch.as_tensor(experience.extras[name.removeprefix("extras.")], device=experience.device)


class AuditedRubric(Meta):
    """Adjusts the trust in each item by the correlation of its marks with a ground truth on the same rows.

    Where the correlation is 0 or less, the item's trust is multiplied by `factor`; where it is above 0, the trust is
    divided by `factor`, to 1 at most. An item whose marks are all equal in the sample is unchanged, and so are all
    items if the truth is constant.

    truth: "outcome" or `extras.<name>`, a number of each row, read for the sampled rows alone.
    factor: the factor, in [0, 1).
    """

    truth: str = "outcome"
    factor: float = 0.5

    def setup(self) -> None:
        if not 0 <= self.factor < 1:
            raise ValueError(f"rewards.AuditedRubric: factor must be in [0, 1), found {self.factor}")
        if self.truth != "outcome" and not self.truth.startswith("extras."):
            raise ValueError(f"rewards.AuditedRubric: truth must be outcome or extras.<name>, found {self.truth!r}")

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.truth})

    def forward(self, items: Sequence[Item], experience: Experience, marks: Tensor) -> list[Item]:
        name = self.truth.removeprefix("extras.")
        truth = experience.outcome if name == self.truth else torch.as_tensor(experience.extras[name])
        agreed = agreement(marks.double(), truth.to(marks.device).double())
        return [item.but(trust=self._moved(item.trust, cov)) for item, cov in zip(items, agreed, strict=True)]

    def _moved(self, trust: float, covariance: float | None) -> float:
        if covariance is None:
            return trust
        if covariance <= 0:
            return trust * self.factor
        return min(1.0, trust / self.factor) if self.factor > 0 else 1.0


def agreement(marks: Tensor, truth: Tensor) -> list[float | None]:
    """Returns the covariance of each item's marks [n, items] with the truth [n]; None where either is constant."""
    apart = truth - truth.mean()
    varies = (marks != marks[:1]).any(0) & (truth != truth[:1]).any()
    found = (apart @ (marks - marks.mean(0)) / max(1, len(truth))).tolist()
    return [value if moves else None for value, moves in zip(found, varies.tolist(), strict=True)]
