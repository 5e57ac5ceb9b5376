"""Tasks on which the idea of a method matters: what they are, and who is compared on them with whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

GRPO: dict[str, Any] = {"name": "grpo", "kl": 0.0}
# Enough tasks to learn from, few enough for each to come back, so that what was seen of it can be of use.
RETURNING = 320
BUDGET: dict[str, Any] = {
    "stages.rl.steps": 40,
    "stages.rl.rows": 192,
    "evaluation.every": 5,
    "evaluation.quick": 200,
    "checkpoint": 1000,
}
CHAINS: dict[str, Any] = {"kind": "chains", "steps": [1, 3], "letters": 3, "train": 8000, "heldout": 400}


@dataclasses.dataclass(frozen=True)
class Suite:
    """about: what is hard here. changes: of the recipe, by dotted path. methods: slug -> settings, where they are not
    the paper's. yardstick: the plain method that they are compared with."""

    about: str
    changes: Mapping[str, Any]
    methods: Mapping[str, Mapping[str, Any]]
    yardstick: Mapping[str, Any] = dataclasses.field(default_factory=lambda: dict(GRPO))
    recipe: str | None = None

    def settings(self, slug: str) -> str | dict[str, Any]:
        """The method as a recipe names it."""
        own = self.methods[slug]
        return {"name": slug, **own} if own else slug


def _matrices(letters: tuple[int, int], most: int, rotated: int) -> dict[str, Any]:
    return {
        "spell_backward": {"min_word_len": letters[0], "max_word_len": letters[1]},
        "rotate_matrix": {"min_n": 2, "max_n": rotated, "min_rotations": 1, "max_rotations": 1},
        "spiral_matrix": {"min_n": 2, "max_n": most},
    }


SUITES: dict[str, Suite] = {
    "mix": Suite(
        about=(
            f"{RETURNING} tasks that come back several times, some solved by almost every answer after a warm-up on "
            "easier ones and some by almost none: words of 3 to 6 letters to spell backwards, matrices of 2 x 2 and "
            "3 x 3 to rotate or unroll, of which the warm-up showed no word longer than 5 and unrolled none of 3 x 3."
        ),
        changes={
            **BUDGET,
            "tasks.datasets": _matrices((3, 6), 3, 3),
            "tasks.train": RETURNING,
            "limit": 24,
            "stages.warmup.tasks": {
                "kind": "reasoning-gym",
                "datasets": _matrices((3, 5), 2, 3),
                "train": 4000,
                "heldout": 50,
            },
            "stages.warmup.steps": 60,
        },
        methods={},
    ),
    "working": Suite(
        about=(
            "Words to rearrange in 1 to 3 steps. Half of the solutions that the warm-up shows write the word after "
            "every step and half only the last, so that answers may be short or long; only the last word is paid for."
        ),
        changes={**BUDGET, "tasks": CHAINS, "limit": 18, "stages.warmup.steps": 150},
        methods={},
    ),
    "planted": Suite(
        about=(
            "The same words, judged by a verifier that misses right answers, more often in more steps, and takes some "
            "wrong ones for right; held-out answers are judged without errors."
        ),
        changes={
            **BUDGET,
            "tasks": {
                "kind": "noisy",
                "of": CHAINS,
                "missed": {"1 step": 0.1, "2 steps": 0.3, "3 steps": 0.5},
                "fooled": {"1 step": 0.02, "2 steps": 0.05, "3 steps": 0.1},
            },
            "limit": 18,
            "stages.warmup.steps": 150,
        },
        methods={},
    ),
}
