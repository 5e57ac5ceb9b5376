"""Every method of preferences on one task whose true preference is known (benchmarks/preference_task.py).

python -m benchmarks.preference_methods --folder F                  every method; continued when stopped
python -m benchmarks.preference_methods --folder F --only dpo ipo

All methods begin with the same policy and have the same labelled pairs. Those that learn from given answers read the
pairs; those that learn from the policy's own answers are told the rewards of a model fitted to the pairs. Each has as
many steps of as many rows, and its best of three step sizes by the win rate at the end on two seeds that do not count.
The comparison is on five others. Results: benchmarks/results/preference_methods.{json,md}, and every evaluation in
preference_methods.jsonl beside them, in the form that `polopt measure online-offline-gap` reads.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import preference_table, table
from benchmarks import preference_task as task
from benchmarks.spec import HERE
from polopt.errors import UserError
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import load_policy
from polopt.training import recipe as recipes
from polopt.training.launch import create, open_domain
from polopt.training.loop import Training
from polopt.training.process_group import ProcessGroup
from polopt.worlds import build_tasks
from polopt.worlds.protocol import Tasks

ROOT = HERE.parent
RESULTS = HERE / "results" / "preference_methods"
STEP_SIZES = (1e-4, 5e-4, 2.5e-3)
PREPARATION = 1e-3  # of the stages before a method's own
TRIALS, SEEDS = (100, 101), (0, 1, 2, 3, 4)
STEPS, ROWS, PAIRS = 200, 64, 3
EVALUATED = (0, 10, 20, 40, 70, 100, 130, 160, 200)
WARMUP = 200
POLICY = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 16, "resid_pdrop": 0}
POLICY |= {"embd_pdrop": 0, "attn_pdrop": 0, "initializer_range": 0.1}
YARDSTICK = "dpo"
SETTING: dict[str, Any] = {
    "yardstick": YARDSTICK,
    "steps": STEPS,
    "rows": ROWS,
    "pairs": PAIRS * task.TRAIN,
    "step_sizes": STEP_SIZES,
    "seeds": SEEDS,
    "trials": TRIALS,
    "prompts": task.EXACT,
    "spread": task.SPREAD,
}

Stages = dict[str, dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Place:
    """The files of one seed: `policy`, pairs.jsonl, scored.jsonl, prompts.jsonl, ranked.jsonl, proxy.json."""

    folder: Path

    def tasks(self, kind: str) -> dict[str, Any]:
        ranked = str(self.folder / "ranked.jsonl")
        files = {"pairs": "pairs", "swapped": "pairs", "scored": "scored", "sampled": "prompts"}
        found: dict[str, Any] = {"path": str(self.folder / f"{files[kind]}.jsonl")}
        if kind == "sampled":
            verifier = "benchmarks.preference_task:proxy_reward"
            return {"kind": "dataset", **found, "heldout": 0.1, "verifier": verifier}
        if kind == "scored":
            return {"kind": "labelled", **found, "heldout": 0.1}
        swapped = {"chosen": "rejected", "rejected": "chosen"} if kind == "swapped" else {}
        return {"kind": "pairs", **found, "heldout": 0.1 if swapped else ranked, **swapped}


# A method's stages, given the place of the files and the method itself: those before the last have half of the steps.
def given(place: Place, method: Any, kind: str = "pairs") -> Stages:
    return {"main": {"method": method, "tasks": place.tasks(kind)}}


def sampled(place: Place, method: Any, **settings: Any) -> Stages:
    return {"main": {"method": method, "tasks": place.tasks("sampled"), **settings}}


def after_dpo(name: str) -> Callable[[Place, Any], Stages]:
    """A stage of DPO, and the method on the policy's own answers, from the first policy again, with the DPO policy
    beside it."""

    def build(place: Place, method: Any) -> Stages:
        main = {"start": "initial", "policies": {name: {"stage": name}, "reference": "initial"}}
        return {name: {"method": "dpo", "tasks": place.tasks("pairs")}, **sampled(place, method, **main)}

    return build


def guided(place: Place, method: Any) -> Stages:
    main = {"start": "initial", "policies": {"guide": {"stage": "guide"}, "reference": "initial"}}
    return {
        "guide": {"method": "dpo", "tasks": place.tasks("pairs")},
        "main": {"method": method, "tasks": place.tasks("pairs"), **main},
    }


def distilled(place: Place, method: Any) -> Stages:
    policies = {"dpo": {"stage": "dpo"}, "reverse": {"stage": "reverse"}}
    return {
        "reverse": {"method": "dpo", "tasks": place.tasks("swapped")},
        "dpo": {"method": "dpo", "tasks": place.tasks("pairs"), "start": "initial"},
        **sampled(place, method, policies=policies),
    }


def souped(place: Place, method: Any) -> Stages:
    soup = {"average": [{"stage": "first"}, {"stage": "second"}], "weights": [0.5, 0.5]}
    return {
        "first": {"method": "sft", "tasks": place.tasks("pairs")},
        "second": {"method": "sft", "tasks": place.tasks("pairs"), "start": "initial"},
        **sampled(place, method, start={"stage": "first"}, policies={"soup": soup}),
    }


def easy_then_hard(place: Place, method: Any) -> Stages:
    judge = {"part": "benchmarks.preference_task:ProxyJudge", "file": str(place.folder / "proxy.json")}
    shared = {**method, "reward": {"part": "rewards.JudgedReward", "judge": judge}}
    return {
        "easy": {"method": {**shared, "stage": 1}, "tasks": place.tasks("pairs")},
        "main": {"method": {**shared, "stage": 2}, "tasks": place.tasks("pairs")},
    }


def scored(place: Place, method: Any) -> Stages:
    return given(place, method, "scored")


# Settings are the paper's but for the size of groups, which divide the rows.
METHODS: dict[str, tuple[Any, Callable[..., Stages]]] = {
    "sft": ("sft", given),
    **{slug: (slug, given) for slug in ("dpo", "ipo", "simpo", "slic", "orpo", "rpo-sft", "kto", "spo-selfsup")},
    "alol": ("alol", scored),
    "tgdpo": ("tgdpo", guided),
    "aligndistil": ({"name": "aligndistil", "top": 16}, distilled),
    "online-dpo": ("online-dpo", sampled),
    "sppo": ({"name": "sppo", "group": 4}, sampled),
    "inpo": ("inpo", sampled),
    "nash-md": ("nash-md", sampled),
    "spo-self-play": ("spo-self-play", sampled),
    "rso": ({"name": "rso", "group": 16}, sampled),
    "rebel": ("rebel", sampled),
    "p3o-pairwise": ("p3o-pairwise", sampled),
    "rloo": ({"name": "rloo", "group": 4, "kl": 0.05}, sampled),
    "ppo": ({"name": "ppo", "kl": 0.05}, sampled),
    "drpo-reset": ("drpo-reset", sampled),
    "rto": ("rto", after_dpo("dpo")),
    "salsa": ("salsa", souped),
    "mpo-easyhard": ({"name": "mpo-easyhard"}, easy_then_hard),
}


def prepared(folder: Path, seed: int) -> Place:
    """Returns the files of a seed, made first if they are not there: the first policy, pairs of its answers with
    labels, and the proxy that was fitted to them."""
    place = Place(folder / f"seed-{seed}")
    if (place.folder / "proxy.json").is_file():
        return place
    generator = torch.Generator().manual_seed(10_000 + seed)
    reward, (train, ranked, _) = task.true_reward(seed), task.prompts_of(seed)
    place.folder.mkdir(parents=True, exist_ok=True)
    words = _words(generator, 20 * len(train))
    shown = [{"prompt": x, "answer": words.pop()} for x in train for _ in range(20)]
    _write(place.folder / "shown.jsonl", shown)
    world = {"kind": "dataset", "path": str(place.folder / "shown.jsonl"), "heldout": 0.05}
    recipe = _recipe({"config": POLICY}, {"warmup": {"method": "sft", "steps": WARMUP, "tasks": world}}, seed, 3e-3)
    _train(recipe, place.folder / "warmup", None)
    policy = load_policy(str(place.folder / "warmup" / "policy"), dtype="float32")
    words_world = build_tasks(world, seed=0).train
    pairs = _pairs(policy, words_world, reward, train, generator, noisy=True)
    _write(place.folder / "pairs.jsonl", pairs)
    _write(place.folder / "ranked.jsonl", _pairs(policy, words_world, reward, ranked, generator, noisy=False))
    proxy = task.fitted_proxy(pairs)
    file = str(place.folder / "proxy.json")
    _write(
        place.folder / "prompts.jsonl",
        [{"prompt": pair["prompt"], "answer": pair["chosen"], "proxy": file} for pair in pairs[::PAIRS]],
    )
    answers = [(pair["prompt"], pair[side]) for pair in pairs for side in ("chosen", "rejected")]
    scores = torch.sigmoid(proxy([x for x, _ in answers], [y for _, y in answers])).tolist()
    labelled = [{"prompt": x, "completion": y, "label": s} for (x, y), s in zip(answers, scores, strict=True)]
    _write(place.folder / "scored.jsonl", labelled)
    Path(file).write_text(json.dumps(proxy.record()), encoding="utf-8")
    return place


def _words(generator: torch.Generator, count: int) -> list[str]:
    """Returns words of a random Markov chain over the letters, which the first policy imitates."""
    chain = torch.randn(task.SIZE, task.SIZE, generator=generator).softmax(1)
    letters = torch.randint(task.SIZE, (count,), generator=generator)
    words = [letters]
    for _ in range(task.LENGTH - 1):
        words.append(torch.multinomial(chain[words[-1]], 1, generator=generator)[:, 0])
    return ["".join(task.LETTERS[i] for i in row) for row in torch.stack(words, 1).tolist()]


def _pairs(
    policy: LanguagePolicy,
    world: Tasks,
    reward: task.RewardTables,
    prompts: list[str],
    g: torch.Generator,
    noisy: bool,
) -> list[dict[str, str]]:
    """Returns pairs of different answers of the policy; in the order of noisy labels, or of the reward."""
    batch = task.answer_batch(policy, world, [(x, y) for x in prompts for y in task.ANSWERS])
    chance = task.answer_logp(policy, batch).view(len(prompts), -1).exp()
    found = []
    for x, row in zip(prompts, chance, strict=True):
        for _ in range(PAIRS):
            one, other = (task.ANSWERS[i] for i in torch.multinomial(row, 2, generator=g).tolist())
            gap = float(reward([x], [one]) - reward([x], [other]))
            first = float(torch.rand((), generator=g)) < 1 / (1 + np.exp(-gap)) if noisy else gap > 0
            chosen, rejected = (one, other) if first else (other, one)
            found.append({"prompt": x, "chosen": chosen, "rejected": rejected})
    return found


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _recipe(policy: dict[str, Any], stages: Stages, seed: int, lr: float) -> dict[str, Any]:
    common = {"rows": ROWS, "optimiser": {"lr": lr, "warmup": 5}}
    return {
        "tasks": list(stages.values())[-1]["tasks"],
        "seed": seed,
        "threads": 1,
        "policy": policy,
        "limit": task.LENGTH + 1,
        "stages": {name: {**common, "steps": STEPS, **stage} for name, stage in stages.items()},
        "evaluation": {"problems": 8, "quick": 8, "every": 0},
        "checkpoint": 100_000,
    }


class Curve:
    """A watcher that evaluates the policy of a run at its beginning, and at the steps of its last stage."""

    def __init__(self, exact: task.ExactEvaluation, domain: Any) -> None:
        self.exact, self.domain = exact, domain
        self.points: list[dict[str, float]] = []

    def begin(self, *_: Any) -> None:
        self._point(0)

    def step(self, record: Any) -> None:
        done = record["stage_step"] + 1
        if record["stage"] == "main" and done in EVALUATED:
            self._point(done)

    def evaluation(self, record: Any) -> None:
        pass

    def _point(self, step: int) -> None:
        self.points.append({"step": step, **self.exact(self.domain.policy)})


def _train(data: dict[str, Any], folder: Path, exact: task.ExactEvaluation | None = None) -> list[dict[str, float]]:
    """Trains in a folder, and returns the evaluations."""
    recipe, team = recipes.recipe_of(data), ProcessGroup()
    recipe.check("the recipe")
    with open_domain(recipe, team, None) as domain:
        curve = [Curve(exact, domain)] if exact is not None else []
        Training(recipe, create(recipe, folder), domain, tuple(curve), team).run()
    return curve[0].points if curve else []


@functools.cache
def _exact(folder: Path, seed: int) -> task.ExactEvaluation:
    policy = load_policy(str(folder / "warmup" / "policy"), dtype="float32")
    world = build_tasks(Place(folder).tasks("pairs"), seed=0)
    pairs = [json.loads(line) for line in (folder / "ranked.jsonl").read_text().splitlines()]
    return task.ExactEvaluation(policy, world.train, task.true_reward(seed), task.prompts_of(seed)[2], pairs)


def measured(name: str, step_size: float, seed: int, folder: Path) -> list[dict[str, float]]:
    """Returns the evaluations of a method's run: those that the folder has, or of a new one."""
    place = prepared(folder, seed)
    file = place.folder / f"{name}-{step_size:g}.json"
    if not file.is_file():
        method, build = METHODS[name]
        method = {"name": method} if isinstance(method, str) else dict(method)
        stages = build(place, method)
        for stage in list(stages)[:-1]:
            stages[stage] = {"steps": STEPS // 2, "optimiser": {"lr": PREPARATION, "warmup": 5}, **stages[stage]}
        data = _recipe({"model": str(place.folder / "warmup" / "policy")}, stages, seed, step_size)
        with tempfile.TemporaryDirectory() as temporary:
            found = _train(data, Path(temporary) / "run", _exact(place.folder, seed))
        file.write_text(json.dumps(found), encoding="utf-8")
    points: list[dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return points


def chosen(name: str, folder: Path) -> float:
    """Returns the step size of the best win rate at the end, by the mean of the seeds that do not count."""

    def last(size: float) -> float:
        return float(np.mean([measured(name, size, seed, folder)[-1]["win_rate"] for seed in TRIALS]))

    return max(STEP_SIZES, key=last)


def row_of(name: str, folder: Path) -> dict[str, Any]:
    """Returns what a method reached with its best step size on every seed, and how far the largest one went."""
    size = chosen(name, folder)
    curves = [measured(name, size, seed, folder) for seed in SEEDS]
    beyond = [measured(name, max(STEP_SIZES), seed, folder) for seed in TRIALS]
    return {"name": name, "step_size": size, "curves": curves, "beyond": beyond}


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs are kept")
    parser.add_argument("--only", nargs="*", choices=sorted(METHODS), metavar="METHOD")
    parser.add_argument("--note", default="", help="a sentence on the circumstances, for the page's head")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the curves of the results there, as a page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    about = {**table.about(ROOT, 1, "preference_methods"), "command": "python -m benchmarks.preference_methods"}
    data: dict[str, Any] = {"about": about, "note": options.note, "setting": SETTING, "rows": [], "failed": {}}
    for name in dict.fromkeys([YARDSTICK, *(options.only or METHODS)]):
        try:
            data["rows"].append(row_of(name, options.folder.resolve()))
        except UserError as error:
            data["failed"][name] = str(error)
        print(f"{name}: {data['failed'].get(name, 'done')}", flush=True)
        data["about"]["load_after"] = os.getloadavg()
        RESULTS.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        RESULTS.with_suffix(".jsonl").write_text(preference_table.curves(data), encoding="utf-8")
        RESULTS.with_suffix(".md").write_text(preference_table.markdown(data), encoding="utf-8")
    if options.figure is not None:
        options.figure.write_text(preference_table.figure(data), encoding="utf-8")
    print(preference_table.markdown(data))


if __name__ == "__main__":
    main()
