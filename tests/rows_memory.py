"""Rows of the battery: parts for batches of several ages."""

from __future__ import annotations

from battery import Row

from polopt.objectives import CentredClip, ReferenceKL, Sequence, Surrogate, Token
from polopt.schedules import Schedule

OBJECTIVES = {
    "centred clip": Row(Surrogate(trust=CentredClip())),
    "centred clip of sequences": Row(
        Surrogate(ratio=Sequence(), trust=CentredClip(low=0.01, high=0.02, centre=Sequence()))
    ),
    "two anchors": Row(
        Surrogate(
            trust=CentredClip(),
            regularise=[
                ReferenceKL(coefficient=Schedule(knots=[(0, 0.5), (2, 0.1)]), gradient="k2", value="k2"),
                ReferenceKL(anchor="previous"),
            ],
        )
    ),
    "previous, weighed": Row(Surrogate(regularise=[ReferenceKL(anchor="previous", ratio=Token())]), honest=None),
}
