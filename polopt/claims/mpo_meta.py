"""These programs measure what the paper of MPO claims."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
from polopt.methods.mpo_meta import AuditedRubric, mpo_meta
from polopt.rewards import Item, Meta, RubricReward

FEATURES = 9
STEP_SIZES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4)


def arms(seed: int = 0) -> tuple[TokenTree, dict[str, torch.Tensor], torch.Tensor]:
    """60 honest answers of quality 0.1 to 0.9, seen through 9 features; 4 poor ones, seldom found, that have all of
    feature h. What an answer is worth is the mean of the 9. The tree, the features, the chances at first."""
    generator = torch.Generator().manual_seed(seed)
    quality = torch.cat([torch.linspace(0.1, 0.9, 60), torch.full((4,), 0.3)])
    seen = (quality + 0.1 * torch.randn(FEATURES, 64, generator=generator)).clamp(0, 1).double()
    signals = {f"f{k}": seen[k][None] for k in range(FEATURES)}
    signals["h"] = (torch.arange(64) >= 60).double()[None]
    probs = torch.where(torch.arange(64) >= 60, 0.15, 1.0).double()
    return TokenTree.bandit(seen.mean(0).tolist()), signals, probs / probs.sum()


def curve(algorithm: Algorithm, seed: int, step_size: float, steps: int = 100) -> list[float]:
    """Returns what the policy is worth after each batch."""
    tree, signals, probs = arms(seed)
    policy = TabularPolicy(tree, critic=True).set_probabilities(probs)
    reference = copy.deepcopy(policy)
    ways: dict[str, Any] = {"steps": steps, "rate": step_size, "rows": 64, "epochs": 2, "seed": seed}
    ways |= {"reference": reference, "signals": signals, "watch": lambda: tree.value(policy).item()}
    return train(algorithm, tree, policy, **ways)


def rewritten(every: int) -> Algorithm:
    """The rubric gives h as many points as the rest together."""
    items = [Item(name=f"extras.signal_f{k}") for k in range(FEATURES)]
    items.append(Item(name="extras.signal_h", weight=float(FEATURES)))
    return mpo_meta(items=items, meta=AuditedRubric(), every=every)


@effect(
    "Under a rubric that is rewritten the policy ends up better than under a fixed one, which it learns to please.",
    kind="headline",
    method=lambda: rewritten(10),
    controls={"never rewritten": lambda: rewritten(10**9)},
    step_sizes=(0.05, 0.2, 0.8, 3.2),
    criteria=[More("end", by=0.1)],
    seeds=6,
    cost="slow",
    refuted=True,
    note="True worth after 300 batches: over six problems it is better by 0.05 to 0.11, and 0.1 is our number, not the "
    "paper's. The poor answers have 1 % of the chances at first: what is never sampled is never found.",
)
def keeps_up(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"end": curve(algorithm, seed, step_size, steps=300)[-1]}


@effect(
    "It keeps 0.95 of its best worth on the way where the fixed one keeps 0.6: 0.35 more.",
    kind="part",
    method=lambda: rewritten(10),
    controls={"never rewritten": lambda: rewritten(10**9)},
    step_sizes=STEP_SIZES,
    criteria=[More("end over peak", by=0.35)],
    best=More("end", by=0.0),
    seeds=5,
    trials=1,
    cost="slow",
    refuted=True,
    note="In short steps, which are the best for it, the fixed rubric does not lose as much within 100 batches.",
)
def of_its_peak(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    values = curve(algorithm, seed, step_size)
    return {"end over peak": values[-1] / max(values), "end": values[-1]}


@claim(
    "An audit lowers the trust in an item that goes against the truth, and restores it in one that goes with it.",
    kind="identity",
    baseline="the rubric as it was",
)
def trusted() -> Finding:
    truth = torch.tensor([0.0, 0.2, 0.6, 1.0], dtype=torch.double)
    marks = torch.stack([truth, 1 - truth, torch.full_like(truth, 0.5), truth], 1)
    items = [Item(name="with", trust=0.25), Item(name="against"), Item(name="constant", trust=0.5), Item(name="full")]
    batch = Experience(mask=torch.ones(4, 1, dtype=torch.bool), outcome=truth)
    found = [item.trust for item in AuditedRubric(factor=0.5)(items, batch, marks)]
    return Finding(
        measured={item.name: trust for item, trust in zip(items, found, strict=True)},
        criterion="trust 0.25 to 0.5, 1 to 0.5, 0.5 as it was, 1 no higher than 1",
        holds=found == [0.5, 0.5, 0.5, 1.0],
    )


class _Listener(Meta):
    """Keeps the rubric, and counts the rows that it is given."""

    def setup(self) -> None:
        self.seen = list[int]()

    def forward(self, items: Sequence[Item], experience: Experience, marks: Tensor) -> list[Item]:
        self.seen.append(len(experience))
        return list(items)


@claim(
    "The rubric is rewritten after every `every` batches, from `samples` rows and their marks.",
    kind="identity",
    baseline="after each batch, from all of it",
)
def audited() -> Finding:
    tree, signals, probs = arms()
    items = [Item(name="extras.signal_f0")]
    algorithm = mpo_meta(items=items, meta=_Listener(), every=3, samples=5, kl=0.0)
    policy = TabularPolicy(tree, critic=True).set_probabilities(probs)
    train(algorithm, tree, policy, steps=7, rate=0.1, rows=16, signals=signals)
    reward = next(part for part in algorithm.modules() if isinstance(part, RubricReward))
    assert isinstance(reward.meta, _Listener)
    times, rows = len(reward.meta.seen), sum(reward.meta.seen) / max(1, len(reward.meta.seen))
    return Finding(
        measured={"rewritten": float(times), "rows": rows},
        criterion="of 7 batches of 16 rows twice, every third; 5 rows each",
        holds=times == 2 and rows == 5,
    )


@mutation("The setting `samples` is ignored: the second judge reads the whole batch.", kills=audited)
def whole_batch(replace: Replace) -> None:
    forward = RubricReward.forward

    def bent(self: RubricReward, experience: Experience) -> Tensor:
        object.__setattr__(self, "samples", len(experience))
        return forward(self, experience)

    replace(RubricReward, "forward", bent)


@mutation("An item that agrees with the truth loses trust, one that does not gains it.", kills=trusted)
def wrong_sign(replace: Replace) -> None:
    moved = AuditedRubric._moved

    def bent(self: AuditedRubric, trust: float, covariance: float | None) -> float:
        return moved(self, trust, None if covariance is None else -covariance)

    replace(AuditedRubric, "_moved", bent)
