"""From r to Q*: the credit that a policy trained from preferences gives to each token."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, ScoredTokens, TokenTrace, rate_interval, t_interval
from polopt.metrics.token_credit import TOKEN_ROWS

Numbers = NDArray[np.float64]


@method(
    paper=Paper(
        title="From r to Q*: Your Language Model is Secretly a Q-Function",
        authors="Rafailov, Rafael and Hejna, Joey and Park, Ryan and Finn, Chelsea",
        year=2024,
        arxiv="2404.12358",
    ),
    changes="Reads a policy trained by DPO as an optimal advantage function: credit for each token of an answer.",
    room="metrics",
    tier="proven",
)
def r_to_q(*, beta: float = 0.1, level: float = 0.95) -> TokenCredit:
    """c_t = beta log pi(y_t | s_t) / ref(y_t | s_t),    s_t = the prompt and y_<t.

    Let pi be the optimum of E sum_t r_t - beta KL(pi || ref), which DPO's loss has as its minimiser. With the soft
    values V*(s) = beta log sum_a ref(a | s) exp((r(s, a) + V*(s, a)) / beta), and 0 at the end,

        c_t = r_t + V*(s_t+1) - V*(s_t),

    the optimal advantage of the token, though only whole answers were compared. So the sum of c_t over an answer is
    DPO's implicit reward r - V*(s_0), the sum up to a place is the value of the answer so far, and a beam search by
    log pi, which adds log ref to that, is a search by value. Under the reference's own answers the mean of the sum is
    -beta KL(ref || pi): the implicit reward of preferred answers on which the reference was trained falls as soon as
    the policy moves.

    Values: the mean implicit reward of an answer and of a token, with intervals over answers; and, where some tokens
    are known to be wrong, how often the token of least credit is one of them, and how often one of an answer's
    tokens is by chance.

    beta: of the loss that trained the policy; it scales the credit alone.
    level: of the intervals.

    The data are `metrics.ScoredTokens`: arrays, a batch with an evaluation, or a file with a token a row. The method's
    `trace(data)` lists the credit of each token. To train on the credit, take `rto`, whose dense reward it is. The
    paper shows credit by coloured examples, without a number; the rate of located tokens is ours. Tokens that the
    policy did not decide, as a tool's output, are not in the mask, and c_t includes the expectation over them.
    """
    return TokenCredit(beta=beta, level=level)


class TokenCredit(Metric):
    """The credit of `r-to-q`; settings as those of the method.

    Values: `reward` and `reward_per_token`, means over answers; with known wrong tokens `located` and `chance`, over
    the answers that have one. Rows, of each answer: `reward`, `length` and `least`, the place of its least credit from
    0 (ties: the first).
    """

    beta: float = 0.1
    level: float = 0.95

    rows = TOKEN_ROWS

    def setup(self) -> None:
        if self.beta <= 0 or not 0 < self.level < 1:
            raise ValueError(
                f"methods.r_to_q.TokenCredit: need beta > 0 and level in (0, 1), found {self.beta} and {self.level}"
            )

    def measure(self, data: ScoredTokens) -> Measured:
        credit, mask = data.credit(self.beta), data.mask
        length = mask.sum(1).astype(float)
        least = np.where(mask, credit, np.inf).argmin(1)
        rows: dict[str, Numbers] = {
            "reward": credit.sum(1),
            "length": length,
            "least": (mask.cumsum(1)[np.arange(len(mask)), least] - 1).astype(float),
        }
        found: dict[str, Interval] = {
            "reward": t_interval(rows["reward"], self.level),
            "reward_per_token": t_interval(rows["reward"] / length, self.level),
        }
        values: dict[str, float] = {}
        if data.wrong is not None and data.wrong.any():
            known = data.wrong.any(1)
            hit = data.wrong[np.arange(len(mask)), least].astype(float)
            found["located"] = rate_interval(hit[known], self.level)
            values["chance"] = float((data.wrong.sum(1) / length)[known].mean())
        return Measured({name: x.estimate for name, x in found.items()} | values, found, rows)

    def trace(self, data: ScoredTokens) -> list[TokenTrace]:
        """Returns the credit of the tokens of each answer; a token without a text has its place as one."""
        traces = []
        for i, (credit, mask) in enumerate(zip(data.credit(self.beta), data.mask, strict=True)):
            own = credit[mask]
            texts = range(len(own)) if data.tokens is None else data.tokens[i]
            traces.append(TokenTrace(tuple(map(str, texts)), tuple(own.tolist()), tuple(own.cumsum().tolist())))
        return traces
