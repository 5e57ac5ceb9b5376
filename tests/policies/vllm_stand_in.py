"""Stands in for the package `vllm`: the calls that polopt makes, with the names and defaults of vLLM's own.

`vllm_interface.json` is the interface as `interface_of` recorded it from an installed vLLM (`python
tests/policies/vllm_stand_in.py` records it again). Behind the interface is a transformers model that is read
whole for every token. What the real one does with weights and caches, this one does too, or refuses:

- a tied head is kept as a copy, as vLLM's CPU build packs it: handed over under one name only, the other stays old;
- after new weights, prompts read with the old ones must be dropped before the next answer.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from torch import Tensor

RECORD = Path(__file__).parent / "vllm_interface.json"
INTERFACE: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
# Multiplies the logits: an engine whose arithmetic is not the learner's.
distortion = 1.0


def signature(function: Any) -> dict[str, Any]:
    """Parameter -> its default as text, None if it has none."""
    return {
        name: None if p.default is p.empty else repr(p.default)
        for name, p in inspect.signature(function).parameters.items()
        if name != "self"
    }


def interface_of(vllm: Any) -> dict[str, Any]:
    """What polopt calls and reads of an installed vLLM."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.logprobs import Logprob
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    return {
        "version": vllm.__version__,
        "LLM": signature(vllm.LLM.__init__),
        "LLM.kwargs": sorted(f.name for f in dataclasses.fields(EngineArgs)),
        "LLM.generate": signature(vllm.LLM.generate),
        "LLM.collective_rpc": signature(vllm.LLM.collective_rpc),
        "LLM.reset_prefix_cache": signature(vllm.LLM.reset_prefix_cache),
        "reload_weights": signature(GPUModelRunner.reload_weights),
        "SamplingParams": {k: v for k, v in signature(vllm.SamplingParams).items() if not k.startswith("_")},
        "TokensPrompt": sorted(vllm.TokensPrompt.__required_keys__),
        "RequestOutput": sorted(signature(vllm.RequestOutput.__init__)),
        "CompletionOutput": sorted(f.name for f in dataclasses.fields(vllm.CompletionOutput)),
        "Logprob": sorted(f.name for f in dataclasses.fields(Logprob)),
    }


def bound(call: str, given: dict[str, Any]) -> dict[str, Any]:
    """`given` as keyword arguments of a recorded call, which must know them all."""
    unknown = set(given) - set(INTERFACE[call]) - set(INTERFACE["LLM.kwargs"] if call == "LLM" else ())
    if unknown:
        raise TypeError(f"vllm.{call} has no argument {sorted(unknown)}")
    return given


class SamplingParams:
    def __init__(self, **given: Any) -> None:
        defaults = {"n": 1, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": None, "max_tokens": 16}
        defaults |= {"stop_token_ids": (), "ignore_eos": False, "logprobs": None, "detokenize": True}
        for name, value in (defaults | bound("SamplingParams", given)).items():
            setattr(self, name, value)
        if not 0.01 <= self.temperature <= 2 or self.n < 1 or self.max_tokens < 1 or self.top_k < 0:
            raise ValueError(f"vllm.SamplingParams: {given}")


class TokensPrompt(dict[str, Any]):
    """A TypedDict in vLLM: its fields as items."""


@dataclasses.dataclass
class Logprob:
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclasses.dataclass
class CompletionOutput:
    index: int
    text: str
    token_ids: Sequence[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: Any
    outputs: list[CompletionOutput]
    finished: bool


class LLM:
    made: ClassVar[list[LLM]] = []  # every engine of the test, in order

    def __init__(self, model: str, **given: Any) -> None:
        self.given = bound("LLM", given)
        assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0", "tensors cannot be handed to another process"
        dtype = getattr(torch, given.get("dtype", "float32"))
        self.model = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=dtype).eval()
        transformers.AutoTokenizer.from_pretrained(model)
        head = self.model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
        self.loads, self.calls, self.stale = 0, 0, False
        LLM.made.append(self)

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[TokensPrompt], sampling_params: Sequence[SamplingParams], *, use_tqdm: bool = True
    ) -> list[RequestOutput]:
        assert not self.stale, "answers would continue prompts that were read with the old weights"
        assert len(prompts) == len(sampling_params)
        self.calls += 1
        return [
            RequestOutput(str(i), None, p["prompt_token_ids"], None, self._answers(p["prompt_token_ids"], asked), True)
            for i, (p, asked) in enumerate(zip(prompts, sampling_params, strict=True))
        ]

    def collective_rpc(
        self, method: str, timeout: float | None = None, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> list[Any]:
        assert method == "reload_weights"
        assert not args
        return [self._reload_weights(**bound("reload_weights", kwargs))]

    def reset_prefix_cache(self) -> bool:
        self.stale = False
        return True

    @torch.no_grad()
    def _reload_weights(self, weights_iterator: Iterable[tuple[str, Tensor]]) -> None:
        own = dict(self.model.named_parameters(remove_duplicate=False))
        for name, weight in weights_iterator:
            own[name].copy_(weight)  # a KeyError here is a weight that the checkpoint does not have
        self.loads, self.stale = self.loads + 1, True

    def _answers(self, prompt: list[int], asked: SamplingParams) -> list[CompletionOutput]:
        # vLLM gives the outputs of one request in the order of their index; an engine must not lean on it.
        return [self._answer(prompt, asked, i) for i in reversed(range(asked.n))]

    def _answer(self, prompt: list[int], asked: SamplingParams, index: int) -> CompletionOutput:
        generator = torch.Generator().manual_seed(asked.seed + index)
        ids: list[int] = []
        found: list[dict[int, Logprob]] = []
        reason = "length"
        while len(ids) < asked.max_tokens:
            logits = self.model(torch.tensor([[*prompt, *ids]]), use_cache=False).logits[0, -1].double() * distortion
            logp = _processed(logits / asked.temperature, asked.top_k, asked.top_p).log_softmax(-1)
            token = int(torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(token)
            found.append({token: Logprob(float(logp[token].float()), int((logp >= logp[token]).sum()))})
            if token in asked.stop_token_ids:
                reason = "stop"
                break
        total = sum(found[t][token].logprob for t, token in enumerate(ids))
        return CompletionOutput(index, "", ids, total, found, reason, ids[-1] if reason == "stop" else None)


def _processed(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    order = logits.argsort(descending=True)
    if top_k:
        order = order[:top_k]
    reached = logits[order].softmax(-1).cumsum(-1)
    order = order[: int((reached < top_p).sum()) + 1]
    return torch.full_like(logits, -torch.inf).index_copy(0, order, logits[order])


if __name__ == "__main__":
    import vllm

    RECORD.write_text(json.dumps(interface_of(vllm), indent=1) + "\n")
