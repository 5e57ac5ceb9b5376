"""Policies small enough for exact computations: a table, and a transformer of a few hundred weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.tree import TokenTree
from polopt.layers import Layer, layer_of
from polopt.policies.vocabulary import REDUCTIONS, likeliest_of, score_logits
from polopt.support import Support

ABSENT: Any = None  # an output that was not requested, typed as if present, as in Evaluation


def shaped(logits: Tensor, support: Support, temperature: float | Tensor) -> Tensor:
    """Maps logits [..., V] to logits over the support: divided by the temperature [...], -inf outside of it."""
    logits = ops.heated(logits, temperature)
    if support.truncated:
        logits = logits.masked_fill(~ops.kept_choices(logits.detach(), support.top_k, support.top_p), -torch.inf)
    return logits


def extra_outputs(log_probs: Tensor, experience: Experience, needs: frozenset[str], top: int) -> dict[str, Tensor]:
    """Returns the `extras` of `LanguagePolicy.evaluate`, except those of layers, from all log-probabilities [B, T,
    V]."""
    names = {name for name in REDUCTIONS if f"extras.{name}" in needs}
    flat = log_probs.flatten(0, 1)
    candidates = likeliest_of(flat, None, top) if top else None
    if "extras.candidate_logp" in needs and not top:
        experience.require({"extras.candidates"}, by="lab policy")
        candidates = experience.extras["candidates"].flatten(0, 1)
    if not names and candidates is None:
        return {}
    outputs = score_logits(flat, experience.extras["tokens"].flatten(), None, names, candidates)
    del outputs["logp"]
    if top and candidates is not None:
        outputs["candidates"] = candidates
    return {name: value.view(*log_probs.shape[:2], *value.shape[1:]) for name, value in outputs.items()}


class TabularPolicy(nn.Module):
    """A softmax over free logits at every (prompt, prefix) of a tree, which represents any policy on the tree.

    spread: standard deviation of the initial logits, sampled with `seed`; 0 is the uniform policy.
    critic: whether the policy has a table of values too, initially 0.
    tied: [nodes] the row of logits of each node, so that nodes may share parameters; None gives each its own.
    """

    def __init__(
        self,
        tree: TokenTree,
        *,
        spread: float = 0.0,
        seed: int = 0,
        critic: bool = False,
        dtype: torch.dtype = torch.double,
        tied: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.tree = tree
        nodes = len(tree.choices)
        self.tied = tied
        shape = (nodes if tied is None else int(tied.max()) + 1, tree.vocabulary)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
        self.logits = nn.Parameter((spread * noise).to(dtype))
        self.values = nn.Parameter(torch.zeros(nodes, dtype=dtype)) if critic else None

    @torch.no_grad()
    def set_probabilities(self, probabilities: Tensor) -> TabularPolicy:
        """Sets the policy's probabilities to these: [rows of logits, V], or [V] for all. Tokens outside the tree do not
        count. Returns self."""
        self.logits.copy_(probabilities.log().expand_as(self.logits).clamp(min=-700))
        return self

    def table(self) -> Tensor:
        """Returns the logits of all nodes, [nodes, V]."""
        return self.logits if self.tied is None else self.logits[self.tied]

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset(), *, top: int = 0) -> Evaluation:
        """Evaluates the table on a batch of the tree's rows, identified by `extras["leaf"]`. Its hidden states are its
        rows of logits."""
        node = at_node = self.tree.nodes[experience.extras["leaf"]]
        logits = self.table().masked_fill(~self.tree.choices, -torch.inf)
        temperature = experience.temperatures
        if isinstance(temperature, Tensor):  # one node has as many distributions as visits
            logits, node = logits[node.flatten()], torch.arange(node.numel()).view_as(node)
            temperature = torch.where(experience.mask, temperature, 1).flatten()
        logits = shaped(logits, experience.support, temperature)
        table = logits.log_softmax(-1)
        at = node * table.shape[1] + experience.extras["tokens"]
        needs_extras = top > 0 or any(name.startswith("extras.") for name in needs)
        return Evaluation(
            # Outside the mask the index could be a token without probability.
            logp=torch.where(experience.mask, table.flatten()[at], 0),
            support=experience.support,
            entropy=ops.entropy_of(table)[node] if "entropy" in needs else ABSENT,
            logits=logits[node] if "logits" in needs else ABSENT,
            value=self.values[at_node] if "value" in needs and self.values is not None else ABSENT,
            # The log-probabilities of every visit are large for large trees.
            extras=(extra_outputs(table[node], experience, needs, top) if needs_extras else {})
            | ({"hidden": self.table()[at_node]} if "extras.hidden" in needs else {}),
        )


class LinearPolicy(TabularPolicy):
    """A softmax of logits that are linear in features of a node, so that nodes share parameters, and a step that is too
    long for some of them harms the others:

        logits(node) = start(node) + features(node) @ weights

    features: [nodes, D].
    weights: [D, V] at first; None for 0.
    start: [nodes, V], fixed; None for 0.
    critic: whether the policy has a table of values too, initially 0.
    """

    def __init__(
        self,
        tree: TokenTree,
        features: Tensor,
        *,
        weights: Tensor | None = None,
        start: Tensor | None = None,
        critic: bool = False,
    ) -> None:
        super().__init__(tree, critic=critic)
        del self.logits
        zero = features.new_zeros(features.shape[1], tree.vocabulary)
        self.features, self.start = features, torch.zeros(()) if start is None else start
        self.weights = nn.Parameter(zero if weights is None else weights.clone())

    def table(self) -> Tensor:
        """Returns the logits of all nodes, [nodes, V]."""
        return self.start + self.features @ self.weights


class MixedPolicy:
    """The geometric mixture of two policies, token by token: the softmax of (1 - share) log p + share log q.

    share: in [0, 1].
    """

    def __init__(self, policy: Any, other: Any, share: float) -> None:
        self.policy, self.other, self.share = policy, other, share

    def parameters(self) -> list[Tensor]:
        """Returns none: the mixture is not trained."""
        return []

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates the mixture on a batch of the tree's rows. The value is the first policy's."""
        if self.share in (0, 1):
            found: Evaluation = (self.other if self.share else self.policy).evaluate(experience, needs)
            return found
        own, other = (p.evaluate(experience, needs | {"logits"}) for p in (self.policy, self.other))
        log_probs = ((1 - self.share) * own.logits + self.share * other.logits).log_softmax(-1)
        chosen = log_probs.gather(-1, experience.extras["tokens"][..., None])[..., 0]
        return Evaluation(
            logp=torch.where(experience.mask, chosen, 0),
            support=experience.support,
            entropy=ops.entropy_of(log_probs) if "entropy" in needs else ABSENT,
            logits=log_probs if "logits" in needs else ABSENT,
            value=own.value,
            extras=own.extras,
        )


