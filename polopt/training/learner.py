"""The learner: optimiser steps on a policy from one batch of experience."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.errors import UserError
from polopt.evaluation import Evaluation, add_metrics
from polopt.experience import Experience
from polopt.fields import OLD
from polopt.metrics import logp_mismatch
from polopt.names import nearest
from polopt.network_training import NetworkTraining
from polopt.policies.sharded import laid, whole
from polopt.training.flat_updates import FlatUpdates, can_be_flat
from polopt.training.noise import NoiseMeter
from polopt.training.process_group import ProcessGroup, blank, nothing
from polopt.training.specs import OptimiserSpec, StageSpec
from polopt.updates import BatchLoss
from polopt.values import check_values


class DivergenceError(UserError, FloatingPointError):
    """Raised where a step would destroy the policy. The message names what is not finite and the fix."""


def diverged(norm: float) -> DivergenceError:
    """Returns the error of a gradient of this norm."""
    return DivergenceError(
        f"the gradient's norm is {norm}, and a step with it would destroy the policy; lower optimiser.lr, "
        "or look at the last checkpoint's metrics for where it diverged"
    )


class Policy(Protocol):
    """The interface of a policy that a learner can train."""

    def evaluate(self, experience: Experience, needs: Any = (), *, top: int = 0) -> Evaluation: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


def learning(policy: Any, pattern: str | None) -> list[nn.Parameter]:
    """Returns the parameters that learn: all trainable ones, or those whose names the pattern is found in.

    Raises:
        ConfigError: there are none.
    """
    if pattern is None:
        return [p for p in policy.parameters() if p.requires_grad]
    names = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    found = [p for name, p in names.items() if re.search(pattern, name)]
    if not found:
        raise ConfigError(f"train = {pattern!r:.60} is found in no parameter's name{nearest(pattern, names)}")
    return found


class Learner:
    """A learner takes optimiser steps on a policy: epochs x minibatches per batch, each the sum of its micro-batches.

    A minibatch is one optimiser batch of whole groups, and every normaliser is computed on the whole of it. Its
    micro-batches keep together what the objective binds. So micro_rows, and how many processes of a `team` share the
    rows, change memory and time and nothing else. Where the policy evaluates each decision on its own and the
    objective binds none, one process without micro_rows has minibatches of single decisions (`FlatUpdates`). How
    gradients become steps is the algorithm's `update`.
    """

    def __init__(
        self,
        policy: Any,
        algorithm: Algorithm,
        stage: StageSpec,
        generator: torch.Generator,
        team: ProcessGroup | None = None,
    ) -> None:
        self.policy, self.algorithm, self.stage, self.generator = policy, algorithm, stage, generator
        self.team = ProcessGroup() if team is None else team
        self.parameters = learning(policy, stage.train)
        self.stepper = algorithm.update.begin(self.parameters, stage.optimiser)
        self.networks = NetworkTraining(policy, algorithm, stage.optimiser.lr, generator)
        self.noise, self.minibatches = NoiseMeter(), stage.minibatches
        self.flat_updates = FlatUpdates(policy, algorithm.objective, self.stepper, stage.optimiser.clip, self.networks)

    def begin_batch(self) -> None:
        """Prepares the policy for the sampling of the next batch."""
        self.stepper.begin_batch(self.generator)

    def update(self, experience: Experience, step: int) -> dict[str, float]:
        """Learns from one batch with advantages, as step number `step` of the stage. Returns the metrics, averaged over
        its optimiser steps."""
        self.minibatches = self.algorithm.minibatches(int(experience.mask.sum()), self.stage.minibatches)
        rate = learning_rate(self.stage.optimiser, step, self.stage.steps)
        self.stepper.set_lr(rate)
        self.networks.set_course(rate / self.stage.optimiser.lr)
        reads_batch, after = self.stepper.reads_batch, self.stepper.after_minibatches
        records = [self._step_on_batch(experience)] if reads_batch and not after else []
        if not self.stepper.stepped and not self.networks.active:
            pass
        elif self._is_flat(experience):
            records += self._flat(experience)
        else:
            records += [self._step(batch, epoch, first) for epoch, first, batch in self._minibatches(experience)]
        if reads_batch and after:
            records.append(self._step_on_batch(experience))
        noise = self.noise.scale()
        return {**_combined(records), **({} if noise is None else {"grad_noise": noise}), "lr": rate}

    def _step_on_batch(self, experience: Experience) -> dict[str, float]:
        """Takes the update rule's step on the whole batch, in micro-batches, and returns its metrics."""
        check_values(experience, by="Learner.update")
        experience = self.networks.relabelled(experience)
        objective, rows = self.algorithm.objective, self.stage.micro_rows or len(experience)
        pieces = experience.split(rows, binds=objective.binding)
        loss = BatchLoss(self.policy, objective, lambda piece: self.networks.evaluate(piece, objective), pieces)
        record = self.stepper.step_on_batch(loss)
        if not math.isfinite(record["grad_norm"]):
            raise diverged(record["grad_norm"])
        return record

    def _is_flat(self, experience: Experience) -> bool:
        """Returns whether the decisions of the batch are rows of their own: nothing else divides or joins them."""
        whole_batch = self.team.size == 1 and self.stage.micro_rows is None
        return whole_batch and can_be_flat(self.policy, self.algorithm.objective, experience, self.networks)

    def _flat(self, experience: Experience) -> list[dict[str, float]]:
        """Takes the steps of an update on decisions, and returns each one's metrics."""
        check_values(experience, by="Learner.update")
        if not experience.mask.any():
            return [{}]
        stage = self.stage
        records = self.flat_updates.run(experience, stage.epochs, self.minibatches, self.generator, self.noise.see)
        for norm in (record["grad_norm"] for record in records if "grad_norm" in record):
            if not math.isfinite(norm):
                raise diverged(norm)
        return records

    def _step(self, batch: Experience, epoch: int, first: bool) -> dict[str, float]:
        """Takes one step of the networks beside the policy, and of the policy where it is due."""
        # Groups share a prompt that is read once, so they stay together, next to groups of like length; the loss does
        # not depend on which rows share a micro-batch.
        batch = batch[(-ops.group_least(-_width(batch).double(), batch.group)).argsort(stable=True)]
        if self.networks.active:
            check_values(batch, by="Learner.update")
        self.networks.begin_minibatch()
        batch = self.networks.relabelled(batch)
        record = add_metrics([self.networks.step(batch)])
        if self.networks.policy_is_due and self.stepper.stepped:
            record |= self._minibatch(batch, epoch, first)
        self.networks.move_targets()
        return record

    def _minibatches(self, experience: Experience) -> Iterator[tuple[int, bool, Experience]]:
        """Yields (epoch, whether it is the batch's very first, minibatch). Groups stay together: they share a prompt.
        Demonstrated groups are spread evenly over the minibatches."""
        index, size = ops.group_index(experience.group)
        shown = torch.ones(len(size), dtype=torch.bool)
        shown[index[~experience.is_demonstration].cpu()] = False
        count = min(self.minibatches, max(int(shown.sum()), int((~shown).sum())))
        for epoch in range(self.stage.epochs):
            if count == 1:
                yield epoch, epoch == 0, experience
                continue
            order = torch.randperm(len(size), generator=self.generator)
            kinds = [order[kind[order]].tensor_split(count) for kind in (~shown, shown)]
            for i, groups in enumerate(map(torch.cat, zip(*kinds, strict=True))):
                yield epoch, epoch == i == 0, experience[torch.isin(index, groups.to(index.device))]

    def _minibatch(self, batch: Experience, epoch: int, first: bool) -> dict[str, float]:
        """Takes one optimiser step and returns its metrics. On the first of a batch the current policy is still the old
        one."""
        objective = self.algorithm.objective
        outputs, full_batch_outputs = (
            objective.active_fields("policy_outputs"),
            objective.active_fields("full_batch_outputs"),
        )
        active = objective.contributes(batch)
        rows = self.stage.micro_rows or len(batch)
        for parameter in self.policy.parameters():  # also those that do not learn
            parameter.grad = None
        if not active.any():
            return {}
        pieces: Iterable[Experience]
        if rows >= len(batch) and self.team.size == 1 and (full_batch_outputs or active.all()):
            # With all rows in one pass, its own evaluation is that of the full batch.
            pieces, local, passes = [batch], torch.ones_like(active), 1
        else:
            if full_batch_outputs:
                batch = batch.replace(
                    full_batch_evaluation=self.team.evaluate_sharded(
                        self.policy, batch, rows, full_batch_outputs - {"logp"}
                    )
                )
            local, passes = self.team.assign_rows(self.policy, batch, rows, active, objective.binding)
            pieces = batch.split(rows, local, objective.binding)
        stepped = self.stepper.stepped
        metrics: list[dict[str, Tensor]] = [{"loss": torch.zeros(())}]
        logps: list[Tensor] = []
        for micro in pieces:
            evaluation = self.networks.evaluate(micro, objective)
            result = objective(micro, evaluation)
            result.loss.backward(inputs=None if len(stepped) == len(self.parameters) else stepped)
            metrics.append({"loss": result.loss.detach(), **result.metrics})
            logps.append(evaluation.logp.detach())
        for _ in range(passes - len(logps)):
            nothing(self.policy.evaluate(blank(batch), outputs)).backward()
        self.team.reduce(stepped)
        if epoch == 0 and self.minibatches > 1:
            gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in stepped]
            self.noise.see(gradients, len(batch))
        norm = float(whole(nn.utils.clip_grad_norm_(stepped, self.stage.optimiser.clip)))
        if not math.isfinite(norm):
            raise diverged(norm)
        self.stepper.step()
        own = (local.nonzero().flatten().cpu(), torch.cat(logps).cpu()) if logps else None
        gathered = self.team.gather((add_metrics(metrics), own))
        places, local_logps = zip(*(found for _, found in gathered if found is not None), strict=True)
        order = torch.cat(places).argsort()
        known = order[active.cpu()[torch.cat(places)[order]]]
        record = add_metrics(numbers for numbers, _ in gathered)
        logp = torch.cat(local_logps)[known].to(batch.device)
        return {**record, "grad_norm": norm, **_against_sampler(batch[active], logp, first)}

    def evaluate(self, experience: Experience, needs: Iterable[str] = (), policy: Policy | None = None) -> Evaluation:
        """Evaluates the learned policy, or another one, on a batch without gradient, in micro-batches shared by the
        processes."""
        rows = self.stage.micro_rows or len(experience)
        return self.team.evaluate_sharded(self.policy if policy is None else policy, experience, rows, needs)

    @torch.no_grad()
    def assess(self, experience: Experience, needs: frozenset[str], others: Mapping[str, Policy]) -> Experience:
        """Computes the fields of other policies that the algorithm reads: old_logp, value, final_value; as
        `extras.old_<name>` the current policy's output `extras.<name>`; and, under each of the names in `others`, the
        log-probabilities of that policy. In rows whose old_logp no active part reads it is 0."""
        found: dict[str, Any] = {}
        extras = {name: f"extras.{name.removeprefix(OLD)}" for name in needs if name.startswith(OLD)}
        outputs = {*extras.values()} | ({"value"} & needs)
        rows = None if outputs else self.algorithm.active_rows("old_logp", experience)
        if rows is not None and "old_logp" in needs:
            found["old_logp"] = torch.zeros_like(experience.mask, dtype=experience.precision)
            if rows.any():
                logp = self.evaluate(experience[rows]).logp
                found["old_logp"] = found["old_logp"].to(logp.dtype).index_put((rows,), logp)
        elif outputs or "old_logp" in needs:
            now = self.evaluate(experience, outputs)
            found["old_logp"] = now.logp
            found["extras"] = {
                old.removeprefix("extras."): now.extras[output.removeprefix("extras.")]
                for old, output in extras.items()
            }
            if "value" in needs:
                found |= {"value": now.value, "final_value": now.final_value}
        for field, other in others.items():
            place = found.setdefault("extras", {}) if field.startswith("extras.") else found
            place[field.removeprefix("extras.")] = self.evaluate(experience, policy=other).logp
        return experience.replace(**found)

    def state(self) -> dict[str, Tensor]:
        """Returns the optimiser's tensors, the networks', the algorithm's and the noise meter's, by name."""
        tensors = {f"algorithm.{k}": v for k, v in self.algorithm.state_dict().items()}
        tensors |= {"noise": self.noise.moments, **self.networks.state()}
        return tensors | {f"optimiser.{name}": value for name, value in self.stepper.state().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state` returned."""
        self.noise.moments = tensors["noise"].clone()
        self.networks.load(tensors)
        own = {k.removeprefix("algorithm."): v for k, v in tensors.items() if k.startswith("algorithm.")}
        self.algorithm.load_state_dict(own)
        steps = {k.removeprefix("optimiser."): v for k, v in tensors.items() if k.startswith("optimiser.")}
        self.stepper.load(steps, lambda value, parameter: laid(value.to(parameter.device), parameter))


def _against_sampler(batch: Experience, logp: Tensor, first: bool) -> dict[str, float]:
    """Computes the log-probability mismatch between the current policy, `logp` [B, T], and the behaviour policy;
    demonstrations are left out, and without rollouts there are no metrics."""
    sampled = batch.mask & ~batch.is_demonstration[:, None]
    if batch.rollout_logp is None or not sampled.any():
        return {}
    record = {"ratio/max": float((logp - batch.rollout_logp)[sampled].max().exp())}
    if not first:
        return record
    found = logp_mismatch(batch.rollout_logp, logp, sampled)
    return record | {
        "mismatch/mean": float(found.mean),
        "mismatch/max": float(found.max),
        "mismatch/kl": float(found.k3),
        "mismatch/ess": float(found.ess_sequence),
    }


def _combined(records: list[dict[str, float]]) -> dict[str, float]:
    """Averages metrics over optimiser steps; of those named `/max` the largest is taken."""
    found: dict[str, list[float]] = {}
    for record in records:
        for name, value in record.items():
            found.setdefault(name, []).append(value)
    return {
        name: max(values) if name.endswith("/max") else sum(values) / len(values)
        for name, values in sorted(found.items())
    }


def learning_rate(spec: OptimiserSpec, step: int, steps: int) -> float:
    """Returns the learning rate of step 0 <= step < steps: a linear rise, then constant, linear or cosine decay to
    final * lr."""
    if step < spec.warmup:
        return spec.lr * (step + 1) / spec.warmup
    done = (step - spec.warmup) / max(1, steps - spec.warmup)
    fraction = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[spec.decay]
    floor = 1.0 if spec.decay == "constant" else spec.final
    return spec.lr * (floor + (1 - floor) * fraction)


def _width(batch: Experience) -> Tensor:
    """[B] column of each row's last decision, plus one: the number of columns that a forward pass needs."""
    columns = torch.arange(1, batch.mask.shape[1] + 1, device=batch.device)
    return torch.where(batch.mask, columns, 0).amax(1)
