"""slime calls the functions as here: micro-batches of lists, one sum, and its own division by what the step holds.

Written from slime's source at 624b824 (loss.py, cp_utils.py, ray/rollout.py); slime itself needs Megatron and GPUs, so
its `get_log_probs_and_entropy` is a stand-in that returns the log-probabilities which the logits here already are.
"""

from __future__ import annotations

import enum
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from ragged import HORIZON, SPLITS, deal, experience, whole
from torch import Tensor

import polopt as po
from polopt import catalogue, index
from polopt.bridges import slime
from polopt.bridges.capabilities import BridgeError
from polopt.objectives import TokenMean


class Status(enum.Enum):
    COMPLETED = "completed"
    TRUNCATED = "truncated"


@pytest.fixture(autouse=True)
def megatron(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(logits: Tensor, *, args: Any, response_lengths: list[int], **others: Any) -> tuple[Tensor, Any]:
        assert {"unconcat_tokens", "total_lengths", "with_entropy"} <= set(others)
        return torch.empty(()), {"log_probs": list(logits[0, :, 0].split(response_lengths))}

    theirs = ModuleType("slime.backends.megatron_utils.loss")
    theirs.get_log_probs_and_entropy = said  # type: ignore[attr-defined]
    theirs.get_rollout_top_p_logprob_kwargs = lambda args, batch: {}  # type: ignore[attr-defined]
    package = ModuleType("slime.backends.megatron_utils")
    package.loss = theirs  # type: ignore[attr-defined]
    for name, module in {"slime": ModuleType("slime"), "slime.backends": ModuleType("slime.backends")}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setitem(sys.modules, "slime.backends.megatron_utils", package)
    monkeypatch.setitem(sys.modules, "slime.backends.megatron_utils.loss", theirs)


def advantages(method: Any, batch: po.Experience) -> Tensor:
    """[B] as slime's rollout manager asks for them."""
    samples = [
        SimpleNamespace(
            get_reward_value=lambda args, i=i: float(batch.outcome[i]),
            response_length=int(batch.lengths[i]),
            loss_mask=None if i % 2 else [1] * int(batch.lengths[i]),
            group_index=int(batch.group[i]),
            status=Status.COMPLETED,
        )
        for i in range(len(batch))
    ]
    raw, found = slime.rewards(method, horizon=HORIZON)(SimpleNamespace(), samples)
    assert raw == batch.outcome.tolist()
    return torch.tensor(found, dtype=torch.float64)


def gradient(method: Any, batch: po.Experience, logp: Tensor, ranks: int, micro: int) -> Tensor:
    """Of one step; an answer stands behind what its mask leaves out, too."""
    args = SimpleNamespace(**slime.arguments(method))
    custom_loss, advantage = slime.loss(method, horizon=HORIZON), advantages(method, batch)
    leaf, lengths = logp.clone().requires_grad_(), batch.lengths.tolist()
    for share in deal(len(batch), ranks, micro):
        for rows in map(Tensor.tolist, share):
            held = {
                "unconcat_tokens": None,
                "total_lengths": [lengths[i] + 3 for i in rows],
                "response_lengths": [lengths[i] for i in rows],
                "loss_masks": [torch.ones(lengths[i], dtype=torch.int) for i in rows],
                "rollout_mask_sums": torch.tensor([lengths[i] for i in rows]),
                "advantages": [advantage[i].expand(lengths[i]) for i in rows],
                "log_probs": [batch.rollout_logp[i, : lengths[i]] for i in rows],
                "ref_log_probs": [batch.ref_logp[i, : lengths[i]] for i in rows],
            }
            logits = torch.cat([leaf[i, : lengths[i]] for i in rows])[None, :, None]
            loss, log = custom_loss(args, held, logits, None)
            assert all(value.ndim == 0 for value in log.values())
            whole_step = sum(lengths) if args.calculate_per_token_loss else len(batch)
            (loss / whole_step).backward()
    assert leaf.grad is not None
    return leaf.grad


RUN = [slug for slug in index.slugs("algorithm") if not slime.HOST.refusals(catalogue.method(slug))]


@pytest.mark.parametrize("slug", RUN)
def test_the_gradient_is_the_whole_batchs(slug: str) -> None:
    batch, logp = experience(seed=7)
    expected = whole(catalogue.method(slug), batch, logp)
    assert expected.abs().max() > 0
    for ranks, micro in SPLITS:
        found = gradient(slug, batch, logp, ranks, micro)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)  # its rewards are floats of 32 bits


def test_these_run() -> None:
    assert {"grpo", "gspo", "dr-grpo", "cispo", "bnpo"} <= set(RUN)
    assert not {"ppo", "hapo", "chord", "dapo"} & set(RUN)


def test_arguments_that_make_another_method_are_refused() -> None:
    _, logp = experience(seed=0)
    for name, value in {"calculate_per_token_loss": True, "use_tis": True, "context_parallel_size": 2}.items():
        args = SimpleNamespace(**{**slime.arguments("gspo"), name: value})
        with pytest.raises(BridgeError, match=name):
            slime.loss("gspo")(args, {}, logp, None)
    assert slime.arguments(po.method("gspo").but({"objective.aggregate": TokenMean()}))["calculate_per_token_loss"]


def test_rollouts_in_several_samples_are_refused() -> None:
    held = {
        **dict.fromkeys(["unconcat_tokens", "total_lengths"]),
        "response_lengths": [2],
        "loss_masks": [torch.ones(2)],
        "rollout_mask_sums": torch.tensor([5]),
        "advantages": [torch.ones(2)],
    }
    with pytest.raises(BridgeError, match="several samples"):
        slime.loss("gspo")(SimpleNamespace(**slime.arguments("gspo")), held, torch.zeros(1, 2, 1), None)


class ByPlace(po.credit.Credit):
    """An advantage of its own for each decision."""

    def forward(self, experience: po.Experience) -> Tensor:
        return torch.arange(experience.mask.shape[1]).double().expand(experience.mask.shape)


def test_an_answer_has_one_advantage() -> None:
    batch, _ = experience(seed=0)
    with pytest.raises(BridgeError, match="different advantages"):
        advantages(po.method("gspo").but(credit=ByPlace()), batch)
