"""A predictor of success trained on the checkpoints of small language policies, asked about a run it has never seen.

python -m benchmarks.predictor              into benchmarks/results/predictor.{json,md}
python -m benchmarks.predictor --folder F   keeps the histories in F; called again it goes on from there

Each run is the main job's with half of its batches, by GRPO or REINFORCE; every few steps the policy of that moment
answers the same held-out problems. For each run in turn the predictor learns from those of the other seed. It is then
shown what a policy of this run scored at half of the problems, and asked what the next one will score at the others.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import table
from benchmarks.spec import HERE
from polopt.metrics import t_interval
from polopt.sampling import History, InContext, fit
from polopt.training import recipe as recipes
from polopt.training.episode_player import EpisodePlayer
from polopt.training.evaluate import evaluate
from polopt.training.histories import history
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.loop import Training
from polopt.training.run import Run
from polopt.worlds import build_tasks

RESULTS = HERE / "results"
RUNS = [(method, seed) for seed in range(2) for method in ("grpo", "reinforce")]
CHANGES: dict[str, Any] = {
    "threads": 1,
    "stages.rl.steps": 60,
    "stages.rl.rows": 192,
    "evaluation.every": 0,
    "evaluation.problems": 20,
    "checkpoint": 1000,
}
EVERY, PROBLEMS, SAMPLES = 6, 240, 4
SIZES: dict[str, Any] = {"buckets": 1024, "longest": 3}


class Snapshots:
    """Watches a run, and evaluates its policy on the same problems every few steps."""

    def __init__(self) -> None:
        self.training: Training | None = None
        self.found: list[History] = []

    def begin(self, recipe: Any, about: Mapping[str, Any]) -> None: ...

    def evaluation(self, record: Mapping[str, Any]) -> None: ...

    def step(self, record: Mapping[str, Any]) -> None:
        assert self.training is not None
        step = record["step"] + 1
        if step % EVERY == 0:
            recipe = self.training.recipe
            heldout = build_tasks(recipe.tasks, seed=0).heldout  # the same problems for all runs
            player = EpisodePlayer(self.training.domain.policy, heldout, recipe.limit)
            tasks = [heldout[i] for i in range(PROBLEMS)]
            self.found.append(history(evaluate(player, tasks, samples=SAMPLES, seed=step)))


def histories(method: str, seed: int, folder: Path) -> list[History]:
    """One run's, in the order of its steps, from `folder` if they are there."""
    file = folder / f"{method}-{seed}.json"
    if not file.is_file():
        name = {"name": method, "kl": 0.0} if method == "grpo" else method
        recipe = recipes.load(changes={**CHANGES, "stages.rl.method": name, "seed": seed})
        with tempfile.TemporaryDirectory() as place:
            watch = Snapshots()
            run = Run.create(Path(place) / "run", recipe.to_yaml(), {})
            training = Training(recipe, run, LanguageDomain(LanguageRecipe.require(recipe)), (watch,))
            watch.training = training
            training.run()
        kept = [{"prompts": list(h.prompts), "scores": h.scores.tolist()} for h in watch.found]
        file.write_text(json.dumps(kept))
    return [History(h["prompts"], torch.tensor(h["scores"]).double()) for h in json.loads(file.read_text())]


