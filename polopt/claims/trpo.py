"""These programs measure what the paper of TRPO claims."""

import itertools
from collections.abc import Callable

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.stretched import stretched
from polopt.credit import RelativeAdvantage
from polopt.lab.effects import More, effect
from polopt.lab.measure import training
from polopt.lab.progress import learned
from polopt.methods.trpo import trpo
from polopt.rewards import OutcomeReward
from polopt.sampling import Rollouts
from polopt.updates import AdamW, LineSearch
from polopt.updates.natural import SearchResult

FIRST = 41


def on_answers(radius: float = 0.01) -> Algorithm:
    """TRPO on whole answers without a critic, in groups of eight."""
    return trpo(radius=radius).but(
        {"objective.regularise": []},
        sampling=Rollouts(group=8),
        reward=OutcomeReward(),
        credit=RelativeAdvantage(scale=None),
    )


def by_gradient() -> Algorithm:
    """The same loss, by plain gradient descent."""
    return on_answers().but(update=AdamW())


@effect(
    "Where features differ in scale it learns sooner than the gradient.",
    kind="headline",
    method=on_answers,
    controls={"plain gradient": by_gradient},
    step_sizes=(0.1, 0.3, 1.0, 4.0, 16.0, 64.0, 256.0),
    criteria=[More("mean success", by=0.03)],
    budget="answers",
    cost="slow",
    note=f"The method's step size is its radius in nats; seeds {FIRST} to {FIRST + 9}.",
)
def learns_sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    radius = {} if isinstance(algorithm.update, AdamW) else {"update.radius": step_size}
    seed += FIRST
    return learned(algorithm.but(radius), stretched(seed), steps=30, step_size=step_size, seed=seed)


def steps(algorithm: Algorithm, seed: int) -> tuple[float, float]:
    """Returns the largest mean KL(before || after) of a batch's decisions, in nats, and the share of batches after
    which the surrogate was lower than before."""
    tree, policy = stretched(seed)
    largest, worse = 0.0, 0
    before = policy.evaluate(tree.leaves(), frozenset({"logits"})).logits.detach()
    batches = training(algorithm, tree, policy, rate=1.0, rows=tree.prompts, seed=seed)
    for batch, _ in itertools.islice(batches, 20):
        leaf, mask = batch.extras["leaf"], batch.mask
        after = policy.evaluate(tree.leaves(), frozenset({"logits"})).logits.detach()
        old, new = (logits.log_softmax(-1)[leaf][mask] for logits in (before, after))
        tokens = batch.extras["tokens"][mask][:, None]
        ratio = (new.gather(-1, tokens) - old.gather(-1, tokens)).exp()[:, 0]
        largest = max(largest, float((old.exp() * (old - new)).sum(-1).mean()))
        worse += bool(((ratio - 1) * batch.advantage[mask]).sum() < 0)
        before = after
    return largest, worse / 20


@claim(
    "Every step is within the bound, and none makes the surrogate worse.",
    kind="part",
    baseline="no line search",
    cost="slow",
)
def within_the_bound() -> Finding:
    radius, seeds = 1.0, (FIRST + 10, FIRST + 11, FIRST + 12)
    algorithm = on_answers(radius).but({"update.solver.damping": 1e-3})
    own = [steps(algorithm, seed) for seed in seeds]
    free = [steps(algorithm.but({"update.search": None}), seed) for seed in seeds]
    measured = {
        "largest KL": max(apart for apart, _ in own),
        "worse": max(worse for _, worse in own),
        "no search: largest KL": max(apart for apart, _ in free),
    }
    return Finding(
        measured=measured,
        criterion=f"3 seeds, radius {radius}, damping 0.001: largest KL of a batch <= radius and no surrogate "
        "lower; without the line search the largest KL is > radius",
        holds=measured["largest KL"] <= radius * (1 + 1e-9)
        and measured["worse"] == 0
        and measured["no search: largest KL"] > radius,
    )


@mutation("The first step of a line search is always taken.", kills=within_the_bound)
def no_search(replace: Replace) -> None:
    def whole(
        self: LineSearch, measured: Callable[[float], tuple[float, float]], expected: float, radius: float
    ) -> SearchResult:
        improvement, apart = measured(1.0)
        return SearchResult(1.0, improvement, apart, 1)

    replace(LineSearch, "forward", whole)
