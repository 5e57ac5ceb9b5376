"""Metrics and samples of one step's experience, as they are logged."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from polopt import ops
from polopt.experience import Experience
from polopt.metrics import attempts, audit_verifier, correction, mixed_groups, perplexity, reference_kl
from polopt.objectives.surrogate import unused
from polopt.part import Part
from polopt.part_names import name_of
from polopt.training.episode_record import EpisodeRecord


@torch.no_grad()
def describe(experience: Experience) -> dict[str, Any]:
    """Computes metrics of a batch after credit: rewards, outcomes per kind, the world's signals, entropy, lengths,
    turns, the share of groups with a gradient, drift from a reference.

    Only rollouts are measured: demonstrations appear as their share of the batch. A batch without rollouts has no
    further metrics. Rewards and lengths are those of rows that have ended, as long as there are any; "unfinished" is
    the others' share.
    """
    if experience.rollout_logp is None:
        return {}
    shown = experience.is_demonstration
    shares = {"demonstrated": float(shown.float().mean())} if shown.any() else {}
    experience = experience[~shown]
    if not experience.mask.any():
        return shares
    ended = experience.terminated | experience.truncated
    done = experience[ended] if ended.any() else experience
    reward = done.returns()
    length = done.lengths.float()
    size = ops.group_index(experience.group)[1]
    record: dict[str, Any] = {
        **shares,
        "reward/mean": float(reward.mean()),
        "reward/std": float(reward.std(correction=0)),
        "reward/histogram": _histogram(reward),
        "length/mean": float(length.mean()),
        "length/max": float(length.max()),
        "truncated": float(done.truncated.float().mean()),
        "groups/signal": _signal(experience),
        "groups/size_min": float(size.min()),
        "groups/size_max": float(size.max()),
        "groups/mixed": float(mixed_groups(experience.outcome, experience.group)),
        "outcome/mean": float(done.outcome.mean()),
        "solved": float(done.extras["solved"].float().mean()),
        "perplexity": float(perplexity(experience.rollout_logp, experience.mask)),
    }
    if not ended.all():
        record["unfinished"] = float(1 - ended.float().mean())
    if "age" in experience.extras:
        record["replayed"] = float((experience.extras["age"] > 0).float().mean())
    if "predicted" in experience.extras:
        record["predicted/brier"] = float((experience.extras["predicted"] - experience.outcome).square().mean())
    if "external" in experience.extras:
        record["external"] = float(experience.extras["external"].float().mean())
    if "skipped" in experience.extras:
        record["pool/skipped"] = float(experience.extras["skipped"].max())
    if experience.ref_logp is not None:
        record["reference_kl"] = float(reference_kl(experience.rollout_logp, experience.ref_logp, experience.mask))
    if experience.entropy is not None:
        record["entropy"] = float(ops.masked_mean(experience.entropy, experience.mask))
    record |= _signal_metrics(done) | _turns(done) | _attempts(done)
    kinds = [task.kind for task in done.extras["task"]]
    for kind in sorted(set(kinds)):
        rows = torch.tensor([k == kind for k in kinds], device=experience.device)
        record[f"outcome/{kind}"] = float(done.outcome[rows].mean())
    return record


def metrics_of(part: Part, experience: Experience) -> dict[str, float]:
    """Computes the `batch_metrics` of a part, and of its active inner parts, on the rollouts of a batch. Of two parts
    with a metric of one name the later has a number behind it."""
    rollouts = experience[~experience.is_demonstration & ~experience.is_opponent]
    found: dict[str, float] = {}
    if experience.rollout_logp is None or not rollouts.mask.any():
        return found
    for one in part.active_parts():
        for name, value in one.batch_metrics(rollouts).items():
            found[unused(name, found)] = value
    return found


def zero_metric_sentences(part: Part, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns sentences on the metrics of a part, and of those inside it, that are 0 in all of these records of a
    stage."""
    return [
        f"{name_of(type(one))}: {meaning}"
        for one in part.parts()
        for name, meaning in one.zero_means.items()
        if records and all(record.get(name) == 0 for record in records)
    ]


def _turns(done: Experience) -> dict[str, float]:
    """Computes the mean number of turns of a row, where a row has more than one."""
    if done.turn is None:
        return {}
    _, row, _ = ops.turns(done.turn, done.mask)
    return {"turns/mean": len(row) / len(done)} if len(row) > len(done) else {}


