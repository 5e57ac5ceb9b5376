"""These programs measure what the paper of MPO claims."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.methods.mpo_meta import AuditedRubric, mpo_meta
from polopt.rewards import Item, Meta, RubricReward

FEATURES = 9


def arms() -> tuple[TokenTree, dict[str, torch.Tensor], torch.Tensor]:
    """60 honest answers of quality 0.1 to 0.9, seen through 9 features; 4 poor ones, seldom found, that have all of
    feature h. What an answer is worth is the mean of the 9. The tree, the features, the chances at first."""
    generator = torch.Generator().manual_seed(0)
    quality = torch.cat([torch.linspace(0.1, 0.9, 60), torch.full((4,), 0.3)])
    seen = (quality + 0.1 * torch.randn(FEATURES, 64, generator=generator)).clamp(0, 1).double()
    signals = {f"f{k}": seen[k][None] for k in range(FEATURES)}
    signals["h"] = (torch.arange(64) >= 60).double()[None]
    probs = torch.where(torch.arange(64) >= 60, 0.15, 1.0).double()
    return TokenTree.bandit(seen.mean(0).tolist()), signals, probs / probs.sum()


def curve(every: int, seed: int, steps: int = 100) -> list[float]:
    """What the policy is worth after each batch. The rubric gives h as many points as the rest together."""
    tree, signals, probs = arms()
    items = [Item(name=f"extras.signal_f{k}") for k in range(FEATURES)]
    items.append(Item(name="extras.signal_h", weight=float(FEATURES)))
    policy = TabularPolicy(tree, critic=True).set_probabilities(probs)
    algorithm = mpo_meta(items=items, meta=AuditedRubric(), every=every)
    return train(
        algorithm,
        tree,
        policy,
        steps=steps,
        rate=1.5,
        rows=64,
        epochs=2,
        seed=seed,
        reference=copy.deepcopy(policy),
        watch=lambda: tree.value(policy).item(),
        signals=signals,
    )


@claim(
    "A fixed rubric is learned to be pleased at the cost of what it is for; one that is rewritten is not.",
    kind="headline",
    baseline="the same, never rewritten",
)
def keeps_up() -> Finding:
    kept = {}
    for name, every in (("fixed", 10**9), ("every 10 batches", 10)):
        runs = [curve(every, seed) for seed in range(2)]
        kept[f"{name}: peak"] = sum(max(run) for run in runs) / 2
        kept[f"{name}: end over peak"] = sum(run[-1] / max(run) for run in runs) / 2
    return Finding(
        measured=kept,
        criterion="true worth at the end: fixed <= 0.6 of its peak, rewritten >= 0.95 of its peak",
        holds=kept["fixed: end over peak"] <= 0.6 and kept["every 10 batches: end over peak"] >= 0.95,
        note="2 runs of 100 batches. The poor answers have 1% of the chances at first. With 0.3% a fixed rubric is "
        "pleased in one run of two, with 0.01% in none: what is never sampled is never found.",
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


@mutation("An item that agrees with the truth loses trust, one that does not gains it.", kills=keeps_up)
def wrong_sign(replace: Replace) -> None:
    moved = AuditedRubric._moved

    def bent(self: AuditedRubric, trust: float, covariance: float | None) -> float:
        return moved(self, trust, None if covariance is None else -covariance)

    replace(AuditedRubric, "_moved", bent)
