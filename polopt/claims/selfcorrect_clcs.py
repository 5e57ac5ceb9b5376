"""These programs measure what the paper of confidence and critique claims."""

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.two_turns import TRAINING, questions, trained
from polopt.methods import selfcorrect_clcs as paper
from polopt.metrics import RevisedAnswers, t_interval
from polopt.worlds import revisions

# 0 to 9 were seen before: five seeds are too few to tell the mixture from its better half.
SEEDS = range(10, 20)


def measured(seed: int, kind: str, easier: bool = True, step_size: float | None = None) -> dict[str, float]:
    """Returns the exact numbers of a trained policy on held-out questions."""
    asked = questions(seed, heldout=True, easier=easier)
    model = trained(seed, kind, easier, step_size)
    names = np.arange(len(asked)).astype(str)
    data = RevisedAnswers.of_choices(model.first(asked), model.revised(asked), asked.answer, names)
    return dict(paper.SelfCorrection(resamples=1)(data).values)


@claim(
    "The accuracy of the second answers is that of the first times CL, plus the rest times CS.",
    kind="identity",
    baseline="CL and CS as means of each question's own ratios, which it does not hold for",
)
def identity() -> Finding:
    worst, ratios = 0.0, np.inf
    for seed in SEEDS:
        draw = np.random.default_rng(seed)
        p, q = draw.dirichlet(np.ones(4), 50), draw.dirichlet(np.ones(4), (50, 4))
        y = draw.integers(0, 4, 50)
        data = RevisedAnswers.of_choices(p, q, y, np.arange(50).astype(str))
        found = paper.selfcorrect_clcs(resamples=1)(data).values
        second = float(np.einsum("nc,ncd,nd->n", p, q, np.eye(4)[y]).mean())
        worst = max(worst, abs(found["Acc1"] * found["CL"] + (1 - found["Acc1"]) * found["CS"] - second))
        each = found["Acc1"] * (data.kept / data.right).mean()
        each += (1 - found["Acc1"]) * (data.fixed / (1 - data.right)).mean()
        ratios = min(ratios, abs(each - second))
    return Finding(
        measured={"largest error": worst, "smallest error of means of ratios": float(ratios)},
        criterion="at most 1e-12 on random distributions, with Acc2 summed over all pairs of answers; means of ratios "
        "are off by more than 1e-6",
        holds=worst <= 1e-12 and ratios > 1e-6,
    )


@claim(
    "Training to confirm right answers raises CL and lowers CS; training to correct wrong ones does the reverse.",
    kind="part",
    baseline="the policy before training",
)
def each_half_trades() -> Finding:
    halves = ("confidence", "critique")
    rows = {kind: [measured(seed, kind, step_size=1.0) for seed in SEEDS] for kind in ("start", *halves)}
    change = {
        f"{name}, {kind}": t_interval([x[name] - y[name] for x, y in zip(rows[kind], rows["start"], strict=True)])
        for kind in halves
        for name in ("CL", "CS")
    }
    up = change["CL, confidence"].low > 0 and change["CS, critique"].low > 0
    down = change["CS, confidence"].high < 0 and change["CL, critique"].high < 0
    return Finding(
        measured={name: found.estimate for name, found in change.items()},
        criterion="95 % intervals of the changes, over 10 seeds, at one step size for both, lie on their sides of 0",
        holds=up and down,
        intervals={name: (found.low, found.high) for name, found in change.items()},
    )