def judged(predictor: InContext, run: list[History], shuffled: bool = False) -> dict[str, float]:
    """Mean squared errors against the next snapshot's scores at problems outside of the context, and how often of two
    of them the one with the higher score was predicted higher. Of snapshots that solve something."""
    order = torch.randperm(PROBLEMS, generator=torch.Generator().manual_seed(0))
    context, targets = order[: PROBLEMS // 2], order[PROBLEMS // 2 :]
    found: dict[str, list[float]] = {"error": [], "base": [], "order": []}
    for now, later in solving(run):
        scores = now.scores[context]
        if shuffled:
            scores = scores[torch.randperm(len(context), generator=torch.Generator().manual_seed(1))]
        predicted = predictor([now.prompts[i] for i in context], scores, [later.prompts[i] for i in targets])
        truth = later.scores[targets]
        found["error"].append(float((predicted - truth).square().mean()))
        found["base"].append(float((now.scores[context].mean() - truth).square().mean()))
        found["order"].append(concordance(predicted, truth))
    return {name: sum(values) / len(values) for name, values in found.items()}


def solving(run: list[History]) -> list[tuple[History, History]]:
    """Each snapshot that solves something, and the next."""
    return [(now, later) for now, later in itertools.pairwise(run) if now.scores.any()]


def concordance(predicted: Tensor, truth: Tensor) -> float:
    """Of the pairs with different truths, the share that the guess orders alike; ties count half."""
    above = truth[:, None] > truth
    difference = predicted[:, None] - predicted
    return float(((difference > 0).double() + (difference == 0).double() / 2)[above].mean())


def measure(folder: Path) -> dict[str, Any]:
    about = table.about(HERE.parent, 1, "predictor")
    runs = {(method, seed): histories(method, seed, folder) for method, seed in RUNS}
    rows = []
    for (method, seed), run in runs.items():
        # Runs of one seed share their tasks and their warm-up, so none of them is shown.
        others = [h for (_, other), found in runs.items() if other != seed for h in found]
        trained = fit(InContext(**SIZES), others, steps=120, context=128)
        mean = torch.stack([h.scores for h in others]).mean(0)
        order = torch.randperm(PROBLEMS, generator=torch.Generator().manual_seed(0))[PROBLEMS // 2 :]
        prompt = [float((mean[order] - later.scores[order]).square().mean()) for _, later in solving(run)]
        shared = all(h.prompts == run[0].prompts for h in others)
        rows.append(
            {
                "name": f"{method}, seed {seed}",
                "solved": [float(run[0].scores.mean()), float(run[-1].scores.mean())],
                "trained": judged(trained, run),
                "untrained": judged(InContext(**SIZES), run),
                "shuffled": judged(trained, run, shuffled=True),
                "prompt": sum(prompt) / len(prompt) if shared else None,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    about["load_after"] = os.getloadavg()
    return {"about": about, "rows": rows}


def markdown(data: dict[str, Any]) -> str:
    it, rows = data["about"], data["rows"]
    lines = [
        "# Predicting what the next checkpoint will solve",
        "",
        f"{it['date']}, commit {it['commit']}, `{it['command']}`.",
        "",
        table.machine(it),
        "",
        f"{len(rows)} runs of the `laptop` recipe, {CHANGES['stages.rl.steps']} batches of "
        f"{CHANGES['stages.rl.rows']} answers: {PROBLEMS} held-out problems are answered {SAMPLES} times each every "
        f"{EVERY} steps. "
        "For each run `sampling.fit` trains `sampling.InContext` on the histories of the other seed. It is shown the "
        "scores of one checkpoint at half of the problems, and predicts those of the next one at the other half. "
        "Errors are mean squares against scores that are themselves means of four tries. Base rate: the checkpoint's "
        "mean score. "
        "Order: of two problems with different scores, how often the higher one is predicted to be higher.",
        "",
        "|run it has not seen|solved, first to last|base rate|each problem's mean elsewhere|untrained|trained|trained, "
        "scores shuffled|order, trained|",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        prompt = "" if row["prompt"] is None else f"{row['prompt']:.4f}"
        lines.append(
            f"|{row['name']}|{row['solved'][0]:.1%} to {row['solved'][1]:.1%}|{row['trained']['base']:.4f}|{prompt}|"
            f"{row['untrained']['error']:.4f}|{row['trained']['error']:.4f}|{row['shuffled']['error']:.4f}|"
            f"{row['trained']['order']:.1%}|"
        )
    gain = t_interval([row["trained"]["base"] - row["trained"]["error"] for row in rows])
    lines += ["", f"Base rate's error less the trained one's, over runs: {gain}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        data = measure(folder)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "predictor.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / "predictor.md").write_text(markdown(data))


if __name__ == "__main__":
    main()
