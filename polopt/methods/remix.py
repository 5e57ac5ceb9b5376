"""ReMix: GRPO with replay of the last batches, until training restarts on policy."""

from __future__ import annotations

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.objectives import EntropyBonus, ReferenceKL, Regulariser, SequenceMean, Surrogate, TokenRatio
from polopt.objectives.parts import Ratio, SurrogateTerm
from polopt.objectives.surrogate_terms import pessimistic
from polopt.sampling import Replay
from polopt.schedules import Schedule
from polopt.setting_types import Unbounded

# Number of batches learned from, and the reference's share of the constraint from then on; the rest is the
# previous policy's. As a formula of the batch's number t from 1 on: max(1 - 0.1 ceil(max(t - 50, 0) / 10), 0.5).
CONVEX = [(0, 1.0), (50, 0.9), (60, 0.8), (70, 0.7), (80, 0.6), (90, 0.5)]


@method(
    paper=Paper(
        title="Squeeze the Soaked Sponge: Efficient Off-policy Reinforcement Finetuning for Large Language Model",
        authors="Liang, Jing and Tang, Hongyao and Ma, Yi and Liu, Jinyi and Zheng, Yan and Hu, Shuyue and Bai, Lei "
        "and Hao, Jianye",
        year=2025,
        arxiv="2507.06892",
    ),
    changes="GRPO that replays the last batches, clips around where each ratio begins, is held by two anchors, and "
    "begins anew on policy in mid-training.",
    room="sampling",
    tier="reading",
)
def remix(
    *,
    group: int = 8,
    share: float = 0.4,
    batches: int = 2,
    clip: float = 0.2,
    kl: float = 0.04,
    entropy: float = 0.0,
    restart: int | None = 100,
) -> Algorithm:
    """A group of a batch was sampled, with probability `share`, by the policy pi_(k-i) of one of the last `batches`
    batches, else by pi_k, which is about to learn. With r = pi / pi_(k-i) and its start r0 = pi_k / pi_(k-i),

        L = mean_i (1/|y_i|) sum_t [ max(-A r, -A clip(r, r0 - clip, r0 + clip)) + kl (w D_ref + (1 - w) D_(k-1)) ]

    where A is the group's z-score of its stored rewards, D_ref and D_(k-1) estimate KL(pi || reference) and
    KL(pi || pi_(k-1)), pi_(k-1) being the policy one batch earlier, and w goes from 1 to 0.5 (`CONVEX`). After
    `restart` batches the policy is its own new reference, w is 1, and nothing is replayed any more: GRPO whose KL is
    weighed by the ratio. None never restarts.

    Exact: r0, by a pass of pi_k over all rows before its first update; pi_(k-1), by a copy and a pass of its own.
    Both KL terms weight k3 by the ratio to the token's behaviour policy, so that their gradient is that of KL(pi || .)
    per token on replayed rows too. The paper takes two passes over each batch (its update-to-data ratio): set the
    stage's `epochs` to 2. They go on after the restart; a second stage, of grpo with one epoch, would restart the
    optimiser as well. Replayed for PPO: `.but` the credit to GAE with a ValueLoss. kl, entropy, group and the KL
    estimator could not be confirmed and are ours; restart is 50 or 100 there, and before 50 w has not moved yet.
    """
    weights = [(t, w) for t, w in CONVEX if restart is None or t < restart]

    def until(knots: list[tuple[int, float]], after: float) -> Schedule:
        return Schedule(knots=knots if restart is None else [*knots, (restart, after)], shape="step")

    anchors: list[Regulariser] = [
        ReferenceKL(coefficient=until([(t, kl * w) for t, w in weights], kl), ratio=TokenRatio()),
        ReferenceKL(
            coefficient=until([(t, kl * (1 - w)) for t, w in weights], 0.0), anchor="previous", ratio=TokenRatio()
        ),
    ]
    bonus: list[Regulariser] = [EntropyBonus(coefficient=entropy)] if entropy else []
    return Algorithm(
        sampling=Replay(group=group, share=until([(0, share)], 0.0), batches=batches),
        credit=RelativeAdvantage(),
        objective=Surrogate(
            ratio=TokenRatio(),
            trust=CentredClip(low=clip, high=clip),
            aggregate=SequenceMean(),
            regularise=(anchors if kl else []) + bonus,
        ),
        reference_tau=0.0
        if restart is None
        else Schedule(knots=[(0, 0.0), (restart, 1.0), (restart + 1, 0.0)], shape="step"),
    )


class CentredClip(SurrogateTerm):
    """PPO's pessimistic clip around the initial ratio r0, max(-A r, -A clip(r, r0 - low, r0 + high)).

    r0 is the ratio of the learner before its first update on the batch, `old_logp`, to the behaviour policy, as
    `centre` forms it: the same part as the surrogate's ratio. On rows of the learner itself r0 = 1 and this is `Clip`;
    on rows of earlier policies nothing is clipped before the learner's first update, where a clip around 1 already
    clips the changes of earlier updates. Source: generalised PPO, Queeney et al. 2021 (arXiv:2111.00072), as used in
    ReMix, arXiv:2507.06892.
    """

    low: float = 0.2
    high: Unbounded = 0.2
    centre: Ratio = TokenRatio()

    reads = frozenset({"old_logp"})
    zero_at_zero_advantage = True

    def setup(self) -> None:
        if self.low < 0 or self.high < 0:
            raise ValueError(f"methods.remix.CentredClip: need low >= 0 and high >= 0, found {self.low}, {self.high}")

    def forward(self, log_ratio: Tensor, experience: Experience, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        before = Evaluation(logp=experience.old_logp, support=evaluation.support)
        start = self.centre(experience, before).exp()
        return pessimistic(log_ratio.exp(), experience.advantage, start - self.low, start + self.high)
