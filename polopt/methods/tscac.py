"""TSCAC: a policy for each of several responses, and one for the main response that stays near all of them."""

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.method import Paper, method
from polopt.networks import response_networks
from polopt.objectives import ConstrainedChoiceWeight, PolicyGradient, Surrogate
from polopt.rewards import EnvironmentReward
from polopt.sampling import TransitionReplay


@method(
    paper=Paper(
        title="Two-Stage Constrained Actor-Critic for Short Video Recommendation",
        authors="Cai, Qingpeng and Xue, Zhenghai and Zhang, Chi and others",
        year=2023,
        arxiv="2302.01680",
    ),
    changes="A critic and a policy for each response, and a main policy that stays near all of these policies.",
    room="objectives",
    tier="reading",
)
def tscac(
    *,
    multipliers: tuple[float, ...] = (1.0,),
    gamma: float = 0.99,
    response_gamma: float = 0.99,
    temperature: float = 0.0,
    cap: float = 20.0,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (32, 32),
) -> Algorithm:
    """With the reward as response 1, `responses` as 2 to m, and L = sum_i lam_i, over logged choices,

        L_Q = sum_i (r_i + gamma_i E Q_slow_i(s_next, .) - Q_i(s, a))^2
        L_p = -sum_i sum_a p_i(a | s) (Q_i(s, a) - temperature log p_i(a | s)), i from 2
        p*(a | s) in proportion to prod_i p_i(a | s)^(lam_i / L) exp(Q_1(s, a) / L)
        L_pi = -min(p*(a | s) / b(a | s), cap) log pi(a | s)

    E is over p_i, and over pi for i = 1; b is a model of the policy that logged. multipliers: lam_2 to lam_m. gamma,
    response_gamma: of the first response and of the others. tau: of Q_slow. batch: as in `sac`. The log has a column
    `responses`, [N, m - 1]; actions are choices. The paper has no temperature, and its programs weigh with one p_i and
    normalise over the batch, here in each state. The p_i learn beside pi, or before it: `networks.1.frozen`.
    """
    others, discounts = len(multipliers), {"gamma": gamma, "response_gamma": response_gamma}
    weight = ConstrainedChoiceWeight(multipliers=multipliers, cap=cap)
    return Algorithm(
        sampling=TransitionReplay(rows=batch, logged=1.0),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        networks=response_networks(others, **discounts, temperature=temperature, tau=tau, hidden=hidden),
        objective=Surrogate(ratio=None, trust=PolicyGradient(), weights=[weight]),
    )
