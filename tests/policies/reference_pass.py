"""Batches for language policies, and what one full forward pass per row of transformers' own model says of them."""

from __future__ import annotations

from typing import Any

import torch
from tiny_models import STOP, VOCABULARY, tiny
from torch import Tensor

from polopt.policies.language import LanguagePolicy


class NoTokenizer:
    eos_token_id = STOP


def policy_of(kind: str, dtype: torch.dtype = torch.float64, **settings: Any) -> LanguagePolicy:
    policy = LanguagePolicy(tiny(kind, dtype, **settings), NoTokenizer(), critic=True)
    assert policy.critic is not None
    torch.nn.init.normal_(policy.critic.weight, generator=torch.Generator().manual_seed(1))
    return policy


def rows_of(groups: int = 2, each: int = 4) -> tuple[list[list[int]], list[list[bool]]]:
    """Rows in groups that share a prompt; after it, stretches of decisions with something read in between."""
    random = torch.Generator().manual_seed(5)
    number = lambda low, high: int(torch.randint(low, high, (), generator=random))  # noqa: E731
    ids, decided = [], []
    for _ in range(groups):
        prompt = [number(3, VOCABULARY) for _ in range(number(5, 8))]
        for _ in range(each):
            row, marks = list(prompt), [False] * len(prompt)
            for turn in range(number(1, 4)):
                length = number(1, 4) if turn % 2 == 0 else number(1, 3)
                row += [number(0, VOCABULARY) for _ in range(length)]
                marks += [turn % 2 == 0] * length
            ids.append(row)
            decided.append(marks)
    return ids, decided


def padded(ids: list[list[int]], decided: list[list[bool]], layout: str) -> tuple[Tensor, Tensor]:
    """Tokens and mask: padding on the right or on the left."""
    width = max(map(len, ids)) + 2
    tokens, mask = torch.full((len(ids), width), -1), torch.zeros(len(ids), width, dtype=torch.bool)
    for b, (row, marks) in enumerate(zip(ids, decided, strict=True)):
        places = {
            "right": torch.arange(len(row)),
            "left": torch.arange(width - len(row), width),
        }[layout]
        tokens[b, places], mask[b, places] = torch.tensor(row), torch.tensor(marks)
    return tokens, mask


def naive(policy: LanguagePolicy, ids: list[list[int]], decided: list[list[bool]], T: float) -> dict[str, Tensor]:
    """Each row alone through transformers' own model. Decisions of all rows, in order, in one line."""
    found: dict[str, list[Tensor]] = {"logp": [], "entropy": [], "value": [], "final_value": []}
    for row, marks in zip(ids, decided, strict=True):
        output = policy.model(torch.tensor([row]), use_cache=False, output_hidden_states=True)
        logits = output.logits[0] if output.logits.dtype == torch.float64 else output.logits[0].float()
        logp = torch.log_softmax(logits / T, -1)
        hidden = output.hidden_states[-1][0]
        values = policy.critic(hidden.to(policy.critic.weight.dtype))[:, 0]  # type: ignore[misc, union-attr]
        for t in range(1, len(row)):
            if marks[t]:
                found["logp"].append(logp[t - 1, row[t]])
                found["entropy"].append(-(logp[t - 1].exp() * logp[t - 1]).sum())
                found["value"].append(values[t - 1])
        last = max(t for t in range(len(row)) if marks[t])
        found["final_value"].append(values[last])
    return {name: torch.stack(values) for name, values in found.items()}


def gradients(policy: LanguagePolicy, said: dict[str, Tensor]) -> list[Tensor]:
    """Gradient of a fixed random mixture of everything that was said."""
    random = torch.Generator().manual_seed(3)
    weights = {k: torch.randn(v.shape, generator=random, dtype=torch.float64) for k, v in sorted(said.items())}
    loss = torch.stack([(weights[k] * said[k]).sum() for k in sorted(said)]).sum()
    found = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for p, g in zip(policy.parameters(), found, strict=True)]


DECODED = ["gpt2", "llama", "qwen2", "qwen3", "mistral-whole"]
CASES = [(kind, torch.float64) for kind in (*DECODED, "mistral", "granite")]
