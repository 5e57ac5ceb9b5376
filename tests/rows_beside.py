"""Rows of the battery: what reads the teacher, the layers inside the policy and sums over the vocabulary."""

from __future__ import annotations

import functools

from batches import taught_batch
from battery import Row

from polopt.objectives import (
    Clip,
    Distil,
    DistilSampled,
    Importance,
    LayerEntropy,
    LayerRatio,
    Phase,
    Phased,
    Proximal,
    Route,
    Routed,
    SequenceMean,
    Surrogate,
    Taught,
    TeacherCertainty,
    Token,
    Unlimited,
    ValueRegression,
    Watched,
)

row = functools.partial(Row, batch=taught_batch)
INNER = Surrogate(ratio=LayerRatio(layer=1), trust=Unlimited())

OBJECTIVES = {
    # Targets, weights and the teacher stand still: the formula stops their gradients.
    "value regression": row(Surrogate(ratio=Proximal(), trust=ValueRegression(rho=0.7)), honest=None),
    "distil": row(Surrogate(ratio=None, trust=Distil())),
    "distil forward": row(Surrogate(ratio=None, trust=Distil(alpha=0.0))),
    "distil backward": row(Surrogate(ratio=None, trust=Distil(alpha=1.0), aggregate=SequenceMean())),
    "distil, renormalised": row(Surrogate(ratio=None, trust=Distil(alpha=0.3, rest="renormalise"))),
    "distil sampled": row(Surrogate(ratio=None, trust=DistilSampled()), honest=None),
    "teacher certainty": row(Surrogate(ratio=None, trust=Distil(), weights=[TeacherCertainty(beta=2.0)])),
    "current importance": row(Surrogate(ratio=None, trust=Unlimited(), weights=[Importance(high=0.1)]), honest=None),
    "routed with one denominator": row(
        Routed(
            routes=[
                Route(objective=Surrogate(trust=Clip(dual=3.0)), rows=Taught(below=0.5, invert=True)),
                Route(
                    objective=Surrogate(ratio=None, trust=Distil(), weights=[TeacherCertainty()]),
                    rows=Taught(below=0.5),
                    weight=0.5,
                ),
            ],
            count="all",
        )
    ),
    "taught alone": row(Routed(routes=[Route(objective=Surrogate(ratio=None, trust=Distil()), rows=Taught())])),
    "inner": row(INNER),
    "inner, watched": row(Watched(objective=INNER, gauges=[LayerEntropy(layer=1), LayerEntropy(layer=1)])),
    "phased": row(Phased(phases=[Phase(objective=INNER, batches=2), Phase(objective=Surrogate(ratio=Token()))])),
}
