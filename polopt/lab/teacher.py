"""Teachers on a tree: an average of the policy, conditioned on a right answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import policy_field
from polopt.lab.policy import ABSENT, TabularPolicy, extra_outputs
from polopt.policies.average import Average
from polopt.teachers import ContrastTeacher, SelfTeacher, TeacherSpec, contrasted, filled, without_teacher


class HintedPolicy(nn.Module):
    """A tabular policy conditioned on a hint: q(a | s, hint) = softmax(z_a + pull 1[a = hint_t]).

    z are the policy's logits and hint_t is the hint's token at the same place, `extras["hint"]` [B, T], -1 for none.

    pull: nats that the hint's token gains.
    sees: "all" tokens of the hint have an effect, whether or not they matter; "decisive" ones alone, at nodes where the
        choices differ in value under the uniform policy, as for a reader that understands the answer.
    """

    def __init__(self, policy: TabularPolicy, pull: float, sees: Literal["all", "decisive"]) -> None:
        super().__init__()
        self.policy, self.pull = policy, pull
        values = policy.tree.uniform_values()
        worst = values.masked_fill(~policy.tree.choices, torch.inf).amin(1)
        self.copies = torch.ones(len(values), dtype=torch.bool) if sees == "all" else values.amax(1) - worst > 1e-12

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset(), *, top: int = 0) -> Evaluation:
        """Evaluates the rows as `TabularPolicy.evaluate` does, with the hint; a token outside the tree stays
        impossible."""
        logits = self.policy.evaluate(experience, frozenset({"logits"})).logits
        hint, node = experience.extras["hint"], self.policy.tree.nodes[experience.extras["leaf"]]
        sees_hint = (hint >= 0) & self.copies[node] & experience.mask
        pull = torch.zeros_like(logits).scatter_(-1, hint.clamp(min=0)[..., None], self.pull)
        log_probs = (logits + torch.where(sees_hint[..., None], pull, 0)).log_softmax(-1)
        chosen = log_probs.gather(-1, experience.extras["tokens"][..., None])[..., 0]
        return Evaluation(
            logp=torch.where(experience.mask, chosen, 0),
            support=experience.support,
            entropy=ops.entropy_of(log_probs) if "entropy" in needs else ABSENT,
            extras=extra_outputs(log_probs, experience, needs, top),
        )


class TreeTeacher:
    """The teacher of an algorithm on a tree: an average of the policy, conditioned on hints as `HintedPolicy` is.

    The numbers in a hint's text are the tokens of the answer that it shows.
    """

    def __init__(
        self, policy: TabularPolicy, spec: TeacherSpec, *, pull: float = 5.0, sees: Literal["all", "decisive"] = "all"
    ) -> None:
        if not isinstance(spec, SelfTeacher):
            raise TypeError(f"TreeTeacher: spec must be a SelfTeacher, found {spec!r}; use lab.tree_teacher")
        self.tree, self.policy, self.spec = policy.tree, policy, spec
        self.average = Average(policy, spec.rate)
        self.hinted = HintedPolicy(self.average.policy, pull, sees)

    @torch.no_grad()
    def teach(self, experience: Experience, names: frozenset[str]) -> Experience:
        """Returns the batch with those of `teachers.TEACHER_FIELDS` that are among `names`."""
        hints = self.spec(experience)
        rows = torch.tensor([row for row, hint in enumerate(hints) if hint is not None], dtype=torch.long)
        if not len(rows):
            return experience.replace(extras=without_teacher(experience, names, next(self.policy.parameters())))
        hint_tokens = torch.stack([self._tokens(hints[row] or "", experience.mask.shape[1]) for row in rows.tolist()])
        with_hints = experience[rows].replace(extras={"hint": hint_tokens})
        outputs, top = frozenset({"entropy"}), self.spec.top
        if self.spec.chosen_by == "policy":
            own = self.policy.evaluate(with_hints, top=top).extras["candidates"]
            with_hints, top, outputs = (
                with_hints.replace(extras={"candidates": own}),
                0,
                outputs | {"extras.candidate_logp"},
            )
        return filled(experience, names, rows, with_hints, self.hinted.evaluate(with_hints, outputs, top=top))

    def _tokens(self, hint: str, width: int) -> Tensor:
        tokens = [int(number) for number in re.findall(r"\d+", hint)]
        row = [-1] * self.tree.start + tokens
        return torch.tensor(row + [-1] * (width - len(row)))

    def follow(self) -> None:
        """Updates the average after the policy has learned from a batch."""
        self.average.follow()


class TreeContrast:
    """The teacher of an algorithm on a tree that is made of two frozen policies.

    policies: by name; `reference` and those that the teacher's settings name.
    """

    def __init__(self, spec: ContrastTeacher, policies: Mapping[str, TabularPolicy]) -> None:
        self.spec, self.policies = spec, {policy_field(name): policy for name, policy in policies.items()}

    def teach(self, experience: Experience, names: frozenset[str]) -> Experience:
        """Returns the batch with those of `teachers.CONTRAST_FIELDS` that are among `names`."""
        return contrasted(experience, names, self.spec, self._evaluate)

    def _evaluate(self, field: str, batch: Experience, outputs: frozenset[str], top: int) -> Evaluation:
        return self.policies[field].evaluate(batch, outputs, top=top)

    def follow(self) -> None:
        """Both policies are frozen."""


def tree_teacher(
    policy: TabularPolicy, spec: TeacherSpec | None, policies: Mapping[str, TabularPolicy]
) -> TreeTeacher | TreeContrast | None:
    """Returns the teacher of an algorithm on a tree; None if it has none. policies: the frozen ones, by name."""
    if isinstance(spec, ContrastTeacher):
        return TreeContrast(spec, policies)
    return TreeTeacher(policy, spec) if isinstance(spec, SelfTeacher) else None
