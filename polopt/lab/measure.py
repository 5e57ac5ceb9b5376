"""Bias and variance of an algorithm's gradient, and small training runs, on exactly solvable problems."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import OUTPUTS, Evaluation
from polopt.experience import Experience
from polopt.lab.descent import Descent
from polopt.lab.provided import check_on_tree
from polopt.lab.source import Draw, TreeSource
from polopt.lab.teacher import TreeContrast, TreeTeacher
from polopt.lab.tree import TokenTree, TreePolicy
from polopt.sampling.parts import RolloutRequest
from polopt.stepping import take_step
from polopt.support import PLAIN, Support


@dataclasses.dataclass(frozen=True)
class BiasVariance:
    """An algorithm's gradient in comparison with the exact one.

    mean: [P] average of -d loss, with standard error `error`.
    exact: [P] scale * exact gradient.
    variance: of one batch's gradient, summed over parameters, with standard error `variance_se`.
    bias: |mean - exact|; `bias_se` is the root mean square of that norm under sampling error alone (0 for an
        enumeration).
    cosine: between mean and exact.
    relative_bias: bias / |exact|.
    max_z: largest |mean - exact| of any parameter in standard errors.
    """

    mean: Tensor
    error: Tensor
    exact: Tensor
    variance: float
    variance_se: float
    bias: float
    bias_se: float
    cosine: float
    relative_bias: float
    max_z: float
    batches: int

    @classmethod
    def of(cls, gradients: Tensor, exact: Tensor) -> BiasVariance:
        """Returns the comparison from [N, P] independent gradients."""
        n, mean = len(gradients), gradients.mean(0)
        squares = (gradients - mean).square()
        spread = squares.sum(1) * n / (n - 1)
        errors = (squares.sum(0) / (n - 1) / n).sqrt()
        off = (mean - exact).abs()
        # A parameter of constant gradient has no standard error; its bias must be rounding alone.
        z = torch.where(off > 1e-12, off / errors, 0)
        return cls(
            variance=spread.mean().item(),
            variance_se=spread.std().item() / math.sqrt(n),
            error=errors,
            bias_se=math.sqrt(spread.mean().item() / n),
            max_z=z.max().item(),
            batches=n,
            **_compare(mean, exact),
        )


def bias_variance(
    algorithm: Algorithm,
    problem: TokenTree,
    policy: TreePolicy,
    *,
    batches: int,
    rows: int = 1,
    seed: int = 0,
    scale: float = 1.0,
    behaviour: TreePolicy | None = None,
    reference: TreePolicy | None = None,
) -> BiasVariance:
    """Compares -d loss over independent batches of `rows` prompts with scale * the exact gradient.

    The algorithm samples by its own sampling part, from `behaviour` (None: the policy itself). Its state is not
    changed. rows counts prompts, so a batch has rows * algorithm.sampling.group answers.

    Raises:
        UnprovidedError: the algorithm needs what the tree does not provide.
    """
    check_on_tree(algorithm, problem)
    source = TreeSource(
        problem,
        policy,
        rows=rows * algorithm.sampling.group_size,
        seed=seed,
        behaviour=behaviour,
        reference=reference,
        needs=algorithm.required_fields,
    )
    algorithm = algorithm.but()
    leaf_gradients, first = [], True
    for _ in range(batches):
        experience = algorithm.compute_advantages(algorithm.sampling(source))
        if first:
            probe, first = LeafGradient(algorithm, problem, policy, experience.support), False
        leaf_gradients.append(probe(experience))
    return BiasVariance.of(-probe.vjp(torch.stack(leaf_gradients)), scale * problem.gradient(policy))


def expectation(
    algorithm: Algorithm,
    problem: TokenTree,
    policy: TreePolicy,
    *,
    group: int | None = None,
    scale: float = 1.0,
    behaviour: TreePolicy | None = None,
    reference: TreePolicy | None = None,
) -> BiasVariance:
    """Compares the exact expectation of -d loss, for batches of one prompt, with scale * the exact gradient.

    The expectation is a sum over all answers^group groups, without sampling. State that moves is held fixed. A group
    that the filters empty counts as a gradient of 0, and refills return the same group again.

    group: None takes the algorithm's.

    Raises:
        UnprovidedError: as in `bias_variance`.
        ValueError: too many groups; or the batch has rows beyond one group of answers, which are not enumerated.
    """
    if len(algorithm.sampling.mixers) or "texts" in algorithm.sampling.source_capabilities:
        raise ValueError("expectation: texts, and what joins rollouts, are drawn and not listed; use bias_variance")
    check_on_tree(algorithm, problem)
    algorithm = algorithm.but().eval()
    group = group or algorithm.sampling.group_size
    if len(problem.answers) ** group > 20_000:
        raise ValueError(f"expectation: {len(problem.answers)}^{group} groups are too many to list; use bias_variance")
    source = _GivenLeaves(
        problem, policy, rows=group, behaviour=behaviour, reference=reference, needs=algorithm.required_fields
    )
    support = algorithm.sampling.rollout_support or PLAIN
    uses_demonstrations = "demonstrations" in algorithm.sampling.source_capabilities
    probs = source.demonstrations if uses_demonstrations else source.leaf_table(support)[1]
    probs = probs / probs.sum(1, keepdim=True) / problem.prompts
    probe = LeafGradient(algorithm, problem, policy, support)
    leaf_gradients, weights = [], []
    for prompt in range(problem.prompts):
        for answers in itertools.product(range(len(problem.answers)), repeat=group):
            weight = problem.prompts ** (group - 1) * math.prod(probs[prompt, a].item() for a in answers)
            if weight > 0:
                source.leaf = torch.tensor(answers) + prompt * len(problem.answers)
                leaf_gradients.append(probe(algorithm.compute_advantages(algorithm.sampling(source))))
                weights.append(weight)
    gradients = -probe.vjp(torch.stack(leaf_gradients))
    w = gradients.new_tensor(weights)
    mean = w @ gradients
    variance = (w @ (gradients - mean).square()).sum().item()
    found = _compare(mean, scale * problem.gradient(policy))
    return BiasVariance(
        error=torch.zeros_like(mean),
        variance=variance,
        variance_se=0.0,
        bias_se=0.0,
        max_z=math.inf if found["relative_bias"] > 1e-9 else 0.0,
        batches=len(weights),
        **found,
    )


def _compare(mean: Tensor, exact: Tensor) -> dict[str, Any]:
    bias, size = (mean - exact).norm().item(), exact.norm().item()
    cosine = torch.nn.functional.cosine_similarity(mean, exact, dim=0, eps=1e-300).item()
    return {"mean": mean, "exact": exact, "bias": bias, "relative_bias": bias / max(size, 1e-300), "cosine": cosine}


class _GivenLeaves(TreeSource):
    """A source that returns the same given rows at every rollout."""

    leaf: Tensor

    def rollout(self, request: RolloutRequest) -> Experience:
        if request.lookahead is not None and request.lookahead.share > 0:
            raise ValueError("expectation: rows that look ahead are not independent answers; use bias_variance")
        index = self.leaf // len(self.tree.answers)
        batch = self.leaf_table(request.support)[0][self.leaf].replace(
            group=torch.zeros_like(index), extras={"index": index}
        )
        return self._settled(batch, torch.zeros_like(batch.lengths))

    def demonstrate(self, rows: int) -> Experience:
        demonstrations = self.rollout(RolloutRequest(self.take(1), rows, Support()))
        return demonstrations.replace(outcome=torch.ones_like(demonstrations.outcome))


class LeafGradient:
    """Gradients of many batches at the cost of one evaluation.

    A batch's rows are leaves, so the policy evaluates all leaves once. Each batch differentiates its loss with respect
    to the evaluation's outputs; `vjp` maps all of these gradients to the parameters by the chain rule.
    """

    def __init__(self, algorithm: Algorithm, problem: TokenTree, policy: TreePolicy, support: Support) -> None:
        evaluation = policy.evaluate(problem.leaves(support), algorithm.objective.active_fields("policy_outputs"))
        self.algorithm, self.support = algorithm, support
        self.parameters = list(policy.parameters())
        self.outputs = {n: v for n in OUTPUTS if (v := getattr(evaluation, n)) is not None}
        self.outputs |= {f"extras.{name}": value for name, value in evaluation.extras.items()}
        self.detached_outputs = {n: v.detach() for n, v in self.outputs.items()}
        self.size = sum(v.numel() for v in self.outputs.values())

    def __call__(self, experience: Experience) -> Tensor:
        """Returns d loss / d outputs of all leaves, flat, [size]."""
        rows = experience.extras["leaf"]
        inputs = {n: v[rows].requires_grad_() for n, v in self.detached_outputs.items()}
        extras = {n.removeprefix("extras."): v for n, v in inputs.items() if n not in OUTPUTS}
        fields = {n: v for n, v in inputs.items() if n in OUTPUTS}
        loss = self.algorithm.objective(experience, Evaluation(support=self.support, extras=extras, **fields)).loss
        gradients = torch.autograd.grad(loss, list(inputs.values()), allow_unused=True)
        flat = []
        for gradient, value in zip(gradients, self.detached_outputs.values(), strict=True):
            total = torch.zeros_like(value)
            flat.append((total if gradient is None else total.index_add_(0, rows, gradient)).flatten())
        return torch.cat(flat)

    def vjp(self, leaf_gradients: Tensor, at_once: int = 256) -> Tensor:
        """Maps gradients of the outputs [N, size] to gradients of the parameters [N, P]."""
        result = []
        for chunk in leaf_gradients.split(at_once):
            parts = chunk.split([v.numel() for v in self.outputs.values()], dim=1)
            shaped = [p.view(len(chunk), *v.shape) for p, v in zip(parts, self.outputs.values(), strict=True)]
            found = torch.autograd.grad(
                list(self.outputs.values()),
                self.parameters,
                shaped,
                retain_graph=True,
                allow_unused=True,
                is_grads_batched=True,
            )
            flat = [
                (chunk.new_zeros(len(chunk), p.numel()) if g is None else g.reshape(len(chunk), -1))
                for g, p in zip(found, self.parameters, strict=True)
            ]
            result.append(torch.cat(flat, 1))
        return torch.cat(result)


def train(
    algorithm: Algorithm,
    problem: TokenTree,
    policy: TreePolicy,
    *,
    steps: int,
    rate: float,
    rows: int = 1,
    epochs: int = 1,
    seed: int = 0,
    reference: TreePolicy | None = None,
    draw: Draw | None = None,
    teacher: TreeTeacher | TreeContrast | None = None,
    watch: Callable[[], float] | None = None,
    **source_settings: Any,
) -> list[float]:
    """Trains the policy in place by gradient descent on `steps` batches of `rows` prompts, `epochs` steps on each.

    draw: the random outcomes of answers, as for `TreeSource`.
    source_settings: further arguments of `TreeSource`, such as `demonstrations` and `texts`.
    teacher: made of `algorithm.teacher` and this policy, if the algorithm has one.

    The algorithm may also move the reference. Returns the values of `watch` after every batch.
    """
    seen = []
    ways: dict[str, Any] = {"rows": rows, "epochs": epochs, "seed": seed, "reference": reference, "draw": draw}
    ways |= {"teacher": teacher, **source_settings}
    loop = training(algorithm, problem, policy, rate=rate, **ways)
    for _ in itertools.islice(loop, steps):
        if watch is not None:
            with torch.no_grad():
                seen.append(float(watch()))
    return seen


def training(
    algorithm: Algorithm,
    problem: TokenTree,
    policy: TreePolicy,
    *,
    rate: float,
    rows: int = 1,
    epochs: int = 1,
    seed: int = 0,
    reference: TreePolicy | None = None,
    draw: Draw | None = None,
    teacher: TreeTeacher | TreeContrast | None = None,
    **source_settings: Any,
) -> Iterator[tuple[Experience, TreeSource]]:
    """Trains as `train` does, without end, and yields each batch that was learned from and its source.

    Raises:
        UnprovidedError: the algorithm needs what the tree does not provide.
    """
    given = {name: source_settings.get(name) or () for name in ("signals", "policies")}
    check_on_tree(algorithm, problem, teacher=teacher is not None, **given)
    needs = algorithm.required_fields
    previous = copy.deepcopy(policy) if "prev_logp" in needs else None
    source = TreeSource(
        problem,
        policy,
        rows=rows * algorithm.sampling.group_size,
        seed=seed,
        reference=reference,
        previous=previous,
        needs=needs,
        draw=draw,
        **source_settings,
    )
    auxiliary: dict[str, Any] = {"reference": reference, "previous": previous, "teacher": teacher}
    for experience in learning(algorithm, source, policy, rate=rate, epochs=epochs, **auxiliary):
        yield experience, source


def learning(
    algorithm: Algorithm,
    source: Any,
    policy: TreePolicy,
    *,
    rate: float,
    epochs: int = 1,
    reference: TreePolicy | None = None,
    previous: TreePolicy | None = None,
    teacher: TreeTeacher | TreeContrast | None = None,
    optimiser: Callable[..., torch.optim.Optimizer] | None = None,
) -> Iterator[Experience]:
    """Trains as `training` does, from any source with a method `refresh` for changed policies, and yields each batch.

    optimiser: its class, None for plain gradient descent, which is the lab's AdamW; an algorithm with another update
    rule takes that rule's steps, with `rate` as the learning rate. A `ref_logp` that the source leaves out is computed
    under `reference`. `previous` becomes the policy before each batch. Steps have the order of `stepping.take_step`.
    """
    hooks = Descent(algorithm, policy, rate, epochs, reference, previous, teacher)
    hooks.optimiser = optimiser and optimiser(policy.parameters(), lr=rate)
    while True:
        source.refresh()
        experience = algorithm.sampling(source)
        found = take_step(algorithm, experience, hooks)
        yield experience if found is None else found.chosen
