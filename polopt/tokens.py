"""Batches of experience from token ids: from lists of them, or from the output of `transformers`' `generate`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.support import PLAIN, Support


def experience_from_tokens(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    rollout_logp: Sequence[Sequence[float]] | None = None,
    reward: Sequence[float] | Tensor | None = None,
    group: Sequence[int] | Tensor | None = None,
    eos: int | Collection[int] | None = None,
    support: Support = PLAIN,
    device: torch.device | str = "cpu",
) -> Experience:
    """Builds a batch of completions, each token of which is a decision.

    Row i is prompts[i] + completions[i] in `extras["tokens"]` [B, T], -1 after its end, as `LanguagePolicy.evaluate`
    reads it; `mask` is True and `turn` 0 at the completion. A prompt has at least one token.

    rollout_logp: of each token of each completion, under the policy that sampled it. reward: of each row, `outcome` and
    `reward`. group: of each row, None for one group per different prompt. eos: ids that end a completion; the tokens
    after the first one are left out, rows with one are `terminated`, the others `truncated`. None sets neither.

    Raises:
        ExperienceError: numbers of rows or tokens that do not match, an empty prompt.
    """
    _check_rows(len(prompts), completions=completions, rollout_logp=rollout_logp, reward=reward, group=group)
    ends = _ids(eos)
    kept = [_until_end(list(map(int, row)), ends) for row in completions]
    for i, (prompt, row) in enumerate(zip(prompts, completions, strict=True)):
        if not len(prompt):
            raise ExperienceError(f"experience_from_tokens: prompts[{i}] is empty, and needs at least one token")
        if rollout_logp is not None and len(rollout_logp[i]) != len(row):
            raise ExperienceError(
                f"experience_from_tokens: rollout_logp[{i}] needs one number for each of the {len(row)} tokens of "
                f"completions[{i}], found {len(rollout_logp[i])}"
            )
    width = max((len(p) + len(c) for p, c in zip(prompts, kept, strict=True)), default=0)
    tokens = torch.full((len(kept), width), -1)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    logp = torch.zeros(tokens.shape)
    for i, (prompt, row) in enumerate(zip(prompts, kept, strict=True)):
        start, end = len(prompt), len(prompt) + len(row)
        tokens[i, :end] = torch.tensor([*map(int, prompt), *row])
        mask[i, start:end] = True
        if rollout_logp is not None:
            logp[i, start:end] = torch.as_tensor(rollout_logp[i][: len(row)])
    fields: dict[str, Any] = {"group": _groups(prompts) if group is None else torch.as_tensor(group)}
    if eos is not None:
        fields["terminated"] = torch.tensor([bool(row) and row[-1] in ends for row in kept], dtype=torch.bool)
        fields["truncated"] = ~fields["terminated"]
    if rollout_logp is not None:
        fields["rollout_logp"] = logp
    return _batch(mask, tokens, reward, support, fields).to(device)


def observed_states(tokens: Tensor, turn: Tensor) -> Tensor:
    """Numbers what was read before each turn, [B, T]: `extras["turn_state"]`. Turns that follow the same tokens have
    the same number, in this batch and in any other.

    tokens: [B, T], -1 after a row's end. turn: [B, T], -1 at tokens that were read. The number is a hash of 63 bits,
    > 0, of the tokens read since the turn before, at each token of the turn; elsewhere it is 0.
    """
    at = torch.arange(tokens.shape[1], device=tokens.device)
    begins = torch.ones_like(turn, dtype=torch.bool)
    begins[:, 1:] = turn[:, 1:] != turn[:, :-1]
    run, start = begins.long().cumsum(1), torch.where(begins, at, 0).cummax(1).values
    words = torch.where(turn < 0, _mixed(_mixed(tokens.long()) + at - start), 0)
    # Of each run of tokens of one turn, or read between two, the sum of its words' hashes, modulo 2^64.
    sums = words.new_zeros(len(words), words.shape[1] + 1).scatter_add(1, run, words)
    return torch.where(turn < 0, 0, (_mixed(sums.gather(1, run - 1)) & (2**63 - 1)) | 1)


def _mixed(x: Tensor) -> Tensor:
    """Mixes the bits of 64-bit integers, as the generator SplitMix64 does; a bijection."""
    x = x + (0x9E3779B97F4A7C15 - 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64)):
        x = (x ^ _shifted(x, shift)) * factor
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Shifts the bits of integers to the right, and 0 comes in from the left."""
    return (x >> by) & (2 ** (64 - by) - 1)