def _attempts(done: Experience) -> dict[str, float]:
    """Computes metrics of rows that answered more than once: how often the first and the last answer had a reward of 1,
    and the changes between them."""
    if "answer_reward" not in done.extras or done.turn is None:
        return {}
    first, last, again = attempts(done.extras["answer_reward"], done.turn, done.mask)
    if not again.any():
        return {}
    found = correction(first[again] >= 1, last[again] >= 1)
    return {f"attempts/{name}": value for name, value in found._asdict().items()}


def _signal_metrics(done: Experience) -> dict[str, float]:
    """Computes the means of the world's signals, and, where one of them is the truth, the verifier's error rates:
    reward for wrong answers, none for right ones. Rows in which a signal is NaN do not count."""
    signals = {k: v.double() for k, v in done.extras.items() if k.startswith("signal_")}
    record = {
        f"signal/{k.removeprefix('signal_')}": float(v.nanmean()) for k, v in signals.items() if not v.isnan().all()
    }
    if "signal_true" in signals:
        known = ~signals["signal_true"].isnan()
        truth, rewarded = signals["signal_true"][known] >= 1, done.outcome[known] >= 1
        if len(truth):
            audit = audit_verifier(rewarded.cpu(), truth.cpu())
            rates = {"false_positive": audit.false_positive, "false_negative": audit.false_negative}
            record |= {f"verifier/{k}": rate.estimate for k, rate in rates.items() if rate is not None}
    return record


def _histogram(reward: torch.Tensor) -> dict[str, list[float]]:
    values = reward.float().cpu()
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6:
        low, high = low - 0.5, low + 0.5
    counts, edges = torch.histogram(values, bins=10, range=(low, high))
    return {"edges": [round(e, 6) for e in edges.tolist()], "counts": counts.tolist()}


def _signal(experience: Experience) -> float:
    """Returns the share of groups with an advantage that is not 0 everywhere."""
    alive = ((experience.advantage != 0) & experience.mask).any(1).to(experience.advantage.dtype)
    index, count = ops.group_index(experience.group)
    return float((alive.new_zeros(len(count)).index_add(0, index, alive) > 0).float().mean())


def rollout_records(experience: Experience, tokenizer: Any) -> Iterator[dict[str, Any]]:
    """Yields each row of a credited batch as rollouts.jsonl holds it: task, completion, reward and advantage.

    advantage: the mean over the row's decisions. is_demonstration: whether the completion was not sampled.
    """
    tokens, mask = experience.extras["tokens"].tolist(), experience.mask.tolist()
    decisions = experience.lengths.clamp(min=1)
    shown = (
        torch.ones_like(experience.is_demonstration) if experience.rollout_logp is None else experience.is_demonstration
    )
    numbers = {
        "outcome": experience.outcome,
        "reward": experience.returns(),
        "advantage": torch.where(experience.mask, experience.advantage, 0).sum(1) / decisions,
        "solved": experience.extras["solved"],
        "truncated": experience.truncated,
        "is_demonstration": shown,
        "tokens": experience.lengths,
    }
    columns = {name: column.tolist() for name, column in numbers.items()}
    groups = experience.group.tolist()
    for i, task in enumerate(experience.extras["task"]):
        yield {
            "task": task.id,
            "kind": task.kind,
            "group": groups[i],
            "prompt": task.prompt,
            "completion": _decided(tokens[i], mask[i], tokenizer),
            **{name: column[i] for name, column in columns.items()},
        }


def _decided(ids: Sequence[int], decided: Sequence[bool], tokenizer: Any) -> str:
    """Decodes a row from its first decision on: the policy's answers, and the environment's observations between
    them."""
    start = decided.index(True) if any(decided) else len(ids)
    end = next((i for i in range(start, len(ids)) if ids[i] < 0), len(ids))
    turns = itertools.groupby(range(start, end), key=lambda i: decided[i])
    return " ▸ ".join(tokenizer.decode([ids[i] for i in some], skip_special_tokens=True) for _, some in turns)


def show(row: EpisodeRecord, tokenizer: Any) -> dict[str, Any]:
    """Returns a readable sample: texts, tokens from the first decision on, and each token's log-probability."""
    start = row.decided.index(True) if any(row.decided) else len(row.ids)
    return {
        "kind": row.task.kind,
        "prompt": row.task.prompt,
        "completion": _decided(row.ids, row.decided, tokenizer),
        "answer": row.read,
        "reference": row.task.reference,
        "reward": row.reward,
        "solved": row.solved,
        "truncated": row.truncated,
        "tokens": [tokenizer.decode([i]) for i in row.ids[start:]],
        "logp": [round(x, 5) for x in row.logp[start:]],
        "decided": row.decided[start:],
    }
