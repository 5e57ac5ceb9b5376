"""CoT2: continuous chains of thought, whose thoughts are mixtures of sampled tokens, trained with GRPO."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage, GroupStd
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.grpo import grpo
from polopt.objectives import AuxiliaryLoss, TokenMean
from polopt.objectives.parts import Ratio, Regulariser
from polopt.objectives.ratios import TokenRatio
from polopt.sampling import Demonstrations
from polopt.schedules import Schedule


@method(
    paper=Paper(
        title="Continuous Chain of Thought Enables Parallel Exploration and Reasoning",
        authors="Gozeten, Halil Alperen and others",
        year=2025,
        arxiv="2505.23648",
    ),
    changes="GRPO on thoughts that are means of K drawn tokens; a step's ratio is the geometric mean of K ratios.",
    room="objectives",
    tier="proven",
)
def cot2(*, stage: int = 2, group: int = 8, clip: float = 0.1, kl: float = 0.0, root: bool = True) -> Algorithm:
    """A decision is a thought, the mean embedding of K tokens drawn from alpha_t, but the last, which is a token.

        stage 1 (CSFT):  L = mean_t -sum_v a*_tv log alpha_tv
        stage 2 (MTS):   r_t = (prod_k alpha_t(k) / alpha_old_t(k))^(1/K),    A = (R - mean) / std

    with a* the law of all target traces' tokens at step t, read as the thoughts (teacher forcing), the answer alone at
    the last step; R = 1 if the last token is right, and PPO's clip, a mean over steps. root False is the product, which
    the authors run with alpha = softmax(logits / K): `Tokens(count=K, flat=True)`. std divides by n, plus 1e-12.
    `policies.MixturePolicy` samples and evaluates thoughts: `Tokens` or points of the simplex (`Simplex`, the authors'
    Dirichlet rollouts). The authors' code keeps the tokens to which either of the two policies assigns 1e-3; here a
    batch records those of its sampler and reference, which are equal until the first update. Their Dirichlet KL uses a
    quotient of log-densities as a log-ratio; ours, k3, does not. kl is on the product's log-probability.

    The method needs a policy of mixtures, so that language training, whose decisions are tokens, refuses it; a task
    is `claims.problems.mnns`.
    """
    if stage not in (1, 2):
        raise ValueError(f"cot2: stage must be 1 or 2, found {stage}")
    if stage == 1:
        objective = AuxiliaryLoss(regularise=[SoftTargets()], aggregate=TokenMean())
        return Algorithm(sampling=Demonstrations(), credit=ConstantAdvantage(value=1.0), objective=objective)
    changes = {"credit.scale": GroupStd(correction=0, eps=1e-12), "objective.ratio": DrawMeanRatio(root=root)}
    return grpo(group=group, clip=clip, kl=kl).but(changes)


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
        log_probs = evaluation.logits.log_softmax(-1)
        targets = torch.where(decided, experience.extras["targets"], 0).to(log_probs.dtype)
        return -torch.where(targets > 0, targets * log_probs, 0).sum(-1)
