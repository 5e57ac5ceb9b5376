"""A recipe written out for TRL is really trained; for verl it is composed, checked and asked by verl's own code."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import polopt as po
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.export import export
from polopt.bridges.export.job import _check
from polopt.bridges.export.reward import WorldReward
from polopt.bridges.export.trl_arguments import decay as schedule_of
from polopt.config import ConfigError
from polopt.policies.chat_format import Dialogue
from polopt.training import recipe as recipes
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.learner import learning_rate
from polopt.training.run import Run
from polopt.training.specs import OptimiserSpec
from polopt.worlds.answers import TaskList
from polopt.worlds.protocol import Task, TaskSplit

SUMS = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(4) for b in range(5)]
VERIFIER = "def even(completion, row):\n    return float(len(completion + row['answer']) % 2)\n"


def recipe(place: Path, **changes: Any) -> LanguageRecipe:
    """One stage on a file of sums, with a verifier of one's own: about half of all answers that end are right."""
    place.mkdir(exist_ok=True)
    (place / "sums.jsonl").write_text("\n".join(map(json.dumps, SUMS)))
    (place / "own.py").write_text(VERIFIER)
    data: dict[str, Any] = {
        "seed": 3,
        "policy": {"config": {"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 64}},
        "tasks": {"kind": "dataset", "path": str(place / "sums.jsonl"), "verifier": f"{place / 'own.py'}:even"},
        "limit": 12,
        "stages": {"rl": {"method": "dr-grpo", "steps": 2, "rows": 32, "group": 4, "minibatches": 2, "micro_rows": 5}},
        "checkpoint": 1,
    }
    (place / "recipe.yaml").write_text(yaml.safe_dump(data))
    return recipes.load(place / "recipe.yaml", changes)


class Told(TaskList):
    """Answers are judged, and called half flawed."""

    def episode(self, task: Task) -> Any:
        episode = super().episode(task)
        step = episode.step
        episode.step = lambda action: step(action)._replace(info={"signals": {"flawed": 0.5}})  # type: ignore[method-assign]
        return episode


def told(train: int, seed: int) -> TaskSplit:
    """A world whose tasks ask for their number."""
    made = [Task(str(i), "number", f"{i}?", str(i), {"answer": str(i)}) for i in range(train)]
    tasks = Told(made, lambda said, task: (float(said == task.row["answer"]), {}), signals=["flawed"])
    return TaskSplit(tasks, tasks)


def test_folders_of_datasets_are_not_carried(tmp_path: Path) -> None:
    made = recipe(tmp_path / "a", **{"tasks.heldout": str(tmp_path / "a")})
    with pytest.raises(ConfigError, match=r"tasks.heldout = .* is a folder, and only files can be carried"):
        _check(made, "rl", TaskList([], lambda said, task: (0.0, {})), [], None)


class TestTrl:
    def test_its_script_trains(self, tmp_path: Path) -> None:
        pytest.importorskip("trl")
        done = export(recipe(tmp_path / "a"), "trl", tmp_path / "out")
        for name in ("sums.jsonl", "own.py", "recipe.yaml"):
            (tmp_path / "a" / name).unlink()  # the folder stands alone
        (tmp_path / "out").rename(tmp_path / "moved")
        runpy.run_path(str(tmp_path / "moved" / "train.py"), run_name="__main__")
        before, after = (
            po.policies.language.LanguagePolicy.load(tmp_path / "moved" / name).model.state_dict()
            for name in ("policy", "trained")
        )
        assert any(not torch.equal(before[name], after[name]) for name in before)
        state = json.loads((tmp_path / "moved/checkpoints/checkpoint-4/trainer_state.json").read_text())
        assert state["max_steps"] == 4  # two batches of two minibatches
        logs = [log for log in state["log_history"] if "rewards/world/mean" in log]
        assert all(0 < log["rewards/world/mean"] < 1 and log["polopt/ratio/mean"] > 0 for log in logs)
        assert "micro_rows is 4, which divides an optimiser batch" in done.notes

    def test_prompts_are_read_as_here(self, tmp_path: Path) -> None:
        done = export(recipe(tmp_path / "a"), "trl", tmp_path / "out")
        policy = po.policies.language.LanguagePolicy.load(done.folder / "policy")
        rows = [json.loads(line) for line in (done.folder / "train.jsonl").read_text().splitlines()]
        for row in rows:
            asked = policy.tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True
            )
            assert asked["input_ids"] == Dialogue(policy.tokenizer).opening(row["prompt"][0]["content"])
        heldout = (done.folder / "heldout.jsonl").read_text().splitlines()
        assert len(rows) + len(heldout) == len(SUMS)

    def test_conversations_and_final_answers_are_carried(self, tmp_path: Path) -> None:
        marked = [{**row, "answer": f"so # {row['answer']}"} for row in SUMS]
        made = recipe(tmp_path / "a", **{"tasks.system": "add", "tasks.answer_after": "#"})
        (tmp_path / "a" / "sums.jsonl").write_text("\n".join(map(json.dumps, marked)))
        done = export(made, "trl", tmp_path / "out")
        policy = po.policies.language.LanguagePolicy.load(done.folder / "policy")
        rows = [json.loads(line) for line in (done.folder / "train.jsonl").read_text().splitlines()]
        answers = {row["prompt"]: row["answer"] for row in SUMS}
        for row in rows:
            system, user = row["prompt"]
            assert row["answer"] == answers[user["content"]]
            asked = policy.tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, tokenize=True, return_dict=True
            )
            assert asked["input_ids"] == Dialogue(policy.tokenizer).opening(user["content"], [system])
        assert WorldReward.of(done.folder)("x", "train", 0)["score"] == (1 + len(rows[0]["answer"])) % 2

    @pytest.mark.parametrize("final", [0.0, 0.25])
    @pytest.mark.parametrize("decay", ["constant", "linear", "cosine"])
    def test_the_rate_decays_as_here(self, decay: Any, final: float) -> None:
        from transformers import get_scheduler

        spec, steps = OptimiserSpec(lr=0.5, decay=decay, final=final), 8
        optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=spec.lr)
        found = schedule_of(spec)
        scheduler = get_scheduler(
            found["lr_scheduler_type"],
            optimiser,
            num_warmup_steps=0,
            num_training_steps=steps,
            scheduler_specific_kwargs=found.get("lr_scheduler_kwargs"),
        )
        for step in range(steps):
            assert scheduler.get_last_lr()[0] == pytest.approx(learning_rate(spec, step, steps))
            optimiser.step()
            scheduler.step()

    def test_a_changed_part_is_carried(self, tmp_path: Path) -> None:
        changed = recipe(tmp_path / "a", **{"stages.rl.but.objective.trust.high": 0.4})
        done = export(changed, "trl", tmp_path / "out")
        assert "method.yaml" in (done.folder / "train.py").read_text()
        found = po.part.from_yaml((done.folder / "method.yaml").read_text())
        assert po.diff(found, changed.algorithms["rl"]) == []
        assert found.objective.trust.high == 0.4

    def test_a_method_and_a_part_of_ones_own_are_found_from_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "mine.py").write_text(
            "import polopt as po\n\n\nclass Half(po.credit.Baseline):\n"
            "    def forward(self, experience, returns):\n        return returns / 2\n\n\n"
            "def build():\n    return po.method('dr-grpo').but(**{'credit.baseline': Half()})\n"
        )
        monkeypatch.chdir(tmp_path)
        done = export(recipe(tmp_path / "a", **{"stages.rl.method": "mine.py:build"}), "trl", tmp_path / "out")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        found = po.part.from_yaml((done.folder / "method.yaml").read_text())
        assert type(found.credit.baseline).__name__ == "Half"

    def test_what_it_cannot_run_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        with pytest.raises(BridgeError, match="knapsack-rl cannot run in TRL"):
            export(recipe(tmp_path / "a", **{"stages.rl.method": "knapsack-rl"}), "trl", tmp_path / "out")
        assert not (tmp_path / "out").exists()


