"""Behaviour policies that are moved away from what was sampled too often, and the batches that they play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from polopt.experience import Experience
from polopt.fields import SHAPES
from polopt.part import Part
from polopt.sampling.batch_buffer import BatchBuffer, TensorStore
from polopt.sampling.fragments import Fragments
from polopt.sampling.replay import aged
from polopt.sampling.source_protocols import ActorSource


class BehaviourUpdate(Part):
    """`behaviour(policy, sampled, generator) -> copy` lowers, in a copy phi of a policy theta, the probability of
    decisions that were sampled, by steps of Adam on

        L = mean_t [ max(rho, clip(rho, 1 - clip, 1 + clip)) + kl KL(pi_theta || pi_phi) ]

    with rho = pi_phi(a_t | s_t) / pi_theta(a_t | s_t), 1 at first: a decision has no gradient any more once its rho is
    below 1 - clip. Where theta's probabilities are matched already the gradient's mean is 0, so phi makes likelier what
    was sampled too seldom. The moments of Adam are kept from one update to the next.

    lr: of Adam. clip: of rho, in (0, 1). kl: weight of the divergence. epochs, minibatches: passes over the decisions,
    and the parts into which each cuts them. max_kl: no step follows one before which the estimate of KL(pi_theta ||
    pi_phi), the minibatch's mean of rho - 1 - log rho, was larger; None is no limit. max_grad_norm: of the gradient.
    """

    lr: float = 1e-3
    clip: float = 0.3
    kl: float = 0.0
    epochs: int = 16
    minibatches: int = 4
    max_kl: float | None = 0.01
    max_grad_norm: float = 0.5

    def setup(self) -> None:
        numbers = (self.lr, self.kl, self.epochs, 1 if self.max_kl is None else self.max_kl)
        if min(numbers) < 0 or self.minibatches < 1 or not 0 < self.clip < 1 or not self.max_grad_norm > 0:
            raise ValueError(
                f"sampling.BehaviourUpdate: needs lr, kl, epochs and max_kl >= 0, minibatches >= 1, clip in (0, 1) and "
                f"max_grad_norm > 0, found {self!r}"
            )
        self.moments = TensorStore()
        self.divergences: list[float] = []

    def forward(self, policy: Any, sampled: Experience, generator: torch.Generator) -> Any:
        actor = policy.twin()
        named = {name: value for name, value in actor.named_parameters() if value.requires_grad}
        optimiser = self._restored(named)
        rows = single_decisions(sampled)
        with torch.no_grad():
            logp = policy.evaluate(rows).logp
            law = policy.laws(rows) if self.kl else None
        self.divergences = []
        for _ in range(self.epochs):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            for places in order.chunk(self.minibatches):
                ratio = actor.evaluate(rows[places]).logp - logp[places]
                loss, divergence = self._loss(ratio)
                if law is not None:
                    between = actor.law_divergence(tuple(_at(x, places) for x in law), actor.laws(rows[places]))
                    loss = loss + self.kl * between.mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(named.values(), self.max_grad_norm)
                optimiser.step()
                self.divergences.append(divergence)
                if self.max_kl is not None and divergence > self.max_kl:
                    break
            else:
                continue
            break
        self._keep(named, optimiser)
        return actor

    def _loss(self, log_ratio: Tensor) -> tuple[Tensor, float]:
        """Returns the mean of the clipped ratios, and the estimate of the divergence."""
        ratio = log_ratio.exp()
        loss = torch.maximum(ratio, ratio.clamp(1 - self.clip, 1 + self.clip)).mean()
        return loss, float((ratio - 1 - log_ratio).detach().mean())

    def _restored(self, named: Mapping[str, nn.Parameter]) -> torch.optim.Adam:
        """Returns an optimiser of these parameters with the moments that are kept."""
        optimiser = torch.optim.Adam(named.values(), self.lr)
        for key, value in self.moments.tensors().items():
            name, _, entry = key.partition("/")
            parameter = named[name.replace(":", ".")]
            optimiser.state[parameter][entry] = value.clone()
        return optimiser

    def _keep(self, named: Mapping[str, nn.Parameter], optimiser: torch.optim.Adam) -> None:
        found = {
            f"{name.replace('.', ':')}/{entry}": value
            for name, parameter in named.items()
            for entry, value in optimiser.state.get(parameter, {}).items()
        }
        self.moments.keep(found)


class RecentFragments(Fragments):
    """Samples the next `steps` decisions of each of the source's environments by a behaviour policy, so that they, with
    those of earlier batches, have the frequencies that the current policy would have on average.

    After each `every` decisions the behaviour policy is made anew from the current one and from all decisions that are
    held, those of this batch so far and of the `recent` - 1 last batches. All of them are the batch to learn from, as
    if the current policy had sampled them: the learner's log-probabilities, values and advantages are computed anew.
    `extras["age"]` [B] is how many batches ago a row was sampled. The held batches change in training mode only.

    steps: decisions in a row, T. every: decisions of each environment that one behaviour policy plays, a divisor of
    steps. recent: batches to learn from, >= 1.
    """

    behaviour: BehaviourUpdate
    every: int = 16
    recent: int = 2

    writes = frozenset({"extras.age"})
    source_capabilities = frozenset({"fragments", "actors"})

    def setup(self) -> None:
        super().setup()
        if self.every < 1 or self.steps % self.every or self.recent < 1:
            raise ValueError(
                f"sampling.RecentFragments: every must be a divisor of steps, and recent >= 1, found every = "
                f"{self.every}, steps = {self.steps} and recent = {self.recent}"
            )
        self.memory = BatchBuffer()
        self._kl: list[float] = []
        self._updates: list[int] = []

    def batch_rows(self, rows: int) -> int:
        return rows  # the first batch has no more

    def forward(self, source: ActorSource) -> Experience:  # type: ignore[override]
        held = [aged(batch, age) for age, batch in enumerate(self.memory.batches(), 1)]
        self._kl, self._updates = [], []
        new: Experience | None = None
        for _ in range(self.steps // self.every):
            known = [batch for batch in (new, *held) if batch is not None]
            actor = self._actor(source, known) if known else source.policy
            played = source.fragments_by(actor, self.every)
            new = played if new is None else appended(new, played)
        assert new is not None
        if self.training:
            self.memory.keep([new, *held][: self.recent - 1])
        return Experience.cat([aged(new, 0), *held])

    def _actor(self, source: ActorSource, known: list[Experience]) -> Any:
        """Returns the behaviour policy that follows on these batches."""
        actor = self.behaviour(source.policy, _cat_decisions(known), source.generator)
        found = self.behaviour.divergences
        self._updates.append(len(found))
        self._kl += found[-1:]
        return actor

    def batch_metrics(self, experience: Experience) -> dict[str, float]:
        """Returns the mean divergence of behaviour policies at their last step, and their mean number of steps."""
        if not self._updates:
            return {}
        found = {"behaviour/steps": sum(self._updates) / len(self._updates)}
        return found | ({"behaviour/kl": sum(self._kl) / len(self._kl)} if self._kl else {})


def single_decisions(experience: Experience) -> Experience:
    """Returns each decision of the mask as a row [n, 1], with the fields and extras that are [B, T] or [B, T + 1]."""
    mask, T = experience.mask, experience.mask.shape[1]

    def rows(value: Tensor) -> Tensor:
        return value[:, :T][mask][:, None]

    def of_decisions(value: Any) -> bool:
        return isinstance(value, Tensor) and value.shape[1:2] in ((T,), (T + 1,))

    fields: dict[str, Any] = {n: rows(v) for n in SHAPES if of_decisions(v := getattr(experience, n))}
    extras = {name: rows(value) for name, value in experience.extras.items() if of_decisions(value)}
    return Experience(support=experience.support, extras=extras, **fields)


def _cat_decisions(batches: list[Experience]) -> Experience:
    """Returns the decisions of batches [B, T] of any T as rows of one batch."""
    found = [single_decisions(batch) for batch in batches]
    return found[0] if len(found) == 1 else Experience.cat(found)


def appended(first: Experience, second: Experience) -> Experience:
    """Returns the fragments of the same environments one after the other, [B, T1 + T2]."""
    T = first.mask.shape[1]
    fields: dict[str, Any] = {
        name: torch.cat([value, getattr(second, name)], 1)
        for name in SHAPES
        if (value := getattr(first, name)) is not None and value.ndim > 1
    }
    # Observations have T + 1 columns, of which the last is the next fragment's first.
    extras = {
        name: torch.cat([value[:, :T], second.extras[name]], 1)
        for name, value in first.extras.items()
        if isinstance(value, Tensor) and value.ndim > 1
    }
    return first.replace(extras=extras, **fields)


def _at(value: Tensor, places: Tensor) -> Tensor:
    """Returns the rows of a law's tensor; one without rows as it is."""
    return value[places] if value.ndim > 1 else value
