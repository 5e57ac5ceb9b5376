"""SPPO: a policy that plays itself, by regression of log-ratios on win rates."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantBaseline, RelativeAdvantage
from polopt.method import Paper, method
from polopt.objectives import LogRatioReward, RegressionObjective
from polopt.rewards import OutcomePreference, Preference, WinRate
from polopt.sampling import ExtremeRows, Rollouts


@method(
    paper=Paper(
        title="Self-Play Preference Optimization for Language Model Alignment",
        authors="Wu, Yue and Sun, Zhiqing and Yuan, Huizhuo and Ji, Kaixuan and Yang, Yiming and Gu, Quanquan",
        year=2024,
        arxiv="2405.00675",
    ),
    changes="Each answer's log-ratio to the sampler is regressed on its win rate against the sampler's other answers: "
    "a step of multiplicative weights in the game of preferences.",
    room="objectives",
    tier="faithful",
)
def sppo(*, group: int = 5, eta: float = 1000.0, preference: Preference | None = None) -> Algorithm:
    """L = mean_i (log pi(y_i)/pi_t(y_i) - eta (P_i - 1/2))^2,    P_i = mean_j P(y_i > y_j),

    over the `group` answers j that the present policy pi_t gave to a prompt, y_i itself included; of each prompt the
    answers of highest and of lowest P_i are learned from. Were all of them, the minimiser would be pi_t exp(eta P) / Z
    but for log Z, which is replaced by eta / 2. The published code has half this loss.

    A batch is a round: its rows are sampled from pi_t, and `epochs` of the stage is how long each is fitted. The
    paper's rounds are of 20,000 prompts. eta: the step size of the weights; the paper's 1000 sets targets of hundreds
    of nats, which a few small steps never reach: the optimiser's learning rate is what bounds the step.
    preference: who wins, `rewards.JudgedPreference(judge=...)` for a judge that compares two answers; by default the
    higher outcome.
    """
    preference = OutcomePreference() if preference is None else preference
    return Algorithm(
        sampling=Rollouts(group=group),
        reward=WinRate(preference=preference, own=True),
        credit=RelativeAdvantage(baseline=ConstantBaseline(value=0.5), scale=None),
        select=[ExtremeRows()],
        objective=RegressionObjective(implicit=LogRatioReward(scale=1.0, anchor="sampler"), scale=eta),
    )
