"""UnO: the distribution of a policy's returns, from another policy's log."""

from collections.abc import Sequence

from polopt.method import Paper, method
from polopt.metrics import ReturnDistribution


@method(
    paper=Paper(
        title="Universal Off-Policy Evaluation",
        authors="Chandak, Yash and Niekum, Scott and Castro da Silva, Bruno and Learned-Miller, Erik and "
        "Brunskill, Emma and Thomas, Philip S.",
        year=2021,
        arxiv="2104.12820",
    ),
    changes="Not the mean of a policy's returns alone, but their distribution: variance, quantiles, the worst share.",
    room="metrics",
    tier="proven",
)
def uno(
    *,
    gamma: float = 1.0,
    at: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95),
    self_normalised: bool = True,
    resamples: int = 1000,
    level: float = 0.95,
) -> ReturnDistribution:
    """Distribution of the target policy's return G, estimated from n logged episodes,

        F(x) = sum_i w_i 1[G_i <= x] / sum_i w_i,    w = prod_t pi(a_t | s_t) / b(a_t | s_t)

    and what follows from it: the mean, the variance, quantiles min {x : F(x) >= p}, and the conditional value at risk
    1/p int_0^p quantile(u) du, the mean of the worst share p of returns.

    at: the shares p. self_normalised: False divides by n in place of the sum of the weights and cuts F at 1, the form
        that the paper begins with. resamples, level: of the percentile bootstrap over episodes.

    Whole episodes' weights vary much where episodes are long. The paper also has bands that hold for all x and all
    functionals at once, from bounds for a grid of points; the bootstrap is its section on approximate intervals.
    """
    return ReturnDistribution(gamma=gamma, at=at, self_normalised=self_normalised, resamples=resamples, level=level)
