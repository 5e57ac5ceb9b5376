"""Random ragged batches with every field filled in, and with NaN and 1e30 at all positions that must not be read."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.fields import PER_DECISION, SHAPES
from polopt.outputs import NetworkOutput, Proposal
from polopt.policies.vocabulary import REDUCTIONS

VOCABULARY = 5
HORIZON = 12
LEAVES = ("logp", "entropy", "value", "logits")


@dataclasses.dataclass(frozen=True)
class SampleBatch:
    """A batch and the current policy's outputs on it; the leaves collect gradients.

    A leaf "extras.x" becomes x in the extras of the evaluation.
    """

    experience: Experience
    leaves: dict[str, Tensor]

    @property
    def mask(self) -> Tensor:
        return self.experience.mask

    @property
    def clean(self) -> bool:
        """Tests whether the policy's outputs are finite off the mask, too."""
        return all(bool(leaf.isfinite().all()) for leaf in self.leaves.values())

    def evaluation(self) -> Evaluation:
        plain: dict[str, Any] = {k: v for k, v in self.leaves.items() if not k.startswith("extras.")}
        extras = {k.removeprefix("extras."): v for k, v in self.leaves.items() if k not in plain}
        return Evaluation(support=self.experience.support, extras=extras, **plain)

    def to(self, dtype: torch.dtype) -> SampleBatch:
        leaves = {k: v.detach().to(dtype).requires_grad_() for k, v in self.leaves.items()}
        return dataclasses.replace(self, experience=self.experience.to(dtype), leaves=leaves)

    def rows(self, index: Tensor) -> SampleBatch:
        leaves = {k: v.detach()[index].requires_grad_() for k, v in self.leaves.items()}
        return dataclasses.replace(self, experience=self.experience[index], leaves=leaves)

    def nudged(self, step: dict[str, Tensor]) -> SampleBatch:
        return dataclasses.replace(self, leaves={k: v.detach() + step.get(k, 0) for k, v in self.leaves.items()})

    def replace(self, **changes: Any) -> SampleBatch:
        """Returns a copy with other fields of the experience."""
        return dataclasses.replace(self, experience=self.experience.replace(**changes))


def random_mask(generator: torch.Generator, B: int, T: int) -> Tensor:
    """Samples a mask: right padding, holes as between turns, one full row, one row with a single decision, one with
    none.
    """
    length = torch.randint(2, T + 1, (B, 1), generator=generator)
    mask = torch.arange(T) < length
    hole = torch.rand(B, T, generator=generator) < 0.25
    mask = mask & ~(hole & (torch.arange(T) > 0))
    mask[0] = True
    mask[1] = torch.arange(T) == 1
    mask[2] = False
    return mask


def poison_like(x: Tensor) -> Tensor:
    """Returns NaN, 1e30 and -inf in turn, in the shape of x."""
    poison = torch.tensor([float("nan"), 1e30, -float("inf")], dtype=x.dtype)
    return poison[torch.arange(x.numel()) % 3].reshape(x.shape)


def poisoned(x: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask.reshape(*mask.shape, *[1] * (x.ndim - 2)), x, poison_like(x))


def below_0(x: Tensor) -> Tensor:
    """Clamps log-probabilities to at most -0.01."""
    return x.clamp(max=-0.01)


def law(generator: torch.Generator, *shape: int) -> Tensor:
    """Samples log-probabilities of 4 choices out of 6, [*shape, 4]."""
    return torch.randn(*shape, 6, generator=generator, dtype=torch.float64).log_softmax(-1)[..., :4]


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """Samples a float64 batch; groups of 4, 3 and 1 (and one of an empty row alone) in mixed order.

    Odd seeds have rewards [B, T], others [B]; seeds 2 and 3 of each four have episode ends [B, T].
    """
    g = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    mask = random_mask(g, B, T)
    logp = -0.1 - 2 * normal(B, T).abs()
    many = seed % 4 >= 2
    ends = torch.rand((B, T) if many else (B,), generator=g)
    fields: dict[str, Any] = {
        "rollout_logp": logp,
        "old_logp": below_0(logp + 0.1 * normal(B, T)),
        "ref_logp": below_0(logp + 0.5 * normal(B, T)),
        "prev_logp": below_0(logp + 0.2 * normal(B, T)),
        "value": normal(B, T),
        "entropy": normal(B, T).abs(),
        "advantage": normal(B, T),
    }
    reward = normal(B, T) if seed % 2 else normal(B)
    leaves = {
        "logp": below_0(logp + 0.3 * normal(B, T)),
        "entropy": normal(B, T).abs(),
        "value": normal(B, T),
        "logits": normal(B, T, VOCABULARY),
    }
    # Each has a generator of its own, so that an additional name does not change the others.
    for number, name in enumerate(sorted(REDUCTIONS)):
        leaves[f"extras.{name}"] = torch.randn(B, T, generator=_seeded(1000 * seed + number), dtype=torch.float64)
    fields["value_target"] = torch.randn(B, T, generator=_seeded(seed), dtype=torch.float64)
    fields["guide_logp"] = -torch.rand(B, T, generator=_seeded(seed), dtype=torch.float64)
    advantages = normal(B, T, 2)
    if not clean:
        advantages = poisoned(advantages, mask)
        fields = {k: poisoned(v, mask) for k, v in fields.items()}
        leaves = {k: poisoned(v, mask) for k, v in leaves.items()}
        reward = poisoned(reward, mask) if reward.ndim == 2 else reward
    experience = Experience(
        mask=mask,
        horizon=HORIZON,
        reward=reward,
        outcome=torch.randint(0, 2, (B,), generator=g).double(),
        terminated=ends < 0.3,
        truncated=(ends > 0.6) & (ends < 0.9),
        final_value=normal(B, T) if many else normal(B),
        group=torch.tensor([7, 3, 900, 3, 7, 7, 3, 5, 7])[torch.arange(B) % 9],
        turn=(~mask).cumsum(1),
        extras={
            "greedy_reward": normal(B),
            "answer": [str(int(i)) for i in torch.randint(0, 3, (B,), generator=g)],
            "row": torch.arange(B),
            "kind": ["ab"[int(i)] for i in torch.randint(0, 2, (B,), generator=g)],
            "advantages": advantages,
            "prompt_logp": -normal(B).abs(),
            "guide_logp": fields.pop("guide_logp"),
        },
        **fields,
    )
    return SampleBatch(experience, {k: v.requires_grad_() for k, v in leaves.items()})


