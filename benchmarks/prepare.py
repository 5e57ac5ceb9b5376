"""What both libraries start from: models with calibrated stop tokens, and the main job's warmed-up policy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks.floors import Shape
from benchmarks.spec import Size
from polopt.policies.chat_format import Dialogue
from polopt.policies.factory import new_policy
from polopt.policies.language import LanguagePolicy
from polopt.policies.preflight import load_policy
from polopt.policies.sampler import sample
from polopt.support import Support
from polopt.training.language import EXAMPLES
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import train
from polopt.worlds import build_tasks


def speed_model(size: Size, recipe: LanguageRecipe, folder: Path) -> dict[str, Any]:
    """A new model whose answers are `size.length` tokens long on average; its shape, for the floors."""
    tasks = build_tasks(recipe.tasks, seed=recipe.seed).train
    examples = [tasks[i] for i in range(min(EXAMPLES, len(tasks)))]
    texts = [(task.kind, task.prompt, task.solution or "") for task in examples]
    # Nearly equal probabilities, so that the length does not hang on which token came first.
    config = {**size.config, "initializer_range": 1 / size.config["n_embd"]}
    policy = new_policy(config, texts, seed=recipe.seed, dtype="float32")
    dialogue = Dialogue(policy.tokenizer)
    prompts = [dialogue.opening(task.prompt) for task in examples]
    mean = calibrate(policy, prompts[:256], size)
    policy.save(folder)
    shape = Shape.of(policy.model, prompt=sum(map(len, prompts)) / len(prompts))
    return {"shape": shape.record(), "length": mean, "vocabulary": len(policy.tokenizer)}


def calibrate(policy: LanguagePolicy, prompts: list[list[int]], size: Size) -> float:
    """Let so many token ids end an answer that answers have the required mean length; the mean that came out."""
    vocabulary, end = len(policy.tokenizer), policy.tokenizer.eos_token_id
    others = [i for i in torch.randperm(vocabulary, generator=torch.Generator().manual_seed(0)).tolist() if i != end]
    count, mean = vocabulary / size.length, 0.0
    for _ in range(3):
        stops = [end, *others[: max(0, round(count) - 1)]]
        policy.model.generation_config.eos_token_id = stops
        answers = sample(
            policy.model,
            prompts,
            group=1,
            support=Support(),
            limit=size.limit,
            stop=policy.stop,
            generator=torch.Generator().manual_seed(0),
        )
        mean = sum(len(answer.tokens) for answer in answers) / len(answers)
        if abs(mean / size.length - 1) < 0.05:
            break
        count *= mean / size.length
    return mean


def warm_model(recipe: LanguageRecipe, folder: Path) -> dict[str, Any]:
    """The recipe's policy as its last stage finds it."""
    stages = dict(list(recipe.stages.items())[:-1])
    evaluation = recipe.evaluation.model_copy(update={"every": 0, "others": {}})
    run = train(recipe.model_copy(update={"stages": stages, "evaluation": evaluation}), folder / "run")
    (run.folder / "policy").rename(folder / "policy")
    accuracy = [e["pass@1"]["estimate"] for e in run.read("evaluations") if e["when"] == "after"]
    return {"accuracy": accuracy[-1]}


def endless_model(recipe: LanguageRecipe, folder: Path) -> dict[str, Any]:
    """The recipe's pretrained model with a stop token that no answer contains; its shape, for the floors."""
    assert recipe.policy.model is not None
    policy = load_policy(recipe.policy.model, dtype="float32")
    never = len(policy.tokenizer) - 1
    policy.tokenizer.eos_token = policy.tokenizer.convert_ids_to_tokens(never)
    policy.model.generation_config.eos_token_id = never
    policy.save(folder)
    tasks = build_tasks(recipe.tasks, seed=recipe.seed).train
    begun = [(tasks[i].prompt, tasks[i].history) for i in range(256)]
    prompts = Dialogue(policy.tokenizer).openings(begun)
    shape = Shape.of(policy.model, prompt=sum(map(len, prompts)) / len(prompts))
    return {"shape": shape.record(), "vocabulary": len(policy.tokenizer)}


if __name__ == "__main__":
    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(order["threads"])
    the_recipe, place = LanguageRecipe.model_validate(order["recipe"]), Path(order["folder"])
    place.mkdir(parents=True, exist_ok=True)
    if order.get("endless"):
        done = endless_model(the_recipe, place)
    else:
        done = speed_model(Size(**order["size"]), the_recipe, place) if order["size"] else warm_model(the_recipe, place)
    Path(sys.argv[2]).write_text(json.dumps(done))
