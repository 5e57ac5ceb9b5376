"""KTO: alignment from labels of single answers, good or bad, by a value function as in prospect theory."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage, ReferencePoint
from polopt.method import Paper, method
from polopt.objectives import LabelledObjective, LogRatioReward
from polopt.sampling import MatchedRows, RatedAnswers


@method(
    paper=Paper(
        title="KTO: Model Alignment as Prospect Theoretic Optimization",
        authors="Ethayarajh, Kawin and Xu, Winnie and Muennighoff, Niklas and Jurafsky, Dan and Kiela, Douwe",
        year=2024,
        arxiv="2402.01306",
    ),
    changes="No pairs: each answer alone has a label, and its implicit reward is compared with a reference point.",
    room="objectives",
    tier="proven",
)
def kto(
    *, beta: float = 0.1, desirable: float = 1.0, undesirable: float = 1.0, reference_point: bool = True
) -> Algorithm:
    """L = E w_y (1 - sigmoid(s_y (beta log pi(y)/ref(y) - z))),    z = max(0, beta E log pi(y')/ref(y'))

    over answers y with a label: s = 1 and w = desirable for a good one, s = -1 and w = undesirable for a bad one; the
    answers y' are those of other prompts of the batch, and z has no gradient. Data with pairs serve too, two labels
    each.

    beta: strength of the distance to the reference.
    desirable, undesirable: weights; the paper keeps the ratio of the weighted numbers of good and bad answers between
    1 and 4/3, so with n times as many bad ones desirable is about n.
    reference_point: False puts 0 in the place of z, which saves the answers of other prompts.

    Like TRL, z is estimated before the updates of a batch, where the paper has it in every step. The paper's loss adds
    the constant w_y (1 - v) with v in [0, w_y], which is the same.
    """
    return Algorithm(
        sampling=RatedAnswers(mismatched=reference_point),
        credit=ReferencePoint(scale=beta) if reference_point else ConstantAdvantage(value=0.0),
        select=[MatchedRows()] if reference_point else [],
        objective=LabelledObjective(
            implicit=LogRatioReward(scale=beta),
            desirable=desirable,
            undesirable=undesirable,
            relative=reference_point,
        ),
    )
