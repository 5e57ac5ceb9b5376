"""Rows of the battery: objectives."""

from __future__ import annotations

import dataclasses

import torch
from batches import SampleBatch, networks_batch, points_batch, random_batch
from battery import PartRow
from row_batches import demonstration_batch, taught_row

from polopt.checks.sample_batches import poisoned
from polopt.features.masks import FieldMask, Finished, HasTeacher, IsCorrect, IsDemonstration
from polopt.methods.bupo import LayerRatio
from polopt.methods.srpo_routing import TeacherCertainty
from polopt.objectives import (
    ActionRegression,
    AnchorRatio,
    AuxiliaryLoss,
    Backup,
    Branch,
    BranchedObjective,
    Clip,
    ClipWeight,
    ConservativeChoicePenalty,
    ConservativePenalty,
    ConservativePrice,
    DenoisingReward,
    Distillation,
    EntropyBonus,
    EntropyTarget,
    EveryPair,
    ExpectileError,
    ExponentialAdvantageWeight,
    ForwardKL,
    GaussianDistillation,
    GuidedLogRatioReward,
    HingeLink,
    HuberError,
    ImportanceWeight,
    LabelledObjective,
    LatentKL,
    LoggedActionValue,
    LogisticLink,
    LogOddsReward,
    LogProbReward,
    LogRatioReward,
    ModelRegression,
    NetworkAdvantageWeight,
    NetworkNextValue,
    NetworkRegression,
    ObjectiveSchedule,
    OldPolicyRatio,
    PairedObjective,
    Phase,
    PolicyGradient,
    PrivilegedDistance,
    ProbabilityWeight,
    ProductRatio,
    PromptMean,
    ProposedActionError,
    ProposedActionValue,
    ReferenceKL,
    RegressionLink,
    RegressionObjective,
    SampledDistillation,
    SamplerKL,
    SaturatedRatio,
    SequenceMean,
    SequenceRatio,
    SequenceSum,
    SoftLink,
    SquaredLink,
    SumOfImplicitRewards,
    Surrogate,
    TemperatureLoss,
    TokenMean,
    TokenRatio,
    TruncatedImportance,
    TurnMean,
    Unclipped,
    ValueAscent,
    ValueLoss,
)
from polopt.schedules import Schedule


def window_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch of which some decisions are marked, some of them off the mask."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    extras = {"window": torch.rand(batch.mask.shape, generator=g) < 0.6}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


def labelled_batch(seed: int = 0, clean: bool = False) -> SampleBatch:
    """A random batch whose rows have a reference point."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(seed)
    extras = {"reference_point": torch.rand(len(batch.mask), generator=g, dtype=torch.double)}
    return dataclasses.replace(batch, experience=batch.experience.replace(extras=extras))


KL = ReferenceKL(coefficient=0.5)
SFT = Branch(objective=Surrogate(ratio=None, trust=PolicyGradient()), rows=IsDemonstration(), weight=0.3)
CRITIC = ValueLoss(clip=None)


def distilled_batch(seed: int = 0, clean: bool = False, A: int = 3) -> SampleBatch:
    """A batch with a teacher's normal distributions, and with those of the policy."""
    batch, g = random_batch(seed, clean=clean), torch.Generator().manual_seed(200 + seed)
    B, T = batch.mask.shape
    names = ("mean", "log_std", "teacher_mean", "teacher_log_std")
    found = {name: 0.5 * torch.randn(B, T, A, generator=g, dtype=torch.float64) for name in names}
    if not clean:
        found = {name: poisoned(value, batch.mask) for name, value in found.items()}
    leaves = {f"extras.{name}": found[name].requires_grad_() for name in names[:2]}
    extras = {name: found[name] for name in names[2:]}
    return SampleBatch(batch.experience.replace(extras=extras), batch.leaves | leaves)


