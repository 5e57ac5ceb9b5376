"""Methods in verl's configuration: what is written, read back and refused."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import yaml

import polopt as po

pytest.importorskip("verl")
warnings.simplefilter("ignore")

from verl_batches import RUNS, estimated, held, settings, told  # noqa: E402

from polopt.bridges import verl  # noqa: E402

pytestmark = pytest.mark.usefixtures("float64")


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
        assert reference == ("ref_logp" in algorithm.required_fields)
        assert critic == ("value" in algorithm.required_fields)
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
