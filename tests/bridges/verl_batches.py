"""What the trainer of verl holds of a batch, and what its registries make of it."""

from __future__ import annotations

import types
import warnings

import numpy as np
import pytest
import torch

import polopt as po

pytest.importorskip("verl")
warnings.simplefilter("ignore")

from verl.trainer.ppo import core_algos  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

from polopt.bridges import verl  # noqa: E402
from polopt.bridges.verl_call_context import call_arguments  # noqa: E402

RUNS = """
adacot aspo-tir bnpo canon chi2-occupancy cispo conciser dapo dhpo dr-grpo empg etcon fapo g2rpo gigpo grpo
grpo-lambda-len gspo gtalign gui-r1 hgpo loop luspo mobile-r1 mpo-meta noisy-verifier policy-cliff ppo rec refcritic
reinforce reinforce-baseline reseek rlcm-scaling rloo salt secrets-rlhf-ppo-max seed-grpo stratified-grpo tapo-tool
tricks-lite-ppo
""".split()  # noqa: SIM905
B, T = 12, 7


def held(seed: int = 0, turns: bool = True) -> dict[str, torch.Tensor]:
    """What verl's trainer holds of a batch of three groups: the policy is near the old one, and far off it at times."""
    draw = torch.Generator().manual_seed(seed)
    normal = lambda *size: torch.randn(*size, generator=draw)  # noqa: E731
    length = torch.randint(1, T + 1, (B,), generator=draw)
    mask = torch.arange(T) < length[:, None]
    if turns:
        mask[length > 4, 2] = False
    rewards = torch.zeros(B, T)
    rewards[torch.arange(B), length - 1] = (normal(B) > 0).double() + 0.1 * normal(B)
    old = -9 + 0.3 * normal(B, T)
    far = torch.where(torch.rand(B, T, generator=draw) < 0.2, 1.5, 0.1)
    return {
        "response_mask": mask.long(),
        "responses": torch.randint(0, 3, (B, T), generator=torch.Generator().manual_seed(100 + seed)),
        "token_level_scores": rewards,
        "token_level_rewards": rewards,
        "old_log_probs": old,
        "rollout_log_probs": old + 0.05 * normal(B, T),
        "ref_log_prob": old + 0.2 * normal(B, T),
        "values": normal(B, T),
        "log_prob": old + far * normal(B, T),
        "entropy": normal(B, T).abs(),
        "advantages": torch.where(mask, normal(B)[:, None], 0),
    }


UID = np.array(list("abcabcabcabc"), dtype=object)


def settings(name: str, algorithm: po.Algorithm | None = None, **changes) -> ActorConfig:
    spec = {} if algorithm is None else {"polopt": {"algorithm": algorithm.to_dict()}}
    loss = verl.PolicyLoss(loss_mode=name, **spec) if name.startswith("polopt/") else PolicyLossConfig(loss_mode=name)
    return ActorConfig(
        **{
            "strategy": "fsdp",
            "rollout_n": 4,
            "use_dynamic_bsz": True,
            "policy_loss": loss,
            "loss_scale_factor": T,
            **changes,
        }
    )


def told(
    config: ActorConfig, batch: dict[str, torch.Tensor], workers: int = 1, **whole
) -> tuple[torch.Tensor, torch.Tensor]:
    """(loss, gradient of the log-probabilities) by verl's registry."""
    whole = {"batch_num_tokens": batch["response_mask"].sum().item(), "global_batch_size": B, **whole}
    config.global_batch_info.update({"dp_size": workers, "loss_scale_factor": T, **whole})
    logp = batch["log_prob"].clone().requires_grad_()
    token = call_arguments.set({"ppo_loss": {"data": _Data(batch), "model_output": {}}})
    loss, _ = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)(
        old_log_prob=batch["old_log_probs"],
        log_prob=logp,
        advantages=batch["advantages"],
        response_mask=batch["response_mask"].bool(),
        loss_agg_mode=config.loss_agg_mode,
        config=config,
    )
    call_arguments.reset(token)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


class _Data(dict):
    """A micro-batch, as far as a loss asks it."""

    def select(self, *names):
        return _Data({name: self[name] for name in names})

    def to_padded_tensor(self):
        return self


def estimated(name: str, batch: dict[str, torch.Tensor], config=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns) by verl's registry, as `compute_advantage` asks for them."""
    token = call_arguments.set({"compute_advantage": {"data": types.SimpleNamespace(batch=batch)}})
    result = core_algos.get_adv_estimator_fn(name)(
        token_level_rewards=batch["token_level_rewards"],
        response_mask=batch["response_mask"],
        config={} if config is None else config,
        index=UID,
    )
    call_arguments.reset(token)
    return result


def written(algorithm: po.Algorithm, **more) -> dict:
    return {"polopt": {"algorithm": algorithm.to_dict(), **more}}


PLAIN = po.method("grpo", kl=0)
