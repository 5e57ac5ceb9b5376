"""These programs measure what evaluation over a family shows that one environment does not."""

from __future__ import annotations

import dataclasses

import numpy as np

from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.chain_family import family
from polopt.methods import mdp_family_eval as sentence
from polopt.methods.mdp_family_eval import FamilyEvaluation, mdp_family_eval
from polopt.metrics import FamilyScores, families, t_interval
from polopt.metrics.families import Choice

BUDGET, TRIALS = 10, 200


def trials(data: FamilyScores, how: Choice) -> tuple[np.ndarray, float]:
    """Returns the mean error over methods of each of 200 estimates from 10 settings, and the share of the estimates
    that name the family's best method."""
    means, weights = data.means(), data.weights()
    metric = FamilyEvaluation(budget=BUDGET, trials=TRIALS)
    off = metric.estimates(data.setting_features(), means, weights, how)
    truth = means @ weights
    right = (off + truth).argmax(-1) == truth.argmax()
    return np.abs(off).mean(-1), float(right.mean())


@claim(
    "One environment names another winner than the family in 30 % of the family or more.",
    kind="headline",
    baseline="the family's own ranking",
)
def another_winner() -> Finding:
    families_of = [family(seed) for seed in range(3)]
    found = [mdp_family_eval(resamples=1)(each).values for each in families_of]
    margins = []
    for each in families_of:
        means, winner = each.means(), int((each.means() @ each.weights()).argmax())
        ahead = means.max(0) - means[winner]
        margins.append(float(ahead[ahead > 0].mean()))
    shares = [values["another winner"] for values in found]
    end = t_interval(shares)
    return Finding(
        measured={
            "another winner": end.estimate,
            "tau": float(np.mean([values["tau of one setting"] for values in found])),
            "by how much": float(np.mean(margins)),
        },
        criterion="at least 0.3 in each of three families of 60 chains",
        holds=min(shares) >= 0.3,
        intervals={"another winner": (end.low, end.high)},
        note="Q-learning of 1,000 steps against taking the largest reward at once, each at its share of the optimal "
        "value; chains of 2 to 20 states around five centres. The family was made to have both kinds of chains.",
    )


@claim(
    "Ten medoids of clusters, weighted by the clusters' shares, name the family's winner, and are nearer to its mean "
    "than ten settings at random.",
    kind="part",
    baseline="ten settings at random, and clusters of shuffled features",
)
def medoids() -> Finding:
    data = family(0)
    order = np.random.default_rng(0).permutation(len(data.settings))
    shuffled = dataclasses.replace(data, features=data.setting_features()[order][_place(data)])
    errors, right = trials(data, "medoids")
    plain, plain_right = trials(data, "random")
    blind, _ = trials(shuffled, "medoids")
    gain, control = t_interval(plain - errors), t_interval(plain - blind)
    return Finding(
        measured={
            "error of medoids": float(errors.mean()),
            "error at random": float(plain.mean()),
            "error of shuffled medoids": float(blind.mean()),
            "winner by medoids": right,
            "winner at random": plain_right,
            "gain over random": gain.estimate,
        },
        criterion="the winner in 95 % of 200 trials or more; an error that is lower than at random by the 95 % "
        "interval, and by a half in the mean; with shuffled features not lower by a half",
        holds=right >= 0.95
        and gain.low > 0
        and float(errors.mean()) < float(plain.mean()) / 2
        and float(blind.mean()) > float(plain.mean()) / 2,
        intervals={"gain over random": (gain.low, gain.high), "gain of shuffled medoids": (control.low, control.high)},
        note="Trials differ by the seed of the clusters, or of the draw, in one family.",
    )


def _place(data: FamilyScores) -> np.ndarray:
    """Returns the index of each row's setting."""
    return np.searchsorted(data.settings, data.setting)


@mutation("The methods' means are compared in the place of each setting's scores.", kills=another_winner)
def compares_means(replace: Replace) -> None:
    def of_means(self: FamilyEvaluation, means: np.ndarray, weights: np.ndarray, winner: int) -> float:
        return float((means @ weights).argmax() != winner)

    replace(FamilyEvaluation, "another_winner", of_means)


@mutation("Medoids have equal weights.", kills=medoids)
def equal_weights(replace: Replace) -> None:
    chosen = families.choose_settings

    def equal(*arguments: object, **named: object) -> tuple[np.ndarray, np.ndarray]:
        places, _ = chosen(*arguments, **named)  # type: ignore[arg-type]
        return places, np.full(len(places), 1 / len(places))

    replace(sentence, "choose_settings", equal)
