"""OGSRL: a policy learned in a model of a log, which it may leave, or harm with, only as often as limits say."""

from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.ppo import control_ppo
from polopt.rewards import PricedCosts


@method(
    paper=Paper(
        title="Offline Guarded Safe Reinforcement Learning for Medical Treatment Optimization Strategies",
        authors="Yan, Runze and Shen, Xun and Wachi, Akifumi and Gros, Sebastien and Zhao, Anni and Hu, Xiao",
        year=2025,
        arxiv="2505.16242",
    ),
    changes="Learned in a process estimated from a log, under limits on how often states and actions leave what was "
    "logged, and on costs of safety.",
    room="rewards",
    tier="reading",
)
def ogsrl(
    *,
    limits: tuple[float, ...] = (0.01,),
    price_lr: float = 1.0,
    gamma: float = 0.99,
    lam: float = 0.95,
    clip: float = 0.2,
    entropy: float = 0.0,
    steps: int = 20,
) -> Algorithm:
    """In `polopt/LoggedModel-v0`, with G the region in which (s, a) is dense in the log and c the log's own costs,

        c^0 = 1 from the first (s, a) outside G to the end of the episode, else 0;    c^1, c^2, ... = c
        max E sum_t gamma^t r_t  subject to  E c^k <= limit_k
        r_t - sum_k price_k c_t^k,    price_k <- max(0, price_k + price_lr (mean_t c_t^k - limit_k))

    the last of which PPO learns from, as in `control_ppo`. limits: of the mean cost of a decision, first that of
    leaving the log. price_lr: step size of the prices, in units of reward. gamma, lam, clip, entropy: as in `ppo`.
    steps: of a fragment. The log's policy is judged in the model as well: its costs say what limits are within reach.

    Deviations. The paper's region is a polynomial's sublevel set; here, as in the authors' program, it is where a
    Gaussian kernel density is above a quantile. The constraints there are of discounted sums, and the solver is CPO,
    whose program has one critic for rewards and one for costs; here prices are raised by dual ascent (Tessler et al.
    2018, arXiv 1805.11074) and one critic values the priced reward.
    """
    costs = PricedCosts(limits=limits, lr=price_lr)
    return control_ppo(gamma=gamma, lam=lam, clip=clip, entropy=entropy, steps=steps).but(reward=costs)
