"""Methods inside verl: its registries and estimators; against verl's own functions, and polopt without verl."""

from __future__ import annotations

import re
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import polopt as po
from polopt import catalogue, index
from polopt.bridges.capabilities import BridgeError
from polopt.credit import LeaveOneOut, RelativeAdvantage
from polopt.rewards import OutcomeReward

pytest.importorskip("verl")
warnings.simplefilter("ignore")

from verl.trainer.ppo import core_algos  # noqa: E402
from verl_batches import RUNS, UID, B, estimated, held, settings, written  # noqa: E402

from polopt.bridges import verl  # noqa: E402
from polopt.bridges.verl_batch import experience_of  # noqa: E402
from polopt.bridges.verl_call_context import call_arguments  # noqa: E402

pytestmark = pytest.mark.usefixtures("float64")


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
            ("copo", "needs extras.advantages"),
            ("chord", "which verl does itself"),
            ("pf-ppo", "leaves out rows after credit"),
            ("sdpo", "evaluates the policy again on its own decisions"),
            ("remix", "its reference is an average of the policy"),
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
        token = call_arguments.set({"compute_advantage": {"data": types.SimpleNamespace(batch=empty)}})
        padded = core_algos.get_adv_estimator_fn("polopt/reinforce-baseline")(
            token_level_rewards=empty["token_level_rewards"],
            response_mask=empty["response_mask"],
            config=written(algorithm),
            index=np.concatenate([UID, ["pad", "pad"]]),
        )[0]
        call_arguments.reset(token)
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
        experience = experience_of(
            {}, runs.algorithm.required_fields, batch["token_level_rewards"], mask, UID, 99, False
        )
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
