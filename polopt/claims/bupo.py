"""These programs measure what the paper of BuPO claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TreeSource, train
from polopt.lab.effects import Less, More, effect
from polopt.lab.problems import modular_sums
from polopt.layers import Layer
from polopt.methods.bupo import LayerRatio, bupo


@claim(
    "In the first phase the layers above the inner policy's have no gradient at all.", kind="identity", baseline="GRPO"
)
def stays_below() -> Finding:
    tree, policy = modular_sums(seed=0)
    largest: dict[str, float] = {}
    for name, algorithm in {"layer 2": bupo(layer=2, among=None), "GRPO": bupo(batches=0)}.items():
        batch = algorithm.compute_advantages(
            algorithm.sampling(TreeSource(tree, policy, rows=200, needs=algorithm.active_fields("reads")))
        )
        policy.zero_grad()
        evaluation = policy.evaluate(batch, algorithm.objective.active_fields("policy_outputs"))
        algorithm.objective(batch, evaluation).loss.backward()
        for where, layers in {"below": policy.layers[:2], "above": policy.layers[2:]}.items():
            grads = [p.grad.abs().max().item() for p in layers.parameters() if p.grad is not None]
            largest[f"{name}, {where}"] = max(grads, default=0.0)
    return Finding(
        measured=largest,
        criterion="layer 2: above exactly 0, below > 1e-6; GRPO: above > 1e-6",
        holds=largest["layer 2, above"] == 0 and min(largest["layer 2, below"], largest["GRPO, above"]) > 1e-6,
    )


@claim(
    "Inner policies are policies, and the last one is the network's.",
    kind="identity",
    baseline="the network's own logits",
)
def are_policies() -> Finding:
    tree, policy = modular_sums(seed=0)
    leaves = tree.leaves()
    names = [Layer(number, normed=True).name("logp") for number in range(1, 5)]
    evaluation = policy.evaluate(leaves, frozenset(f"extras.{name}" for name in names))
    decided = {name: torch.where(leaves.mask, evaluation.extras[name], 0).sum(1) for name in names}
    mass = max((logp.exp().view(tree.prompts, -1).sum(1) - 1).abs().max().item() for logp in decided.values())
    last = (evaluation.extras[names[-1]] - evaluation.logp)[leaves.mask].abs().max().item()
    other = (evaluation.extras[names[0]] - evaluation.logp)[leaves.mask].abs().max().item()
    return Finding(
        measured={"mass off 1": mass, "last layer's distance": last, "first layer's": other},
        criterion="mass off 1 and last < 1e-12; first > 0.01",
        holds=max(mass, last) < 1e-12 and other > 0.01,
    )


def _learned(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Success after 150 batches of adding modulo 5."""
    tree, policy = modular_sums(seed)
    train(algorithm, tree, policy, steps=150, rate=step_size, rows=25, seed=seed)
    return {"success": tree.value(policy).item()}


@effect(
    "A first phase ends a hundredth higher than GRPO after as many batches.",
    kind="headline",
    method=lambda: bupo(layer=3, among=None, batches=24),
    controls={"grpo": lambda: bupo(layer=3, among=None, batches=0)},
    step_sizes=(0.05, 0.1, 0.2),
    criteria=[More("success", by=0.01)],
    seeds=12,
    trials=1,
    cost="slow",
    refuted=True,
    note="In a transformer of four layers its runs differ by a tenth and more, by the sums that are never learned, and "
    "over 12 seeds no difference to GRPO is to be seen.",
)
def bottom_up(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@effect(
    "A first phase without end collapses: inner layers learn, and the answers do not follow.",
    kind="limit",
    method=lambda: bupo(layer=2, among=None, batches=150),
    controls={"grpo": lambda: bupo(layer=2, among=None, batches=0)},
    step_sizes=(0.1, 0.2),
    criteria=[Less("success", by=-0.05)],
    best=More("success", by=0.0),
    seeds=4,
    trials=1,
    cost="slow",
)
def endless(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _learned(algorithm, seed, step_size)


@mutation("The ratio of the first phase is the whole network's.", kills=stays_below)
def of_the_network(replace: Replace) -> None:
    def forward(self: LayerRatio, experience: Experience, evaluation: Evaluation) -> Tensor:
        return torch.where(experience.mask, evaluation.logp - experience.old_logp, 0)

    replace(LayerRatio, "forward", forward)
