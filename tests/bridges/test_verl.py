"""Methods inside verl: its registries and configuration; against verl's own functions, and polopt without verl."""

from __future__ import annotations

import re
import types
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import yaml

import polopt as po
from polopt import catalogue, index
from polopt.bridges import verl_config
from polopt.bridges.capabilities import BridgeError
from polopt.credit import LeaveOneOut, RelativeAdvantage
from polopt.objectives import Clip, Surrogate, TokenMean
from polopt.rewards import OutcomeReward

pytest.importorskip("verl")
warnings.simplefilter("ignore")

from verl.trainer.ppo import core_algos  # noqa: E402
from verl.workers.config import ActorConfig, PolicyLossConfig  # noqa: E402

from polopt.bridges import verl, verl_loss  # noqa: E402
from polopt.bridges.verl_batch import experience_of  # noqa: E402
from polopt.bridges.verl_call_context import heard  # noqa: E402

RUNS = """
adacot bnpo canon chi2-occupancy cispo conciser dapo dhpo dr-grpo empg etcon fapo g2rpo grpo grpo-lambda-len gspo
gtalign luspo mpo-meta noisy-verifier policy-cliff ppo rec refcritic reinforce reinforce-baseline rlcm-scaling rloo
secrets-rlhf-ppo-max seed-grpo stratified-grpo tricks-lite-ppo
""".split()  # noqa: SIM905
B, T = 12, 7


@pytest.fixture(autouse=True)
def _double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


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
    token = heard.set({"ppo_loss": {"data": _Data(batch), "model_output": {}}})
    loss, _ = core_algos.get_policy_loss_fn(config.policy_loss.loss_mode)(
        old_log_prob=batch["old_log_probs"],
        log_prob=logp,
        advantages=batch["advantages"],
        response_mask=batch["response_mask"].bool(),
        loss_agg_mode=config.loss_agg_mode,
        config=config,
    )
    heard.reset(token)
    return loss.detach(), torch.autograd.grad(loss, logp)[0]


class _Data(dict):
    """A micro-batch, as far as a loss asks it."""

    def select(self, *names):
        return _Data({name: self[name] for name in names})

    def to_padded_tensor(self):
        return self


def estimated(name: str, batch: dict[str, torch.Tensor], config=None) -> tuple[torch.Tensor, torch.Tensor]:
    """(advantages, returns) by verl's registry, as `compute_advantage` asks for them."""
    token = heard.set({"compute_advantage": {"data": types.SimpleNamespace(batch=batch)}})
    result = core_algos.get_adv_estimator_fn(name)(
        token_level_rewards=batch["token_level_rewards"],
        response_mask=batch["response_mask"],
        config={} if config is None else config,
        index=UID,
    )
    heard.reset(token)
    return result


def written(algorithm: po.Algorithm, **more) -> dict:
    return {"polopt": {"algorithm": algorithm.to_dict(), **more}}


class TestNames:
    def test_every_method_is_registered_as_both(self):
        for slug in index.slugs("algorithm"):
            assert callable(core_algos.get_adv_estimator_fn(f"polopt/{slug}"))
            assert callable(core_algos.get_policy_loss_fn(f"polopt/{slug}"))

    def test_which_run(self):
        refused = {slug: verl.HOST.refusals(catalogue.method(slug)) for slug in index.slugs("algorithm")}
        assert [slug for slug, reasons in refused.items() if not reasons] == RUNS

    def test_the_page_lists_them(self):
        page = (Path(po.__file__).parents[1] / "docs" / "verl.md").read_text()
        runs, refused = page.partition("## What runs")[2].partition("## What is read")[0].split("The others")
        assert re.findall(r"[\w-]+", runs.partition(": ")[2]) == RUNS
        rows = [row.split("|")[2] for row in refused.splitlines() if row.startswith("|")][2:]
        listed = [slug.strip() for row in rows for slug in row.split(",")]
        assert sorted(listed) == sorted(set(index.slugs("algorithm")) - set(RUNS))

    @pytest.mark.parametrize(
        ("slug", "reason"),
        [
            ("steer", "whole optimiser batch under the current policy"),
            ("gvm", "PromptMean divides by what verl does not count"),
            ("copo", "needs extras.voices"),
            ("chord", "which verl does itself"),
            ("pf-ppo", "leaves out rows after credit"),
            ("sdpo", "asks the policy about its own decisions again"),
            ("remix", "its reference follows the policy"),
            ("bapo-clip", "moves from batch to batch"),
        ],
    )
    def test_a_refusal_says_why(self, slug, reason):
        for ask in (lambda: verl.config(slug), lambda: settings(f"polopt/{slug}")):
            with pytest.raises(BridgeError, match=f"polopt/{slug} cannot run in verl: .*{reason}"):
                ask()

    def test_a_truncated_support_is_refused(self):
        algorithm = po.method("gspo").but(**{"sampling.support.top_p": 0.9})
        with pytest.raises(BridgeError, match="over the whole vocabulary"):
            verl.config(algorithm)

    def test_an_unknown_name(self):
        with pytest.raises(BridgeError, match="did you mean 'gspo'"):
            settings("polopt/gsop")

    def test_one_of_your_own(self):
        verl.register("polopt/rloo-without-kl", po.method("rloo").but(reward=OutcomeReward()))
        batch = held()
        ours = estimated("polopt/rloo-without-kl", batch)[0]
        theirs = core_algos.get_adv_estimator_fn("rloo")(batch["token_level_rewards"], batch["response_mask"], UID)[0]
        torch.testing.assert_close(ours, theirs)
        with pytest.raises(BridgeError, match="polopt/no cannot run"):
            verl.register("polopt/no", po.method("steer"))


