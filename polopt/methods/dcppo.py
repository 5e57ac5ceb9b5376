"""DCPPO: a reward from dynamic choices by maximum likelihood, then pessimistic value iteration."""

from polopt.method import Paper, method
from polopt.solvers import BellmanRegression, ChoiceLikelihood, ChoicePlanner, PessimisticValueIteration


@method(
    paper=Paper(
        title="Reinforcement Learning with Human Feedback: Learning Dynamic Choices via Pessimism",
        authors="Li, Zihao and Yang, Zhuoran and Wang, Mengdi",
        year=2023,
        arxiv="2305.18438",
    ),
    changes="Rewards behind a human's far-sighted choices, with a width for what the choices do not cover.",
    room="solvers",
    tier="reading",
)
def dcppo(*, beta: float = 0.5, ridge: float = 1.0, penalty: float = 0.1, bound: float = 10.0) -> ChoicePlanner:
    """A human chooses by logits, pi_h = softmax(Q_h), Q_h = r + discount P V_{h+1}, in H steps. From the choices, with
    f(s, a) the features of a step and Lambda_h = sum f f' + ridge:

        theta_h = argmax_theta sum log softmax(f theta)(choice)
        Q_h(s, a) = f theta_h, shifted in each state so that the anchor action has reward 0
        r_h = argmin_w sum (f w - Q_h(s, a) + discount V_{h+1}(s'))^2 + ridge |w|^2
        Q~_h = clip(r_h + P V~_{h+1} - beta sqrt(f' Lambda_h^(-1) f))

    and the policy is greedy in Q~. With a table for features the width is beta / sqrt(n + ridge) after n visits.

    beta: the width of the pessimism; the theory has d H log, far too wide in practice; 0 is plain value iteration.
    ridge: of the regressions.
    penalty: of the likelihood, without which a choice that never occurred has no finite estimate; the paper bounds Q.
    bound: of a step's reward, for the clip.

    The human's discount, the anchor and the value of a state, sum_a pi Q or log sum_a exp Q, are the problem's
    (`problems.OfflineChoices`). Choices fix Q up to a number for each state: here the anchor's reward is 0 and its Q
    follows by a regression. The full text was not available to us: its normalisation, and which of the two values it
    means, are our reading. An iteration is a Newton step of the likelihood, of which about ten suffice.
    """
    return ChoicePlanner(
        likelihood=ChoiceLikelihood(penalty=penalty),
        regression=BellmanRegression(ridge=ridge),
        planner=PessimisticValueIteration(beta=beta, ridge=ridge, bound=bound),
    )
