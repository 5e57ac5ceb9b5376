"""These programs measure what the paper of VitaBench claims of its measures and of its evaluator."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

import polopt.methods.vitabench as vitabench_module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.methods.vitabench import vitabench
from polopt.metrics.policy_trials import PolicyTrials
from polopt.rewards.judges.sliding import SlidingRubric, Window, WindowJudge

TRIALS = 8


def _trials(right: Sequence[int], n: int = TRIALS) -> PolicyTrials:
    """Returns n trials of each of several tasks, of which the first `right` succeed."""
    return PolicyTrials(
        policy=["a"] * n * len(right),
        success=[i < c for c in right for i in range(n)],
        task=[f"{t}" for t in range(len(right)) for _ in range(n)],
    )


@claim(
    "pass@k and pass^k are the shares of all k trials of a task in which one succeeds, and in which all do.",
    kind="identity",
    baseline="the same from the mean: 1 - (1 - avg)^k and avg^k",
)
def counts_all_choices() -> Finding:
    off = moved = 0.0
    for k in (1, 2, 3, 5, 8):
        values = vitabench(k=(k,))(_trials(range(TRIALS + 1))).values
        some, every, plain = [], [], []
        for c in range(TRIALS + 1):
            drawn = [[i < c for i in chosen] for chosen in itertools.combinations(range(TRIALS), k)]
            some.append(np.mean([any(one) for one in drawn]))
            every.append(np.mean([all(one) for one in drawn]))
            plain.append((c / TRIALS) ** k)
        off = max(off, abs(values[f"a, pass@{k}"] - np.mean(some)), abs(values[f"a, pass^{k}"] - np.mean(every)))
        moved = max(moved, abs(float(np.mean(plain)) - float(np.mean(every))))
    return Finding(
        measured={"largest error": off, "from the mean": moved},
        criterion="error < 1e-12 for 0 to 8 successes of 8, otherwise > 0.02",
        holds=off < 1e-12 and moved > 0.02,
    )


@claim(
    "Neither is biased by the number of trials: their means over all numbers of successes are 1 - (1 - p)^k and p^k.",
    kind="identity",
    baseline="the same from the mean of the trials",
)
def without_bias() -> Finding:
    off = biased = 0.0
    for p, k in itertools.product((0.1, 0.6, 0.95), (2, 4)):
        chance = np.array([math.comb(TRIALS, c) * p**c * (1 - p) ** (TRIALS - c) for c in range(TRIALS + 1)])
        each = [vitabench(k=(k,))(_trials([c])).values for c in range(TRIALS + 1)]
        for name, true in ((f"a, pass@{k}", 1 - (1 - p) ** k), (f"a, pass^{k}", p**k)):
            off = max(off, abs(float(chance @ [values[name] for values in each]) - true))
        plain = chance @ (np.arange(TRIALS + 1) / TRIALS) ** k
        biased = max(biased, abs(float(plain) - p**k))
    return Finding(
        measured={"largest bias": off, "from the mean": biased},
        criterion="bias < 1e-12, from the mean > 0.02",
        holds=off < 1e-12 and biased > 0.02,
    )


class ExactJudge(WindowJudge):
    """A judge that makes no error: a requirement `a b` is met by a window with message a, and b after it; `no a` undoes
    what stands before."""

    def forward(self, windows: Sequence[Window]) -> list[Sequence[bool] | None]:
        return [tuple(map(self.met, [w] * len(w.rubric), w.rubric, w.met)) for w in windows]

    @staticmethod
    def met(window: Window, text: str, before: bool) -> bool:
        first, second = text.split()
        known, state = [], before
        for message in window.messages:
            content = message["content"]
            if content == second and first in known:
                state = True
            if content == f"no {second}":
                state = False
            known.append(content)
        return state


def _judged(words: Sequence[str], rubric: Sequence[str], window: int, overlap: int) -> tuple[bool, ...]:
    sliding = SlidingRubric(judge=ExactJudge(), window=window, overlap=overlap)
    messages = [{"role": "assistant", "content": word} for word in words]
    return sliding([messages], [rubric])[0].met


@claim(
    "With a judge that makes no error, windows find what the whole conversation shows, where evidence spans at most "
    "the overlap and one message more.",
    kind="limit",
    baseline="no overlap",
)
def windows_are_enough() -> Finding:
    wrong = missed = 0
    rubric = ("a b", "c d")
    for length, at, gap in itertools.product((5, 12, 23), range(22), (1, 2)):
        words = ["-"] * length
        if at + gap >= length:
            continue
        words[at], words[at + gap] = "a", "b"
        whole = _judged(words, rubric, window=length, overlap=0)
        wrong += _judged(words, rubric, window=5, overlap=2) != whole
        missed += _judged(words, rubric, window=5, overlap=0) != whole
    return Finding(
        measured={"wrong": float(wrong), "wrong without overlap": float(missed)},
        criterion="none wrong with an overlap of 2, some without",
        holds=wrong == 0 and missed > 0,
    )


@claim(
    "What a later window undoes is not met in the end, and a requirement that stands twice counts once.",
    kind="part",
    baseline="each requirement as it was when it was first met",
)
def may_be_undone() -> Finding:
    words = ["a", "b", *["-"] * 8, "no b", "-", "c", "d"]
    rubric = ("a b", "c d", "c d")
    sliding = SlidingRubric(judge=ExactJudge(), window=4, overlap=1)
    messages = [{"role": "assistant", "content": word} for word in words]
    (end,), (early,) = (sliding([messages[:n]], [rubric]) for n in (len(words), 6))
    return Finding(
        measured={"met": end.score, "reward": end.reward, "first met early": float(early.met[0])},
        criterion="one of two is met in the end, the other one was met early, and the reward is 0",
        holds=end.met == (False, True) and early.met[0] and end.reward == 0,
    )


@mutation("Trials are drawn with replacement.", kills=without_bias)
def with_replacement(replace: Replace) -> None:
    replace(vitabench_module, "pass_all_k", lambda n, c, k: (np.asarray(c) / np.asarray(n)) ** k)


@mutation("All trials must fail for pass@k to be missed.", kills=counts_all_choices)
def any_trial(replace: Replace) -> None:
    replace(vitabench_module, "pass_at_k", lambda n, c, k: (np.asarray(c) > 0).astype(float))


@mutation("What is met stays met.", kills=may_be_undone)
def stays_met(replace: Replace) -> None:
    own = ExactJudge.met
    replace(ExactJudge, "met", staticmethod(lambda window, text, before: before or own(window, text, before)))


@mutation("Windows do not overlap.", kills=windows_are_enough)
def no_overlap(replace: Replace) -> None:
    def starts(self: SlidingRubric, messages: int) -> range:
        return range(0, max(messages, 1), self.window)

    replace(SlidingRubric, "starts", starts)
