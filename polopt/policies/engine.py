"""Rollout engines: polopt's own sampler, or another program that receives the policy's weights."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import torch

from polopt.algorithm import Algorithm
from polopt.config import Config
from polopt.policies.decoder import Decoder
from polopt.policies.graph_steps import steps_of
from polopt.policies.language import LanguagePolicy
from polopt.policies.lookahead import explore
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import sample, sample_steps
from polopt.policies.sampler_steps import MixedSteps, ModelSteps, Steps, check_attention
from polopt.sampling.lookahead import LookaheadConfig
from polopt.support import Support


class Engine(Protocol):
    """A sampler of answers with a policy's weights.

    version: of the weights that the next answer is sampled with.
    """

    version: int

    def sample(
        self,
        contexts: Sequence[Sequence[int]],
        *,
        group: int | Sequence[int],
        support: Support,
        limit: int,
        stop: frozenset[int],
        generator: torch.Generator,
    ) -> list[Sampled]:
        """Samples `group` answers to each context (one number, or one each), at most `limit` tokens long, context by
        context.

        `logp` is that of the distribution actually sampled from: over `support`, with the engine's own rounding.
        """
        ...

    def sync_weights(self, version: int) -> None:
        """Registers that the policy's weights have changed to `version`: the next `sample` uses them."""
        ...


class EngineSpec(Config):
    """Settings of one kind of engine."""

    @abc.abstractmethod
    def check(self, algorithms: Mapping[str, Algorithm], *, dtype: str, device: str, evaluation: Support) -> None:
        """Raises an error if this engine cannot run a recipe: its stages' algorithms, its policy, its evaluation.

        Raises:
            ConfigError: one sentence with the setting and the fix.
        """

    @abc.abstractmethod
    def require(self) -> None:
        """Raises an error if a package that the engine needs is missing.

        Raises:
            ConfigError: how to install the missing package.
        """

    @abc.abstractmethod
    def build(self, policy: LanguagePolicy) -> Engine:
        """Builds the engine, with the policy's current weights as version 0."""


class NativeSpec(EngineSpec):
    """polopt's own sampler, on the policy's own model.

    dtype: precision of the sampler's arithmetic, None for that of the policy. bfloat16 under a float32 learner is
        faster on processors with instructions for it; behaviour log-probabilities are those of the distribution sampled
        from, and a small model improved less with it: look at `mismatch/*`, and correct for it as for vLLM.
    """

    engine: Literal["native"] = "native"
    dtype: Literal["bfloat16"] | None = None

    def check(self, algorithms: Mapping[str, Algorithm], *, dtype: str, device: str, evaluation: Support) -> None:
        """Accepts every recipe."""

    def require(self) -> None:
        """Does nothing: the sampler needs no further package."""

    def build(self, policy: LanguagePolicy) -> Engine:
        check_attention(policy.model)
        return NativeEngine(policy, None if self.dtype is None else getattr(torch, self.dtype))


class NativeEngine:
    """polopt's own sampler, which uses the policy's own model, so that no weights are copied.

    dtype: of its arithmetic, None for the policy's.
    """

    def __init__(self, policy: LanguagePolicy, dtype: torch.dtype | None = None) -> None:
        self.policy, self.dtype, self.version = policy, dtype, 0

    @property
    def decoder(self) -> Decoder | None:
        decoder = self.policy.decoder
        return decoder if decoder is None or self.dtype is None else decoder.computing(self.dtype)

    def sample(
        self,
        contexts: Sequence[Sequence[int]],
        *,
        group: int | Sequence[int],
        support: Support,
        limit: int,
        stop: frozenset[int],
        generator: torch.Generator,
    ) -> list[Sampled]:
        with self.policy.arithmetic(self.dtype):
            return sample(
                self.policy.model,
                contexts,
                group=group,
                support=support,
                limit=limit,
                stop=stop,
                generator=generator,
                decoder=self.decoder,
            )

    def explore(
        self,
        contexts: Sequence[Sequence[int]],
        *,
        group: Sequence[int],
        support: Support,
        limit: int,
        stop: frozenset[int],
        generator: torch.Generator,
        look: LookaheadConfig,
    ) -> list[Sampled]:
        """Samples answers like `sample`, with trees of rollouts among them."""
        decoder, stops = self.decoder, torch.tensor(sorted(stop), device=self.policy.device)
        with self.policy.arithmetic(self.dtype):
            return explore(
                ModelSteps(self.policy.model) if decoder is None else steps_of(decoder),
                contexts,
                copies=group,
                branches=[look.branches(n) for n in group],
                rule=look.rule,
                support=support,
                limit=limit,
                ends=lambda token: torch.isin(token, stops),
                generator=generator,
            )

    def mix(
        self,
        contexts: Sequence[Sequence[int]],
        *,
        group: int | Sequence[int],
        support: Support,
        limit: int,
        stop: frozenset[int],
        generator: torch.Generator,
        other: LanguagePolicy,
        share: float,
    ) -> list[Sampled]:
        """Samples answers like `sample`, from the geometric mixture, token by token, of the policy with another one,
        whose weight is `share`."""
        ways: dict[str, Any] = {"group": group, "support": support, "limit": limit, "stop": stop}

        def make() -> Steps:
            if share in (0, 1):
                return self._steps(other if share else self.policy)
            return MixedSteps(self._steps(self.policy), self._steps(other), share)

        with self.policy.arithmetic(self.dtype):
            return sample_steps(make, contexts, generator=generator, **ways)

    def _steps(self, policy: LanguagePolicy) -> Steps:
        decoder = policy.decoder
        if decoder is None:
            return ModelSteps(policy.model)
        return steps_of(decoder if self.dtype is None else decoder.computing(self.dtype))

    def sync_weights(self, version: int) -> None:
        self.version = version
