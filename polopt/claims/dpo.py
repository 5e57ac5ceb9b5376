"""These programs measure what the paper of DPO claims."""

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.claims import descend
from polopt.lab.policy import TabularPolicy
from polopt.lab.preferences import distance, every_preference
from polopt.methods.dpo import dpo
from polopt.methods.sft import sft
from polopt.objectives import LogRatioReward


@claim(
    "With every preference listed, its minimiser is the optimum of the KL-regularised reward.",
    kind="headline",
    baseline="imitation of the preferred answers, weighted as they are preferred",
)
def optimum() -> Finding:
    beta, worth = 0.5, [1, 3, 2, 1, 4, 2]
    tree, reference, batch = every_preference(worth)
    base = tree.log_probabilities(reference).detach()[0]
    target = (base + torch.tensor(worth, dtype=torch.double).log() / beta).softmax(0)
    found = {}
    for name, algorithm, rows in (("DPO", dpo(beta=beta), batch), ("imitation", sft(), batch[batch.outcome > 0])):
        policy = TabularPolicy(tree, spread=1.0, seed=3)
        descend(algorithm, algorithm.compute_advantages(algorithm.sampling.mark(rows)), policy, steps=500)
        found[name] = distance(tree, policy, target)
    before = distance(tree, reference, target)
    return Finding(
        measured={**found, "reference": before},
        criterion="total variation of DPO < 1e-3, of imitation and of the reference > 0.1",
        holds=found["DPO"] < 1e-3 and found["imitation"] > 0.1 and before > 0.1,
    )


@mutation("The reference is left out of the implied reward.", kills=optimum)
def without_reference(replace: Replace) -> None:
    def forward(self: LogRatioReward, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self.scale * torch.where(experience.mask, evaluation.logp, 0).sum(1)

    replace(LogRatioReward, "forward", forward)


@mutation("beta is ignored.", kills=optimum)
def beta_ignored(replace: Replace) -> None:
    forward = LogRatioReward.forward
    replace(LogRatioReward, "forward", lambda self, *given: forward(self.but(scale=0.1), *given))
