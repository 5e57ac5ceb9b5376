"""Rows of the battery: what reads the teacher, the layers inside the policy and sums over the vocabulary."""

from __future__ import annotations

import functools

from batches import taught_batch
from battery import PartRow

from polopt.features.masks import HasTeacher
from polopt.methods.bupo import LayerEntropy, LayerRatio
from polopt.methods.rover import ValueRegression
from polopt.methods.srpo_routing import TeacherCertainty
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    Distillation,
    ImportanceWeight,
    ObjectiveSchedule,
    OldPolicyRatio,
    Phase,
    SampledDistillation,
    SequenceMean,
    Surrogate,
    TokenRatio,
    Unclipped,
    WithMetrics,
)

row = functools.partial(PartRow, batch=taught_batch)
INNER = Surrogate(ratio=LayerRatio(layer=1), trust=Unclipped())

OBJECTIVES = {
    # Targets, weights and the teacher stand still: the formula stops their gradients.
    "value regression": row(Surrogate(ratio=OldPolicyRatio(), trust=ValueRegression(rho=0.7)), honest=None),
    "distil": row(Surrogate(ratio=None, trust=Distillation())),
    "distil forward": row(Surrogate(ratio=None, trust=Distillation(alpha=0.0))),
    "distil backward": row(Surrogate(ratio=None, trust=Distillation(alpha=1.0), aggregate=SequenceMean())),
    "distil, renormalised": row(Surrogate(ratio=None, trust=Distillation(alpha=0.3, rest="renormalise"))),
    "distil sampled": row(Surrogate(ratio=None, trust=SampledDistillation()), honest=None),
    "teacher certainty": row(Surrogate(ratio=None, trust=Distillation(), weights=[TeacherCertainty(beta=2.0)])),
    "current importance": row(
        Surrogate(ratio=None, trust=Unclipped(), weights=[ImportanceWeight(high=0.1)]), honest=None
    ),
    "routed with one denominator": row(
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
    "taught alone": row(
        BranchedObjective(routes=[Branch(objective=Surrogate(ratio=None, trust=Distillation()), rows=HasTeacher())])
    ),
    "inner": row(INNER),
    "inner, watched": row(WithMetrics(objective=INNER, gauges=[LayerEntropy(layer=1), LayerEntropy(layer=1)])),
    "phased": row(
        ObjectiveSchedule(phases=[Phase(objective=INNER, batches=2), Phase(objective=Surrogate(ratio=TokenRatio()))])
    ),
}
