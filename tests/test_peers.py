"""TRL's and verl's own functions as oracles, where they are installed: value and gradient on ragged batches.

Where a peer means something else, the docstring of its test says what, and the test compares the rest.
"""

from __future__ import annotations

import pytest
import torch
from batches import SampleBatch, random_batch

import polopt as po
from polopt import checks
from polopt.checks.third_party import trl_compute_loss, trl_defaults
from polopt.credit import GAE, GreedyReturn, GroupStd, LeaveOneOut, RelativeAdvantage, WhitenedAdvantage
from polopt.objectives import (
    Clip,
    ClipWeight,
    EntropyBonus,
    OldPolicyRatio,
    PolicyGradient,
    ReferenceKL,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
    ValueLoss,
)

SEEDS = pytest.mark.parametrize("seed", range(4))
CLOSE = {"rtol": 1e-7, "atol": 1e-9}


def ragged(seed: int, outcome: bool = True, alone: bool = False, empty: bool = False) -> SampleBatch:
    """A clean batch with outcomes [B] or rewards [B, T]; groups of one and empty rows only if asked for.

    Clean, because a mask that multiplies, as is usual in the peers, keeps NaN.
    """
    batch = random_batch(2 * (seed % 2) + (0 if outcome else 1) + 4 * seed, B=27, clean=True)
    keep = torch.ones(27, dtype=torch.bool)
    if not empty:
        keep &= batch.mask.any(1)
    if not alone:
        keep &= batch.experience.group != 5
    return batch.rows(keep.nonzero().flatten())


def ours(objective: po.objectives.Objective, batch: SampleBatch) -> tuple[torch.Tensor, torch.Tensor]:
    loss = objective(batch.experience, batch.evaluation()).loss
    return loss.detach(), torch.autograd.grad(loss, batch.leaves["logp"])[0]


def agree(objective: po.objectives.Objective, batch: SampleBatch, peer) -> None:
    """`peer(logp)` is its loss, to be differentiated."""
    logp = batch.leaves["logp"].detach().clone().requires_grad_()
    theirs = peer(logp)
    loss, grad = ours(objective, batch)
    torch.testing.assert_close(loss, theirs.detach(), **CLOSE)
    torch.testing.assert_close(grad, torch.autograd.grad(theirs, logp)[0], **CLOSE)


