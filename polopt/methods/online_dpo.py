"""Online DPO: DPO on the policy's own answers, which a verifier or a judge puts in order."""

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import LogisticLink, LogRatioReward, PairedObjective
from polopt.rewards import OutcomePreference, Preference, WinRate
from polopt.sampling import ExtremeRows, Rollouts


@method(
    paper=Paper(
        title="Direct Language Model Alignment from Online AI Feedback",
        authors="Guo, Shangmin and others",
        year=2024,
        arxiv="2402.04792",
    ),
    changes="DPO whose pairs are two answers of the present policy, in the order in which a judge puts them.",
    room="sampling",
    tier="faithful",
)
def online_dpo(
    *, beta: float = 0.1, group: int = 2, label_smoothing: float = 0.0, preference: Preference | None = None
) -> Algorithm:
    """L = -mean_x log sigmoid(beta [log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)])

    over prompts x, with y_w and y_l the answers of the present policy, of `group`, that were preferred to its others
    most and least often. Prompts whose answers are all alike make no pair. The reference is the policy of the
    beginning.

    beta (> 0), label_smoothing: as in `dpo`; the paper has 0.1 and 0.
    group: two in the paper.
    preference: who orders the answers, `rewards.JudgedPreference(judge=...)` for a judge that compares two answers, as
        the paper's language model; by default the higher outcome.
    """
    preference = OutcomePreference() if preference is None else preference
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=WinRate(preference=preference, own=True),
        credit=RelativeAdvantage(baseline=None, scale=None),
        select=[ExtremeRows()] if group > 2 else [],
        objective=PairedObjective(
            implicit=LogRatioReward(scale=beta), link=LogisticLink(label_smoothing=label_smoothing), by="advantage"
        ),
    )
