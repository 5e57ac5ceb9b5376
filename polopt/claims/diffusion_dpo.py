"""These programs measure what the paper of Diffusion-DPO claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import flows
from polopt.lab.effects import More, effect
from polopt.methods.diffusion_dpo import diffusion_dpo
from polopt.methods.sft import sft
from polopt.objectives import DenoisingReward
from polopt.policies.flow import FlowPolicy
from polopt.sampling import RatedAnswers, TopK

BETA = 200.0


def _imitation() -> Algorithm:
    return sft().but(sampling=RatedAnswers(), select=[TopK(count=None, threshold=0.5)])


@effect(
    "It comes to make what is preferred more often than by imitation of it.",
    kind="headline",
    method=lambda: diffusion_dpo(beta=BETA),
    controls={"sft on preferred points": _imitation},
    step_sizes=(3e-4, 1e-3, 3e-3),
    criteria=[More("reward", by=0.02)],
    seeds=5,
    trials=2,
    cost="slow",
    refuted=True,
    note="Two modes in the plane, one of them preferred. Leaving the other mode, the flow leaves the data, too; what "
    "is preferred is all there is to learn here, and imitation learns it. The paper has people compare images.",
)
def more_preferred(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    task, start = flows.pretrained(seed)
    return {"reward": flows.mean_reward(flows.tuned(algorithm, task, start, seed=seed, step_size=step_size), task)}


@claim(
    "The loss is the paper's on errors of the predicted noise.",
    kind="identity",
    baseline="errors of the velocity",
)
def formula() -> Finding:
    policy, reference = (FlowPolicy(dimensions=2, hidden=(16,), seed=seed).double() for seed in (1, 2))
    there = flows.source(policy, flows.modes(size=20), 0, rows=8, draws=3)
    points = torch.randn(8, 2, generator=torch.Generator().manual_seed(3)).double()
    outcome, group = torch.tensor([1.0, 0.0] * 4).double(), torch.arange(4).repeat_interleave(2)
    batch = there.noised_batch(points, torch.zeros(8, dtype=torch.long), outcome, group)
    extras = {k: batch.extras[k].double() for k in ("noise", "noise_level")}
    batch = batch.replace(extras=extras)
    batch = batch.replace(ref_logp=reference.evaluate(batch).logp.detach())
    level, context = extras["noise_level"], torch.zeros(8, 3, dtype=torch.long)
    x = (1 - level)[..., None] * points[:, None] + level[..., None] * extras["noise"]

    def noise_error(flow: FlowPolicy) -> Tensor:
        predicted = x + (1 - level)[..., None] * flow.velocity(x, level, context)
        return (predicted - extras["noise"]).square().mean(-1).mean(-1)

    off = (noise_error(policy) - noise_error(reference)).view(4, 2)
    expected = -torch.nn.functional.logsigmoid(-BETA / 2 * (off[:, 0] - off[:, 1])).mean()
    found = diffusion_dpo(beta=BETA).objective(batch, policy.evaluate(batch)).loss
    other = diffusion_dpo(beta=BETA).but(**{"objective.implicit.of": "velocity"})
    plain = other.objective(batch, policy.evaluate(batch))
    apart = abs(found.item() - expected.item())
    return Finding(
        measured={"difference": apart, "with errors of the velocity": abs(plain.loss.item() - expected.item())},
        criterion="< 1e-10; with errors of the velocity > 1e-3",
        holds=apart < 1e-10 and abs(plain.loss.item() - expected.item()) > 1e-3,
    )


@mutation("Errors of the velocity count as those of the noise.", kills=formula)
def unweighted(replace: Replace) -> None:
    def forward(self: DenoisingReward, experience: Experience, evaluation: Evaluation) -> Tensor:
        return self.scale * 2 * (evaluation.logp - experience.ref_logp).mean(1) / experience.extras["point"].shape[1]

    replace(DenoisingReward, "forward", forward)
