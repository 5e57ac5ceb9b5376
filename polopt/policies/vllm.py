"""vLLM as the rollout engine, in this process; the policy's weights are copied to it after every update."""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pydantic
import torch
from safetensors import safe_open
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.policies.engine import EngineSpec
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.policies.sampler import copies_of
from polopt.support import Support

# vLLM raises temperatures below the first to it without an error, and rejects those above the second.
TEMPERATURES = (0.01, 2.0)


class VLLMSpec(EngineSpec):
    """vLLM on the first visible device, together with the learner.

    dtype: of vLLM's weights and arithmetic, None for the policy's own.
    gpu_memory_utilization: the share of the device that vLLM may fill, its cache included; the learner needs the rest.
    max_model_len: most tokens of a context with its answer, None for the model's own.
    enforce_eager: skip compilation and CUDA graphs, for a quick start and slower steps.
    """

    engine: Literal["vllm"] = "vllm"
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    gpu_memory_utilization: float = pydantic.Field(default=0.3, gt=0, le=1)
    max_model_len: int | None = pydantic.Field(default=None, ge=1)
    enforce_eager: bool = False

    def check(self, algorithms: Mapping[str, Algorithm], *, dtype: str, device: str, evaluation: Support) -> None:
        """Raises an error for recipes that vLLM cannot run, see `EngineSpec.check`.

        Refused: sampling over a truncated support or token by token, parts that read the sampler's entropy,
            temperatures that vLLM changes or refuses, float64, and a device that is not the first.
        """
        for stage, algorithm in algorithms.items():
            support = algorithm.sampling.rollout_support
            if support is not None and support.truncated:
                raise ConfigError(
                    f"stages.{stage}: the sampling's {support} is truncated, and vLLM does not report to the learner "
                    "which ids top-k and top-p left; set top_k: 0 and top_p: 1 there, or rollout.engine: native"
                )
            steered = [type(part).__name__ for part in algorithm.parts() if "steps" in part.source_capabilities]
            if steered:
                raise ConfigError(
                    f"stages.{stage}: {steered[0]} steers rollouts token by token, which vLLM does not let it; set "
                    "rollout.engine: native, or another sampling"
                )
            others = [type(p).__name__ for p in algorithm.parts() if {"mixtures", "weights"} & p.source_capabilities]
            if others:
                raise ConfigError(
                    f"stages.{stage}: {others[0]} samples from another policy than the learner, and vLLM has the "
                    "learner's weights alone; set rollout.engine: native, or self-play, as "
                    f"stages.{stage}.but: {{sampling.mix.0.policy: {{part: sampling.OpponentPolicy}}}}"
                )
            if "entropy" in algorithm.required_fields:
                readers = sorted(type(part).__name__ for part in algorithm.parts() if "entropy" in part.reads)
                raise ConfigError(
                    f"stages.{stage}: {', '.join(readers)} needs the sampler's entropy, which vLLM does not return; "
                    "set rollout.engine: native, or another part"
                )
            if support is not None:
                _check_temperature(f"stages.{stage}: the sampling's", support)
        _check_temperature("evaluation.support:", evaluation)
        if dtype == "float64" and self.dtype is None:
            raise ConfigError(
                "policy.dtype = 'float64' is a precision that vLLM has not; set rollout.dtype: float32, or "
                "policy.dtype: float32"
            )
        index = device.partition(":")[2]
        if index not in ("", "0"):
            raise ConfigError(
                f"device = {device!r}: vLLM takes the first visible device; set device: cuda, and the environment "
                f"variable CUDA_VISIBLE_DEVICES={index}"
            )

    def require(self) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "rollout.engine = 'vllm' needs vLLM, which is not installed: pip install \"polopt[vllm]\""
            )

    def build(self, policy: LanguagePolicy) -> VLLMEngine:
        self.require()
        return VLLMEngine(policy, self)