@claim(
    "Training on both halves gives the best second answers: 5 points or more above supervised learning of answers, "
    "and above either half alone.",
    kind="headline",
    baseline="supervised learning of the answers, and either half alone, as many steps and dialogues, each at its "
    "best step size",
)
def mixture_wins() -> Finding:
    rows = {kind: np.array([measured(seed, kind)["Acc2"] for seed in SEEDS]) for kind in TRAINING}
    gains = {kind: t_interval(rows["both"] - rows[kind]) for kind in ("plain", "confidence", "critique")}
    return Finding(
        measured={f"Acc2, {kind}": float(found.mean()) for kind, found in rows.items()}
        | {f"both less {kind}": gain.estimate for kind, gain in gains.items()},
        criterion="95 % intervals of differences, paired by 10 seeds, lie above 0.05 for supervised learning of "
        "answers and above 0 for either half",
        holds=gains["plain"].low > 0.05 and min(gain.low for gain in gains.values()) > 0,
        intervals={f"both less {kind}": (gain.low, gain.high) for kind, gain in gains.items()},
        note="A softmax policy with linear logits, whose second answer sees its first one; held-out accuracies are "
        "exact. Wrong first answers are drawn from the policy as it was before. Checking is easier than answering: "
        "the second answer sees features without noise. Without that it is the limit below.",
    )


@claim(
    "Where checking sees nothing that answering does not, the mixture is no better than supervised learning of the "
    "answers.",
    kind="limit",
    baseline="supervised learning of the answers, as many steps on as many dialogues",
)
def no_gain_without_an_easier_check() -> Finding:
    both, plain = (np.array([measured(seed, kind, False)["Acc2"] for seed in SEEDS]) for kind in ("both", "plain"))
    found = t_interval(both - plain)
    return Finding(
        measured={"both": float(both.mean()), "plain": float(plain.mean()), "difference": found.estimate},
        criterion="the 95 % interval of the difference of second accuracies, paired by 10 seeds, lies below 0.05",
        holds=found.high < 0.05,
        intervals={"difference": (found.low, found.high)},
        note="The problem of the headline, with the same noisy features in both attempts.",
    )


@claim(
    "RSS is 1/2 where nothing is gained, 0 where only answers that two tries give are right, and 1 where one of two is "
    "enough, whatever the first accuracy; a perfect reviser is above 1.",
    kind="part",
    baseline="the gain Acc2 - Acc1, which depends on the first accuracy in the last three",
)
def reference_lines() -> Finding:
    worst, perfect, gains = 0.0, np.inf, []
    for a in (0.2, 0.5, 0.8):
        cases = {0.5: (a, 0.0), 0.0: (a * a, 0.0), 1.0: (a, a * (1 - a))}
        for score, (kept, fixed) in cases.items():
            found = paper.selfcorrect_clcs(resamples=1)(RevisedAnswers(["q"], [a], [kept], [fixed]))
            worst = max(worst, abs(found.values["RSS"] - score))
        gains.append(a * (1 - a))
        found = paper.selfcorrect_clcs(resamples=1)(RevisedAnswers(["q"], [a], [a], [1 - a]))
        perfect = min(perfect, found.values["RSS"])
    return Finding(
        measured={
            "largest error": worst,
            "perfect reviser": float(perfect),
            "spread of the gain": float(np.ptp(gains)),
        },
        criterion="errors of at most 1e-12 at first accuracies 0.2, 0.5, 0.8; above 1 for a perfect reviser; the gain "
        "of the upper line differs by more than 0.05",
        holds=worst <= 1e-12 and perfect > 1 and float(np.ptp(gains)) > 0.05,
    )


@mutation("Questions count alike for CL, however rarely they are answered right.", kills=identity)
def macro_average(replace: Replace) -> None:
    share = paper.share_interval

    def of_each(part: np.ndarray, whole: np.ndarray, *args: float) -> object:
        ratio = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
        return share(ratio, np.ones_like(ratio), *args)  # type: ignore[arg-type]

    replace(paper, "share_interval", of_each)


@mutation("RSS divides by the spread of the lower line to the first accuracy.", kills=reference_lines)
def half_the_spread(replace: Replace) -> None:
    def score(self: paper.SelfCorrection, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (second - first**2) / (first * (1 - first))

    replace(paper.SelfCorrection, "score", score)


@mutation("The dialogues end in their first answer.", kills=mixture_wins)
def imitates_the_first(replace: Replace) -> None:
    messages = revisions._messages

    def repeated(*texts: str) -> list[dict[str, str]]:
        return messages(*texts[:-1], texts[1])

    replace(revisions, "_messages", repeated)
