"""Groups of processes that train one policy together."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.evaluation import OUTPUTS, Evaluation
from polopt.experience import Experience
from polopt.fields import SHAPES, Binding
from polopt.training.partition import shares

T = TypeVar("T")
# Numbers in one message of gradients.
BUCKET = 2**24


class ProcessGroup:
    """A process group; this class itself is the group of one process, with all of the work its own. rank: the number of
    this process among `size`."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Returns whether this is the main process, which alone writes the run's files."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Returns every process's value, in the order of their ranks, in every process. Tensors must be on the CPU."""
        return [value]

    def broadcast_from_main(self, work: Callable[[], T]) -> T:
        """Runs `work` in the main process alone, and returns its result in every process."""
        return work()

    def main_first(self, work: Callable[[], T]) -> T:
        """Runs `work` on the main process first, then on the others."""
        return work()

    def reduce(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sums the processes' gradients, in place."""

    def barrier(self) -> None:
        """Waits until every process has reached this point."""

    def with_advantages(self, algorithm: Algorithm, experience: Experience) -> Experience:
        """Computes advantages as `Algorithm.with_advantages`, in the main process alone: a reward may call a model
        whose scores vary and cost money. The changes, in the batch and in the parts' state, are broadcast to the
        others."""
        if self.size == 1:
            return algorithm.with_advantages(experience)
        rooms = {"reward": algorithm.reward, "credit": algorithm.credit}

        def work() -> tuple[dict[str, Any], dict[str, dict[str, Tensor]]]:
            before = {name: _versions(room) for name, room in rooms.items()}
            found = algorithm.with_advantages(experience)
            moved = {name: _moved(room, before[name]) for name, room in rooms.items()}
            return _changes(experience, found), moved

        changes, moved = self.broadcast_from_main(work)
        if not self.is_main:
            for name, room in rooms.items():
                room.load_state_dict(moved[name], strict=False)
        return experience.replace(**changes).to(experience.device)

    def assign_rows(
        self, policy: Any, batch: Experience, rows: int, only: Tensor | None = None, binds: Binding = "row"
    ) -> tuple[Tensor, int]:
        """Returns [B] bool, which of the rows in `only` are this process's to pass through the policy, and the number
        of passes, the micro-batches of `Experience.split(rows, binds=binds)`, that it takes part in: an equal number in
        every process where each pass gathers the policy's sharded weights. Groups stay together, and the work is
        balanced by tokens."""
        active = torch.ones(len(batch), dtype=torch.bool, device=batch.device) if only is None else only
        if self.size == 1:
            return active, len(batch.micro_batches(rows, active, binds))
        alone = torch.arange(len(batch), device=batch.device)
        index = alone if batch.group is None else ops.group_index(batch.group)[0]
        there = batch.extras["tokens"] >= 0 if "tokens" in batch.extras else batch.mask
        weight = torch.where(active, there.sum(1).clamp(min=1), 0)
        weights = weight.new_zeros(int(index.max()) + 1).index_add(0, index, weight)
        found = [torch.isin(index, share.to(index.device)) & active for share in shares(weights.tolist(), self.size)]
        passes = [len(batch.micro_batches(rows, local, binds)) for local in found]
        return found[self.rank], max(passes) if any(map(_in_pieces, policy.parameters())) else passes[self.rank]

    @torch.no_grad()
    def evaluate_sharded(
        self, policy: Any, batch: Experience, rows: int, needs: Iterable[str] = (), top: int = 0
    ) -> Evaluation:
        """Evaluates a policy on a batch, without gradient, in passes of at most `rows` rows: each process its share of
        the rows, with the whole evaluation returned in every process."""
        needs = frozenset(needs)
        if self.size == 1:
            return Evaluation.cat([policy.evaluate(micro, needs, top=top) for micro in batch.split(rows)])
        local, passes = self.assign_rows(policy, batch, rows)
        evaluations = [policy.evaluate(micro, needs, top=top) for micro in batch.split(rows, only=local)]
        for _ in range(passes - len(evaluations)):
            policy.evaluate(blank(batch), needs, top=top)
        own = (local.nonzero().flatten().cpu(), Evaluation.cat(evaluations).to("cpu") if evaluations else None)
        found = [(places, part) for places, part in self.gather(own) if part is not None]
        order = torch.cat([places for places, _ in found]).argsort()
        return Evaluation.cat([part for _, part in found])[order].to(batch.device)


class TorchProcessGroup(ProcessGroup):
    """The group of processes that `torchrun` has started, over `torch.distributed`."""

    def __init__(self) -> None:
        import torch.distributed

        self._dist = torch.distributed
        self.rank, self.size = self._dist.get_rank(), self._dist.get_world_size()

    def gather(self, value: T) -> list[T]:
        found: list[Any] = [None] * self.size
        self._dist.all_gather_object(found, value)
        return found

    def broadcast_from_main(self, work: Callable[[], T]) -> T:
        box: list[Any] = [work() if self.is_main else None]
        self._dist.broadcast_object_list(box, src=0)
        return box[0]

    def main_first(self, work: Callable[[], T]) -> T:
        if not self.is_main:
            self._dist.barrier()
            return work()
        found = work()
        self._dist.barrier()
        return found

    @torch.no_grad()
    def reduce(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sums gradients as `ProcessGroup.reduce`. Sharded gradients have been summed in the backward pass; a parameter
        without a gradient in any process stays without."""
        plain = [p for p in parameters if not _in_pieces(p)]
        if not plain or self.size == 1:
            return
        there = torch.tensor([p.grad is not None for p in plain], dtype=torch.int32, device=plain[0].device)
        self._dist.all_reduce(there)
        known = [p for p, count in zip(plain, there.tolist(), strict=True) if count]
        for parameter in known:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in _buckets(known):
            grads = [p.grad for p in bucket if p.grad is not None]
            flat = torch.cat([g.flatten() for g in grads])
            self._dist.all_reduce(flat)
            for grad, summed in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
                grad.copy_(summed.view_as(grad))

    def barrier(self) -> None:
        self._dist.barrier()


def assemble(device: str) -> ProcessGroup:
    """Returns the group that this process was started in: that of `torchrun`, or itself alone.

    Raises:
        ConfigError: `torchrun` started more processes here than there are devices.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ProcessGroup()
    import torch.distributed

    kind = torch.device(device).type
    if kind == "cuda":
        local, there = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if local >= there:
            raise ConfigError(
                f"torchrun started a process for device {local} here, and there are {there}; lower --nproc-per-node"
            )
        torch.cuda.set_device(local)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if kind == "cuda" else "gloo")
        atexit.register(torch.distributed.destroy_process_group)  # a script may train more than once
    return TorchProcessGroup()


def blank(batch: Experience) -> Experience:
    """Returns a row of the batch without decisions, for a pass that the other processes need."""
    row = batch[:1]
    return row.replace(mask=torch.zeros_like(row.mask))


def nothing(evaluation: Evaluation) -> Tensor:
    """Returns a zero that depends on every output, so that FSDP's hooks fire."""
    outputs = [getattr(evaluation, name) for name in (*OUTPUTS, "final_value")] + [*evaluation.extras.values()]
    return torch.stack([(v * 0).sum() for v in outputs if v is not None and v.requires_grad]).sum()


def _versions(room: nn.Module) -> dict[str, tuple[int, int]]:
    return {name: (id(value), value._version) for name, value in room.state_dict(keep_vars=True).items()}


def _moved(room: nn.Module, before: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
    """Returns the entries of a part's state that have changed, on the CPU."""
    now, state = _versions(room), room.state_dict()
    return {name: value.cpu() for name, value in state.items() if now[name] != before.get(name)}


def _changes(before: Experience, after: Experience) -> dict[str, Any]:
    """Returns the fields of a batch that are not those of another, on the CPU."""
    cpu = after.to("cpu")
    fields = {n: getattr(cpu, n) for n in SHAPES if getattr(after, n) is not getattr(before, n)}
    extras = {k: cpu.extras[k] for k, v in after.extras.items() if v is not before.extras.get(k)}
    return {**fields, "extras": extras}


def _in_pieces(parameter: Tensor) -> bool:
    return hasattr(parameter, "placements")


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    """Yields the parameters in runs of one precision and at most about `BUCKET` numbers."""
    bucket: list[nn.Parameter] = []
    for parameter in parameters:
        full = sum(p.numel() for p in bucket) + parameter.numel() > BUCKET
        if bucket and (full or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(parameter)
    if bucket:
        yield bucket