def outcome_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """Samples a random batch whose reward is the outcome, 0 or 1."""
    batch = random_batch(seed, clean=clean)
    return batch.replace(reward=batch.experience.outcome)


def gaussian_batch(seed: int = 0, clean: bool = False, D: int = 3) -> SampleBatch:
    """Samples a batch whose decisions are Gaussian steps in D dimensions: means, noise and intervals in extras."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(100 + seed)
    B, T = batch.mask.shape
    old = torch.randn(B, T, D, generator=g, dtype=torch.float64)
    extras = {
        "mean": old,
        "std": 0.1 + torch.rand(B, T, generator=g, dtype=torch.float64),
        "dt": 0.5 + torch.rand(B, T, generator=g, dtype=torch.float64),
    }
    mean = old + 0.3 * torch.randn(B, T, D, generator=g, dtype=torch.float64)
    if not clean:
        extras = {k: poisoned(v, batch.mask) for k, v in extras.items()}
        mean = poisoned(mean, batch.mask)
    leaves = {**batch.leaves, "extras.mean": mean.requires_grad_()}
    return SampleBatch(batch.experience.replace(extras=extras), leaves)


def points_batch(seed: int = 0, clean: bool = False, D: int = 3) -> SampleBatch:
    """Samples a batch of points in D dimensions, whose decisions are draws of noise and level."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(100 + seed)
    B, T = batch.mask.shape
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    extras = {name: normal(B, T, D) for name in ("noise", "slow_velocity", "base_velocity")}
    extras |= {"noise_level": normal(B, T).sigmoid(), "opponent_logp": -2 + normal(B, T)}
    velocity = extras["slow_velocity"] + 0.3 * normal(B, T, D)
    if not clean:
        extras = {k: poisoned(v, batch.mask) for k, v in extras.items()}
        velocity = poisoned(velocity, batch.mask)
    extras |= {"point": normal(B, D), "context": torch.randint(0, 3, (B,), generator=g)}
    leaves = {**batch.leaves, "extras.velocity": velocity.requires_grad_()}
    return SampleBatch(batch.experience.replace(extras=extras), leaves)


def taught_batch(seed: int = 0, B: int = 9, T: int = 8, clean: bool = False) -> SampleBatch:
    """Samples a `random_batch` with the outputs of a teacher, of an inner layer and of a sum over the vocabulary."""
    batch, g = random_batch(seed, B, T, clean), torch.Generator().manual_seed(100 + seed)
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    mask = batch.mask
    outputs = {"mean_logp": -3 + normal(B, T), "logp_of_layer_1": -2 + 0.3 * normal(B, T)}
    extras: dict[str, Tensor] = {f"old_{k}": v + 0.2 * normal(B, T) for k, v in outputs.items()}
    outputs |= {"entropy_of_layer_1": normal(B, T).abs(), "candidate_logp": law(g, B, T)}
    extras |= {"teacher_logp": -2 + normal(B, T), "teacher_entropy": normal(B, T).abs()}
    extras["teacher_candidate_logp"] = law(g, B, T)
    extras["extrapolation"] = 0.5 + torch.rand(B, T, generator=g, dtype=torch.float64)
    if not clean:
        outputs, extras = ({k: poisoned(v, mask) for k, v in x.items()} for x in (outputs, extras))
    extras |= {
        "candidates": torch.randint(0, 6, (B, T, 4), generator=g),
        "has_teacher_signal": torch.rand(B, generator=g) < 0.6,
    }
    leaves = {f"extras.{k}": v.requires_grad_() for k, v in outputs.items()}
    return SampleBatch(batch.experience.replace(extras=extras), batch.leaves | leaves)


