"""The losses of TRL and verl as plain functions, called without a trainer, with the inputs that their trainers pass."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib
import types
from collections.abc import Callable
from importlib import metadata
from typing import Any

import yaml
from torch import Tensor

from polopt.names import nearest

INSTALL = {"trl": "pip install 'polopt[trl]'", "verl": "pip install 'polopt[verl]'"}

TRL: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo"},
    "bnpo": {"loss_type": "bnpo"},
    "dr_grpo": {"loss_type": "dr_grpo"},
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "sapo": {"loss_type": "sapo"},
    "vespo": {"loss_type": "vespo"},
    "gspo": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
}


EQUAL_ROWS = "its trainer gives micro-batches equally many rows and divides by their number, which makes it exact"
# How the losses of a library are called, and which claims come from reading its code without running it.
LIBRARIES = {
    "trl": "TRL: `GRPOTrainer._compute_loss` on a stand-in that returns the given log-probabilities, with the "
    "defaults of `GRPOConfig`, one process, one micro-batch a step. `delta`, off by default, bounds the ratio where "
    "the advantage is negative. The trainer was not run. As far as its code was read, what stands off the mask there "
    "are a model's log-probabilities of padding tokens, so numbers, not NaN.",
    "verl": "verl: the registered function with the defaults of `ActorConfig`, bool masks, and with every micro-batch "
    "the whole batch's `batch_num_tokens` and `global_batch_size`, as its `ppo_loss` does. The trainer was not run. As "
    "far as its code was read, it pads with zeros, not NaN.",
}
NOTES = {
    "trl:grpo": f"{EQUAL_ROWS}; documented as biased by length and not recommended for it",
    "trl:bnpo": "documented: it normalises over the local batch, so that results vary with its size",
    "trl:dr_grpo": EQUAL_ROWS,
    "trl:sapo": EQUAL_ROWS,
    "trl:gspo": EQUAL_ROWS,
    "trl:luspo": EQUAL_ROWS,
    "verl:sapo": "seq-mean-token-mean whatever is asked for, as its paper has it",
    "verl:clip_cov": "it leaves out tokens drawn at random, by covariances within the micro-batch",
    "verl:kl_cov": "its covariances are those within the micro-batch",
    "verl:geo_mean": "documented: loss_agg_mode is not used; nor are the whole batch's totals, by which others divide",
    "verl:vanilla/seq-mean-token-sum-norm": "documented: it divides by the width of the mask unless loss_scale_factor "
    "is set",
}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A loss of another library.

    fed: its inputs beyond logp, old_logp and mask, in words.
    note: a statement of its own documentation or code on a check's result.
    """

    name: str
    version: str
    loss: Callable[..., Tensor]
    fed: str
    note: str = ""


def peer(name: str) -> Peer:
    """Returns the loss of a name such as `trl:dapo`, `trl:dapo/delta=4`, `verl:vanilla` or
    `verl:vanilla/seq-mean-token-mean`.

    Raises:
        ValueError: the library is not installed, with how to install it, or has no such loss.
    """
    library, _, loss = name.partition(":")
    if library not in INSTALL:
        raise ValueError(f"{name!r}: no library {library!r}{nearest(library, INSTALL)}")
    try:
        importlib.import_module(library)
        peer_loss = trl_loss(loss) if library == "trl" else verl_loss(loss)
        version = metadata.version(library)
        return dataclasses.replace(peer_loss, name=name, version=version, note=NOTES.get(name, ""))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == library:
            raise ValueError(f"{name} needs {library}, which is not installed: {INSTALL[library]}") from None
        raise ValueError(f"{name}: {library} is installed and does not import: {error}") from None


# TRL ------------------------------------------------------------------------------------------------------------


def trl_loss(name: str) -> Peer:
    """Returns GRPOTrainer's loss for one of `TRL`, `dapo` or `dapo/delta=4`, with its config's defaults for the rest.

    Raises:
        ValueError: no such loss or setting.
    """
    name, _, changes = name.partition("/")
    if name not in TRL:
        raise ValueError(f"TRL has no loss {name!r} here{nearest(name, TRL)}")
    changed = dict(change.partition("=")[::2] for change in changes.split(",") if change)
    for key in changed:
        if key not in trl_defaults():
            raise ValueError(f"TRL's GRPOConfig has no setting {key!r}{nearest(key, trl_defaults())}")
    settings = {**TRL[name], **{key: yaml.safe_load(value) for key, value in changed.items()}}
    by_row = settings.get("importance_sampling_level") == "sequence" or name == "vespo"

    def loss(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, decisions: Tensor) -> Tensor:
        advantage = row_advantage(advantage, mask) if by_row else advantage
        return trl_compute_loss(logp, old_logp, advantage, mask, decisions, **settings)

    fed = ["one advantage a row"] if by_row else []
    fed += ["num_items_in_batch of the whole batch"] if name in ("dapo", "cispo", "vespo") else []
    fed += ["epsilon_high 5, as its documentation recommends"] if name == "cispo" else []
    fed += [f"{key} {value}" for key, value in changed.items()]
    return Peer(name, "", loss, "; ".join(fed))


