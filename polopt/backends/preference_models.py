"""Preference models: the probability that one answer is preferred to another, from the outputs of a scorer."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from polopt.part import Part
from polopt.part_names import name_of

# The logistic function that is nearest to the normal distribution: |Phi(z) - sigmoid(1.702 z)| < 0.0095.
LOGISTIC = 1.702


class Scorer(Protocol):
    """A model that scores texts, as `TextScorer` and `TextClassifier`.

    compares: whether it reads two answers. outputs: numbers for each text.
    """

    @property
    def compares(self) -> bool: ...

    @property
    def outputs(self) -> int: ...

    def __call__(
        self, prompts: Sequence[str], answers: Sequence[str], references: Sequence[str] | None = None
    ) -> Tensor: ...


class PreferenceModel(Part, abc.ABC):
    """P(first > second) = F(z), with z the margin of two answers to one prompt. `model(z) -> [P]` is the loss of pairs
    whose first answer was preferred:

        -q log F(z - m) - (1 - q) log F(m - z),    q = (1 - e) p + e (1 - p)

    with m [P] the margin that the preferred answer should have and p [P] the probability that it is preferred, as the
    share of the votes for it; by default 0 and 1. F is the logistic function, unless the model has another `link`.

    label_smoothing: e in [0, 0.5], the assumed rate of wrong labels.
    """

    label_smoothing: float = 0.0

    # What a scorer of this kind reads and returns.
    compares: ClassVar[bool] = False
    outputs: ClassVar[int] = 1
    link: ClassVar[str] = "logistic"

    def setup(self) -> None:
        if not 0 <= self.label_smoothing <= 0.5:
            raise ValueError(
                f"{name_of(type(self))}: label_smoothing must be in [0, 0.5], found {self.label_smoothing}"
            )

    @abc.abstractmethod
    def score(
        self, scorer: Scorer, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> tuple[Tensor, ...]:
        """Returns the scorer's outputs on P pairs of answers."""

    @abc.abstractmethod
    def margin(self, *scores: Tensor) -> Tensor:
        """Returns z [P] from the scorer's outputs."""

    def penalty(self, *scores: Tensor) -> Tensor:
        """Returns what the loss of a batch has beside the mean over its pairs."""
        return scores[0].new_zeros(())

    def forward(self, z: Tensor, margin: Tensor | None = None, probability: Tensor | None = None) -> Tensor:
        z = z if margin is None else z - margin
        if probability is None and not self.label_smoothing:
            return -self.log_probability(z)  # and not 0 times an infinite logarithm beside it
        p = torch.ones_like(z) if probability is None else probability
        q = (1 - self.label_smoothing) * p + self.label_smoothing * (1 - p)
        return -q * self.log_probability(z) - (1 - q) * self.log_probability(-z)

    def loss(self, *scores: Tensor, margin: Tensor | None = None, probability: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch of pairs, a number."""
        loss: Tensor = self(self.margin(*scores), margin, probability).mean() + self.penalty(*scores)
        return loss

    def log_probability(self, z: Tensor) -> Tensor:
        """Returns log F(z)."""
        return F.logsigmoid(z) if self.link == "logistic" else torch.special.log_ndtr(z)


class BradleyTerry(PreferenceModel):
    """z = r(x, first) - r(x, second), with r a scorer of single answers: preferences that a reward expresses. The loss
    of a batch has the term

        c mean_i (r(x_i, first_i) + r(x_i, second_i))^2

    that fixes the constant of the rewards, on which z does not depend. Source: Bradley and Terry 1952; with the margin,
    Llama 2, arXiv:2307.09288; the term, Eisenstein et al., arXiv:2312.09244.

    center_rewards_coefficient: c >= 0. label_smoothing: as in every model.
    """

    center_rewards_coefficient: float = 0.0

    def setup(self) -> None:
        super().setup()
        if self.center_rewards_coefficient < 0:
            raise ValueError(
                "backends.BradleyTerry: center_rewards_coefficient must be >= 0, found "
                f"{self.center_rewards_coefficient}"
            )

    def score(
        self, scorer: Scorer, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> tuple[Tensor, ...]:
        return scorer(prompts, first), scorer(prompts, second)

    def margin(self, *scores: Tensor) -> Tensor:
        first, second = scores
        return first - second

    def penalty(self, *scores: Tensor) -> Tensor:
        if not self.center_rewards_coefficient:
            return super().penalty(*scores)
        first, second = scores
        return self.center_rewards_coefficient * (first + second).square().mean()


class GeneralPreference(PreferenceModel):
    """z = s(x, first, second), with s a scorer of two answers that is antisymmetric, s(x, a, b) = -s(x, b, a): any
    preferences, also those that go round in a circle, which no reward expresses.

    Source: the preference models of Nash learning, arXiv:2312.00886, and of SPPO, arXiv:2405.00675.
    """

    compares = True

    def score(
        self, scorer: Scorer, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> tuple[Tensor, ...]:
        return (scorer(prompts, first, second),)

    def margin(self, *scores: Tensor) -> Tensor:
        (z,) = scores
        return z


class GaussianReward(PreferenceModel):
    """z = (mu_a - mu_b) / sqrt(sigma_a^2 + sigma_b^2), with r(x, y) ~ N(mu, sigma^2) the reward of an answer, drawn
    anew in each comparison; the probability that the first draw is the larger one is Phi(z). A scorer of single answers
    returns mu and u [P, 2], with sigma = log(1 + exp(u)).

    Preferences are the same if all mu and sigma are multiplied by one number, or a number is added to all mu: sigma is
    known up to a factor. It is no measure of how little the model knows, but of how much the labels disagree.

    link: "probit" for Phi, "logistic" for sigmoid(1.702 z), which is nearly the same and has tails that are heavier.
    Source: Thurstone 1927; for language models the mean and variance model of distributional preference learning,
    arXiv:2312.08358. PEARL, arXiv:2306.03615, instead has Bradley-Terry's noise beside the Gaussian one.
    """

    outputs = 2

    link: Literal["probit", "logistic"] = "probit"  # type: ignore[misc]

    def score(
        self, scorer: Scorer, prompts: Sequence[str], first: Sequence[str], second: Sequence[str]
    ) -> tuple[Tensor, ...]:
        return scorer(prompts, first), scorer(prompts, second)

    def margin(self, *scores: Tensor) -> Tensor:
        (mean_a, std_a), (mean_b, std_b) = map(mean_and_std, scores)
        z = (mean_a - mean_b) / (std_a.square() + std_b.square()).sqrt()
        return LOGISTIC * z if self.link == "logistic" else z


def mean_and_std(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Returns mu [P] and sigma [P] of a Gaussian reward from a scorer's outputs [P, 2]."""
    # No smaller than rounding: of two answers without any spread the margin would be 0 / 0.
    return scores[:, 0], F.softplus(scores[:, 1]) + torch.finfo(scores.dtype).eps


KINDS: dict[str, type[PreferenceModel]] = {
    "bradley-terry": BradleyTerry,
    "preference": GeneralPreference,
    "gaussian": GaussianReward,
}


def kind_of(model: PreferenceModel) -> str:
    """Returns the name of a preference model's kind, as in `KINDS`."""
    return next(name for name, kind in KINDS.items() if type(model) is kind)