def experience_from_generate(
    output: Any,
    attention_mask: Tensor,
    *,
    eos: int | Collection[int] | None,
    reward: Sequence[float] | Tensor | None = None,
    group: Sequence[int] | Tensor | None = None,
    support: Support = PLAIN,
) -> Experience:
    """Builds a batch from the output of `generate` of a `transformers` causal LM for prompts padded on the left.

    output: the sequences [B, P + C], or the output of `return_dict_in_generate=True`; with `output_scores=True` its
    scores give `rollout_logp`, and `extras["kept"]` where the support is truncated. Without scores, evaluate the policy
    that sampled. attention_mask: [prompts, P] of the prompts; each has B / prompts rows, one after the other, which are
    a group. eos: ids that end a completion, as the model's `generation_config.eos_token_id`, None for none. support:
    the temperature, top-k and top-p that `generate` was called with; its own defaults may hold a top-k of 50.

    Raises:
        ExperienceError: shapes that do not match, or a support that is not that of the scores.
    """
    sequences: Tensor = getattr(output, "sequences", output)
    prompts, width = attention_mask.shape
    if sequences.ndim != 2 or sequences.shape[1] < width or not prompts or len(sequences) % prompts:
        raise ExperienceError(
            "experience_from_generate: output needs sequences of shape [B, P + C] with B a multiple of the prompts, "
            f"where attention_mask is [prompts, P] = {list(attention_mask.shape)}; found {list(sequences.shape)}"
        )
    copies = len(sequences) // prompts
    _check_rows(len(sequences), reward=reward, group=group)
    before = attention_mask.bool().repeat_interleave(copies, 0)
    answer = sequences[:, width:]
    ended = torch.zeros_like(answer, dtype=torch.bool)
    for number in _ids(eos):
        ended |= answer == number
    decided = ended.int().cumsum(1) - ended.int() == 0  # up to the first end, itself included
    mask = torch.cat([torch.zeros_like(before), decided], 1)
    tokens = torch.where(torch.cat([before, decided], 1), sequences, -1)
    row = torch.arange(len(sequences), device=sequences.device)
    fields: dict[str, Any] = {"group": row // copies if group is None else torch.as_tensor(group, device=row.device)}
    fields |= {"terminated": ended.any(1), "truncated": ~ended.any(1)}
    extras: dict[str, Tensor] = {}
    if (scores := getattr(output, "scores", None)) is not None:
        logp, kept = _scored(torch.stack(list(scores), 1), answer, decided, support)
        blank = logp.new_zeros(len(logp), width)
        fields["rollout_logp"] = torch.cat([blank, logp], 1)
        if support.truncated:
            extras["kept"] = torch.cat([kept.new_full((len(kept), width, kept.shape[2]), -1), kept], 1)
    return _batch(mask, tokens, reward, support, fields).replace(extras=extras)


def _scored(scores: Tensor, answer: Tensor, decided: Tensor, support: Support) -> tuple[Tensor, Tensor]:
    """Computes log-probabilities [B, C] of the answer, and ids to choose from [B, C, K], -1 padding, from scores
    [B, C, V]."""
    left = scores > -torch.inf
    if not support.truncated and not left[decided].all():
        most = int(left[decided].sum(-1).max())
        raise ExperienceError(
            f"experience_from_generate: generate chose among at most {most} of {scores.shape[-1]} tokens, and support "
            f"is {support}; call generate with top_k=0 and top_p=1.0, or give the support that it was called with"
        )
    logp = scores.float().log_softmax(-1).gather(-1, answer[..., None]).squeeze(-1)
    width = int(torch.where(decided, left.sum(-1), 0).max()) if support.truncated and decided.any() else 1
    order = left.int().argsort(dim=-1, descending=True, stable=True)[..., :width]
    kept = torch.where(left.gather(-1, order) & decided[..., None], order, -1).int()
    return torch.where(decided, logp, 0), kept


def _batch(
    mask: Tensor, tokens: Tensor, reward: Sequence[float] | Tensor | None, support: Support, fields: dict[str, Any]
) -> Experience:
    if reward is not None:
        rewards = torch.as_tensor(reward, device=mask.device)
        rewards = rewards if rewards.is_floating_point() else rewards.float()
        fields |= {"reward": rewards, "outcome": rewards}
    turn = torch.where(mask, 0, -1)
    return Experience(mask=mask, support=support, turn=turn, extras={"tokens": tokens}, **fields)


def _groups(prompts: Sequence[Sequence[int]]) -> Tensor:
    """Numbers rows [B] by their prompts."""
    numbers: dict[tuple[int, ...], int] = {}
    return torch.tensor([numbers.setdefault(tuple(map(int, p)), len(numbers)) for p in prompts], dtype=torch.long)


def _ids(eos: int | Collection[int] | None) -> frozenset[int]:
    return frozenset() if eos is None else frozenset([eos]) if isinstance(eos, int) else frozenset(eos)


def _until_end(row: list[int], ends: Collection[int]) -> list[int]:
    return next((row[: i + 1] for i, token in enumerate(row) if token in ends), row)


def _check_rows(rows: int, **fields: Any) -> None:
    for name, values in fields.items():
        if values is not None and len(values) != rows:
            raise ExperienceError(f"{name} needs one entry for each of the {rows} rows, found {len(values)}")
