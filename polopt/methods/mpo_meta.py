"""MPO: a judge's rubric that is revised during training against reward hacking."""

from collections.abc import Sequence

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import AuditedRubric, Grader, Item, Meta, ProgramGrader, RubricReward

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
