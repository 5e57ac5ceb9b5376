"""These programs measure what the paper of ReMix claims."""

from itertools import islice
from operator import attrgetter

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, training
from polopt.lab.claims import samples_to
from polopt.lab.effects import Less, effect
from polopt.lab.problems import contexts, digits
from polopt.lab.progress import learned, uneven
from polopt.methods.grpo import grpo
from polopt.methods.remix import CentredClip, remix
from polopt.objectives import Clip, Surrogate
from polopt.objectives.surrogate_terms import pessimistic


@claim(
    "Before its first update no replayed decision is clipped, of any age.", kind="identity", baseline="a clip around 1"
)
def unclipped() -> Finding:
    tree, policy = digits()
    algorithm = remix(group=16, kl=0, restart=None)
    loop = training(algorithm, tree, policy, rows=16, rate=5.0, epochs=2)
    batch = [next(loop)[0] for _ in range(4)][-1]
    clipped = {}
    for name, trust in (("centred", CentredClip()), ("around 1", Clip())):
        surrogate = Surrogate(trust=trust)
        for age in range(3):
            rows = batch[batch.extras["age"] == age]
            clipped[f"{name}, age {age}"] = (
                surrogate(rows, Evaluation(logp=rows.old_logp)).metrics["clip_fraction"].item()
            )
    return Finding(
        measured=clipped,
        criterion="centred: 0 at ages 0, 1 and 2; around 1: 0 at age 0, > 0.02 at age 1 or 2",
        holds=all(x == 0 for n, x in clipped.items() if "centred" in n or "age 0" in n)
        and max(clipped["around 1, age 1"], clipped["around 1, age 2"]) > 0.02,
    )


@claim(
    "The constraint's weight on the reference falls from 1 to 0.5, batch by batch.",
    kind="identity",
    baseline="always 1",
)
def convex() -> Finding:
    algorithm = remix(kl=1.0, restart=None)
    of = lambda i: attrgetter(f"objective.regularise.{i}.coefficient")(algorithm)  # noqa: E731
    weights = [of(0).at(t - 1) for t in range(1, 121)]
    formula = [max(1 - 0.1 * -(-max(t - 50, 0) // 10), 0.5) for t in range(1, 121)]
    off = max(abs(w - f) for w, f in zip(weights, formula, strict=True))
    rest = max(abs(w + of(1).at(t) - 1) for t, w in enumerate(weights))
    return Finding(
        measured={"largest error": off, "their sum's error": rest, "weight of batch 120": weights[-1]},
        criterion="both errors < 1e-12; the last weight 0.5",
        holds=max(off, rest) < 1e-12 and weights[-1] == 0.5,
    )


Side = tuple[Algorithm, int]


def samples_to_goal(side: Side, seed: int, step_size: float) -> dict[str, float]:
    """Samples to a success rate of 0.8 on tasks of very different difficulty, with so many passes over each batch."""
    algorithm, epochs = side
    return learned(algorithm, uneven(seed), steps=150, epochs=epochs, step_size=step_size, seed=seed, goal=0.8)


@effect(
    "Fewer samples to a success rate of 0.8.",
    kind="headline",
    method=lambda: (remix(kl=0, restart=None), 2),
    controls={"grpo": lambda: (grpo(group=8, kl=0), 1)},
    step_sizes=(8.0, 16.0, 32.0, 64.0),
    trials=2,
    criteria=[Less("answers", times=0.6)],
    cost="slow",
    refuted=True,
    note="Where both reach it, replay needs fewer answers; but on some of ten seeds one or the other does not.",
)
def samples(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return samples_to_goal(side, seed, step_size)


@claim(
    "At one small step size, fewer samples to a success rate of 0.9.",
    kind="part",
    baseline="GRPO on policy, with one pass and with two",
)
def samples_at_one_size() -> Finding:
    ours = samples_to(lambda: remix(kl=0, restart=None), 0.9, epochs=2)
    once, twice = (samples_to(lambda: grpo(group=8, kl=0), 0.9, epochs=epochs) for epochs in (1, 2))
    return Finding(
        measured={"samples": ours, "over GRPO, one pass": ours / once, "over GRPO, two passes": ours / twice},
        criterion="<= 0.6 of GRPO with one pass; < 1 of GRPO with two",
        holds=ours <= 0.6 * once and ours < twice,
        note="The second pass halves the samples, as a longer step would; replay saves 28 % of the rest, less than the "
        "40 % that it does not sample, since stale rows teach less.",
    )


@effect(
    "Fewer than GRPO with two passes over each batch, as it takes itself.",
    kind="part",
    method=lambda: (remix(kl=0, restart=None), 2),
    controls={"grpo, two passes": lambda: (grpo(group=8, kl=0), 2)},
    step_sizes=(8.0, 16.0, 32.0, 64.0),
    trials=2,
    criteria=[Less("answers", times=1.0)],
    cost="slow",
    refuted=True,
    note="Where both reach it, replay needs fewer answers; but on some of ten seeds one or the other does not.",
)
def fewer_by_replay(side: Side, *, seed: int, step_size: float) -> dict[str, float]:
    return samples_to_goal(side, seed, step_size)


@claim("Born again, it ends higher.", kind="part", baseline="the same without restart", cost="slow")
def restart_ends_higher() -> Finding:
    def final(algorithm: Algorithm, seed: int) -> float:
        tree, policy = contexts(4)
        loop = training(algorithm, tree, policy, rate=4.0, rows=4, epochs=2, seed=seed, reference=TabularPolicy(tree))
        for _ in islice(loop, 60):
            pass
        return tree.value(policy).item()

    variants = {
        "with": lambda: remix(kl=0.2, restart=20),
        "without": lambda: remix(kl=0.2, restart=None),
        "anchor alone": lambda: remix(kl=0.2, restart=None).but(reference_tau=remix(restart=20).reference_tau),
    }
    found = {name: [final(build(), seed) for seed in range(10)] for name, build in variants.items()}
    wins = sum(a > b for a, b in zip(found["with"], found["without"], strict=True))
    return Finding(
        measured={"seeds of 10": float(wins), **{name: sum(x) / 10 for name, x in found.items()}},
        criterion=">= 7 of 10 seeds",
        holds=wins >= 7,
        note="A bandit of 4 contexts, kl 0.2. Most of it is that the anchor moves: the old one held the policy back. "
        "Replay itself did not make this problem worse.",
    )


@mutation("Replayed rows are clipped around 1.", kills=unclipped)
def not_centred(replace: Replace) -> None:
    def forward(self: CentredClip, log_ratio: Tensor, experience: Experience, _: Evaluation) -> tuple[Tensor, Tensor]:
        return pessimistic(log_ratio.exp(), experience.advantage, 1 - self.low, 1 + self.high)

    replace(CentredClip, "forward", forward)
