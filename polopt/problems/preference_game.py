"""Preference games: two policies offer an answer each, and a preference decides between the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.problems.games import GameError


@dataclasses.dataclass(frozen=True, eq=False)
class PreferenceGame:
    """The symmetric zero-sum game of the preference P(y > y') between answers, regularised towards a reference policy:

        P_tau(pi > pi') = E P(y > y') - tau KL(pi | reference) + tau KL(pi' | reference)

    Its one Nash equilibrium, for tau > 0, is a policy that no other beats by more than it pays in KL.

    preference: [N, N] the probabilities P(y > y'), with P(y > y') + P(y' > y) = 1.
    reference: [N] the reference policy, all probabilities positive.
    tau: the weight of the KL divergence; 0 is the game without regularisation.
    answers: their names.

    Raises:
        GameError: probabilities that are none or contradict each other, or sizes that do not fit.
    """

    preference: Tensor
    reference: Tensor
    tau: float = 0.0
    answers: tuple[str, ...] = ()
    name: str = "preference-game"
    unit: str = "win probability"

    def __post_init__(self) -> None:
        p, N = self.preference, len(self.reference)
        if p.shape != (N, N) or p.dtype != torch.double or self.reference.dtype != torch.double:
            raise GameError(
                f"{self.name}: reference [N] = {[N]} needs preference [N, N], both float64, found {list(p.shape)}"
            )
        if not (p >= 0).all() or (p + p.T - 1).abs().max() > 1e-9:
            raise GameError(f"{self.name}: preference[y, y'] + preference[y', y] must be 1; average both orders first")
        if not (self.reference > 0).all() or abs(float(self.reference.sum()) - 1) > 1e-9 or self.tau < 0:
            raise GameError(f"{self.name}: reference must be positive and sum to 1, and tau must be at least 0")
        if not self.answers:
            object.__setattr__(self, "answers", tuple(str(i) for i in range(N)))
        if len(self.answers) != N or len(set(self.answers)) != N:
            raise GameError(f"{self.name}: answers must be {N} different names, found {list(self.answers)}")

    def win_rates(self, policy: Tensor) -> Tensor:
        """Computes P(y > policy) of each answer y, [N]."""
        return self.preference @ policy

    def divergence(self, policy: Tensor) -> Tensor:
        """Computes KL(policy | reference)."""
        return torch.special.xlogy(policy, policy / self.reference).sum()

    def duality_gap(self, policy: Tensor) -> float:
        """Computes max_pi P_tau(pi > policy) - min_pi P_tau(policy > pi), by the exact best response, in proportion to
        reference exp(P(y > policy) / tau). It is 0 at the equilibrium alone."""
        wins = self.win_rates(self.checked(policy))
        if not self.tau:
            return 2 * float(wins.max()) - 1
        best = self.tau * (self.reference.log() + wins / self.tau).logsumexp(0)
        return 2 * float(best + self.tau * self.divergence(policy)) - 1

    def measure(self, solution: Tensor) -> dict[str, float]:
        """Measures a policy: the duality gap first, then its KL divergence from the reference."""
        return {"duality_gap": self.duality_gap(solution), "kl": float(self.divergence(solution))}

    def table(self, solution: Tensor) -> dict[str, dict[str, float]]:
        """Converts a policy to plain data: the probability of each answer."""
        return {"policy": dict(zip(self.answers, solution.tolist(), strict=True))}

    def checked(self, policy: Tensor) -> Tensor:
        """Validates a policy and returns it.

        Raises:
            GameError: it has another shape or type, or is no distribution.
        """
        if policy.shape != self.reference.shape or policy.dtype != torch.double:
            raise GameError(f"a policy of {self.name} is a float64 tensor [{len(self.reference)}]")
        if not (policy >= 0).all() or abs(float(policy.sum()) - 1) > 1e-9:
            raise GameError(f"a policy of {self.name} must be probabilities that sum to 1, found {policy.tolist()}")
        return policy


def preference_game(*, tau: float = 0.1, reference: Sequence[float] = (0.7, 0.2, 0.1)) -> PreferenceGame:
    """Builds a game of three answers of which each beats one: first over second by 0.9, second over third by 0.8, third
    over first by 0.8. Without regularisation its equilibrium is (0.3, 0.3, 0.4)."""
    table = [[0.5, 0.9, 0.2], [0.1, 0.5, 0.8], [0.8, 0.2, 0.5]]
    mu = torch.tensor(reference, dtype=torch.double)
    return PreferenceGame(torch.tensor(table, dtype=torch.double), mu, tau, ("first", "second", "third"))


def random_preference_game(seed: int, answers: int = 6, *, tau: float = 0.1, transitive: float = 0.0) -> PreferenceGame:
    """Builds a game of random preferences, whose logits are skew-symmetric normal, and a random reference.

    transitive: the weight of differences of one score for each answer; with 1 these alone make the logits.
    """
    g = torch.Generator().manual_seed(seed)
    skew = 1.5 * torch.randn(answers, answers, generator=g, dtype=torch.double)
    score = 2 * torch.randn(answers, generator=g, dtype=torch.double)
    logits = (1 - transitive) * (skew - skew.T) + transitive * (score[:, None] - score)
    reference = torch.randn(answers, generator=g, dtype=torch.double).softmax(0)
    return PreferenceGame(logits.sigmoid(), reference, tau, name=f"random preferences {seed}")
