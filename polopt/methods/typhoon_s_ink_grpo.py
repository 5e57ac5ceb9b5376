"""InK-GRPO: GRPO with a next-token loss on domain texts in a random share of the steps."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import Clip, Surrogate, TokenMean, TokenRatio, with_imitation
from polopt.sampling import Rollouts, WithTexts


@method(
    paper=Paper(
        title="Typhoon-S: Minimal Open Post-Training for Sovereign Large Language Models",
        authors="Pipatanakul, Kunat and Taveekitworachai, Pittawat",
        year=2026,
        arxiv="2601.18129",
    ),
    changes="GRPO that adds, with some probability, the next-token loss of raw texts of the domain to a step.",
    room="objectives",
    tier="faithful",
)
def typhoon_s_ink_grpo(
    *,
    group: int = 8,
    low: float = 0.2,
    high: float = 0.24,
    dual: float | None = 3.0,
    weight: float = 0.1,
    probability: float = 0.6,
    texts: int = 64,
    length: int = 512,
) -> Algorithm:
    """With A GRPO's z-score and u uniform, drawn once a batch,

        L = mean_t max(-A r, -A clip(r, 1 - low, 1 + high)) - 1[u < probability] weight mean_t logp of the texts

    over the tokens of the rollouts, and of `texts` texts in pieces of at most `length` tokens. On average the texts
    have weight probability * weight. dual: where A < 0 the first term is at most -dual A, verl's default, with which
    the authors train (None: no such bound). probability 0 or weight 0 is GRPO over tokens; probability 1 is
    InstructGPT's PTX term.

    The authors draw for each optimiser step; here the texts of a batch are distributed over its minibatches, which is
    the same with one. The authors evaluate texts at temperature 1 whatever the rollouts' is. InK-GRPO is the third
    stage of their recipe: the first is `sft`; polopt does not have the second, on-policy distillation from a larger
    model.
    """
    surrogate = Surrogate(ratio=TokenRatio(), trust=Clip(low=low, high=high, dual=dual), aggregate=TokenMean())
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithTexts(rows=texts, length=length, probability=probability)]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=with_imitation(surrogate, weight),
    )
