"""PolicyRollout: half of each group is sampled with the rules in the prompt, and all of it is learned without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.groupings import SameTask
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.methods.sft import sft
from polopt.objectives import OldPolicyRatio, TokenRatio
from polopt.sampling import RawTexts
from polopt.sampling.parts import PromptAugmenter, Start
from polopt.sampling.source_protocols import Source
from polopt.situation import Situation

# The default rules, which a user is to replace.
NO_RULES = "\nThink of the rules."


@method(
    paper=Paper(
        title="Multimodal Policy Internalization for Conversational Agents",
        authors="Wang, Zhenhailong and others",
        year=2025,
        arxiv="2510.09474",
    ),
    changes="GRPO half of whose groups are sampled by a policy that reads the rules, which the rows then do without.",
    room="sampling",
    tier="reading",
)
def policyrollout(
    *,
    rules: str = NO_RULES,
    group: int = 4,
    correct: Literal["none", "behaviour"] = "none",
    clip: float = 0.2,
    kl: float = 0.0,
    stage: int = 3,
    length: int = 512,
) -> Algorithm:
    """Half of a task's rollouts read a document of rules, D, and all are learned as answers to the task x alone, so
    that what D makes the policy do becomes what it does. With n = `group`

        y_1, ..., y_n ~ pi_old(y | x),    y_{n+1}, ..., y_{2 n} ~ pi_old(y | x, D)
        A_i = (R_i - mean(R)) / std(R)
        r = pi(y | x) / pi_old(y | x)

    with mean and standard deviation over both halves, and GRPO's loss. `rules` is D, without which half of the rollouts
    are wasted. r is as if the policy had sampled every y behind x alone, correct="none". With correct="behaviour" it is
    over the probability that y was sampled with, for the second half pi_old(y | x, D): unbiased on answers of one
    decision, but answers that only the rules make likely then have almost no weight.

    stage: the paper's three. 1 reads `length` tokens at a time of texts about the rules (without what it masks in
    images), 2 imitates worked solutions behind x alone, 3 is the above. The paper calls the document a policy.
    The authors' code was not available: that the halves are equal, share one baseline and are trained as if the
    policy had sampled them is our reading, as are clip and kl.

    Raises:
        ValueError: a stage that there is not.
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"policyrollout: stage must be 1, 2 or 3, found {stage}")
    if stage < 3:
        return sft().but(sampling=RawTexts(length=length)) if stage == 1 else sft()
    changes: dict[str, Any] = {
        "sampling.guide": RulePrompts(rules=rules),
        "credit": RelativeAdvantage(baseline=GroupMean(within=SameTask()), scale=GroupStd(within=SameTask())),
        "objective.ratio": OldPolicyRatio() if correct == "none" else TokenRatio(),
    }
    return grpo(group=group, clip=clip, kl=kl).but(changes)


class RulePrompts(PromptAugmenter):
    """Returns each task twice: as it is, and with `rules` appended to the prompt of the sampling policy.

    rules: the text.
    hidden: the rules are left out of the rows that were sampled with them, so that the policy learns to answer without.
        `extras["hinted"]` marks these rows; their `rollout_logp` is that of the policy with the rules.
    plain: whether a task is returned as it is, too; False returns it with the rules alone.

    The two are groups of their own: `features.SameTask` compares them with each other. Source: PolicyRollout,
    arXiv:2510.09474.
    """

    rules: str
    hidden: bool = True
    plain: bool = True

    def setup(self) -> None:
        if not self.rules:
            raise ValueError("methods.policyrollout.RulePrompts: rules must be a text, found none")

    def cautions(self, situation: Situation) -> Iterator[str]:
        if self.rules == NO_RULES:
            yield (
                f"the rules are {NO_RULES!r}, which are none, so that the rollouts behind them are wasted; set the "
                f"method's rules, as in stages.{situation.stage}.method: {{name: policyrollout, rules: ...}}"
            )

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        hinted = experience.extras["hinted"]
        found = {"hinted/rows": float(hinted.double().mean())}
        for name, rows in (("hinted/outcome", hinted), ("hinted/outcome_without", ~hinted)):
            if rows.any():
                found[name] = float(experience.outcome[rows].mean())
        return found

    @property
    def each(self) -> int:  # type: ignore[override]
        return 2 if self.plain else 1

    def forward(self, source: Source, tasks: Tensor) -> tuple[Tensor, Sequence[Start]]:
        with_rules = Start(hint=self.rules, hidden=self.hidden)
        starts = [Start(), with_rules] if self.plain else [with_rules]
        return tasks.repeat_interleave(self.each), starts * len(tasks)