def row_advantage(advantage: Tensor, mask: Tensor) -> Tensor:
    """Computes the mean of a row's advantages over its decisions, [B]."""
    own = (advantage * mask).where(mask, advantage.new_zeros(()))
    return own.sum(1) / mask.sum(1).clamp(min=1)


@functools.cache
def trl_defaults() -> dict[str, Any]:
    """Returns the defaults of GRPOConfig."""
    import trl

    found = {f.name: f.default for f in dataclasses.fields(trl.GRPOConfig)}
    return {k: v for k, v in found.items() if v is not dataclasses.MISSING}


def trl_compute_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    decisions: Tensor,
    *,
    ref_logp: Tensor | None = None,
    entropy: Tensor | None = None,
    importance: Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """Calls GRPOTrainer._compute_loss, unbound, on a stand-in trainer that returns the given log-probabilities.

    One process, one micro-batch an optimiser step. settings: those of GRPOConfig, loss_type above all; epsilon_high
    None is epsilon, as in the trainer. importance: [B, T] the correction for vLLM, if there is one.
    """
    import trl

    config = {**trl_defaults(), **settings}
    low, high = config["epsilon"], config["epsilon_high"]
    entropy = logp.detach() * 0 if entropy is None else entropy
    trainer = types.SimpleNamespace(
        **{k: config[k] for k in ("loss_type", "beta", "importance_sampling_level", "max_completion_length")},
        epsilon_low=low,
        epsilon_high=low if high is None else high,
        args=types.SimpleNamespace(**{**config, "steps_per_generation": 1}),
        model=types.SimpleNamespace(training=True),
        accelerator=types.SimpleNamespace(num_processes=1, reduce=lambda x, reduction: x, gather=lambda x: x),
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=importance is not None,
        vllm_importance_sampling_correction=importance is not None,
        get_gamma_weights=trl.GRPOTrainer.get_gamma_weights,
        _entropy_bonus_enabled=False,
        _metrics={"train": collections.defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *a, **k: (logp, entropy, None),
    )
    numbers = mask.long()
    inputs = {
        "prompt_ids": numbers[:, :1],
        "prompt_mask": numbers[:, :1],
        "completion_ids": numbers,
        "completion_mask": numbers.new_ones(numbers.shape),
        "tool_mask": numbers,
        "advantages": advantage,
        "old_per_token_logps": old_logp,
        "ref_per_token_logps": ref_logp,
        "num_items_in_batch": decisions,
        "importance_sampling_ratio": importance,
    }
    return trl.GRPOTrainer._compute_loss(trainer, None, inputs)  # type: ignore[arg-type]


# verl -----------------------------------------------------------------------------------------------------------

DRO_BETA = 0.5
MODES = ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def verl_loss(name: str) -> Peer:
    """Returns a registered policy loss of verl, `vanilla` or `vanilla/MODE`, with the defaults of ActorConfig.

    Raises:
        ValueError: no such loss or mode.
    """
    from verl.trainer.ppo import core_algos
    from verl.workers.config import ActorConfig, PolicyLossConfig

    name, _, mode = name.partition("/")
    mode = mode or "token-mean"
    if name not in core_algos.POLICY_LOSS_REGISTRY:
        raise ValueError(f"verl has no policy loss {name!r}{nearest(name, core_algos.POLICY_LOSS_REGISTRY)}")
    if mode not in MODES:
        raise ValueError(f"verl has no loss_agg_mode {mode!r}{nearest(mode, MODES)}")
    function = core_algos.get_policy_loss_fn(name)
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        loss_agg_mode=mode,
        policy_loss=PolicyLossConfig(loss_mode=name, dro_beta=DRO_BETA if name == "dro" else None),
    )

    def loss(logp: Tensor, old_logp: Tensor, advantage: Tensor, mask: Tensor, decisions: Tensor, rows: int) -> Tensor:
        whole = {"dp_size": 1, "batch_num_tokens": decisions, "global_batch_size": rows}
        config.global_batch_info.update(whole)
        return function(
            old_log_prob=old_logp,
            log_prob=logp,
            advantages=advantage,
            response_mask=mask,
            loss_agg_mode=mode,
            config=config,
        )[0]

    fed = [f"loss_agg_mode {mode}"]
    fed += [f"dro_beta {DRO_BETA}, which has no default"] if name == "dro" else []
    return Peer(name, "", loss, "; ".join(fed))