class TestTRL:
    """The loss of GRPOTrainer, unbound, on a stand-in that answers with given log-probabilities."""

    def peer(
        self,
        batch: SampleBatch,
        loss_type: str,
        low: float = 0.1,
        high: float = 0.15,
        mismatch: bool = False,
        **settings,
    ):
        pytest.importorskip("trl", minversion="1.16")
        e = batch.experience
        settings = {"beta": 0.0, "use_bias_correction_kl": False, "max_completion_length": e.horizon, **settings}
        importance = (e.old_logp - e.rollout_logp).exp().clamp(max=2.0) if mismatch else None
        return lambda logp: trl_compute_loss(
            logp,
            e.old_logp if mismatch else e.rollout_logp,
            e.advantage,
            e.mask,
            e.mask.sum(),
            ref_logp=e.ref_logp,
            entropy=batch.leaves["entropy"].detach(),
            importance=importance,
            loss_type=loss_type,
            epsilon=low,
            epsilon_high=high,
            **settings,
        )

    clip = Clip(low=0.1, high=0.15)

    @SEEDS
    def test_grpo(self, seed):
        """TRL counts rows without decisions in the mean over rows, polopt does not: compared without such rows."""
        batch = ragged(seed)
        kl = ReferenceKL(coefficient=0.04)
        objective = Surrogate(trust=self.clip, aggregate=SequenceMean(), regularise=[kl])
        agree(objective, batch, self.peer(batch, "grpo", beta=0.04))

    @SEEDS
    def test_grpo_with_the_ratio_on_the_kl(self, seed):
        batch = ragged(seed)
        kl = ReferenceKL(coefficient=0.04, ratio=TokenRatio())
        logp = batch.leaves["logp"].detach().clone().requires_grad_()
        theirs = self.peer(batch, "grpo", beta=0.04, use_bias_correction_kl=True)(logp)
        _, grad = ours(Surrogate(trust=self.clip, aggregate=SequenceMean(), regularise=[kl]), batch)
        # polopt reports the plain estimate as the value, so only the gradients are one.
        torch.testing.assert_close(grad, torch.autograd.grad(theirs, logp)[0], **CLOSE)

    @SEEDS
    def test_dr_grpo(self, seed):
        batch = ragged(seed, empty=True)
        agree(Surrogate(trust=self.clip, aggregate=SequenceSum()), batch, self.peer(batch, "dr_grpo"))

    @SEEDS
    @pytest.mark.parametrize("loss_type", ["dapo", "bnpo"])
    def test_dapo_and_bnpo(self, seed, loss_type):
        """One token mean; bnpo's is over each micro-batch, dapo's over the whole: compared on a whole batch."""
        batch = ragged(seed, empty=True)
        agree(Surrogate(trust=self.clip, aggregate=TokenMean()), batch, self.peer(batch, loss_type))

    @SEEDS
    def test_cispo(self, seed):
        """TRL's epsilon_high is the bound itself, the ratio's largest value; polopt's high is the bound minus 1."""
        batch = ragged(seed, empty=True)
        agree(Surrogate(trust=ClipWeight(high=0.2)), batch, self.peer(batch, "cispo", high=1.2))

    @SEEDS
    def test_gspo(self, seed):
        """A sequence's term and a mean over rows; equal to polopt's, whose term stands on each of its decisions."""
        batch = ragged(seed)
        objective = Surrogate(ratio=SequenceRatio(), trust=Clip(low=0.02, high=0.03), aggregate=SequenceMean())
        settings = {"importance_sampling_level": "sequence", "low": 0.02, "high": 0.03}
        batch = SampleBatch(row_advantage(batch.experience), batch.leaves)
        agree(objective, batch, self.peer(batch, "grpo", **settings))

    @SEEDS
    def test_luspo(self, seed):
        """A sequence's term times its length, and a mean over rows; rows without decisions count in both."""
        batch = ragged(seed, empty=True)
        batch = SampleBatch(row_advantage(batch.experience), batch.leaves)
        settings = {"importance_sampling_level": "sequence", "low": 0.02, "high": 0.03}
        objective = po.method("luspo", low=0.02, high=0.03).objective
        agree(objective, batch, self.peer(batch, "luspo", **settings))

    @SEEDS
    def test_delta_is_the_dual_clip(self, seed):
        """TRL bounds the ratio, polopt the term of a negative advantage: the same for delta > 1 + high."""
        batch = ragged(seed)
        objective = Surrogate(trust=Clip(low=0.1, high=0.15, dual=1.3), aggregate=SequenceMean())
        agree(objective, batch, self.peer(batch, "grpo", delta=1.3))

    @SEEDS
    def test_truncated_importance(self, seed):
        batch = ragged(seed, empty=True)
        objective = Surrogate(
            ratio=OldPolicyRatio(),
            trust=self.clip,
            weights=[TruncatedImportance(cap=2.0)],
            aggregate=TokenMean(),
        )
        agree(objective, batch, self.peer(batch, "dapo", mismatch=True))

    @SEEDS
    def test_the_losses_that_polopt_check_takes(self, seed):
        """By name and with TRL's defaults, epsilon 0.2 and no KL; cispo's bound at 5."""
        pytest.importorskip("trl", minversion="1.16")
        longest = trl_defaults()["max_completion_length"]
        batch = ragged(seed)
        by_row = SampleBatch(row_advantage(batch.experience), batch.leaves)
        gspo = Surrogate(ratio=SequenceRatio(), aggregate=SequenceMean())
        for name, objective, given in (
            ("grpo", Surrogate(aggregate=SequenceMean()), batch),
            ("bnpo", Surrogate(), batch),
            ("dapo", Surrogate(), batch),
            ("dr_grpo", Surrogate(aggregate=SequenceSum(length=longest)), batch),
            ("cispo", Surrogate(trust=ClipWeight(high=4.0)), batch),
            ("gspo", gspo, by_row),
        ):
            agree(objective, given, by_name(f"trl:{name}", given))
        agree(Surrogate(trust=Clip(dual=3.0)), batch, by_name("trl:dapo/delta=3", batch))
        with pytest.raises(ValueError, match="GRPOConfig has no setting 'detla'; did you mean 'delta'"):
            checks.peer("trl:dapo/detla=3")


