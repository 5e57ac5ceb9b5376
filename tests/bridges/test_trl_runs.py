"""What runs in TRL's trainer: which methods, over processes, with adapters, engines and tools, and after a resume."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("trl", minversion="1.16")

from trl_world import SUMS, Gradients, Seen, data, digits, expected, folder, same, trainer

import polopt as po
from polopt import index
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.trl.trl_capabilities import HOST, host_of

PAGE = (Path(__file__).parents[2] / "docs" / "trl.md").read_text().partition("## Methods")[2].partition("## Limits")[0]
# What the page says that runs as it is; and with a reward function of that name beside the reward, or a column `kind`.
RUN = re.findall(r"`([a-z0-9-]+)`", PAGE.partition("And these")[0])
TOLD = {
    method: re.findall("function `([^`]*)`", how)
    for method, how in re.findall(r"^\| `([a-z0-9-]+)` \| (.*)", PAGE, re.M)
}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """The trainer collects garbage when it begins, among all that TRL imports."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_the_list_of_methods_that_run() -> None:
    slugs = index.slugs("algorithm")
    assert [s for s in slugs if not HOST.refusals(po.method(s))] == RUN
    told = [
        s
        for s in index.slugs("algorithm")
        if s not in RUN and not host_of(TOLD.get(s, []), ["kind"]).refusals(po.method(s))
    ]
    assert told == sorted(TOLD)


@pytest.mark.parametrize("method", [*RUN, *TOLD])
def test_every_method_of_the_list_takes_steps(method: str, tmp_path: Path) -> None:
    def signal(name: str):
        def said(completion_ids, **others):
            return [float(ids[-1] % 2) for ids in completion_ids]

        said.__name__ = name
        return said

    rewards = [digits, *map(signal, TOLD.get(method, []))]
    made = trainer(
        tmp_path, method, reward_funcs=rewards, train_dataset=data(kind="sum", tests="x"), max_steps=2, num_iterations=2
    )
    before = {n: p.detach().clone() for n, p in made.model.named_parameters()}
    made.train()
    logs = made.state.log_history
    assert all(torch.isfinite(torch.tensor(float(log["loss"]))) for log in logs[:2])
    assert torch.isfinite(torch.tensor([float(log["grad_norm"]) for log in logs[:2]])).all()
    moved = any(not torch.equal(before[n], p) for n, p in made.model.named_parameters())
    assert moved == any(float(log["grad_norm"]) > 0 for log in logs[:2])


def launch(path: Path, *methods: str) -> dict[str, list[dict]]:
    """What two processes found."""
    here = Path(__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(here), *sys.path])}
    command = [sys.executable, str(here / "trl_two.py"), str(path), str(folder()), *methods]
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    read = lambda m, r: pickle.loads((path / f"{m}-{r}.pickle").read_bytes())  # noqa: E731
    return {m: [read(m, r) for r in "01"] for m in methods}


def test_two_processes_take_the_step_of_one_batch(tmp_path: Path) -> None:
    """Two processes of eight rows, in micro-batches of two: the gradient is that of all sixteen rows. Where these are
    two optimiser batches, with rows that each process has shuffled, it is the mean of the two."""
    asked = ["grpo:1", "dapo:1", "steer:1", "ppo:1", "dr-grpo:2"]
    for one, (first, second) in launch(tmp_path, *asked).items():
        method, _, steps = one.partition(":")
        rows = first["rows"] + second["rows"]
        assert {row["prompt"] for row in first["rows"]}.isdisjoint(row["prompt"] for row in second["rows"])
        wanted = expected(po.method(method).but({"sampling.group": 4}), rows, group=4, horizon=6)
        for process in (first, second):
            assert len(process["gradients"]) == int(steps)
            same({name: torch.stack([g[name] for g in process["gradients"]]).mean(0) for name in wanted}, wanted)
        assert first["log"]["polopt/ratio/mean"] == pytest.approx(1, abs=1e-5)


def test_a_resumed_run_ends_as_one_that_was_not_interrupted(tmp_path: Path) -> None:
    """A critic, rewards scaled by all earlier ones, a schedule: their state is in TRL's checkpoint."""
    method = po.method("secrets-rlhf-ppo-max")
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "save_only_model": False}
    whole = trainer(tmp_path / "whole", method, **settings)
    whole.train()
    resumed = trainer(tmp_path / "resumed", method, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    assert whole.critic.weight.abs().max() > 0
    ours, theirs = whole.algorithm.state_dict(), resumed.algorithm.state_dict()
    assert any("count" in name for name in ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    fresh = po.method("secrets-rlhf-ppo-max").state_dict()
    assert any(not torch.equal(ours[name], fresh[name]) for name in ours)
    assert not any("critic" in k for k in load_file(tmp_path / "whole" / "checkpoint-4" / "model.safetensors"))


def test_a_checkpoint_of_another_trainer_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, None, save_strategy="steps", save_steps=1).train()
    with pytest.raises(BridgeError, match="no checkpoint of a PoloptTrainer"):
        trainer(tmp_path, "gspo", max_steps=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))


