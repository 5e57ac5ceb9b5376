"""Tasks on which the idea of a method matters: what they are, and who is compared on them with whom."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

GRPO: dict[str, Any] = {"name": "grpo", "kl": 0.0, "group": 8}
# Enough tasks to learn from, few enough for each to come back, so that what was seen of it can be of use.
RETURNING = 96
BUDGET: dict[str, Any] = {
    "stages.rl.steps": 30,
    "stages.rl.rows": 128,
    "stages.rl.group": None,  # each method's own
    "evaluation.every": 5,
    "evaluation.quick": 150,
    "checkpoint": 1000,
}
CHAINS: dict[str, Any] = {"kind": "chains", "steps": [1, 3], "letters": 3, "train": 8000, "heldout": 400}
WORKING: dict[str, Any] = {**BUDGET, "tasks": CHAINS, "limit": 18, "stages.warmup.steps": 160}
ERRORS: dict[str, Any] = {
    "missed": {"1 step": 0.1, "2 steps": 0.3, "3 steps": 0.5},
    "fooled": {"1 step": 0.02, "2 steps": 0.05, "3 steps": 0.1},
}
RATES = [(kind, ERRORS["fooled"][kind], ERRORS["missed"][kind]) for kind in ERRORS["missed"]]


@dataclasses.dataclass(frozen=True)
class Suite:
    """about: what is hard here. recipe: one of polopt's own, the main one if None. changes: of it, by dotted path.
    methods: names with settings, where they are not the paper's. yardstick: the plain method that they are compared
    with."""

    about: str
    changes: Mapping[str, Any]
    methods: Sequence[Mapping[str, Any]]
    yardstick: Mapping[str, Any] = dataclasses.field(default_factory=lambda: dict(GRPO))
    recipe: str | None = None


def _matrices(letters: tuple[int, int], unrolled: int) -> dict[str, Any]:
    return {
        "spell_backward": {"min_word_len": letters[0], "max_word_len": letters[1]},
        "rotate_matrix": {"min_n": 2, "max_n": 3, "min_rotations": 1, "max_rotations": 1},
        "spiral_matrix": {"min_n": 2, "max_n": unrolled},
    }


SUITES: dict[str, Suite] = {
    "mix": Suite(
        about=(
            f"{RETURNING} tasks that come back several times, some solved by almost every answer after a warm-up on "
            "easier ones and some by almost none: words of 3 to 6 letters to spell backwards, matrices of 2 x 2 and "
            "3 x 3 to rotate or unroll, of which the warm-up showed no word longer than 5 and unrolled none of 3 x 3. "
            "pope, tempsamp-r1 see beginnings of solutions, or whole ones, which the others do not."
        ),
        changes={
            **BUDGET,
            "tasks.datasets": _matrices((3, 6), 3),
            "tasks.train": RETURNING,
            "limit": 24,
            "stages.warmup.tasks": {
                "kind": "reasoning-gym",
                "datasets": _matrices((3, 5), 2),
                "train": 4000,
                "heldout": 50,
            },
            "stages.warmup.steps": 60,
        },
        methods=[
            {"name": "knapsack-rl"},
            {"name": "vade"},
            {"name": "gvm", "block": "wte"},
            {"name": "vas", "kl": 0.0, "rollouts": 4, "every": 8},
            {"name": "v0"},
            {"name": "v0-5"},
            {"name": "pope", "most": 1.0, "moving": True, "tries": 0},
            {"name": "tempsamp-r1", "group": 8, "kl": 0.0},
            {"name": "latr", "kl": 0.0, "windows": (3, 5), "until": 12},
        ],
    ),
    "working": Suite(
        about=(
            "Words to rearrange in 1 to 3 steps. Half of the solutions that the warm-up shows write the word after "
            "every step and half only the last, so that answers may be short or long; only the last word is paid for."
        ),
        changes=WORKING,
        methods=[
            {"name": "grpo-lambda-len", "group": 8},
            {"name": "conciser", "group": 8},
            {"name": "rorecomp"},
            {"name": "fapo"},
            {
                "name": "adacot",
                "thought": {"part": "features.SignalAbove", "name": "working"},
                "need": {"part": "features.SignalAbove", "name": "needed"},
                "malformed": {"part": "features.AnswerMatches", "pattern": "^[a-z]+( [a-z]+)*$", "invert": True},
            },
            {"name": "gtalign", "group": 8, "blocks": False, "answer": (0, 3), "whole": (2, 14), "steepness": 1.0},
            {"name": "infocons", "group": 2, "by": "content", "outcome": 1.0, "helpful": 0.0, "kl": 0.0},
            {"name": "rex-rag", "group": 8, "texts": (" ab ", " bc ", " ca "), "kl": 0.0},
        ],
    ),
    "planted": Suite(
        about=(
            "The same words, judged by a verifier that misses right answers, more often in more steps, and takes some "
            "wrong ones for right; held-out answers are judged without errors. `noisy-verifier` is told the rates by "
            "kind of task, or estimates them from a second judge of a tenth of the refused answers."
        ),
        changes={**WORKING, "tasks": {"kind": "noisy", "of": CHAINS, **ERRORS}},
        methods=[
            {"name": "noisy-verifier", "correction": "backward", "kinds": RATES},
            {"name": "noisy-verifier", "correction": "forward", "kinds": RATES},
            {"name": "noisy-verifier", "correction": "forward", "judge": "signal_true"},
            {
                "name": "mpo-meta",
                "group": 8,
                "items": [{"part": "rewards.Item", "name": "outcome"}, {"part": "rewards.Item", "name": "characters"}],
                "meta": {"part": "methods.mpo_meta.AuditedRubric", "truth": "extras.signal_true"},
            },
            {"name": "rlcm-scaling", "form": 0.0, "lengths": [0, 2, 12, 18]},
            {"name": "policy-cliff"},
            {"name": "chi2-occupancy"},
        ],
    ),
    "attempts": Suite(
        about=(
            "Words to spell backwards, with every answer asked for twice; what counts is the second. The stages before "
            "the last are those of the recipe `score` for both."
        ),
        recipe="score",
        changes={"checkpoint": 1000},
        methods=[{"name": "score", "stage": 2}],
        yardstick={"name": "score", "stage": 2, "alpha": 0.0},
    ),
    "critics": Suite(
        about=(
            "Solutions with a planted wrong step, to be judged; what counts is the verdict, and paid is also what "
            "another policy makes of the critique. The stages before the last are those of the recipe `refcritic`."
        ),
        recipe="refcritic",
        changes={"checkpoint": 1000, "stages.both.steps": 60},
        methods=[{"name": "refcritic", "stage": 2}],
        yardstick={"name": "refcritic", "stage": 1},
    ),
    "rules": Suite(
        about=(
            "Questions that a rulebook answers, which nobody may read but, while it is learned, some rollouts. The "
            "stages before the last are those of the recipe `policyrollout`."
        ),
        recipe="policyrollout",
        changes={"checkpoint": 1000, "stages.rollouts.steps": 100},
        methods=[{"name": "policyrollout", "stage": 3, "rules": " a42 b71 c19 d93"}],
        yardstick={"name": "grpo", "kl": 0.0, "group": 4},
    ),
    "edits": Suite(
        about=(
            "A fact to change and then to say without help. The stages before the last are those of the recipe `etcon`."
        ),
        recipe="etcon",
        changes={"checkpoint": 1000},
        methods=[{"name": "etcon", "stage": 2}],
        yardstick={"name": "grpo", "kl": 0.0, "group": 5},
    ),
    "unit-tests": Suite(
        about="Unit tests of small functions, paid by what can be read off them, after the recipe `rlsqm`.",
        recipe="rlsqm",
        changes={"checkpoint": 1000},
        methods=[{"name": "rlsqm", "kl": 0.01}],
        yardstick={"name": "grpo", "kl": 0.0, "group": 8},
    ),
    "smollm": Suite(
        about=(
            "A pretrained model: SmolLM2-135M-Instruct on small questions of everyday life, 20 batches of 64 answers "
            "after 64 demonstrations of the format, with the same optimiser for all, in bfloat16 on float32 weights. "
            "sft is the supervised control: as many rows of demonstrations, and no sampled token, so that it has no "
            "budget of tokens to be compared at."
        ),
        recipe="smollm",
        changes={
            "policy.compute": "bfloat16",
            "stages.rl.steps": 20,
            "stages.rl.rows": 64,
            "stages.rl.group": None,  # each method's own
            "evaluation.problems": 200,
            "evaluation.every": 10,
            "evaluation.others": {},
            "checkpoint": 1000,
        },
        methods=[
            {"name": "dr-grpo", "group": 8},
            {"name": "dapo", "group": 8},
            {"name": "rloo", "group": 8},
            {"name": "sft"},
        ],
    ),
}
