"""Terms of a policy that acts by a latent vector of what happened before."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.objectives.parts import Regulariser
from polopt.schedules import Schedule


class LatentKL(Regulariser):
    """coefficient * KL(N(mu, sigma^2) || N(0, I)) at each decision, in nats, of the law of the policy's latent vector.

    Its mean is an upper bound of the mutual information of the latent vector and what it was encoded from.
    Source: Alemi et al. 2017, arXiv 1612.00410.
    """

    binds = "decision"

    coefficient: float | Schedule = 1e-3

    policy_outputs = frozenset({"extras.latent_mean", "extras.latent_log_std"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        mean, log_std = evaluation.extras["latent_mean"], evaluation.extras["latent_log_std"]
        return ((mean.square() + (2 * log_std).exp() - 1) / 2 - log_std).sum(-1)


class PrivilegedDistance(Regulariser):
    """coefficient * |y / |y| - e / |e||^2 at each decision: y the features that are predicted from the policy's latent
    vector, e those of the privileged state, without a gradient. Its values are in [0, 4].

    Source: He et al. 2023, arXiv 2305.18464.
    """

    binds = "decision"

    coefficient: float | Schedule = 1.0

    reads = frozenset({"extras.privileged"})
    policy_outputs = frozenset({"extras.predicted_features", "extras.privileged_features"})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        predicted, told = (evaluation.extras[f"{name}_features"] for name in ("predicted", "privileged"))
        return (normalize(predicted, dim=-1) - normalize(told.detach(), dim=-1)).square().sum(-1)