def test_conversations(tmp_path: Path) -> None:
    """The prompt is what was said last, the answer what the policy said, and the row is the task's."""
    from datasets import Dataset

    asked = Dataset.from_dict(
        {"prompt": [[{"role": "user", "content": p}] for p, _ in SUMS], "tests": ["x"] * len(SUMS)}
    )
    seen: list[str] = []

    def spoken(completions, **others):
        seen.extend(messages[-1]["content"] for messages in completions)
        return [float(len(text)) for text in seen]

    made = trainer(tmp_path, "rlsqm", reward_funcs=spoken, train_dataset=asked)
    made.train()
    batch = made._batches[True]
    assert batch.extras["answer"] == seen
    assert {task.prompt for task in batch.extras["task"]} <= {p for p, _ in SUMS}
    assert all(task.row["tests"] == "x" for task in batch.extras["task"])


def test_schedules_count_generations(tmp_path: Path) -> None:
    made = trainer(tmp_path, "d3s", max_steps=4, num_iterations=2)
    made.train()
    counts = [int(v) for k, v in made.algorithm.state_dict().items() if k.endswith("share.batches")]
    assert counts == [2, 2]


@pytest.mark.parametrize("method", ["grpo", "ppo"])
def test_an_adapter(method: str, tmp_path: Path) -> None:
    """LoRA, with the reference policy that TRL makes of it: the model without the adapter; and with a critic."""
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    gradients = Gradients()
    made = trainer(
        tmp_path,
        method,
        peft_config=lora,
        callbacks=[gradients.callback],
        max_steps=2,
        save_strategy="steps",
        save_steps=2,
    )
    made.train()
    critic = {name for name in gradients.found[0] if "critic" in name}
    assert all("lora" in name for name in gradients.found[0].keys() - critic)
    assert bool(critic) == (method == "ppo")
    assert made.ref_model is None
    if method == "grpo":
        assert float(made.state.log_history[1]["polopt/ReferenceKL"]) > 0
    assert (tmp_path / "checkpoint-2" / "adapter_model.safetensors").exists()


def rollouts(prompts: list[str], trainer) -> dict:
    """As an engine with tools: two answers around what a tool said, with log-probabilities, one of them unknown."""
    ask = [trainer._tokenizer(p).input_ids for p in prompts]
    answers = [
        [20 + i % 5, 21 + i % 3, 40, 41, 30 + i % 4, trainer._tokenizer.eos_token_id] for i in range(len(prompts))
    ]
    logprobs = [[-2.0, -3.0, 0.0, 0.0, None, -1.0] for _ in prompts]
    return {
        "prompt_ids": ask,
        "completion_ids": answers,
        "logprobs": logprobs,
        "env_mask": [[1, 1, 0, 0, 1, 1]] * len(ask),
    }


def test_what_an_engine_and_its_tools_say(tmp_path: Path) -> None:
    made = trainer(tmp_path, "empg", rollout_func=rollouts)
    made.train()
    batch = made._batches[True]
    assert batch.mask.tolist() == [[True, True, False, False, True, True]] * 8
    assert batch.turn.tolist() == [[0, 0, -1, -1, 1, 1]] * 8
    assert batch.terminated.all()
    # The ratio is to what the engine says; where it does not say, to the policy before its first update.
    assert torch.equal(batch.rollout_logp[:, [0, 1, 5]], torch.tensor([[-2.0, -3.0, -1.0]]).expand(8, 3))
    assert torch.equal(batch.rollout_logp[:, 4], batch.old_logp[:, 4])
    assert not torch.equal(batch.rollout_logp[:, 0], batch.old_logp[:, 0])


def test_evaluation_leaves_no_trace(tmp_path: Path) -> None:
    made = trainer(
        tmp_path,
        "reinforce-baseline",
        eval_dataset=data(),
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=16,
    )
    state = {k: v.clone() for k, v in made.algorithm.state_dict().items()}
    assert torch.isfinite(torch.tensor(made.evaluate()["eval_loss"]))
    assert state
    assert all(torch.equal(v, made.algorithm.state_dict()[k]) for k, v in state.items())
    made.train()
    assert any(not torch.equal(v, made.algorithm.state_dict()[k]) for k, v in state.items())


def test_rows_without_a_reward_are_left_out(tmp_path: Path) -> None:
    seen, gradients = Seen(), Gradients()

    def judged(completion_ids, **others):
        rewards = seen(completion_ids=completion_ids, **others)
        return [None if i % 4 == 3 else reward for i, reward in enumerate(rewards)]

    made = trainer(tmp_path, "rloo", reward_funcs=judged, callbacks=[gradients.callback], max_grad_norm=0.0)
    made.train()
    kept = [row for i, row in enumerate(seen.rows) if i % 4 < 3]
    wanted = expected(po.method("rloo").but({"sampling.group": 4}), kept, group=3, horizon=6)
    same(gradients.found[0], wanted)


def test_completions_are_logged_with_the_methods_advantages(tmp_path: Path) -> None:
    made = trainer(tmp_path, "dr-grpo")
    made.train()
    batch = made._batches[True]
    assert list(made._logs["advantages"]) == pytest.approx(batch.advantage[:, 0].tolist())
    assert batch.advantage.abs().max() > 0