def by_name(name: str, batch: SampleBatch):
    """The plain loss that `polopt check` takes by that name, of the policy's log-probabilities alone."""
    loss, e = checks.peer(name).loss, batch.experience
    given = {"decisions": e.mask.sum(), "rows": len(e)} if name.startswith("verl") else {"decisions": e.mask.sum()}
    return lambda logp: loss(logp=logp, old_logp=e.rollout_logp, advantage=e.advantage, mask=e.mask, **given)


def row_advantage(experience: po.Experience) -> po.Experience:
    """One advantage a row, that of its first column."""
    first = experience.advantage[:, :1].expand_as(experience.advantage)
    return experience.replace(advantage=first.contiguous())


@pytest.fixture(scope="module")
def verl():
    return pytest.importorskip("verl.trainer.ppo.core_algos")


class TestVerl:
    def token_rewards(self, experience):
        return po.ops.per_decision_reward(experience.reward, experience.mask)

    def outcome(self, experience):
        """verl's index is an array of any labels, its mask a number."""
        return {
            "token_level_rewards": self.token_rewards(experience),
            "response_mask": experience.mask.double(),
            "index": experience.group.numpy(),
        }

    @SEEDS
    @pytest.mark.parametrize("outcome", [True, False])
    def test_grpo_advantage(self, verl, seed, outcome):
        """verl gives a group of one mean 0 and std 1, so its advantage is its reward; polopt gives it 0, and so
        does the paper's formula, whose numerator vanishes. Compared without groups of one, then on them."""
        e = ragged(seed, outcome).experience
        theirs, _ = verl.compute_grpo_outcome_advantage(**self.outcome(e), epsilon=1e-6)
        torch.testing.assert_close(RelativeAdvantage(scale=GroupStd(eps=1e-6))(e), theirs, **CLOSE)
        theirs, _ = verl.compute_grpo_outcome_advantage(**self.outcome(e), norm_adv_by_std_in_grpo=False)
        torch.testing.assert_close(RelativeAdvantage(scale=None)(e), theirs, **CLOSE)
        alone = ragged(seed, outcome, alone=True).experience
        alone = alone[alone.group == 5][:1]
        theirs, _ = verl.compute_grpo_outcome_advantage(**self.outcome(alone), epsilon=0.0)
        torch.testing.assert_close(theirs, alone.mask * alone.returns()[:, None], **CLOSE)
        assert RelativeAdvantage()(alone).count_nonzero() == 0

    @SEEDS
    @pytest.mark.parametrize("outcome", [True, False])
    def test_rloo_advantage(self, verl, seed, outcome):
        e = ragged(seed, outcome, alone=True).experience
        theirs, _ = verl.compute_rloo_outcome_advantage(**self.outcome(e))
        torch.testing.assert_close(RelativeAdvantage(baseline=LeaveOneOut(), scale=None)(e), theirs, **CLOSE)

    @SEEDS
    def test_remax_advantage(self, verl, seed):
        """verl takes the reward to go minus the greedy return, polopt the return: one thing for outcomes.
        Off the mask verl leaves returns standing."""
        e = ragged(seed, alone=True, empty=True).experience
        theirs, _ = verl.compute_remax_outcome_advantage(
            self.token_rewards(e), e.extras["greedy_reward"], e.mask.double()
        )
        advantage = RelativeAdvantage(baseline=GreedyReturn(), scale=None)(e)
        torch.testing.assert_close(advantage[e.mask], theirs[e.mask], **CLOSE)

    @SEEDS
    @pytest.mark.parametrize("outcome", [True, False])
    def test_gae(self, verl, seed, outcome):
        """verl ends every row with value 0 and whitens, by sqrt(var + 1e-8) where polopt has std + 1e-8. Off the
        mask its returns hold values of other columns."""
        e = ragged(seed, outcome).experience
        e = e.replace(terminated=torch.ones(len(e), dtype=torch.bool), truncated=None, final_value=None)
        white, returns = verl.compute_gae_advantage_return(
            self.token_rewards(e), e.value, e.mask.double(), gamma=0.9, lam=0.8
        )
        advantage = GAE(gamma=0.9, lam=0.8)(e)
        torch.testing.assert_close(advantage[e.mask], (returns - e.value)[e.mask], **CLOSE)
        whitened = WhitenedAdvantage(credit=GAE(gamma=0.9, lam=0.8))(e)
        torch.testing.assert_close(whitened[e.mask], white[e.mask], rtol=1e-6, atol=1e-7)

    def config(self, **settings):
        actor = pytest.importorskip("verl.workers.config").ActorConfig
        names = {"clip_ratio": 0.1, "clip_ratio_low": 0.1, "clip_ratio_high": 0.15, "clip_ratio_c": 1.3}
        return actor(strategy="fsdp", rollout_n=1, use_dynamic_bsz=True, **{**names, **settings})

    AGGREGATES = pytest.mark.parametrize(
        ("mode", "aggregate"),
        [
            ("token-mean", TokenMean()),
            ("seq-mean-token-mean", SequenceMean()),
            ("seq-mean-token-sum", SequenceSum(length=1)),
            ("seq-mean-token-sum-norm", SequenceSum(length=8)),  # verl's default: the width of the batch
        ],
    )

    @SEEDS
    @AGGREGATES
    def test_agg_loss(self, verl, seed, mode, aggregate):
        """Rows without decisions: verl leaves them out of every mean over rows, polopt out of SequenceMean's but
        not SequenceSum's, whose B is the number of rollouts. Compared without them."""
        batch = ragged(seed, empty=mode in ("token-mean", "seq-mean-token-mean"))
        e = batch.experience.replace(advantage=torch.ones_like(batch.leaves["logp"]).detach())
        objective = Surrogate(trust=PolicyGradient(), aggregate=aggregate)
        agree(objective, SampleBatch(e, batch.leaves), lambda x: verl.agg_loss(-x, e.mask.double(), mode))

    @SEEDS
    @AGGREGATES
    def test_vanilla_policy_loss(self, verl, seed, mode, aggregate):
        """PPO's clip is a dual clip in verl, by default at 3."""
        batch = ragged(seed)
        e = batch.experience
        agree(
            Surrogate(trust=Clip(low=0.1, high=0.15, dual=1.3), aggregate=aggregate),
            batch,
            lambda x: verl.compute_policy_loss_vanilla(
                e.rollout_logp, x, e.advantage, e.mask.double(), mode, config=self.config()
            )[0],
        )

    @SEEDS
    @pytest.mark.parametrize("aggregate", [TokenMean(), SequenceMean()])
    def test_gspo(self, verl, seed, aggregate):
        """verl takes the gradient of s_i through each token alone (the paper's GSPO-token), polopt through the mean:
        one gradient as long as a row's advantages are all equal, as in GSPO."""
        batch = ragged(seed)
        e = row_advantage(batch.experience)
        mode = "token-mean" if isinstance(aggregate, TokenMean) else "seq-mean-token-mean"
        agree(
            Surrogate(ratio=SequenceRatio(), trust=Clip(low=0.02, high=0.03), aggregate=aggregate),
            SampleBatch(e, batch.leaves),
            lambda x: verl.compute_policy_loss_gspo(
                e.rollout_logp,
                x,
                e.advantage,
                e.mask.double(),
                mode,
                config=self.config(clip_ratio_low=0.02, clip_ratio_high=0.03),
            )[0],
        )

    @SEEDS
    def test_cispo(self, verl, seed):
        """verl clips the weight on both sides, MiniMax-M1 from above."""
        batch = ragged(seed, empty=True)
        e = batch.experience
        agree(
            Surrogate(trust=ClipWeight(low=0.1, high=0.15)),
            batch,
            lambda x: verl.compute_policy_loss_cispo(
                e.rollout_logp, x, e.advantage, e.mask.double(), config=self.config()
            )[0],
        )

    @SEEDS
    def test_the_losses_that_polopt_check_takes(self, verl, seed):
        """By name and with verl's defaults: clip 0.2, dual clip at 3, token mean."""
        batch = ragged(seed)
        by_row = SampleBatch(row_advantage(batch.experience), batch.leaves)
        for name, objective, given in (
            ("vanilla", Surrogate(trust=Clip(dual=3.0)), batch),
            ("vanilla/seq-mean-token-mean", Surrogate(trust=Clip(dual=3.0), aggregate=SequenceMean()), batch),
            ("vanilla/seq-mean-token-sum", Surrogate(trust=Clip(dual=3.0), aggregate=SequenceSum(length=1)), batch),
            ("gspo", Surrogate(ratio=SequenceRatio()), by_row),
            ("gpg", Surrogate(trust=PolicyGradient()), batch),
            ("cispo", Surrogate(trust=ClipWeight(low=0.2, high=0.2)), batch),
        ):
            agree(objective, given, by_name(f"verl:{name}", given))

    @SEEDS
    @pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
    @pytest.mark.parametrize("straight", [False, True])
    def test_kl_penalty(self, verl, seed, kind, straight):
        """verl cuts k3 at 10, polopt not at all: compared below. "k3+" is k3's value with k2's gradient."""
        batch = ragged(seed, empty=True)
        e = batch.experience.replace(advantage=torch.zeros_like(batch.leaves["logp"]).detach())
        kl = ReferenceKL(coefficient=1.0, value=kind, gradient="k2" if straight else kind)
        agree(
            Surrogate(ratio=None, regularise=[kl]),
            SampleBatch(e, batch.leaves),
            lambda x: verl.agg_loss(
                verl.kl_penalty(x, e.ref_logp, kind + "+" * straight), e.mask.double(), "token-mean"
            ),
        )

    @SEEDS
    def test_value_loss(self, verl, seed):
        batch = ragged(seed)
        credit, now = GAE(gamma=0.9), batch.leaves["value"]
        e = credit.credited(batch.experience).replace(advantage=torch.zeros_like(now).detach())
        loss = Surrogate(ratio=None, regularise=[ValueLoss(coefficient=1.0, clip=0.2)])(e, batch.evaluation()).loss
        theirs, _ = verl.compute_value_loss(now, credit(e) + e.value, e.value, e.mask.double(), 0.2)
        torch.testing.assert_close(loss, theirs, **CLOSE)
        torch.testing.assert_close(torch.autograd.grad(loss, now)[0], torch.autograd.grad(theirs, now)[0], **CLOSE)

    @SEEDS
    def test_entropy(self, verl, seed):
        batch = ragged(seed, empty=True)
        e = batch.experience.replace(advantage=torch.zeros_like(batch.leaves["logp"]).detach())
        logits = batch.leaves["logits"].detach()
        evaluation = po.Evaluation(logp=batch.leaves["logp"], entropy=po.ops.entropy_of(logits.log_softmax(-1)))
        loss = Surrogate(ratio=None, regularise=[EntropyBonus(coefficient=1.0)])(e, evaluation).loss
        torch.testing.assert_close(-loss.detach(), verl.compute_entropy_loss(logits, e.mask.double()), **CLOSE)
