"""Writes the pairs of the preferences recipe: python -m benchmarks.preferences

Two numbers are named, and the larger one is preferred to the smaller one. Both answers have as many tokens and stand
in the prompt, so that neither length nor form gives the preference away.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

PATH = Path(__file__).parents[1] / "polopt" / "recipes" / "data" / "preferences.jsonl"
COUNT, SEED = 200, 0


def pairs(count: int = COUNT, seed: int = SEED) -> list[dict[str, str]]:
    """So many different questions, each with its pair of answers."""
    draw = random.Random(seed)
    numbers = draw.sample([(a, b) for a in range(10, 60) for b in range(10, 60) if a // 10 != b // 10], count)
    return [{"prompt": f"{a} or {b}? ", "chosen": str(max(a, b)), "rejected": str(min(a, b))} for a, b in numbers]


def main() -> None:
    """Writes the file."""
    PATH.write_text("".join(json.dumps(pair) + "\n" for pair in pairs()), encoding="utf-8")


if __name__ == "__main__":
    main()