class VLLMEngine:
    """A rollout engine on `vllm.LLM` in this process.

    The weights are copied into vLLM at the first `sample` after each `sync_weights`, under the names of the checkpoint
    format, and vLLM's cache of prompts is dropped. Log-probabilities are vLLM's own, after the temperature; it returns
    neither entropy nor the ids that a truncated support keeps, so `Sampled.entropy` and `Sampled.kept` are None.

    Raises:
        ConfigError: the architecture's parameters have other names in a checkpoint.
    """

    def __init__(self, policy: LanguagePolicy, spec: VLLMSpec) -> None:
        # In one process, weights are copied from tensor to tensor. vLLM reads this variable when it creates an engine.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        import vllm

        self.policy, self.version = policy, 0
        self._vllm, self._stale = vllm, False
        self._folder = tempfile.TemporaryDirectory(prefix="polopt-vllm-")
        folder = Path(self._folder.name)
        policy.save(folder)
        _check_names(policy, folder)
        self._llm = vllm.LLM(
            str(folder),
            dtype=spec.dtype or str(policy.compute or policy.model.dtype).removeprefix("torch."),
            gpu_memory_utilization=spec.gpu_memory_utilization,
            max_model_len=spec.max_model_len,
            enforce_eager=spec.enforce_eager,
            # Of the distribution actually sampled from: after the temperature, top-k and top-p.
            logprobs_mode="processed_logprobs",
            # The defaults of a model must not change the requested sampling.
            generation_config="vllm",
        )

    def sync_weights(self, version: int) -> None:
        self.version, self._stale = version, True

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
        """Samples answers, see `Engine.sample`. Each context gets a seed from `generator`; vLLM counts up from it in
        the group.

        Raises:
            ValueError: a context without tokens.
            ConfigError: a temperature that vLLM changes or refuses.
            FloatingPointError: log-probabilities that are not finite.
        """
        if not contexts:
            return []
        if not all(map(len, contexts)):
            raise ValueError("VLLMEngine.sample: every context needs at least one token, found an empty one")
        _check_temperature("VLLMEngine.sample:", support)
        if self._stale:
            self._load()
        seeds = torch.randint(2**62, (len(contexts),), generator=generator).tolist()
        settings = {
            "temperature": support.temperature,
            "top_k": support.top_k,
            "top_p": support.top_p,
            "max_tokens": limit,
            "stop_token_ids": sorted(stop),
            "ignore_eos": True,  # the ids in `stop` end an answer, and no others
            "logprobs": 0,  # of the chosen token alone
            "detokenize": False,
        }
        requests = self._llm.generate(
            [self._vllm.TokensPrompt(prompt_token_ids=list(context)) for context in contexts],
            [
                self._vllm.SamplingParams(n=n, seed=seed, **settings)
                for n, seed in zip(copies_of(contexts, group), seeds, strict=True)
            ],
            use_tqdm=False,
        )
        return [_sampled(out) for request in requests for out in sorted(request.outputs, key=lambda out: out.index)]

    def _load(self) -> None:
        """Copies the policy's weights into vLLM."""
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._weights()})
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("VLLMEngine: vLLM kept prompts that it had read with the old weights")
        self._stale = False

    def _weights(self) -> Iterator[tuple[str, Tensor]]:
        # A tied head under both its names: where vLLM has a packed copy of it, one name would leave the copy stale.
        return self.policy.weights()


def _sampled(output: Any) -> Sampled:
    tokens = list(output.token_ids)
    logp = [position[token].logprob for position, token in zip(output.logprobs, tokens, strict=True)]
    if not all(map(math.isfinite, logp)):
        raise FloatingPointError(
            "VLLMEngine.sample: log-probabilities are not finite; the model's weights, or training, diverged"
        )
    if output.finish_reason not in ("stop", "length"):
        raise RuntimeError(f"VLLMEngine.sample: vLLM ended an answer with {output.finish_reason!r}, not stop or length")
    return Sampled(tokens, logp, entropy=None, stopped=output.finish_reason == "stop", kept=None)


def _check_temperature(where: str, support: Support) -> None:
    if support.by_entropy is not None:
        raise ConfigError(
            f"{where} by_entropy: vLLM has one temperature for an answer; leave it out, or set rollout.engine: native"
        )
    low, high = TEMPERATURES
    if not low <= support.temperature <= high:
        raise ConfigError(
            f"{where} temperature = {support.temperature}: vLLM samples with temperatures from {low:g} to {high:g}; "
            "set one of those, or rollout.engine: native"
        )


def _check_names(policy: LanguagePolicy, folder: Path) -> None:
    """Checks that a checkpoint's names of the weights are the model's, by which they are copied to vLLM."""
    saved: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            saved |= set(tensors.keys())
    for name, _ in policy.weights(once=True):
        if name not in saved:
            raise ConfigError(
                f"rollout.engine = 'vllm': {type(policy.model).__name__} calls a parameter {name!r} that its "
                "checkpoints name otherwise, so it cannot be handed over; set rollout.engine: native"
            )
