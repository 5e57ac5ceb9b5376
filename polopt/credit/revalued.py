"""Credit of transformed rewards: the returns are transformed over the whole batch, then credited."""

from __future__ import annotations

from torch import Tensor

from polopt.credit.parts import Credit
from polopt.credit.relative import RelativeAdvantage
from polopt.experience import Experience
from polopt.fields import check_shape


class RewardTransform(Credit):
    """Another credit of transformed rewards, `worth(returns [B], experience) -> [B]`, one for each row.

    They replace the batch's reward, so that a critic is trained in the units in which its values are used.
    """

    credit: Credit = RelativeAdvantage()

    reads = frozenset({"reward"})

    def worth(self, returns: Tensor, experience: Experience) -> Tensor:
        raise NotImplementedError

    def credited(self, experience: Experience) -> Experience:
        returns = experience.returns().detach()
        worth = check_shape(self.worth(returns, experience), returns, self)
        return self.credit.credited(experience.replace(reward=worth))

    def forward(self, experience: Experience) -> Tensor:
        return self.credited(experience).advantage

    def value_target(self, experience: Experience) -> Tensor | None:
        return self.credited(experience).value_target
