"""These programs measure what the paper of CANON claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.experience import Experience
from polopt.features.rows import RowField
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, uneven
from polopt.methods import canon as sentence
from polopt.methods.canon import HalfGroupAdvantage, canon
from polopt.methods.dr_grpo import dr_grpo


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
    "The pull towards what goes with reward is larger, whichever direction that is.",
    kind="part",
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


@claim(
    "Each half is compared with the other's mean, both by the factors of their halves.",
    kind="identity",
    baseline="factors of 1",
)
def factors() -> Finding:
    batch = _batch(slope=1.5, size=7, groups=50)
    credit = HalfGroupAdvantage(by=RowField(name="x"), mu=0.75, upper=0.9, lower=0.6)
    found, plain = (c(batch)[:, 0].view(50, 7).tolist() for c in (credit, credit.but(upper=1.0, lower=1.0)))
    exact = []
    for x, reward in zip(batch.extras["x"].view(50, 7).tolist(), batch.returns().view(50, 7).tolist(), strict=True):
        order = sorted(range(7), key=lambda row: x[row])
        low, high = order[:3], order[3:]
        means = {half: sum(reward[row] for row in rows) / len(rows) for half, rows in (("low", low), ("high", high))}
        of_low = {row: (0.6 * reward[row] - 0.9 * means["high"], reward[row] - means["low"]) for row in low}
        of_high = {row: (0.9 * reward[row] - 0.6 * means["low"], reward[row] - means["high"]) for row in high}
        both = of_low | of_high
        exact.append([0.75 * both[row][0] + 0.25 * both[row][1] for row in range(7)])
    off, gap = ((torch.tensor(a) - torch.tensor(exact)).abs().max().item() for a in (found, plain))
    return Finding(
        measured={"largest error": off, "with factors of 1": gap},
        criterion="error < 1e-6 in 50 groups of 7 with factors 0.9 and 0.6 and mu 0.75; factors of 1 off by > 0.1",
        holds=off < 1e-6 and gap > 0.1,
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


@effect(
    "Compared with the other half by entropy, a group teaches more than compared with its mean.",
    kind="headline",
    method=lambda: canon(group=16),
    controls={"dr-grpo": lambda: dr_grpo(group=16)},
    step_sizes=(256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0),
    criteria=[More("mean success", by=0.0)],
    seeds=30,
    budget="answers",
    cost="slow",
    refuted=True,
    note="It makes longer steps in the same direction: at one step size for both it leads, and Dr. GRPO with a larger "
    "one of its own learns as much: the difference over 30 seeds is in [-0.02, 0.02].",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, uneven(seed), steps=40, step_size=step_size, seed=seed)


@mutation("The lower half's factor is ignored in the upper half.", kills=factors)
def lower_ignored(replace: Replace) -> None:
    forward = HalfGroupAdvantage.forward

    def ignored(self: HalfGroupAdvantage, experience: Experience) -> Tensor:
        upper = sentence.upper_share(self.by(experience).double(), self.within(experience))[:, None]
        return upper * forward(self.but(lower=1.0), experience) + (1 - upper) * forward(self, experience)

    replace(HalfGroupAdvantage, "forward", ignored)


@mutation("Each half is its own baseline: mu is taken the wrong way round.", kills=direction_free)
def other_mu(replace: Replace) -> None:
    forward = HalfGroupAdvantage.forward
    replace(HalfGroupAdvantage, "forward", lambda self, batch: forward(self.but(mu=1 - self.mu), batch))
