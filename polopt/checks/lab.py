"""Bias and variance of an algorithm's gradient on problems whose exact gradient is known."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import BiasVariance, TabularPolicy, TokenTree, bias_variance, expectation
from polopt.lab.claims import with_exact_critic
from polopt.lab.problems import digits, lengths
from polopt.lab.provided import TREE

LISTED = 3  # group size up to which every combination of answers is enumerated
BATCHES = 300
PROMPTS = 4

# Of what the tree provides, what its problems here make a difference to: they have one turn, one kind of task and one
# policy, and answers are listed in place of being sampled.
_FIELDS = TREE.advantage_fields - {
    "turn",
    "prev_logp",
    "extras.kind",
    "extras.index",
    "extras.leaf",
    "extras.answer_reward",
}
_FIELDS -= {"extras.given", "extras.hinted", "extras.prompt_logp"}
MEASURED = dataclasses.replace(
    TREE,
    advantage_fields=_FIELDS,
    loss_fields=_FIELDS,
    policy_outputs=frozenset({"entropy", "logits", "value"}),
    layers=False,
    old_outputs=False,
    sampling_settings=frozenset(),
)


@dataclasses.dataclass(frozen=True)
class GradientComparison:
    """The mean of -d loss compared with the exact gradient of the expected outcome.

    cosine: between the two.
    scale: the factor that fits best.
    left, left_se: |mean - scale exact| / |scale exact|, and the root mean square of it if only sampling error were
        left; left_se is 0 where every batch was enumerated.
    variance, variance_se: of one batch's gradient in units of scale squared, and the standard error.
    """

    problem: str
    batches: str
    cosine: float
    scale: float
    left: float
    left_se: float
    variance: float
    variance_se: float

    @classmethod
    def of(cls, problem: str, batches: str, found: BiasVariance) -> GradientComparison:
        size = found.exact.square().sum()
        scale = ((found.mean @ found.exact) / size).item()
        unit = abs(scale) * size.sqrt().item() or math.inf
        left = (found.mean - scale * found.exact).norm().item()
        square = scale**2 or math.inf
        return cls(
            problem=problem,
            batches=batches,
            cosine=found.cosine,
            scale=scale,
            left=left / unit,
            left_se=found.bias_se / unit,
            variance=found.variance / square,
            variance_se=found.variance_se / square,
        )


class Actor:
    """A policy without its critic's parameters, since bias concerns the policy's gradient alone."""

    def __init__(self, policy: TabularPolicy) -> None:
        self.policy = policy

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        return self.policy.evaluate(experience, needs)

    def parameters(self) -> Iterable[Tensor]:
        return [self.policy.logits]


def measured(algorithm: Algorithm, off_policy: bool) -> list[GradientComparison] | str:
    """Measures bias and variance on `digits`, every batch enumerated, and on `lengths`, sampled; off policy too if
    requested.

    The reference is the policy, the critic is exact. Returns a sentence with the reason where nothing can be measured.
    """
    try:
        return _measured(algorithm, off_policy)
    except Exception as error:
        return f"on the lab's problems it raises {type(error).__name__}: {' '.join(str(error).split()):.150}"


def _measured(algorithm: Algorithm, off_policy: bool) -> list[GradientComparison] | str:
    if "demonstrations" in algorithm.sampling.source_capabilities:
        return "it learns from demonstrations, whose gradient is not that of the expected outcome"
    if "pairs" in algorithm.sampling.source_capabilities:
        return "it learns from pairs of answers, whose gradient is not that of the expected outcome"
    if "rated" in algorithm.sampling.source_capabilities:
        return "it learns from answers with labels, whose gradient is not that of the expected outcome"
    missing = {lack.name for lack in MEASURED.lacking(algorithm) if lack.kind in ("field", "output")}
    if missing:
        return f"the lab's problems have no {', '.join(sorted(missing))}"
    group = algorithm.sampling.group_size
    few = min(group, LISTED)
    listed = algorithm if few == group else algorithm.but(**{"sampling.group": few})
    tree, policy = with_exact_critic(*digits())
    actor = Actor(policy)
    unit = f"every group of {few}" if few > 1 else "every answer"
    found = [GradientComparison.of("digits", unit, expectation(listed, tree, actor, reference=actor))]
    found.append(_sampled("lengths", algorithm, *_lengths(), group))
    if off_policy:
        other = Actor(TabularPolicy(tree, spread=0.7, seed=2))
        found.append(_sampled("digits, off policy", algorithm, tree, actor, group, other))
    return found


def _lengths() -> tuple[TokenTree, Actor]:
    tree, _ = lengths()
    return tree, Actor(with_exact_critic(tree, TabularPolicy(tree, spread=0.5, seed=1, critic=True))[1])


def _sampled(
    name: str, algorithm: Algorithm, tree: TokenTree, actor: Actor, group: int, behaviour: Actor | None = None
) -> GradientComparison:
    found = bias_variance(algorithm, tree, actor, batches=BATCHES, rows=PROMPTS, behaviour=behaviour, reference=actor)
    return GradientComparison.of(name, f"{BATCHES} of {PROMPTS} x {group} answers", found)
