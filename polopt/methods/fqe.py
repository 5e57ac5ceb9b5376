"""Fitted Q evaluation: the direct method, a policy's value from a model fitted to another policy's log."""

from polopt.method import Paper, method
from polopt.metrics import DirectMethod, TabularValues


@method(
    paper=Paper(
        title="Batch Policy Learning under Constraints",
        authors="Le, Hoang M. and Voloshin, Cameron and Yue, Yisong",
        year=2019,
        arxiv="1903.08738",
    ),
    changes="A policy's value from another policy's log: the value of the first states in a model that is fitted to "
    "the log, without importance weights.",
    room="metrics",
    tier="proven",
)
def fqe(
    *,
    gamma: float = 1.0,
    by_step: bool = False,
    endless: bool = False,
    ridge: float = 0.0,
    resamples: int = 200,
    level: float = 0.95,
) -> DirectMethod:
    """Value of the target policy pi, estimated from n logged episodes of another policy,

        1/n sum_i v(s_i0),    v(s) = sum_a pi(a | s) q(s, a),
        q(s, a) = mean over the logged decisions (s, a) of  r + gamma v(s')

    where v is 0 after an episode's end. There are no products of probability ratios, so that its variance is small for
    long episodes; it is as biased as the table is wrong. It needs the columns `state` and `action`, a state that holds
    all that the future depends on, and every action of the target policy in the log: others count as 0, with a caution.

    by_step: one table for each step.
    endless: episodes are cut, not ended: the last decision of each is left out.
    ridge: pseudo-decisions of value 0 that are added to those of each (s, a).
    resamples, level: of the bootstrap over episodes, with the table fitted anew each time.

    The paper iterates regressions with a neural network; for a table their limit is solved at once. With values of
    another model in the columns `q` and `v`, `metrics.DirectMethod(model=LoggedValues())` is the direct method.
    """
    model = TabularValues(by_step=by_step, endless=endless, ridge=ridge)
    return DirectMethod(gamma=gamma, model=model, resamples=resamples, level=level)
