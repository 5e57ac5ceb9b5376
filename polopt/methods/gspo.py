"""GSPO: one ratio for the whole answer."""

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, GroupStd, RelativeAdvantage
from polopt.lab import expectation
from polopt.lab.claims import ratio_variance
from polopt.lab.problems import lengths
from polopt.method import Finding, Paper, method
from polopt.objectives import Clip, SequenceMean, SequenceRatio, Surrogate, TokenRatio
from polopt.sampling import Rollouts


@method(
    paper=Paper(
        title="Group Sequence Policy Optimization",
        authors="Zheng, Chujie and others",
        year=2025,
        arxiv="2507.18071",
    ),
    changes="GRPO with ratio and clip on the whole answer: the geometric mean of its token ratios.",
    room="objectives",
    tier="proven",
)
def gspo(*, group: int = 8, low: float = 3e-4, high: float = 4e-4) -> Algorithm:
    """s_i = exp( (1/|y_i|) sum_t log r_it ), A_i as in GRPO, and

        L = mean_i max(-A_i s_i, -A_i clip(s_i, 1 - low, 1 + high))

    s is a mean per token, hence the tiny clip: PPO's 0.2 would never act. A clip stops an answer as a whole.
    The group of 8 is ours; no KL. TRL and verl write s_it with the gradient of its own token only: the same value
    and, for one advantage per answer, the same gradient. |y_i| counts decisions alone.
    """
    return Algorithm(
        sampling=Rollouts(group=group),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=GroupStd()),
        objective=Surrogate(ratio=SequenceRatio(), trust=Clip(low=low, high=high), aggregate=SequenceMean()),
    )


@gspo.claim("Noise of std 0.2 on each logp of 64 tokens moves the ratio 1/64 as much.", baseline="token ratios")
def quiet_ratio() -> Finding:
    ours, token = (
        ratio_variance(SequenceRatio(), tokens=64, noise=0.2),
        ratio_variance(TokenRatio(), tokens=64, noise=0.2),
    )
    return Finding(
        measured={"variance": ours, "of 0.04/64": ours * 64 / 0.04, "token ratios": token},
        criterion="variance within [0.67, 1.5] x 0.04/64; token ratios > 0.03",
        holds=0.67 < ours * 64 / 0.04 < 1.5 and token > 0.03,
    )


@gspo.claim("On policy its gradient is GRPO's.", baseline="a policy away, where they part")
def like_grpo() -> Finding:
    tree, policy = lengths()
    old = type(policy)(tree, spread=0.5, seed=2)
    wide = {"objective.trust": Clip(low=1, high=1e9)}
    ours, token = gspo(group=2).but(wide), gspo(group=2).but(wide, **{"objective.ratio": TokenRatio()})
    gap = []
    for behaviour in (policy, old):
        a, b = (expectation(s, tree, policy, behaviour=behaviour).mean for s in (ours, token))
        gap.append(((a - b).norm() / b.norm()).item())
    return Finding(
        measured={"relative distance on policy": gap[0], "off policy": gap[1]},
        criterion="< 1e-10 on policy, > 0.05 off",
        holds=gap[0] < 1e-10 and gap[1] > 0.05,
    )