class TestReward:
    def world(self, place: Path, **changes: Any) -> WorldReward:
        tasks = {"kind": "dataset", "path": str(place / "a" / "sums.jsonl"), "verifier": "exact", **changes}
        return WorldReward.of(export(recipe(place / "a", tasks=tasks), "trl", place / "out").folder)

    def test_every_solution_is_paid_and_nothing_else(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        for split, tasks in world.tasks.items():
            for index in range(len(tasks)):
                solution = tasks[index].solution
                assert solution is not None
                assert world(solution, split, index) == {"score": 1}
                assert world(solution + "1", split, index) == {"score": 0}

    def test_an_answer_that_was_cut_off_earns_nothing(self, tmp_path: Path) -> None:
        world = self.world(tmp_path)
        solution, end = world.tasks["train"][0].solution, next(iter(world.stops))
        said: Any = [solution, [{"role": "assistant", "content": solution}], solution, ""]
        ids = [[9, end], [9, end], [9, 9], []]
        (score,) = world.trl()
        assert score(said, ids, ["train"] * 4, [0] * 4, answer=["?"] * 4) == [1, 1, 0, 0]

    def test_what_else_the_world_says_comes_along(self, tmp_path: Path) -> None:
        """A world of one answer that says more of it than a reward, for a method that reads it."""
        tasks = {"kind": f"{__file__}:told", "train": 8}
        changes = {"tasks": tasks, "stages.rl.method": "fapo", "stages.rl.group": 4}
        done = export(recipe(tmp_path / "a", **changes), "trl", tmp_path / "out")
        world = WorldReward.of(done.folder)
        assert world("2", "train", 2) == {"score": 1, "flawed": 0.5}
        assert world.verl("3", {"split": "train", "index": 2}) == {"score": 0, "flawed": 0.5}
        assert [function.__name__ for function in world.trl()] == ["world", "signal_flawed"]
        assert "reward_weights=[1.0, 0.0]" in (done.folder / "train.py").read_text()


class TestVerl:
    def test_its_yaml_is_verls(self, tmp_path: Path) -> None:
        pytest.importorskip("verl")
        pytest.importorskip("hydra")
        from hydra import compose, initialize_config_dir
        from transformers import AutoTokenizer
        from verl.trainer.ppo.reward import get_custom_reward_fn
        from verl.trainer.ppo.utils import need_critic, need_reference_policy
        from verl.utils.config import omega_conf_to_dataclass, validate_config
        from verl.utils.dataset.rl_dataset import RLHFDataset

        asked = recipe(tmp_path / "a", **{"stages.rl.optimiser.lr": 3e-4, "stages.rl.method": "gspo"})
        folder = export(asked, "verl", tmp_path / "out").folder.resolve()
        command = (folder / "train.sh").read_text()
        paths = [word.replace("$here", str(folder)).replace('"', "") for word in command.split() if "=" in word]
        with initialize_config_dir(str(folder), version_base=None):
            run = compose("verl", overrides=[path for path in paths if str(folder) in path and "here=" not in path])
        validate_config(run, need_reference_policy(run), need_critic(run))
        actor = omega_conf_to_dataclass(run.actor_rollout_ref.actor)
        assert (actor.optim.lr, actor.policy_loss.loss_mode) == (3e-4, "polopt/gspo")
        assert run.actor_rollout_ref.rollout.n == 4
        # verl counts prompts where we count rows
        assert (run.data.train_batch_size, actor.ppo_mini_batch_size, actor.ppo_micro_batch_size_per_gpu) == (8, 4, 4)
        assert run.trainer.total_training_steps == 2
        tokenizer = AutoTokenizer.from_pretrained(run.actor_rollout_ref.model.path)
        run.data.filter_overlong_prompts = True
        data = RLHFDataset(data_files=run.data.train_files, tokenizer=tokenizer, config=run.data)
        assert len(data) == len(WorldReward.of(folder).tasks["train"])
        score = get_custom_reward_fn(run)
        assert score is not None
        found = [
            score(data_source="?", solution_str=said, ground_truth="?", extra_info=row["extra_info"])["score"]
            for row in (data[0], data[1])
            for said in ("", "1")
        ]
        assert sorted(found) == [0, 0, 1, 1]
        assert subprocess.run(["bash", "-n", str(folder / "train.sh")], check=False).returncode == 0

    def test_longer_prompts_are_left_out_there_too(self, tmp_path: Path) -> None:
        asked = recipe(tmp_path / "a", max_prompt_length=6)
        data = yaml.safe_load((export(asked, "verl", tmp_path / "verl").folder / "verl.yaml").read_text())["data"]
        assert (data["max_prompt_length"], data["filter_overlong_prompts"]) == (6, True)
        assert any(n.startswith("max_prompt_length: ") for n in export(asked, "trl", tmp_path / "trl").notes)

    def test_a_model_without_a_chat_template_is_refused(self, tmp_path: Path) -> None:
        done = export(recipe(tmp_path / "a"), "trl", tmp_path / "out")
        (done.folder / "policy" / "chat_template.jinja").unlink()
        named = recipe(tmp_path / "a", **{"policy.model": str(done.folder / "policy"), "policy.config": {}})
        with pytest.raises(ConfigError, match="chat template"):
            export(named, "verl", tmp_path / "other")
        plain = export(named, "trl", tmp_path / "plain")
        row = json.loads((plain.folder / "train.jsonl").read_text().splitlines()[0])
        assert isinstance(row["prompt"], str)
        assert f"MODEL = {str(done.folder / 'policy')!r}" in (plain.folder / "train.py").read_text()


class TestJob:
    def test_a_runs_policy_begins(self, tmp_path: Path) -> None:
        run = po.train(recipe(tmp_path / "a"), tmp_path / "run")
        done = export(recipes.load(run.recipe), "trl", tmp_path / "out", run)
        for name in ("model.safetensors", "tokenizer.json"):
            assert (done.folder / "policy" / name).read_bytes() == (run.folder / "policy" / name).read_bytes()

    def test_a_run_that_has_not_finished_is_refused(self, tmp_path: Path) -> None:
        begun = po.training.launch.create(recipe(tmp_path / "a"), tmp_path / "run")
        with pytest.raises(ConfigError, match="not finished"):
            export(recipes.load(begun.recipe), "trl", tmp_path / "out", Run(begun.folder))

    def test_earlier_stages_are_said_or_refused(self, tmp_path: Path) -> None:
        first = {"stages": {"warmup": {"method": "sft", "steps": 1, "rows": 4}, "rl": {"steps": 1, "rows": 32}}}
        both = recipe(tmp_path / "a", **first)
        with pytest.raises(ConfigError, match="warmup, which it begins with, would be left out"):
            export(both, "trl", tmp_path / "out")
        run = po.train(both, tmp_path / "run")
        assert "only the last stage, rl, is carried; left out: warmup" in export(both, "trl", tmp_path / "b", run).notes

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"stages.rl.train": "wte"}, "other parameters would learn"),
            ({"tasks": {"kind": "guess-number"}}, "7 turns"),
            ({"stages.rl.minibatches": 3}, "whole groups"),
            ({"stages.rl.method": "fapo"}, "signal_flawed, which the tasks do not report"),
        ],
    )
    def test_what_would_be_lost_is_refused(self, changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=reason):
            export(recipe(tmp_path / "a", **changes), "trl", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("")
        with pytest.raises(ConfigError, match="holds something"):
            export(recipe(tmp_path / "a"), "trl", tmp_path / "out")
        assert os.listdir(tmp_path / "out") == ["mine"]
