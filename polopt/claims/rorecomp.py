"""These programs measure what the paper of RoRecomp claims."""

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.recomposed import Lengths, learn_lengths, pull_on_length
from polopt.methods import rorecomp as sentence
from polopt.methods.grpo import grpo
from polopt.methods.rorecomp import rorecomp, shortest_right_longest_wrong


@claim(
    "Once answers are mostly right, a step makes them shorter, though longer ones are surer.",
    kind="part",
    baseline="GRPO on all rows, the same rollouts",
)
def one_step() -> Finding:
    slopes = {}
    for name, algorithm in (("all", grpo(group=16, kl=0)), ("recomposed", rorecomp(compensate=0.0))):
        slopes[name] = pull_on_length(algorithm, shortest=8)
    return Finding(
        measured={f"d length / d step, {name}": x for name, x in slopes.items()},
        criterion="> 0 on all rows, < 0 on the recomposed (256 groups of 16; lengths 8 to 20 alike)",
        holds=slopes["all"] > 0 > slopes["recomposed"],
    )


def ends(steps: int, seeds: int) -> dict[str, Lengths]:
    """(accuracy, mean length, entropy) after so many batches of rollouts, of GRPO and of three frequencies."""
    variants = {
        "all": lambda: grpo(group=16, kl=0),
        "recomposed": lambda: rorecomp(compensate=0.0),
        "some": lambda: rorecomp(compensate=0.3),
        "always": lambda: rorecomp(compensate=1.0),
    }
    return {name: learn_lengths(build, rollouts=steps, seeds=seeds) for name, build in variants.items()}


@claim(
    "Answers are a fifth shorter at 2.5 points of accuracy; with compensation after every batch, accuracy comes back.",
    kind="headline",
    baseline="GRPO on all rows, equal rollouts",
    cost="slow",
    refuted=True,
)
def shorter() -> Finding:
    found = ends(steps=600, seeds=5)
    base, ours, always = found["all"], found["recomposed"], found["always"]
    measured = {f"{name}: {what}": x for name, e in found.items() for what, x in e._asdict().items()}
    return Finding(
        measured=measured,
        criterion="without compensation: length <= 0.8 of GRPO's, accuracy at most 0.025 lower; with it always: "
        "accuracy within 0.005 and more entropy than without (5 seeds, 600 batches of 16 answers)",
        note="The learning rate, 0.3, is one at which GRPO ends with about as much entropy as in the calculation that "
        "set the criterion. Answers are 37 % shorter, at 3.4 points of accuracy (as many at rate 0.5): more than 2.5. "
        "Compensation after every batch brings accuracy back to GRPO's, and lengths are a quarter below it.",
        holds=ours.length <= 0.8 * base.length
        and ours.accuracy >= base.accuracy - 0.025
        and always.accuracy >= base.accuracy - 0.005
        and always.entropy > ours.entropy,
    )


@mutation("The longest right answers are chosen, and the shortest wrong ones.", kills=one_step)
def longest_right(replace: Replace) -> None:
    right = shortest_right_longest_wrong
    replace(
        sentence,
        "shortest_right_longest_wrong",
        lambda length, is_right, group, share: right(-length, is_right, group, share),
    )
