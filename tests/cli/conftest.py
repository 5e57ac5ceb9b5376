"""A world of two kinds of tiny tasks, a recipe of seconds, and one run of it."""

import json
import random
from pathlib import Path

import pytest
from command import polopt

RECIPE = """\
seed: 0
threads: 1
policy:
  config: {{model_type: gpt2, n_embd: 32, n_layer: 1, n_head: 2, n_positions: 32}}
tasks: {{kind: dataset, path: {path}, heldout: 0.25, kind_field: kind}}
limit: 4
stages:
  warmup: {{method: sft, steps: 3, rows: 8}}
  rl: {{method: {{name: grpo, kl: 0.0}}, group: 4, steps: 4, rows: 16}}
evaluation: {{problems: 12, every: 2, quick: 6}}
checkpoint: 2
"""


@pytest.fixture(autouse=True)
def _as_wide_as_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have set COLUMNS, as pytest-xdist does."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, generator = tmp_path_factory.mktemp("recipe"), random.Random(0)
    rows = []
    for kind, answer in (("first", lambda s: s[0]), ("last", lambda s: s[-1])):
        words = {"".join(generator.choices("abc", k=4)) for _ in range(40)}
        rows += [{"prompt": f"{kind} {w}: ", "answer": answer(w), "kind": kind} for w in sorted(words)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "tiny.yaml").write_text(RECIPE.format(path=folder / "tasks.jsonl"))
    return folder / "tiny.yaml"


@pytest.fixture(scope="session")
def trained(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """(folder, what was printed) of a finished run."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    result = polopt("train", recipe, "--run", folder)
    assert result.exit_code == 0, result.output
    return folder, result.output
