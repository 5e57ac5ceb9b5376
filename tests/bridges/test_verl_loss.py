"""Objectives as losses of verl: against verl's own functions, values and gradients."""

from __future__ import annotations

import warnings
from unittest import mock

import pytest
import torch

import polopt as po
from polopt.bridges.capabilities import BridgeError
from polopt.objectives import Clip, Surrogate, TokenMean

pytest.importorskip("verl")
warnings.simplefilter("ignore")

from verl.trainer.ppo import core_algos  # noqa: E402
from verl_batches import PLAIN, RUNS, B, T, held, settings, told  # noqa: E402

from polopt.bridges import verl_config, verl_loss  # noqa: E402

pytestmark = pytest.mark.usefixtures("float64")


class TestLoss:
    """verl's own losses as oracles: value and gradient."""

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(
        ("theirs", "ours", "algorithm"),
        [
            ({"name": "vanilla", "loss_agg_mode": "seq-mean-token-mean", "clip_ratio_c": 1e9}, "grpo", PLAIN),
            ({"name": "vanilla", "clip_ratio_high": 0.28, "clip_ratio_c": 1e9}, "dapo", None),
            ({"name": "vanilla", "loss_agg_mode": "seq-mean-token-sum-norm", "clip_ratio_c": 1e9}, "dr-grpo", None),
            ({"name": "vanilla"}, "grpo", PLAIN.but(objective=Surrogate(trust=Clip(dual=3.0), aggregate=TokenMean()))),
            (
                {
                    "name": "gspo",
                    "loss_agg_mode": "seq-mean-token-mean",
                    "clip_ratio_low": 3e-4,
                    "clip_ratio_high": 4e-4,
                },
                "gspo",
                None,
            ),
            (
                {"name": "gpg"},
                "reinforce",
                po.method("reinforce").but(objective=Surrogate(ratio=None, trust=po.objectives.PolicyGradient())),
            ),
        ],
        ids=["grpo", "dapo", "dr-grpo", "dual", "gspo", "gpg"],
    )
    def test_same_value_and_gradient(self, theirs, ours, algorithm, seed):
        batch = held(seed)
        name = theirs["name"]
        expected = told(settings(name, **{k: v for k, v in theirs.items() if k != "name"}), batch)
        found = told(settings(f"polopt/{ours}", algorithm), batch)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-10)
        if name != "gpg":  # the value of a score is not that of a ratio
            torch.testing.assert_close(found[0], expected[0], rtol=1e-7, atol=1e-10)

    def test_cispo(self):
        """verl bounds the ratio above alone, as its paper's experiments do."""
        batch = held(1)
        algorithm = po.method("cispo")
        trust = algorithm.objective.trust
        expected = told(settings("cispo", clip_ratio_low=1.0, clip_ratio_high=trust.high), batch)
        found = told(settings("polopt/cispo", algorithm), batch)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-10)

    @pytest.mark.parametrize("slug", RUNS)
    def test_micro_batches_and_workers_change_nothing(self, slug):
        """Two workers with five and seven rows, in micro-batches of one to three rows of whatever length: the mean of
        their gradients, which is what reaches the policy, is that of one loss over the whole batch without verl."""
        batch, algorithm = held(6), verl_config.fitted(slug, po.method(slug))
        mask = batch["response_mask"].bool()
        apart = "old_logp" in algorithm.required_fields
        experience = po.Experience(
            mask=mask,
            rollout_logp=batch["rollout_log_probs" if apart else "old_log_probs"],
            old_logp=batch["old_log_probs"],
            ref_logp=batch["ref_log_prob"],
            advantage=batch["advantages"],
            horizon=T,
        )
        logp = batch["log_prob"].clone().requires_grad_()
        whole = algorithm.objective(experience, po.Evaluation(logp=logp, entropy=batch["entropy"]))
        expected = torch.autograd.grad(whole.loss, logp)[0]
        assert expected.abs().max() > 1e-6
        config, found, value = settings(f"polopt/{slug}"), torch.zeros_like(expected), 0.0
        tokens = int(mask.sum())
        for pieces in ([2, 2, 1], [3, 1, 3]):
            start = 0 if pieces[0] == 2 else 5
            for size in pieces:
                rows = slice(start, start + size)
                loss, gradient = self.piece(config, {k: v[rows] for k, v in batch.items()}, tokens)
                found[rows] += gradient / 2
                value += loss / 2
                start += size
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(value, whole.loss.detach(), rtol=1e-9, atol=1e-12)

    def piece(self, config, batch, tokens):
        with mock.patch.object(verl_loss, "_entropy", return_value={"entropy": batch["entropy"]}):
            return told(config, batch, workers=2, batch_num_tokens=tokens)

    def test_a_split_would_show(self):
        """The test before can fail: shares of a whole that is one token larger give another gradient."""
        batch = held(6)
        tokens = int(batch["response_mask"].sum())
        a, b = (told(settings("polopt/dapo"), batch, batch_num_tokens=n)[1] for n in (tokens, tokens + 1))
        assert not torch.allclose(a, b, rtol=1e-4)

    def test_rollout_correction(self):
        """verl's weights on tokens multiply the terms, as in its own losses."""
        batch = held(2)
        weights = torch.rand(B, T, generator=torch.Generator().manual_seed(0)) * 2
        found = []
        for config in (settings("vanilla", clip_ratio_high=0.28, clip_ratio_c=1e9), settings("polopt/dapo")):
            config.global_batch_info.update(dp_size=1, batch_num_tokens=40, global_batch_size=B, loss_scale_factor=T)
            logp = batch["log_prob"].clone().requires_grad_()
            loss, _ = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)(
                batch["old_log_probs"],
                logp,
                batch["advantages"],
                batch["response_mask"].bool(),
                "token-mean",
                config,
                weights,
            )
            found.append(torch.autograd.grad(loss, logp)[0])
        torch.testing.assert_close(found[1], found[0], rtol=1e-7, atol=1e-10)

    def test_the_sampler_apart(self):
        """A sentence that tells the sampler from the learner is given both; others take verl's old policy for it."""
        batch = held(3)
        weight = po.objectives.TruncatedImportance(cap=1.5)
        algorithm = po.method("dapo").but(
            **{"objective.ratio": po.objectives.OldPolicyRatio(), "objective.weights": [weight]}
        )
        importance = (batch["old_log_probs"] - batch["rollout_log_probs"]).exp().clamp(max=1.5)
        scaled = {**batch, "advantages": batch["advantages"] * importance}
        expected = told(settings("vanilla", clip_ratio_high=0.28, clip_ratio_c=1e9), scaled)
        found = told(settings("polopt/dapo", algorithm), batch)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-10)
        del batch["rollout_log_probs"]
        with pytest.raises(po.ExperienceError, match=r"needs experience\.rollout_logp"):
            told(settings("polopt/dapo", algorithm), batch)

    def test_several_workers_and_no_count(self):
        config = settings("polopt/dapo")
        with pytest.raises(BridgeError, match="did not report the size of the whole optimiser batch"):
            told(config, held(), workers=2, batch_num_tokens=None)
