"""Parts for decisions that are mixtures of tokens: ratios of several draws, and distributions as targets."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Ratio, Regulariser
from polopt.objectives.ratio import TokenRatio
from polopt.schedules import Schedule


class DrawMeanRatio(Ratio):
    """The geometric mean of the ratios of a decision's draws: log r_t / K_t, K = `extras["drawn"]` [B, T].

    root False keeps the product, which alone is unbiased: E_old[prod r f] = E_new[f]. The root has less variance and
    is another estimator. At K = 1 the two are equal. Source: continuous chain of thought, arXiv:2505.23648.
    """

    token: Ratio = TokenRatio()
    root: bool = True

    reads = frozenset({"extras.drawn"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        log_ratio = self.token(experience, evaluation)
        return log_ratio / experience.extras["drawn"].clamp(min=1) if self.root else log_ratio


class SoftTargets(Regulariser):
    """Cross-entropy to a whole distribution at each decision: -sum_v targets_v log alpha_v, `extras["targets"]` [B, T,
    V].

    Its gradient is that of KL(targets || alpha); one-hot targets make it the likelihood. Source: continuous supervised
    fine-tuning, arXiv:2505.23648.
    """

    coefficient: float | Schedule = 1.0

    reads = frozenset({"extras.targets"})
    policy_outputs = frozenset({"logits"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        decided = experience.mask[..., None]
        law = evaluation.logits.log_softmax(-1)
        targets = torch.where(decided, experience.extras["targets"], 0).to(law.dtype)
        return -torch.where(targets > 0, targets * law, 0).sum(-1)
