"""Evaluation over a family of environments, in place of the one that happens to be the default."""

from __future__ import annotations

import numpy as np

from polopt.method import Paper, method
from polopt.metrics import Interval, Measured, Metric, MetricError, kendall_tau
from polopt.metrics.families import CHOICES, FAMILY_ROWS, FamilyScores, Numbers, choose_settings


@method(
    paper=Paper(
        title="The Impact of Task Underspecification in Evaluating Deep Reinforcement Learning",
        authors="Jayawardana, Vindula and Tang, Catherine and Li, Sirui and Suo, Dajiang and Wu, Cathy",
        year=2022,
        arxiv="2210.08607",
    ),
    changes="Ranks methods by their mean score over a family of environments, and shows how often one of them "
    "alone ranks them otherwise.",
    room="metrics",
    tier="reading",
)
def mdp_family_eval(
    *,
    sampled: bool = True,
    budget: int | None = None,
    trials: int = 100,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> FamilyEvaluation:
    """A family has settings phi with shares p; J(m, phi) is the score of method m, trained and evaluated in phi:

        G(m) = sum_phi p_phi J(m, phi),    J = (score - reference) / (best - reference)

    Beside G it measures the rank correlation of each setting's own ranking with the family's (Kendall's tau, its mean
    by the shares), the share of settings whose best method is another one, and of every two methods the share of
    settings that order them the other way round. With a budget n it measures how far estimates from n settings,

        Ghat(m) = sum_c w_c J(m, phi_c),

    are from G, in the mean over methods and trials: of settings drawn at random, of a random subset, of one from each
    of n clusters of the settings' features, and of the clusters' medoids, w being the clusters' shares.

    sampled: the settings are a sample of the family, and are resampled for intervals; False: they are all of it, and
        only the seeds are resampled.
    budget: the number n of settings. trials: draws of settings for each estimate.
    level, resamples, seed: of the bootstrap over settings and, within each, seeds; methods keep the same settings. The
        errors' is over trials, for these scores as they are.

    What is evaluated is training, once for each setting, not how one trained policy generalises to other settings: rows
    of the latter kind can be measured too, and mean something else. Without `reference` and `best` settings of large
    scores decide the mean. With one seed a setting's own ranking may differ from the family's by chance; shares of
    reversed settings count that, too. The formula of G and of the estimates were read from the paper's description, not
    from code; the bootstrap, tau's mean and stratified choice are ours.
    """
    return FamilyEvaluation(sampled=sampled, budget=budget, trials=trials, level=level, resamples=resamples, seed=seed)


class FamilyEvaluation(Metric):
    """Scores of methods over a family; settings as those of the method `mdp-family-eval`.

    Values are `METHOD` for G, `A - B` for differences, `A over B, reversed` for shares of settings, `tau of one
    setting`, `another winner` and, with a budget, `error, WAY`; rows: the tau of each setting.
    """

    sampled: bool = True
    budget: int | None = None
    trials: int = 100
    level: float = 0.95
    resamples: int = 1000
    seed: int = 0

    rows = FAMILY_ROWS

    def setup(self) -> None:
        where = "methods.mdp_family_eval.FamilyEvaluation"
        if not 0 < self.level < 1:
            raise ValueError(f"{where}: level must be in (0, 1), found {self.level}")
        if self.trials < 1 or self.resamples < 1 or (self.budget is not None and self.budget < 1):
            raise ValueError(f"{where}: trials, resamples and budget must be from 1 on")

    def measure(self, data: FamilyScores) -> Measured:
        """Measures a family.

        Raises:
            MetricError: one method, or a budget of more settings than there are.
        """
        methods = data.methods
        if len(methods) < 2:
            raise MetricError(f"mdp-family-eval: needs two methods or more, found {methods[0]!r:.60}")
        means, weights = data.means(), data.weights()
        values = self._numbers(methods, means, weights)
        draws: dict[str, list[float]] = {name: [] for name in values}
        for resampled_means, resampled_weights in self._resampled(data, weights):
            # The order that is called reversed stays that of the data.
            for name, value in self._numbers(methods, resampled_means, resampled_weights, means @ weights).items():
                draws[name].append(value)
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        n = len(weights)
        intervals = {}
        for name, found in draws.items():
            if np.isfinite(found).all() and np.isfinite(values[name]):
                low, high = np.quantile(found, ends)
                intervals[name] = Interval(values[name], float(low), float(high), self.level, n)
        family = means @ weights
        taus = np.array([kendall_tau(means[:, s], family) for s in range(n)])
        cautions = []
        if n < 10 and self.sampled:
            cautions.append(f"{n} settings are few: a bootstrap over fewer than ten is too narrow")
        if all(len(each) == 1 for row in data.scores() for each in row):
            cautions.append("each setting has one seed, so that a setting's own ranking may be chance")
        seeds = min(len(each) for row in data.scores() for each in row)
        if not self.sampled and seeds < 5:
            cautions.append(f"{seeds} seeds of a setting are few: a bootstrap over fewer than five is too narrow")
        errors = self._errors(data, means, weights)
        values |= {name: interval.estimate for name, interval in errors.items()}
        return Measured(values, intervals | errors, {"tau": taus}, tuple(cautions))

    def _numbers(
        self, methods: list[str], means: Numbers, weights: Numbers, order: Numbers | None = None
    ) -> dict[str, float]:
        """Returns the numbers by name. means: [methods, settings]. order: G by which pairs are ordered, its own if
        None."""
        family: Numbers = means @ weights
        order = family if order is None else order
        found = {method: float(g) for method, g in zip(methods, family, strict=True)}
        ranked = np.argsort(-order, kind="stable")
        for i, a in enumerate(ranked):
            for b in ranked[i + 1 :]:
                found[f"{methods[a]} - {methods[b]}"] = float(family[a] - family[b])
                found[f"{methods[a]} over {methods[b]}, reversed"] = float(weights @ (means[b] > means[a]))
        taus = np.array([kendall_tau(column, family) for column in means.T])
        known = np.isfinite(taus)
        found["tau of one setting"] = float(np.average(taus[known], weights=weights[known])) if known.any() else np.nan
        found["another winner"] = self.another_winner(means, weights, int(order.argmax()))
        return found

    def another_winner(self, means: Numbers, weights: Numbers, winner: int) -> float:
        """Returns the share of settings in which some method has a higher score than the family's best one."""
        return float(weights @ (means.max(0) > means[winner]))

    def _resampled(self, data: FamilyScores, weights: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Returns bootstrap draws of means and weights: settings where they are a sample, and seeds within each."""
        draw = np.random.default_rng(self.seed)
        scores = data.scores()
        n = len(weights)
        seeds = np.array([[len(each) for each in row] for row in scores])
        padded = np.zeros((*seeds.shape, seeds.max()))
        for i, row in enumerate(scores):
            for j, each in enumerate(row):
                padded[i, j, : len(each)] = each
        found = []
        for _ in range(self.resamples):
            picked = (draw.random(padded.shape) * seeds[..., None]).astype(int)
            used = np.arange(padded.shape[-1]) < seeds[..., None]
            means = (np.take_along_axis(padded, picked, -1) * used).sum(-1) / seeds
            places = draw.integers(n, size=n) if self.sampled else np.arange(n)
            share = weights[places] / weights[places].sum()
            found.append((means[:, places], share))
        return found

    def _errors(self, data: FamilyScores, means: Numbers, weights: Numbers) -> dict[str, Interval]:
        """Returns the mean error of each way to choose settings, none without a budget; intervals are of the bootstrap
        over trials, which keep all methods."""
        if self.budget is None:
            return {}
        if self.budget > len(weights):
            raise MetricError(f"mdp-family-eval: budget = {self.budget}, and the family has {len(weights)} settings")
        features = data.setting_features()
        found = {}
        draw = np.random.default_rng(self.seed)
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        for how in CHOICES:
            if features.shape[1] or how in ("random", "subset"):
                errors = np.abs(self.estimates(features, means, weights, how)).mean(1)
                drawn = errors[draw.integers(self.trials, size=(self.resamples, self.trials))].mean(1)
                low, high = np.quantile(drawn, ends)
                found[f"error, {how}"] = Interval(
                    float(errors.mean()), float(low), float(high), self.level, self.trials
                )
        return found

    def estimates(self, features: Numbers, means: Numbers, weights: Numbers, how: str) -> Numbers:
        """Returns Ghat - G of every trial and method, [trials, methods]."""
        truth = means @ weights
        found = []
        for trial in range(self.trials):
            chosen, share = choose_settings(features, weights, self.budget or 1, how, self.seed + trial)  # type: ignore[arg-type]
            found.append(means[:, chosen] @ share - truth)
        return np.array(found)
