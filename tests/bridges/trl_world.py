"""A tiny model, a data set and rewards on which TRL's trainer takes real steps on a CPU."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch

CONFIG = {
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
}
SUMS = [(f"{a}+{b}=" if b % 2 else f"{a} + {b} =", str(a + b)) for a in range(4) for b in range(4)]


@functools.cache
def folder() -> Path:
    """A saved policy; it lasts as long as the tests do."""
    from polopt.policies.factory import new_policy

    policy = new_policy(CONFIG, [("sum", p, a) for p, a in SUMS], seed=0, dtype="float32")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(4)  # far from uniform, so that answers differ, and in length
        policy.model.get_output_embeddings().weight[policy.tokenizer.eos_token_id] *= 4
    path = Path(tempfile.mkdtemp(prefix="polopt-trl-"))
    policy.save(path)
    return path


def load(dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder(), dtype=dtype)
    return model, AutoTokenizer.from_pretrained(folder())


def data(**columns: Any) -> Any:
    from datasets import Dataset

    rows = {"prompt": [p for p, _ in SUMS], "answer": [a for _, a in SUMS]}
    return Dataset.from_dict(rows | {k: [v] * len(SUMS) for k, v in columns.items()})


def digits(completion_ids: list[list[int]], **others: Any) -> list[float]:
    """0 or 1, of the first token: about half of an untrained policy's answers are right."""
    return [float(ids[0] % 2) for ids in completion_ids]


def config(path: Path, **settings: Any) -> Any:
    from trl import GRPOConfig

    usual = {
        "output_dir": str(path),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 6,
        "max_steps": 1,
        "learning_rate": 1e-2,
        "use_cpu": True,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "bf16": False,
    }
    return GRPOConfig(**{**usual, **settings})


def trainer(path: Path, method: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> Any:
    """`method` None is TRL's own trainer; settings of GRPOConfig, or keywords of the trainer."""
    import trl

    from polopt.bridges.trl import PoloptTrainer

    own = {"reward_funcs": digits, "train_dataset": data(), "peft_config": None, "model": None, "callbacks": None}
    own |= {"eval_dataset": None, "rollout_func": None}
    keywords = {key: settings.pop(key, value) for key, value in own.items()}
    model, tokenizer = load(dtype)
    keywords |= {"model": keywords["model"] or model, "processing_class": tokenizer, "args": config(path, **settings)}
    return trl.GRPOTrainer(**keywords) if method is None else PoloptTrainer(method=method, **keywords)


class Seen:
    """A reward function that remembers what it was shown, in order: what a test needs to compute a batch alone."""

    __name__ = "digits"

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def __call__(self, prompts: list[str], completions: list[str], completion_ids: Any, **others: Any) -> list[float]:
        rewards = digits(completion_ids)
        every = zip(prompts, completions, completion_ids, rewards, strict=True)
        self.rows += [{"prompt": p, "answer": c, "ids": list(i), "reward": r} for p, c, i, r in every]
        return rewards


class Gradients:
    """A callback that keeps the gradients of every optimiser step, by the name of the parameter."""

    def __init__(self) -> None:
        from transformers import TrainerCallback

        found: list[dict[str, torch.Tensor]] = []
        self.found = found

        class Keep(TrainerCallback):
            def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any, **others: Any) -> None:
                found.append(
                    {
                        n.removeprefix("module."): p.grad.clone()
                        for n, p in model.named_parameters()
                        if p.grad is not None
                    }
                )

        self.callback = Keep()


def read(model: Any, prompt: list[int]) -> torch.Tensor:
    """The mean log-probability of a prompt's tokens behind the first."""
    logp = model(input_ids=torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
    return logp.gather(1, torch.tensor(prompt[1:])[:, None]).mean()


def same(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    """Two float32 gradients are equal but for rounding, which grows with the largest of their numbers."""
    assert found.keys() == wanted.keys()
    largest = max(g.abs().max().item() for g in wanted.values())
    assert largest > 1e-4
    for name, gradient in wanted.items():
        close = {"rtol": 2e-4, "atol": 1e-5 * largest}
        torch.testing.assert_close(found[name], gradient, msg=lambda m, n=name: f"{n}: {m}", **close)


def expected(algorithm: Any, rows: list[dict[str, Any]], group: int, horizon: int) -> dict[str, torch.Tensor]:
    """The gradient of the rows as one batch, by polopt's own policy and none of the bridge."""
    from polopt import Experience
    from polopt.policies.language import LanguagePolicy

    model, tokenizer = load()
    policy = LanguagePolicy(model, tokenizer, critic="value" in algorithm.required_fields)
    episodes = [(tokenizer(row["prompt"]).input_ids, row["ids"]) for row in rows]
    width = max(len(p) + len(a) for p, a in episodes)
    tokens, mask = torch.full((len(rows), width), -1), torch.zeros(len(rows), width, dtype=torch.bool)
    for i, (prompt, answer) in enumerate(episodes):
        tokens[i, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        mask[i, len(prompt) : len(prompt) + len(answer)] = True
    ended = torch.tensor([row["ids"][-1] == tokenizer.eos_token_id for row in rows])
    outcome = torch.tensor([row["reward"] for row in rows])
    batch = Experience(
        mask=mask,
        reward=outcome,
        outcome=outcome,
        terminated=ended,
        truncated=~ended,
        group=torch.arange(len(rows)) // group,
        horizon=horizon,
        extras={"tokens": tokens, "answer": [row["answer"] for row in rows]},
    )
    with torch.no_grad():
        prompts = torch.stack([read(model, prompt) for prompt, _ in episodes])
    batch = batch.replace(extras={"prompt_logp": prompts})
    reductions = {n for n in algorithm.objective.required_outputs if n.startswith("extras.")}
    asked = {"entropy"} | ({"value"} & algorithm.required_fields) | reductions
    with torch.no_grad():
        now = policy.evaluate(batch, asked)
    same = {"rollout_logp": now.logp, "old_logp": now.logp, "ref_logp": now.logp, "entropy": now.entropy}
    old = {f"old_{name}": value for name, value in now.extras.items()}
    batch = batch.replace(value=now.value, final_value=now.final_value, extras=old, **same)
    for select in algorithm.sampling.select:
        batch = select(batch)
    batch = algorithm.compute_advantages(batch)
    loss = algorithm.objective(batch, policy.evaluate(batch, algorithm.objective.required_outputs)).loss
    loss.backward()
    found = {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}
    return {n.removeprefix("model.").replace("critic.", "polopt_critic."): gradient for n, gradient in found.items()}