class TestCredit:
    """verl's own estimators as oracles."""

    @pytest.mark.parametrize(("ours", "norm"), [("grpo", True), ("gspo", True), ("dr-grpo", False)])
    def test_grpo(self, ours, norm):
        batch = held(1)
        theirs = core_algos.get_adv_estimator_fn("grpo")(
            batch["token_level_rewards"].clone(), batch["response_mask"], UID, norm_adv_by_std_in_grpo=norm
        )[0]
        torch.testing.assert_close(estimated(f"polopt/{ours}", batch)[0], theirs)

    @pytest.mark.parametrize("seed", range(3))
    def test_gae_and_what_the_critic_learns_by(self, seed):
        """verl's decisions of a row follow each other over the gaps between turns, and so do polopt's."""
        batch = held(seed)
        algorithm = po.method("ppo").but(reward=OutcomeReward())
        mask = batch["response_mask"].double()
        theirs = core_algos.compute_gae_advantage_return(batch["token_level_rewards"], batch["values"], mask, 1.0, 0.95)
        ours = estimated("polopt/ppo", batch, written(algorithm))
        for own, their in zip(ours, theirs, strict=True):
            torch.testing.assert_close(own, their * mask, rtol=1e-6, atol=1e-7)

    def test_a_penalty_in_the_reward(self):
        """verl's `apply_kl_penalty`, then its GAE; polopt has the penalty in the sentence."""
        batch = held(2)
        mask, beta = batch["response_mask"].double(), 0.05
        kl = core_algos.kl_penalty(batch["old_log_probs"], batch["ref_log_prob"], "kl") * mask
        rewards = batch["token_level_scores"] - beta * kl
        theirs, _ = core_algos.compute_gae_advantage_return(rewards, batch["values"], mask, 1.0, 0.95)
        algorithm = po.method("ppo", kl=beta)
        ours, _ = estimated("polopt/ppo", batch, written(algorithm))
        torch.testing.assert_close(ours, theirs * mask, rtol=1e-6, atol=1e-7)

    def test_rows_that_only_fill_up_are_in_no_statistic(self):
        batch = held(3)
        algorithm = po.method("reinforce-baseline").but(credit=RelativeAdvantage(baseline=LeaveOneOut(), scale=None))
        alone = estimated("polopt/reinforce-baseline", batch, written(algorithm))[0]
        empty = {k: torch.cat([v, torch.zeros_like(v[:2])]) for k, v in batch.items()}
        token = heard.set({"compute_advantage": {"data": types.SimpleNamespace(batch=empty)}})
        padded = core_algos.get_adv_estimator_fn("polopt/reinforce-baseline")(
            token_level_rewards=empty["token_level_rewards"],
            response_mask=empty["response_mask"],
            config=written(algorithm),
            index=np.concatenate([UID, ["pad", "pad"]]),
        )[0]
        heard.reset(token)
        torch.testing.assert_close(padded[:B], alone)
        assert not padded[B:].any()

    def test_a_rejected_row_still_tells_of_its_prompt(self):
        """As in verl's own estimator: its reward counts, wherever it stands, and it has no advantage."""
        batch = held(1)
        batch["response_mask"][4] = 0
        batch["response_mask"][7, -3:] = 0
        mask = batch["response_mask"]
        theirs = core_algos.get_adv_estimator_fn("grpo")(batch["token_level_rewards"].clone(), mask, UID)[0]
        torch.testing.assert_close(estimated("polopt/grpo", batch)[0], theirs)

    def test_credit_remembers_from_batch_to_batch(self):
        """The moving average of returns: 0 at first, then the first batch's mean."""
        batch, algorithm = held(4), po.method("reinforce-baseline")
        spec = written(algorithm, horizon=77)  # a sentence that no other test has used
        outcome = batch["token_level_rewards"].sum(1)
        for baseline in (0.0, outcome.mean()):
            found = estimated("polopt/reinforce-baseline", batch, spec)[0]
            expected = torch.where(batch["response_mask"].bool(), (outcome - baseline)[:, None], 0)
            torch.testing.assert_close(found, expected)

    def test_turns_and_the_limit(self):
        """Turns are the runs of the mask; the horizon is the configuration's, not the batch's width."""
        batch = held(5)
        runs = verl._runs("polopt/dapo", {})
        mask = batch["response_mask"].bool()
        experience = experience_of({}, runs.algorithm.all_needs, batch["token_level_rewards"], mask, UID, 99, False)
        row = int((batch["response_mask"][:, 2] == 0).logical_and(batch["response_mask"][:, 3] == 1).nonzero()[0])
        assert experience.turn[row, [0, 1, 3]].tolist() == [0, 0, 1]
        assert experience.horizon == 99

    def test_a_penalty_behind_the_sentence(self):
        with pytest.raises(BridgeError, match="use_kl_in_reward"):
            estimated("polopt/grpo", held(), {"use_kl_in_reward": True})

    def test_what_verl_did_not_hand_over(self):
        batch = {k: v for k, v in held().items() if k != "values"}
        with pytest.raises(po.ExperienceError, match=r"needs experience\.value"):
            estimated("polopt/ppo", batch)


