"""A policy with continuous thoughts: it reads averages of embeddings as its own thoughts, and answers with one token.

Source: continuous chain of thought, arXiv:2505.23648.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.support import SupportError


class Thoughts(Protocol):
    """Distribution of a thought x [..., V], a point of the simplex, given the policy's token distribution alpha [...,
    V]."""

    @property
    def draws(self) -> int:
        """Number of tokens that a thought is made of; the order of the root of its ratio."""
        ...

    def shaped(self, logits: Tensor) -> Tensor:
        """Returns the logits of alpha, from the model's logits."""
        ...

    def kept(self, log_alpha: Tensor) -> Tensor:
        """Returns the support of this policy's thoughts, [..., V] bool."""
        ...

    def draw(self, log_alpha: Tensor, kept: Tensor, generator: torch.Generator) -> Tensor: ...

    def logp(self, log_alpha: Tensor, thought: Tensor, kept: Tensor) -> Tensor:
        """Returns the log-probability, or log-density, of the thought, [...], with gradient."""
        ...


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Thoughts that are the mean of `count` tokens drawn with replacement: log p = sum over the draws of log alpha.

    The order of the draws is ignored, and the number of orders is left out, as it cancels in every ratio. With count 1
    a thought is an ordinary token; with a large count it is close to alpha itself.

    flat: use alpha = softmax(logits / count), for which the product over `count` draws is about as sharp as a single
        token's.
    """

    count: int = 1
    flat: bool = False

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"Tokens: count must be >= 1, found {self.count}")

    @property
    def draws(self) -> int:
        return self.count

    def shaped(self, logits: Tensor) -> Tensor:
        return logits / self.count if self.flat else logits

    def kept(self, log_alpha: Tensor) -> Tensor:
        return torch.ones_like(log_alpha, dtype=torch.bool)

    def draw(self, log_alpha: Tensor, kept: Tensor, generator: torch.Generator) -> Tensor:
        tokens = torch.multinomial(log_alpha.exp(), self.count, replacement=True, generator=generator)
        counts = torch.zeros_like(log_alpha).scatter_add_(1, tokens, torch.ones_like(tokens, dtype=log_alpha.dtype))
        return counts / self.count

    def logp(self, log_alpha: Tensor, thought: Tensor, kept: Tensor) -> Tensor:
        return self.count * torch.where(thought > 0, thought * log_alpha, 0).sum(-1)


@dataclasses.dataclass(frozen=True)
class Simplex:
    """Thoughts x ~ Dirichlet(scale * a), with a = alpha on the kept tokens, clamped to at least `floor` each and
    renormalised.

    Kept are the tokens with a probability of at least `floor` under the sampler, or under a policy to compare it with;
    the batch records them, so that every policy's density is over the same set. Coordinates below `TINY` are clamped to
    it: with a concentration less than 1, densities are unbounded.
    """

    scale: float = 1.0
    floor: float = 1e-3

    def __post_init__(self) -> None:
        if self.scale <= 0 or not 0 < self.floor < 1:
            raise ValueError(f"Simplex: need scale > 0 and 0 < floor < 1, found {self.scale} and {self.floor}")

    @property
    def draws(self) -> int:
        return 1

    def shaped(self, logits: Tensor) -> Tensor:
        return logits

    def kept(self, log_alpha: Tensor) -> Tensor:
        return log_alpha.exp() >= self.floor

    def concentration(self, log_alpha: Tensor, kept: Tensor) -> Tensor:
        """Returns the Dirichlet concentration [..., V], 0 off the kept set."""
        a = torch.where(kept, log_alpha.exp().clamp(min=self.floor), 0)
        return self.scale * a / a.sum(-1, keepdim=True).clamp(min=self.floor)

    def draw(self, log_alpha: Tensor, kept: Tensor, generator: torch.Generator) -> Tensor:
        a = self.concentration(log_alpha, kept).double()
        # By log G(a) = log G(a + 1) + log(U) / a: gammas of small shape underflow.
        gamma = torch._standard_gamma(a + 1, generator=generator).log()
        uniform = 1 - torch.rand(a.shape, dtype=a.dtype, generator=generator)
        logs = torch.where(kept, gamma + uniform.log() / a.clamp(min=1e-12), -torch.inf)
        return logs.softmax(-1).to(log_alpha.dtype)

    def logp(self, log_alpha: Tensor, thought: Tensor, kept: Tensor) -> Tensor:
        a = torch.where(kept, self.concentration(log_alpha, kept), 1)
        terms = (a - 1) * thought.clamp(min=TINY).log() - a.lgamma()
        return torch.where(kept, a, 0).sum(-1).lgamma() + torch.where(kept, terms, 0).sum(-1)


TINY = 1e-30


@dataclasses.dataclass(frozen=True)
class Certain:
    """Deterministic thoughts x = alpha, with log p = 0 and without exploration: the limit of `Tokens` for large counts.

    likeliest: use the likeliest token alone, greedy decoding.
    """

    likeliest: bool = False

    @property
    def draws(self) -> int:
        return 1

    def shaped(self, logits: Tensor) -> Tensor:
        return logits

    def kept(self, log_alpha: Tensor) -> Tensor:
        return torch.ones_like(log_alpha, dtype=torch.bool)

    def draw(self, log_alpha: Tensor, kept: Tensor, generator: torch.Generator) -> Tensor:
        if self.likeliest:
            return nn.functional.one_hot(log_alpha.argmax(-1), log_alpha.shape[-1]).to(log_alpha)
        return log_alpha.exp()

    def logp(self, log_alpha: Tensor, thought: Tensor, kept: Tensor) -> Tensor:
        return torch.zeros_like(log_alpha[..., 0])


class MixturePolicy(nn.Module):
    """A small causal transformer on mixtures of tokens.

    Embeddings are averaged, positions added, layers are pre-norm, and the embeddings are tied to the output weights, as
    in GPT-2. A row is a prompt, `steps` - 1 thoughts and one token. In a batch `extras["mixture"]` [B, T, V] is the
    input and decision at each position, one-hot for a token; `thought` [B, T] bool marks thoughts, `drawn` [B, T] is
    the number of tokens of a decision, `support_mask` [B, T, V] bool its support.
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        thoughts: Thoughts,
        *,
        width: int = 32,
        layers: int = 1,
        heads: int = 1,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.vocabulary, self.length, self.thoughts = vocabulary, length, thoughts
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.token = nn.Parameter(0.2 * torch.randn(vocabulary, width))
            self.place = nn.Parameter(0.1 * torch.randn(length, width))
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(layers)
            )
            self.last = nn.LayerNorm(width)
        self.to(dtype)

    def logits(self, mixture: Float[Tensor, "B T V"]) -> Float[Tensor, "B T V"]:
        """Returns logits at t given the positions before t; 0 at the first."""
        x = mixture[:, :-1] @ self.token + self.place[: mixture.shape[1] - 1]
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=future)
        return nn.functional.pad(self.last(x) @ self.token.T, (0, 0, 1, 0))

    def law(self, mixture: Float[Tensor, "B T V"], thought: Bool[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Returns log-probabilities of the tokens at each position; at a thought, those of the distribution it is drawn
        from."""
        logits = self.logits(mixture)
        return torch.where(thought[..., None], self.thoughts.shaped(logits), logits).log_softmax(-1)

    @torch.no_grad()
    def sample(
        self,
        prompts: Int[Tensor, "B P"],
        steps: int,
        generator: torch.Generator,
        beside: tuple[MixturePolicy, ...] = (),
        greedy: bool = False,
    ) -> Experience:
        """Samples a row for each prompt.

        beside: policies to compare the rows with, whose kept tokens are kept too.
        greedy: take the likeliest token as the answer.

        Raises:
            ValueError: the rows are longer than the policy's positions.
        """
        B, P = prompts.shape
        T = P + steps
        if self.length < T:
            raise ValueError(f"MixturePolicy: {P} + {steps} positions are requested, and it has {self.length}")
        mixture = torch.zeros(B, T, self.vocabulary, dtype=self.token.dtype, device=prompts.device)
        mixture[:, :P] = nn.functional.one_hot(prompts, self.vocabulary).to(mixture)
        kept = torch.ones(B, T, self.vocabulary, dtype=torch.bool, device=prompts.device)
        columns = torch.arange(T, device=prompts.device).expand(B, T)
        mask, thought = columns >= P, (columns >= P) & (columns < T - 1)
        for t in range(P, T):
            log_alpha = self.law(mixture[:, : t + 1], thought[:, : t + 1])[:, t]
            if t == T - 1:
                last = (
                    log_alpha.argmax(-1) if greedy else torch.multinomial(log_alpha.exp(), 1, generator=generator)[:, 0]
                )
                mixture[:, t] = nn.functional.one_hot(last, self.vocabulary).to(mixture)
                continue
            for policy in (self, *beside):
                candidate_logp = (
                    log_alpha if policy is self else policy.law(mixture[:, : t + 1], thought[:, : t + 1])[:, t]
                )
                own_kept = self.thoughts.kept(candidate_logp)
                kept[:, t] = own_kept if policy is self else kept[:, t] | own_kept
            mixture[:, t] = self.thoughts.draw(log_alpha, kept[:, t], generator)
        ended = torch.ones(B, dtype=torch.bool, device=prompts.device)
        batch = Experience(
            mask=mask,
            terminated=ended,
            truncated=~ended,
            horizon=steps,
            extras={
                "mixture": mixture,
                "thought": thought,
                "support_mask": kept,
                "drawn": torch.where(thought, self.thoughts.draws, 1),
                "tokens": mixture.argmax(-1),
            },
        )
        return batch.replace(rollout_logp=self.evaluate(batch).logp)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Returns log-probabilities of the decisions, thoughts included, and `logits` if they are among `needs`.

        Raises:
            SupportError: the batch was sampled over a support, which mixtures do not have.
        """
        if experience.support.truncated or experience.support.temperature != 1 or experience.support.by_entropy:
            raise SupportError(f"MixturePolicy: thoughts have no support of tokens, found {experience.support}")
        experience.require({f"extras.{name}" for name in ("mixture", "thought", "support_mask")}, by="MixturePolicy")
        mixture, thought = experience.extras["mixture"], experience.extras["thought"]
        law = self.law(mixture, thought)
        answer_logp = torch.where(mixture > 0, mixture * law, 0).sum(-1)
        thoughts = self.thoughts.logp(law, mixture, experience.extras["support_mask"])
        return Evaluation(
            logp=torch.where(thought, thoughts, answer_logp),
            support=experience.support,
            logits=law if "logits" in needs else None,  # type: ignore[arg-type]
        )
