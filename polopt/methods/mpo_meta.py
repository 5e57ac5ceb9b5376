"""MPO: a judge's rubric that is revised during training against reward hacking."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.names import nearest
from polopt.rewards import Grader, Item, Meta, RubricReward

ITEMS = (Item(name="outcome"), Item(name="characters", most=32))


@method(
    paper=Paper(
        title="Toward Evaluative Thinking: Meta Policy Optimization with Evolving Reward Models",
        authors="Kim, Zae Myung and others",
        year=2025,
        arxiv="2504.20157",
    ),
    changes="PPO's reward is a judge's marks by a rubric, which is changed every few batches: rewritten by a second "
    "judge where there is one, weighed anew by an audit where there is none.",
    room="rewards",
    tier="reading",
)
def mpo_meta(
    *,
    group: int = 1,
    items: Sequence[Item] = ITEMS,
    grader: Grader | None = None,
    meta: Meta | None = None,
    every: int = 10,
    samples: int = 20,
    kl: float = 0.05,
) -> Algorithm:
    """R_i = mean over the items of mark / most, weighted, less PPO's KL. After every `every` batches, `samples` rows of
    the last one, with their marks, are the input of `meta`, whose new rubric holds from then on; value head and KL
    are unchanged. every = infinity, or a meta that changes nothing, is PPO with a fixed judge.

    The paper's judges are language models: `HTTPGrader` writes reasons and marks, `HTTPMeta` reports for each row where
    the rubric over- and under-scores, rewrites it, and merges the rewritten ones. By default there is no judge model:
    `ProgramGrader` takes marks from programs, here the outcome and the length, and `AuditedRubric` weights an item by
    its agreement with an audit of these few rows, here the outcome again: the weights change, the items do not. That
    is the smallest working example, and ours; length is rewarded, up to 32 characters, until the audit has
    detected that.

    The authors' code adds integer scores in the paper's formula, and divides each by its most and takes the mean in the
    version that was read; we take the mean, which keeps the scale where the number of items changes. The code
    requests each item separately and executes a reply that is not a number as code; here one reply marks all items,
    and a mark is a line of its own or none. Rows come from the last batch, not from all since the last rubric; the
    first screening of rows, and clusters of problems with rubrics of their own, are left out.
    """
    reward = RubricReward(
        items=[item.but() for item in items],
        grader=ProgramGrader() if grader is None else grader,
        meta=AuditedRubric() if meta is None else meta,
        every=every,
        samples=samples,
    )
    return ppo(group=group, kl=kl).but({"reward.terms.0" if kl else "reward": reward})


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

    An item's name selects the statistic: "outcome", the environment's outcome; a name in `SEEN`, of the answer's text;
    or `extras.<name>`, a number that the environment or the loop recorded of each row.
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
                    "methods.mpo_meta.ProgramGrader: no item is called "
                    f"{item.name!r}{nearest(item.name, ['outcome', *SEEN])}; "
                    "or write extras.<name> for a number of the batch"
                )
        return frozenset(found)

    def doubts(self, items: Sequence[Item]) -> Iterator[str]:
        extent = [item.name for item in items if item.name in EXTENT and item.weight * item.trust > 0]
        if extent:
            yield (
                f"its items reward length ({', '.join(extent)}), whether the answer is right or wrong; give items of "
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
            raise ValueError(f"methods.mpo_meta.AuditedRubric: factor must be in [0, 1), found {self.factor}")
        if self.truth != "outcome" and not self.truth.startswith("extras."):
            raise ValueError(
                f"methods.mpo_meta.AuditedRubric: truth must be outcome or extras.<name>, found {self.truth!r}"
            )

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
    centred = truth - truth.mean()
    varies = (marks != marks[:1]).any(0) & (truth != truth[:1]).any()
    found = (centred @ (marks - marks.mean(0)) / max(1, len(truth))).tolist()
    return [value if moves else None for value, moves in zip(found, varies.tolist(), strict=True)]
