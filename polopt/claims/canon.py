"""These programs measure what the paper of CANON claims."""

import torch

from polopt.claim import Finding, claim
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.rows import RowField
from polopt.methods.canon import HalfGroupAdvantage


@claim(
    "mu = 1/2 is Dr. GRPO on even groups, and is not on odd ones.", kind="identity", baseline="R minus the group's mean"
)
def identity() -> Finding:
    plain, half = (
        RelativeAdvantage(baseline=GroupMean(), scale=None),
        HalfGroupAdvantage(by=RowField(name="x"), mu=0.5),
    )
    off = {}
    for size in (16, 15):
        batch = _batch(slope=1.5, size=size, groups=100)
        off[size] = (half(batch) - plain(batch)).abs().max().item()
    return Finding(
        measured={f"largest difference, groups of {n}": v for n, v in off.items()},
        criterion="< 1e-12 for 16, > 1e-3 for 15",
        holds=off[16] < 1e-12 and off[15] > 1e-3,
    )


@claim(
    "Amplifies the pull towards what goes with reward, whichever direction that is.",
    kind="headline",
    baseline="Dr. GRPO",
)
def direction_free() -> Finding:
    plain, inter = RelativeAdvantage(baseline=GroupMean(), scale=None), HalfGroupAdvantage(by=RowField(name="x"))
    gain, measured = {}, {}
    for slope in (1.5, -1.5):
        batch = _batch(slope, size=16, groups=3000)
        pulls = [(c(batch)[:, 0] * batch.extras["x"]).view(3000, 16).mean(1) for c in (plain, inter)]
        gain[slope] = (pulls[1].mean() / pulls[0].mean()).item()
        for name, pull in zip(("Dr. GRPO", "inter"), pulls, strict=True):
            measured[f"pull, slope {slope:g}, {name}"] = pull.mean().item()
            measured[f"pull over its std, slope {slope:g}, {name}"] = (pull.mean() / pull.std()).item()
    measured |= {f"gain, slope {slope:g}": value for slope, value in gain.items()}
    return Finding(
        measured=measured,
        criterion="both gains in [1.5, 1.8], and within 0.1 of each other",
        holds=all(1.5 < g < 1.8 for g in gain.values()) and abs(gain[1.5] - gain[-1.5]) < 0.1,
        note="It amplifies the size of the pull, not its signal-to-noise ratio, which falls from 2.4 to 2.1: a larger "
        "step along this direction, not a clearer view of it.",
    )


def _batch(slope: float, size: int, groups: int) -> Experience:
    """Rewards of 0 and 1 with odds exp(slope x), x normal and noted of each row."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(size * groups, generator=generator, dtype=torch.double)
    return Experience(
        mask=torch.ones(len(x), 1).bool(),
        reward=torch.bernoulli(torch.sigmoid(slope * x), generator=generator),
        group=torch.arange(groups).repeat_interleave(size),
        extras={"x": x},
    )
