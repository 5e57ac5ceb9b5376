"""iTool: pairs of steps of tool calls, from a search on the tasks that the policy finds hard."""

from typing import Literal

import torch
from torch import Tensor

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.method import Paper, method
from polopt.methods.dpo import dpo
from polopt.methods.simpo import simpo
from polopt.sampling import StepPairs, UniformTasks
from polopt.sampling.parts import TaskSampler
from polopt.sampling.source_protocols import DemonstrationSource


@method(
    paper=Paper(
        title="iTool: Reinforced Fine-Tuning with Dynamic Deficiency Calibration for Advanced Tool Use",
        authors="Zeng, Yirong and Ding, Xiao and Wang, Yuxian and Liu, Weiwen and others",
        year=2025,
        arxiv="2501.09766",
    ),
    changes="DPO or SimPO on better and worse steps of one beginning, from a tree search on the tasks whose solutions "
    "the policy finds least likely.",
    room="sampling",
    tier="reading",
)
def itool(
    *,
    expansions: int = 8,
    width: int = 4,
    exploration: float = 1.0,
    step_length: int | None = 4,
    hardest: float = 0.5,
    margin: float = 0.0,
    loss: Literal["simpo", "dpo"] = "simpo",
    beta: float | None = None,
) -> Algorithm:
    """Tasks x with the highest perplexity exp(-mean_t log pi(y_t | x, y_<t)) of their solution y are searched: a tree
    of steps of `step_length` tokens, whose Q is the mean outcome of the rollouts through a step. Of each expanded node,
    the steps of the highest and of the lowest Q are a pair y_w, y_l after the same beginning h, and

        L = -E log sigmoid(beta [log pi(y_w | h) / |y_w| - log pi(y_l | h) / |y_l|] - gamma)

    with SimPO, or DPO's on the step's tokens with the policy of the beginning of the stage.

    step_length: decisions of a step; None for turns.
    hardest: share of the tasks that are searched, the hardest of those drawn.
    margin: the least difference of Q of a pair.
    loss, beta: SimPO is the paper's best; None takes the loss's own default.

    The world's outcome should be a score of parts of a call, as the paper's of name, parameters and values: with 0 and
    1 alone Q is the share of right answers. The paper begins with supervised learning from easy to hard, which is a
    stage of `sft` before, and repeats search and learning in rounds; here each batch searches with the present policy.
    How hard tasks are told, the rule of selection, a step's length and the weights of the score are our reading.
    """
    setting = {} if beta is None else {"beta": beta}
    pairs = StepPairs(
        expansions=expansions,
        width=width,
        exploration=exploration,
        step_length=step_length,
        margin=margin,
        choice=UniformTasks() if hardest >= 1 else HardestTasks(share=hardest),
    )
    return (simpo if loss == "simpo" else dpo)(**setting).but(sampling=pairs)


class HardestTasks(TaskSampler):
    """Selects, of the next count / share tasks, those whose demonstrated solution has the highest perplexity.

    share: in (0, 1].
    """

    share: float = 0.5

    source_capabilities = frozenset({"demonstrations"})

    def setup(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"methods.itool.HardestTasks: share must be in (0, 1], found {self.share}")

    def forward(self, source: DemonstrationSource, count: int) -> Tensor:
        shown = source.demonstrate(max(count, round(count / self.share)))
        logp = torch.where(shown.mask, source.evaluate(shown).logp, 0)
        perplexity = -ops.row_mean(logp, shown.mask)
        return shown.extras["index"][perplexity.argsort(descending=True, stable=True)[:count]].cpu()