PLAIN = po.method("grpo", kl=0)


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
        apart = "old_logp" in algorithm.all_needs
        experience = po.Experience(
            mask=mask,
            logp=batch["rollout_log_probs" if apart else "old_log_probs"],
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
        with pytest.raises(po.ExperienceError, match=r"needs experience\.logp"):
            told(settings("polopt/dapo", algorithm), batch)

    def test_several_workers_and_no_count(self):
        config = settings("polopt/dapo")
        with pytest.raises(BridgeError, match="did not say what the whole optimiser batch holds"):
            told(config, held(), workers=2, batch_num_tokens=None)


class TestConfiguration:
    OVERRIDES = (
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=2",
        "critic.ppo_micro_batch_size_per_gpu=2",
        "data.max_response_length=64",
    )

    def composed(self, folder, method, *overrides):
        from hydra import compose, initialize_config_dir

        (folder / "run.yaml").write_text(yaml.safe_dump(verl.config(method), sort_keys=False))
        with initialize_config_dir(str(folder), version_base=None):
            return compose("run", overrides=[*self.OVERRIDES, *overrides])

    @pytest.mark.parametrize("slug", RUNS)
    def test_every_one_composes_and_is_valid(self, slug, tmp_path):
        """With verl's own defaults, by its own check, the one that runs before anything is loaded."""
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import omega_conf_to_dataclass, validate_config

        run = self.composed(tmp_path, slug)
        algorithm = po.method(slug)
        reference, critic = need_reference_policy(run), need_critic(run)
        assert reference == ("ref_logp" in algorithm.all_needs)
        assert critic == ("value" in algorithm.all_needs)
        run.critic.enable = False  # verl reads the critic's model when it checks its settings
        validate_config(run, reference, False)
        actor = omega_conf_to_dataclass(run.actor_rollout_ref.actor)
        assert run.actor_rollout_ref.rollout.n == algorithm.sampling.group
        assert actor.loss_scale_factor in (64, getattr(algorithm.objective.aggregate, "length", None))
        spec = verl._plain(run.algorithm.polopt)
        assert spec["horizon"] == 64
        assert verl._runs(f"polopt/{slug}", spec).whole.to_dict() == algorithm.to_dict()

    def test_the_lines_by_hand(self, tmp_path):
        """Those of the page, over verl's defaults."""
        from hydra import compose, initialize_config_dir
        from verl.utils.config import omega_conf_to_dataclass

        page = (Path(po.__file__).parents[1] / "docs" / "verl.md").read_text()
        lines = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
        over = {"hydra": {"searchpath": ["pkg://verl.trainer.config"]}, "defaults": ["ppo_trainer", "_self_"]}
        (tmp_path / "hand.yaml").write_text(yaml.safe_dump({**over, **lines}))
        with initialize_config_dir(str(tmp_path), version_base=None):
            run = compose("hand", overrides=list(self.OVERRIDES))
        batch, actor = held(1), omega_conf_to_dataclass(run.actor_rollout_ref.actor)
        torch.testing.assert_close(told(actor, batch), told(settings("polopt/gspo"), batch))
        advantages = estimated(run.algorithm.adv_estimator, batch, run.algorithm)[0]
        torch.testing.assert_close(advantages, estimated("polopt/gspo", batch)[0])

    def test_verl_refuses_when_it_checks(self, tmp_path):
        from verl.utils.config import omega_conf_to_dataclass

        run = self.composed(tmp_path, "gspo", "algorithm.polopt.algorithm.sampling.support.top_p=0.9")
        with pytest.raises(Exception, match="over the whole vocabulary"):
            omega_conf_to_dataclass(run.actor_rollout_ref.actor)

    def test_an_edited_sentence_is_what_runs(self, tmp_path):
        from verl.utils.config import omega_conf_to_dataclass

        run = self.composed(tmp_path, "dapo", "algorithm.polopt.algorithm.objective.trust.high=0.5")
        batch = held(1)
        found = told(omega_conf_to_dataclass(run.actor_rollout_ref.actor), batch)
        expected = told(settings("vanilla", clip_ratio_high=0.5, clip_ratio_c=1e9), batch)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-7, atol=1e-10)
