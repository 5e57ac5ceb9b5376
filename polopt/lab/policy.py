"""Policies small enough to be exact: a table, and a transformer of a few hundred weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.experience import Evaluation, Experience, Support
from polopt.lab.tree import TokenTree
from polopt.policies.vocabulary import REDUCTIONS

ABSENT: Any = None  # a part that was not asked for is typed as if it were there, as in Evaluation


def shaped(logits: Tensor, support: Support, temperature: float | Tensor) -> Tensor:
    """[..., V] logits -> logits over the support: divided by the temperature [...], -inf where it never samples."""
    logits = ops.heated(logits, temperature)
    if support.truncated:
        logits = logits.masked_fill(~ops.kept_choices(logits.detach(), support.top_k, support.top_p), -torch.inf)
    return logits


def reduced(table: Tensor, needs: frozenset[str]) -> dict[str, Tensor]:
    """[...] whatever was asked of the log-probabilities [..., V] beside their entropy."""
    return {name: reduce(table) for name, reduce in REDUCTIONS.items() if f"extras.{name}" in needs}


class TabularPolicy(nn.Module):
    """Softmax over free logits at every (prompt, prefix) of a tree; any policy on the tree is one of these.

    spread: standard deviation of the initial logits, drawn with `seed`; 0 is the uniform policy.
    critic: whether there is a table of values too, initially 0.
    """

    def __init__(
        self,
        tree: TokenTree,
        *,
        spread: float = 0.0,
        seed: int = 0,
        critic: bool = False,
        dtype: torch.dtype = torch.double,
    ) -> None:
        super().__init__()
        self.tree = tree
        noise = torch.randn(tree.choices.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        self.logits = nn.Parameter((spread * noise).to(dtype))
        self.values = nn.Parameter(torch.zeros(len(noise), dtype=dtype)) if critic else None

    @torch.no_grad()
    def set_probabilities(self, probabilities: Tensor) -> TabularPolicy:
        """Play these: [nodes, V], or [V] for every node. Tokens that lead nowhere do not count. Returns self."""
        self.logits.copy_(probabilities.log().expand_as(self.logits).clamp(min=-700))
        return self

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """What the table says of a batch of the tree's rows, known by `extras["leaf"]`."""
        node = at_node = self.tree.nodes[experience.extras["leaf"]]
        logits, temperature = self.logits.masked_fill(~self.tree.choices, -torch.inf), experience.temperatures
        if isinstance(temperature, Tensor):  # one node has as many distributions as visits
            logits, node = logits[node.flatten()], torch.arange(node.numel()).view_as(node)
            temperature = torch.where(experience.mask, temperature, 1).flatten()
        logits = shaped(logits, experience.support, temperature)
        table = logits.log_softmax(-1)
        at = node * table.shape[1] + experience.extras["tokens"]
        return Evaluation(
            # A forced index elsewhere could be a token without mass.
            logp=torch.where(experience.mask, table.flatten()[at], 0),
            support=experience.support,
            entropy=ops.entropy_of(table)[node] if "entropy" in needs else ABSENT,
            logits=logits[node] if "logits" in needs else ABSENT,
            value=self.values[at_node] if "value" in needs and self.values is not None else ABSENT,
            extras={name: values[node] for name, values in reduced(table, needs).items()},
        )


class TinyTransformer(nn.Module):
    """A causal transformer in float64 over a tree's tokens: the token at t is predicted from those before it.

    It knows nothing of which tokens lead on, so the tree must be full (`TokenTree.full`).
    """

    def __init__(
        self, tree: TokenTree, *, width: int = 8, layers: int = 2, seed: int = 0, critic: bool = False
    ) -> None:
        super().__init__()
        length = tree.start + tree.horizon
        self.token, self.place = nn.Embedding(tree.vocabulary, width), nn.Embedding(length, width)
        block = {"d_model": width, "nhead": 2, "dim_feedforward": 2 * width, "dropout": 0.0, "batch_first": True}
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(**block) for _ in range(layers))  # type: ignore[arg-type]
        self.head = nn.Linear(width, tree.vocabulary + critic)
        self.vocabulary = tree.vocabulary
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                if p.ndim > 1:
                    p.copy_(torch.randn(p.shape, generator=generator) / width**0.5)
        self.double()

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """What the transformer says of a batch with `extras["tokens"]`; position 0 must be a prompt."""
        tokens = experience.extras["tokens"]
        T = tokens.shape[1] - 1
        x = self.token(tokens[:, :-1]) + self.place.weight[:T]
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=future)
        out = nn.functional.pad(self.head(x), (0, 0, 1, 0))
        temperature = experience.temperatures
        if isinstance(temperature, Tensor):
            temperature = torch.where(experience.mask, temperature, 1)
        logits = shaped(out[..., : self.vocabulary], experience.support, temperature)
        table = logits.log_softmax(-1)
        return Evaluation(
            logp=table.gather(-1, tokens[..., None])[..., 0],
            support=experience.support,
            entropy=ops.entropy_of(table) if "entropy" in needs else ABSENT,
            logits=logits if "logits" in needs else ABSENT,
            value=out[..., -1] if "value" in needs and out.shape[-1] > self.vocabulary else ABSENT,
            extras=reduced(table, needs),
        )