class TinyTransformer(nn.Module):
    """A causal transformer in float64 over a tree's tokens: the token at t is predicted from those before it.

    It does not mask tokens that lead nowhere in the tree, so the tree must be full (`TokenTree.full`).
    """

    def __init__(
        self, tree: TokenTree, *, width: int = 8, layers: int = 2, seed: int = 0, critic: bool = False
    ) -> None:
        super().__init__()
        length = tree.start + tree.horizon
        block = {"d_model": width, "nhead": 2, "dim_feedforward": 2 * width, "dropout": 0.0, "batch_first": True}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)  # biases too are random
            self.token, self.place = nn.Embedding(tree.vocabulary, width), nn.Embedding(length, width)
            self.layers = nn.ModuleList(nn.TransformerEncoderLayer(**block) for _ in range(layers))  # type: ignore[arg-type]
            self.head = nn.Linear(width, tree.vocabulary + critic)
        self.vocabulary = tree.vocabulary
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for p in self.parameters():
                if p.ndim > 1:
                    p.copy_(torch.randn(p.shape, generator=generator) / width**0.5)
        self.double()

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset(), *, top: int = 0) -> Evaluation:
        """Evaluates the transformer on a batch with `extras["tokens"]`; position 0 must be a prompt.

        The transformer has no final normalisation, so that its last layer is the policy, `normed` or not.

        Raises:
            ValueError: `needs` names a layer that does not exist.
        """
        tokens = experience.extras["tokens"]
        T = tokens.shape[1] - 1
        x = self.token(tokens[:, :-1]) + self.place.weight[:T]
        future = torch.ones(T, T, dtype=torch.bool).triu(1)
        passed = []
        for layer in self.layers:
            x = layer(x, src_mask=future)
            passed.append(x)
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
            extras=extra_outputs(table, experience, needs, top)
            | self._inside(passed, experience, needs, temperature)
            | ({"hidden": nn.functional.pad(passed[-1], (0, 0, 1, 0))} if "extras.hidden" in needs else {}),
        )

    def _inside(
        self, passed: list[Tensor], experience: Experience, needs: frozenset[str], temperature: float | Tensor
    ) -> dict[str, Tensor]:
        """Returns the requested outputs of inner layers, from each layer's hidden states."""
        found: dict[str, Tensor] = {}
        log_probs: dict[Layer, Tensor] = {}
        for name in needs:
            requested = layer_of(name.removeprefix("extras."))
            if requested is None:
                continue
            output, layer = requested
            number = layer.at(len(passed))
            if number > len(passed):
                raise ValueError(f"layer {number} was asked for, and the policy has layers 1 to {len(passed)}")
            if layer not in log_probs:
                out = nn.functional.pad(self.head(passed[number - 1])[..., : self.vocabulary], (0, 0, 1, 0))
                log_probs[layer] = shaped(out, experience.support, temperature).log_softmax(-1)
            chosen = log_probs[layer].gather(-1, experience.extras["tokens"][..., None])[..., 0]
            found[layer.name(output)] = chosen if output == "logp" else ops.entropy_of(log_probs[layer])
        return found