OBJECTIVES = {
    "default": PartRow(Surrogate()),
    "no ratio": PartRow(Surrogate(ratio=None, trust=Unclipped()), honest=Surrogate(trust=PolicyGradient())),
    "score": PartRow(Surrogate(trust=PolicyGradient(), aggregate=SequenceSum())),
    "proximal": PartRow(Surrogate(ratio=OldPolicyRatio(), trust=Unclipped(), weights=[TruncatedImportance()])),
    "sequence": PartRow(Surrogate(ratio=SequenceRatio(), trust=Clip(low=0.01, high=0.02), aggregate=SequenceMean())),
    "ratio to the reference": PartRow(Surrogate(ratio=AnchorRatio(), trust=Clip())),
    "sequence of a turn": PartRow(
        Surrogate(ratio=SequenceRatio(unit="turn"), trust=Clip(low=0.01, high=0.02), aggregate=TurnMean())
    ),
    "turns as rows": PartRow(Surrogate(aggregate=TurnMean(turns="all"), trust=Unclipped())),
    "product of a turn": PartRow(
        Surrogate(ratio=ProductRatio(unit="turn"), trust=Clip(), aggregate=TurnMean(turns="sum"))
    ),
    "product": PartRow(Surrogate(ratio=ProductRatio(), trust=Clip(), aggregate=SequenceSum(length=1))),
    "sequence of proximal": PartRow(Surrogate(ratio=SequenceRatio(token=OldPolicyRatio()), trust=Unclipped())),
    "dual clip": PartRow(Surrogate(trust=Clip(low=0.1, high=0.3, dual=1.2))),
    "clip weight": PartRow(Surrogate(trust=ClipWeight(high=0.2)), honest=None),
    "clip weight, two sides": PartRow(
        Surrogate(ratio=SequenceRatio(), trust=ClipWeight(low=0.1, high=0.1)), honest=None
    ),
    "token mean": PartRow(Surrogate(aggregate=TokenMean(), trust=Unclipped())),
    "sequence mean": PartRow(Surrogate(aggregate=SequenceMean(), trust=Unclipped())),
    "sequence sum": PartRow(Surrogate(aggregate=SequenceSum(length=3), trust=Unclipped())),
    "truncated importance": PartRow(Surrogate(weights=[TruncatedImportance(cap=1.05)])),
    "truncated importance of rows": PartRow(Surrogate(weights=[TruncatedImportance(cap=1.05, unit="row")])),
    "k1": PartRow(Surrogate(regularise=[ReferenceKL(value="k1", gradient="k1")])),
    "k2": PartRow(Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")])),
    "k3": PartRow(Surrogate(regularise=[ReferenceKL(value="k3", gradient="k3")])),
    "k1 with k2's gradient": PartRow(
        Surrogate(regularise=[ReferenceKL(value="k1", gradient="k2")]),
        honest=Surrogate(regularise=[ReferenceKL(value="k2", gradient="k2")]),
    ),
    "k3 with ratio": PartRow(
        Surrogate(
            aggregate=SequenceMean(), regularise=[ReferenceKL(ratio=TokenRatio()), EntropyBonus(coefficient=0.1)]
        ),
        # The ratio multiplies what is differentiated, not what is reported.
        honest=None,
    ),
    "entropy": PartRow(Surrogate(regularise=[EntropyBonus()])),
    "routed": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(), rows=IsCorrect()),
                Branch(
                    objective=Surrogate(trust=PolicyGradient(), aggregate=SequenceMean()),
                    rows=IsCorrect(invert=True),
                    weight=Schedule(knots=[(0, 0.5), (2, 1.0)]),
                ),
            ]
        )
    ),
    "routed by hand": PartRow(
        BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsDemonstration(invert=True))])
    ),
    "two of a kind": PartRow(Surrogate(regularise=[KL, KL.but(gradient="k2", value="k2")])),
    "value": PartRow(Surrogate(regularise=[ValueLoss(clip=None)])),
    "clipped value": PartRow(Surrogate(regularise=[ValueLoss(clip=0.2)])),
    "likely": PartRow(Surrogate(ratio=None, trust=PolicyGradient(), weights=[ProbabilityWeight()]), honest=None),
    "shaped": PartRow(Surrogate(trust=SaturatedRatio(bend=0.3))),
    "entropy target": PartRow(Surrogate(regularise=[EntropyTarget(coefficient=0.7, target=0.3)])),
    "entropy target from below": PartRow(Surrogate(regularise=[EntropyTarget(target=9.0)])),
    "is_demonstration": PartRow(
        BranchedObjective(routes=[Branch(objective=Surrogate(), rows=IsDemonstration(invert=True)), SFT]),
        batch=demonstration_batch,
    ),
    "demonstrated, sums": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(trust=Clip(), aggregate=SequenceSum()), rows=IsDemonstration(invert=True)),
                SFT.but({"objective.aggregate": SequenceSum(length=3)}),
                SFT.but({"objective.aggregate": SequenceMean()}),
            ]
        ),
        batch=demonstration_batch,
    ),
    "entropy target of rollouts": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(regularise=[EntropyTarget(target=0.8)]), rows=IsDemonstration(invert=True)),
                SFT,
            ]
        ),
        batch=demonstration_batch,
    ),
    "importance": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ImportanceWeight()]), honest=Surrogate(trust=Unclipped())
    ),
    "importance, bounded": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ImportanceWeight(low=0.1, high=0.1)]), honest=None
    ),
    "exponential advantage": PartRow(
        Surrogate(trust=PolicyGradient(), weights=[ExponentialAdvantageWeight(temperature=0.5)])
    ),
    "kl to the sampler": PartRow(Surrogate(trust=PolicyGradient(), regularise=[SamplerKL(coefficient=0.3)])),
    "forward kl": PartRow(Surrogate(trust=PolicyGradient(), regularise=[ForwardKL(coefficient=0.3)])),
    "distil": taught_row(Surrogate(ratio=None, trust=Distillation())),
    "distil forward": taught_row(Surrogate(ratio=None, trust=Distillation(alpha=0.0))),
    "distil backward": taught_row(Surrogate(ratio=None, trust=Distillation(alpha=1.0), aggregate=SequenceMean())),
    "distil, renormalised": taught_row(Surrogate(ratio=None, trust=Distillation(alpha=0.3, rest="renormalise"))),
    "distil sampled": taught_row(Surrogate(ratio=None, trust=SampledDistillation()), honest=None),
    "current importance": taught_row(
        Surrogate(ratio=None, trust=Unclipped(), weights=[ImportanceWeight(high=0.1)]), honest=None
    ),
    "routed with one denominator": taught_row(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(trust=Clip(dual=3.0)), rows=HasTeacher(below=0.5, invert=True)),
                Branch(
                    objective=Surrogate(ratio=None, trust=Distillation(), weights=[TeacherCertainty()]),
                    rows=HasTeacher(below=0.5),
                    weight=0.5,
                ),
            ],
            count="all",
        )
    ),
    "taught alone": taught_row(
        BranchedObjective(routes=[Branch(objective=Surrogate(ratio=None, trust=Distillation()), rows=HasTeacher())])
    ),
    "phased": taught_row(
        ObjectiveSchedule(
            phases=[
                Phase(objective=Surrogate(ratio=LayerRatio(layer=1), trust=Unclipped()), batches=2),
                Phase(objective=Surrogate(ratio=TokenRatio())),
            ]
        )
    ),
    "auxiliary": PartRow(AuxiliaryLoss(regularise=[CRITIC, EntropyBonus(coefficient=0.3)], aggregate=SequenceMean())),
    "by decision": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=Surrogate(), rows=FieldMask(name="window", unit="token")),
                Branch(objective=AuxiliaryLoss(regularise=[CRITIC]), rows=Finished()),
                Branch(objective=Surrogate(), rows=Finished(invert=True), weight=0.5),
            ]
        ),
        batch=window_batch,
    ),
    "previous, weighed": PartRow(
        Surrogate(regularise=[ReferenceKL(anchor="previous", ratio=TokenRatio())]), honest=None
    ),
    "dpo": PartRow(PairedObjective()),
    "kto": PartRow(LabelledObjective(desirable=1.3), batch=labelled_batch),
    "labels without a reference point": PartRow(LabelledObjective(relative=False, regularise=[KL])),
    "binary cross-entropy of labels": PartRow(LabelledObjective(link=LogisticLink(), relative=False, threshold=0.3)),
    "conservative dpo": PartRow(PairedObjective(link=LogisticLink(label_smoothing=0.1))),
    "ipo": PartRow(PairedObjective(implicit=LogRatioReward(scale=1.0), link=SquaredLink(target=5.0))),
    "ipo, means": PartRow(
        PairedObjective(implicit=LogRatioReward(scale=1.0, decisions="mean"), link=SquaredLink(target=5.0))
    ),
    "dpo from another policy": PartRow(PairedObjective(implicit=LogRatioReward(anchor="guide"))),
    "dpo near another policy": PartRow(PairedObjective(regularise=[ReferenceKL(anchor="guide")])),
    "slic": PartRow(PairedObjective(implicit=LogProbReward(scale=0.2, decisions="sum"), link=HingeLink())),
    "simpo": PartRow(PairedObjective(implicit=LogProbReward(), link=LogisticLink(shift=0.5))),
    "orpo": PartRow(PairedObjective(implicit=LogOddsReward())),
    "rebel": PartRow(
        PairedObjective(
            implicit=LogRatioReward(scale=0.5, anchor="sampler"), link=RegressionLink(scale=0.3), by="advantage"
        )
    ),
    "rebel with ties": PartRow(
        PairedObjective(
            implicit=LogRatioReward(scale=1.0, anchor="sampler"), link=RegressionLink(), matching=EveryPair(ties=True)
        )
    ),
    "dpo of votes": PartRow(PairedObjective(link=SoftLink())),
    "dpo with a guide": PartRow(PairedObjective(implicit=GuidedLogRatioReward(alpha=3.0))),
    "dpo with two anchors": PartRow(
        PairedObjective(
            implicit=SumOfImplicitRewards(terms=[LogRatioReward(scale=0.3), LogRatioReward(scale=0.7, anchor="old")])
        )
    ),
    "dpo by denoising": PartRow(PairedObjective(implicit=DenoisingReward(scale=0.5)), batch=points_batch),
    "dpo by denoising, of velocities": PartRow(
        PairedObjective(implicit=DenoisingReward(scale=0.5, of="velocity", anchor="opponent")), batch=points_batch
    ),
    "regressed rows": PartRow(RegressionObjective(scale=2.0)),
    "dpo with a distance": PartRow(PairedObjective(regularise=[ReferenceKL()], aggregate=SequenceMean())),
    "dpo beside a surrogate": PartRow(
        BranchedObjective(
            routes=[
                Branch(objective=PairedObjective(), weight=0.5),
                Branch(objective=Surrogate(trust=Clip()), rows=IsCorrect()),
            ],
            count="all",
        )
    ),
    "prompt mean": PartRow(Surrogate(aggregate=PromptMean(), regularise=[EntropyBonus(coefficient=0.1)])),
    "prompt mean of sums": PartRow(Surrogate(aggregate=PromptMean(decisions="sum"))),
    "critic": PartRow(
        NetworkRegression(target=Backup(next=ProposedActionValue(temperature="temperature"))),
        honest=None,
        batch=networks_batch,
    ),
    "critic of a fixed temperature": PartRow(
        NetworkRegression(target=Backup(gamma=0.9, next=ProposedActionValue(temperature=0.2, over="mean"))),
        honest=None,
        batch=networks_batch,
    ),
    "critic of values, huber": PartRow(
        NetworkRegression(target=Backup(next=NetworkNextValue()), error=HuberError(delta=0.5)),
        honest=None,
        batch=networks_batch,
    ),
    "value by expectiles": PartRow(
        NetworkRegression(network="value", target=LoggedActionValue(), error=ExpectileError(expectile=0.8)),
        honest=None,
        batch=networks_batch,
    ),
    "critic, by rows": PartRow(NetworkRegression(aggregate=SequenceMean()), honest=None, batch=networks_batch),
    "temperature": PartRow(TemperatureLoss(), honest=None, batch=networks_batch),
    "temperature of a sequence": PartRow(TemperatureLoss(sequence=8, model="model"), honest=None, batch=networks_batch),
    "ascent of a sequence": PartRow(
        ValueAscent(temperature="temperature", sequence=8, model="model"), honest=None, batch=networks_batch
    ),
    "model of the next state": PartRow(ModelRegression(), honest=None, batch=networks_batch),
    "temperature of a balance": PartRow(TemperatureLoss(of="balance"), honest=None, batch=networks_batch),
    "temperature of a given entropy": PartRow(TemperatureLoss(target=0.5), honest=None, batch=networks_batch),
    "value ascent": PartRow(ValueAscent(temperature="temperature"), honest=None, batch=networks_batch),
    "value ascent near the log": PartRow(
        ValueAscent(over="first", regularise=[ProposedActionError(coefficient=0.5)]), honest=None, batch=networks_batch
    ),
    "weights by networks": PartRow(
        Surrogate(ratio=None, trust=PolicyGradient(), weights=[NetworkAdvantageWeight(cap=5.0)]),
        honest=None,
        batch=networks_batch,
    ),
    "conservative critic": PartRow(
        NetworkRegression(
            target=Backup(next=ProposedActionValue(heads=2)), regularise=[ConservativePenalty(samples=3, price="price")]
        ),
        honest=None,
        batch=networks_batch,
    ),
    "price of a penalty": PartRow(
        ConservativePrice(penalty=ConservativePenalty(samples=3)), honest=None, batch=networks_batch
    ),
    "values of choices, conservative": PartRow(
        NetworkRegression(
            network="policy",
            target=Backup(next=ProposedActionValue(critic="policy", over="first", target_policy=True)),
            error=HuberError(),
            regularise=[ConservativeChoicePenalty(coefficient=0.5)],
        ),
        honest=None,
        batch=networks_batch,
    ),
    "latent bottleneck": PartRow(
        Surrogate(regularise=[LatentKL(coefficient=0.5), PrivilegedDistance()]), honest=None, batch=networks_batch
    ),
    "distil normal": PartRow(GaussianDistillation(), honest=None, batch=distilled_batch),
    "distil normal, two dimensions": PartRow(
        GaussianDistillation(dimensions=(0, 2)), honest=None, batch=distilled_batch
    ),
    "distil means": PartRow(GaussianDistillation(divergence="squared"), honest=None, batch=distilled_batch),
    "imitation by squares": PartRow(ActionRegression(), honest=None, batch=networks_batch),
    "weights by a critic": PartRow(
        Surrogate(ratio=None, trust=PolicyGradient(), weights=[NetworkAdvantageWeight(value=None, beta=0.5)]),
        honest=None,
        batch=networks_batch,
    ),
}