def networks_batch(seed: int = 0, clean: bool = False, A: int = 3) -> SampleBatch:
    """Samples a batch of vectors as actions, with outputs of a critic of two heads, of a value and a temperature."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(100 + seed)
    B, T = batch.mask.shape
    normal = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64)  # noqa: E731
    now = Proposal()
    smooth = Proposal(target=True, noise=0.2)
    laws = Proposal(draws=3, of="uniform"), Proposal(draws=3), Proposal(draws=3, after=True)
    sequence, at_balance = Proposal(sequence=8, model="model"), Proposal(of="balance")
    outputs = {
        NetworkOutput("critic"): normal(B, T, 2),
        NetworkOutput("critic", target=True): normal(B, T, 2),
        NetworkOutput("critic", proposal=now): normal(B, T, 2),
        NetworkOutput("critic", target=True, proposal=now): normal(B, T, 2),
        NetworkOutput("critic", target=True, next=True, proposal=now): normal(B, T, 2),
        NetworkOutput("critic", target=True, next=True, proposal=smooth): normal(B, T, 2),
        NetworkOutput("value"): normal(B, T),
        NetworkOutput("value", next=True): normal(B, T),
        NetworkOutput("temperature"): 0.1 + normal(B, T).abs(),
        NetworkOutput("logp", proposal=now): normal(B, T),
        NetworkOutput("logp", next=True, proposal=now): normal(B, T),
        **{NetworkOutput("critic", proposal=law): normal(B, T, 3, 2) for law in laws},
        **{NetworkOutput("logp", proposal=law): normal(B, T, 3) for law in laws},
        NetworkOutput("critic", target=True, next=True, proposal=now, heads=2): normal(B, T, 2),
        NetworkOutput("critic", proposal=sequence): normal(B, T, 8, 2),
        NetworkOutput("logp", proposal=sequence): normal(B, T, 8),
        NetworkOutput("critic", proposal=at_balance): normal(B, T, 2),
        NetworkOutput("logp", proposal=at_balance): normal(B, T),
        NetworkOutput("balance"): normal(B, T, 1),
        NetworkOutput("model"): normal(B, T, 4),
        NetworkOutput("observation", next=True): normal(B, T, 4),
        NetworkOutput("policy"): normal(B, T, 1),
        NetworkOutput("policy", proposal=Proposal(of="every")): normal(B, T, 4, 1),
        NetworkOutput("policy", target=True, next=True, proposal=Proposal(target=True)): normal(B, T, 1),
        NetworkOutput("price"): 0.1 + normal(B, T).abs(),
        NetworkOutput("action"): normal(B, T, A),
        NetworkOutput("action", proposal=now): normal(B, T, A),
    }
    named = {output.name: value for output, value in outputs.items()}
    named |= {"extras.latent_mean": normal(B, T, 3), "extras.latent_log_std": normal(B, T, 3)}
    named |= {f"extras.{of}_features": normal(B, T, 5) for of in ("predicted", "privileged")}
    columns = {"action": normal(B, T, A), "balance": normal(B, T, 1).abs(), "privileged": normal(B, T, 2)}
    if not clean:
        named = {k: poisoned(v, batch.mask) for k, v in named.items()}
        columns = {k: poisoned(v, batch.mask) for k, v in columns.items()}
    leaves = batch.leaves | {name: value.requires_grad_() for name, value in named.items()}
    return SampleBatch(batch.experience.replace(extras=columns), leaves)


# Makers of batches with more and more fields.
MAKERS = (random_batch, outcome_batch, gaussian_batch, points_batch, networks_batch, taught_batch)


def with_columns(batch: SampleBatch, columns: Tensor, T: int) -> SampleBatch:
    """Moves the decisions to other columns of a wider batch.

    The new columns hold no decisions, but poison; in a clean batch, and in an extra with an integer for each column,
    -1.
    """

    def widen(x: Tensor, blank: bool) -> Tensor:
        shape = (x.shape[0], T, *x.shape[2:])
        wide = torch.full(shape, -1 if blank else 0, dtype=x.dtype)
        wide = poison_like(wide) if blank and not batch.clean else wide
        return wide.index_copy(1, columns, x.detach())

    old = batch.experience
    changes: dict[str, Any] = {"mask": widen(old.mask, False)}
    for name in SHAPES:
        value = getattr(old, name)
        if name != "mask" and value is not None and value.ndim == 2:
            changes[name] = widen(value, value.is_floating_point() and name in (*PER_DECISION, "reward"))
    wide = {k: v for k, v in old.extras.items() if isinstance(v, Tensor) and v.shape[:2] == old.mask.shape}
    extras = {**old.extras, **{k: widen(v, v.is_floating_point()) for k, v in wide.items()}}
    if "tokens" in wide:
        extras["tokens"] = widen(wide["tokens"] + 1, False) - 1
    leaves = {k: widen(v, True).requires_grad_() for k, v in batch.leaves.items()}
    return dataclasses.replace(batch, experience=dataclasses.replace(old, **changes, extras=extras), leaves=leaves)


def without_decisions(batch: SampleBatch) -> SampleBatch:
    return batch.replace(mask=torch.zeros_like(batch.mask))
