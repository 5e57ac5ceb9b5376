"""RPO: DPO with the likelihood of the preferred answers, against answers that few comparisons are about."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.features import IsCorrect
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.objectives import Branch, BranchedObjective, PolicyGradient, SequenceSum, Surrogate


@method(
    paper=Paper(
        title="Provably Mitigating Overoptimization in RLHF: Your SFT Loss is Implicitly an Adversarial Regularizer",
        authors="Liu, Zhihan and others",
        year=2024,
        arxiv="2405.16436",
    ),
    changes="DPO plus the likelihood of the preferred answers, which a pessimistic choice of the reward amounts to.",
    room="objectives",
    tier="faithful",
)
def rpo_sft(*, beta: float = 0.1, eta: float = 0.05, label_smoothing: float = 0.0) -> Algorithm:
    """L = -E log sigmoid(beta [log pi(y_w)/ref(y_w) - log pi(y_l)/ref(y_l)]) - eta beta E log pi(y_w)

    over pairs of a preferred answer y_w and a rejected one y_l; log-probabilities are sums over an answer's tokens, in
    the second term too, as in the derivation. It solves max over policies, min over rewards of eta (E_pi r - E_base r -
    beta KL(pi || ref)) + the negative log-likelihood of the comparisons under r; base is the law of the preferred
    answers, as in the paper's experiments.

    eta: weight of the reward's minimum; 0 is DPO. The paper's programs set the product eta beta itself, to 0.005 with
    beta 0.01 for one model and to 0.2 for another; its theory has eta fall with the number of comparisons. Ours is
    0.05, so that the product is 0.005 at beta 0.1. The rows' advantage of 1 is that of the likelihood.
    beta, label_smoothing: as in `dpo`.
    """
    if eta < 0:
        raise ValueError(f"rpo_sft: eta must be >= 0, found {eta}")
    pairs = dpo(beta=beta, label_smoothing=label_smoothing)
    likelihood = Surrogate(ratio=None, trust=PolicyGradient(), aggregate=SequenceSum(length=1))
    routes = [Branch(objective=pairs.objective), Branch(objective=likelihood, rows=IsCorrect(), weight=eta * beta)]
    return pairs.but(credit=ConstantAdvantage(value=1.0), objective=BranchedObjective(routes=routes))
