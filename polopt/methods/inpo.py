"""INPO: self-play with a reference, by a squared loss on pairs whose margin has two anchors."""

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import LogRatioReward, PairedObjective, SquaredLink, SumOfImplicitRewards
from polopt.rewards import OutcomePreference, Preference, WinRate
from polopt.sampling import ExtremeRows, Rollouts


@method(
    paper=Paper(
        title="Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning",
        authors="Zhang, Yuheng and others",
        year=2024,
        arxiv="2407.00617",
    ),
    changes="IPO on the policy's own answers, with the margin taken partly from the reference and partly from the "
    "policy that sampled: mirror descent towards the Nash equilibrium of preferences.",
    room="objectives",
    tier="proven",
)
def inpo(
    *, group: int = 8, eta: float = 0.0075, tau: float = 0.0025, preference: Preference | None = None
) -> Algorithm:
    """L = mean over pairs of (h - 1 / (2 eta))^2,

        h = log pi(y_w)/pi(y_l) - (tau / eta) log ref(y_w)/ref(y_l) - (1 - tau / eta) log pi_t(y_w)/pi_t(y_l)

    with y_w and y_l, of the `group` answers that the present policy pi_t gave to a prompt, those preferred to the most
    and to the fewest of the others. For pairs drawn from pi_t, whose winner is drawn too, the minimiser is
    proportional to ref^(tau / eta) pi_t^(1 - tau / eta) exp(P / eta), with P(y) the probability that y is preferred to
    an answer of pi_t: a step of mirror descent in the game with the distance tau KL(pi || ref). The best and the worst
    of several are not such a draw: this pair, which the paper trains on, exaggerates the difference.

    A batch is a round: its rows are sampled from pi_t, and `epochs` of the stage is how long each is fitted.

    eta (>= tau): the inverse of the step size. The paper's own values are 0.005 to 0.0075 by model.
    tau (> 0): the strength of the KL term, the paper's a third of eta.
    preference: who wins, `rewards.JudgedPreference(judge=...)` for a judge that compares two answers; by default the
        higher outcome.
    """
    if not 0 < tau <= eta:
        raise ValueError(f"inpo: need 0 < tau <= eta, found tau = {tau} and eta = {eta}")
    share = tau / eta
    preference = OutcomePreference() if preference is None else preference
    anchors = [LogRatioReward(scale=share)]
    if share < 1:
        anchors.append(LogRatioReward(scale=1 - share, anchor="sampler"))
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=WinRate(preference=preference),
        credit=RelativeAdvantage(baseline=None, scale=None),
        select=[ExtremeRows()],
        objective=PairedObjective(
            implicit=SumOfImplicitRewards(terms=anchors), link=SquaredLink(target=1 / (2 * eta)), by="advantage"
        ),
    )
