"""One measurement of TRL: its GRPOTrainer, with the same model, tasks, verifier and hyperparameters."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.spec import Spec
from benchmarks.worker import Measured, Stopwatch, resident, settle, work


class Times:
    """Seconds by name, of one batch."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.seconds: dict[str, float] = {}
        self.scoring = False
        self.trained = 0.0

    @contextlib.contextmanager
    def of(self, name: str) -> Iterator[None]:
        settle(self.spec)
        start = time.perf_counter()
        yield
        settle(self.spec)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def take(self) -> dict[str, float]:
        seconds, self.seconds = self.seconds, {}
        return seconds


def timed_trainer(times: Times) -> type:
    """GRPOTrainer with clocks around its stages; nothing else is changed."""
    from trl import GRPOTrainer

    class Timed(GRPOTrainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
            with times.of("rollout"):
                ids, logprobs = super()._generate_single_turn(*args, **kwargs)
            times.seconds["tokens"] = sum(map(len, ids))
            times.seconds["longest"] = max(map(len, ids))
            return ids, logprobs

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Any:
            with times.of("reward"):
                return super()._calculate_rewards(*args, **kwargs)

        def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
            times.scoring = True
            with times.of("score"):
                inputs = super()._generate_and_score_completions(*args, **kwargs)
            times.scoring = False
            return inputs

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            # While scoring these are the sampler's log-probabilities, computed afresh: the learner's work.
            with times.of("old_logp") if times.scoring else contextlib.nullcontext():
                return super()._get_per_token_logps_and_entropies(*args, **kwargs)

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            with times.of("training_step"):
                loss = super().training_step(*args, **kwargs)
            times.trained = time.perf_counter()
            return loss

    return Timed


def follower(spec: Spec, times: Times, world: Any, policy: Any, clock: Stopwatch) -> Any:
    """A callback that closes each batch's times, and evaluates and stops as polopt's loop does."""
    from transformers import TrainerCallback

    class Follower(TrainerCallback):
        def __init__(self) -> None:
            self.ready = 0
            self.steps: list[dict[str, float]] = []
            self.curve: list[tuple[float, float]] = []

        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            if spec.problems:
                self.evaluate(0)
            self.ready = resident()
            clock.resume()

        def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            settle(spec)
            times.seconds["update"] = times.seconds.get("update", 0.0) + time.perf_counter() - times.trained

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            batches, rest = divmod(state.global_step, spec.minibatches)
            if rest:
                return
            lap, seen = clock.lap(), times.take()
            learn = seen["training_step"] - seen["score"] + seen.get("old_logp", 0.0) + seen["update"]
            self.steps.append({**seen, **lap, "learn": learn})
            if spec.every and (batches % spec.every == 0 or batches == spec.steps):
                control.should_training_stop = self.evaluate(batches) >= spec.target
            clock.resume()

        def evaluate(self, batches: int) -> float:
            from polopt.training.episode_player import EpisodePlayer
            from polopt.training.evaluate import evaluate

            tasks = [world.heldout[i] for i in range(min(spec.problems, len(world.heldout)))]
            player = EpisodePlayer(policy, world.heldout, spec.limit)
            policy.model.eval()
            accuracy = evaluate(player, tasks, seed=spec.seed * 1_000_003 + batches).overall[1].estimate
            policy.model.train()
            self.curve.append((clock.total, accuracy))
            return accuracy

    return Follower()


def arguments(spec: Spec, folder: str) -> Any:
    """TRL's settings: equal work, and the fastest of what it offers on a CPU (see README.md)."""
    from trl import GRPOConfig

    batch = spec.rows // spec.minibatches
    micro = spec.micro_rows or batch
    settings: dict[str, Any] = {
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": batch // micro,
        "steps_per_generation": spec.rows // micro,
        "num_generations": spec.group,
        "max_completion_length": spec.limit,
        "max_steps": spec.steps * spec.minibatches,
        "num_iterations": 1,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "beta": 0.0,
        "epsilon": 0.2,
        "loss_type": "grpo",
        "scale_rewards": "group",
        "max_grad_norm": spec.optimiser.get("clip", 1.0),
        "use_cpu": spec.device == "cpu",
        # The weights themselves are of the required type, as polopt's are: no second precision on top by default.
        "bf16": spec.compute == "bfloat16",
        "gradient_checkpointing": spec.checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "dataloader_pin_memory": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": spec.seed,
    }
    return GRPOConfig(folder, **{**settings, **spec.trl})


def optimisers(spec: Spec, model: Any) -> tuple[Any, Any]:
    """The same optimiser and rates as polopt's learner, one rate per batch."""
    import torch

    from polopt.training.learner import learning_rate
    from polopt.training.specs import OptimiserSpec

    it = OptimiserSpec(**spec.optimiser)
    adam = torch.optim.AdamW(model.parameters(), it.lr, it.betas, weight_decay=it.weight_decay, fused=True)
    rate = lambda step: learning_rate(it, step // spec.minibatches, spec.steps) / it.lr  # noqa: E731
    return adam, torch.optim.lr_scheduler.LambdaLR(adam, rate)


def give_positions(model: Any) -> None:
    """TRL pads prompts on the left and names no positions, so a model with absolute ones would read, in the learner
    alone, text that is shifted. The positions follow from the mask; `generate` does the same."""

    def positions(module: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if kwargs.get("position_ids") is None and kwargs.get("attention_mask") is not None:
            kwargs["position_ids"] = (kwargs["attention_mask"].cumsum(1) - 1).clamp(min=0)
        return args, kwargs

    model.register_forward_pre_hook(positions, with_kwargs=True)


def measure(spec: Spec) -> Measured:
    # Before polopt, which would change how threads wait for each other: TRL runs as it does for its users.
    import torch
    import transformers
    from datasets import Dataset

    from polopt.policies.chat_format import Dialogue
    from polopt.policies.language import LanguagePolicy
    from polopt.worlds import build_tasks

    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(spec.model, dtype=getattr(torch, spec.dtype))
    model.to(spec.device)
    give_positions(model)
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.model)
    policy = LanguagePolicy(model, tokenizer)
    world = build_tasks(spec.world, seed=spec.seed)
    tasks = [world.train[i] for i in range(len(world.train))]
    messages = [[*t.history, {"role": "user", "content": t.prompt}] for t in tasks]
    texts = [tokenizer.apply_chat_template(m, tokenize=False, add_generation_prompt=True) for m in messages]
    openings = Dialogue(tokenizer).openings([(t.prompt, t.history) for t in tasks])
    assert tokenizer(texts)["input_ids"] == openings

    def verify(completions: list[str], completion_ids: list[list[int]], index: list[int], **_: Any) -> list[float]:
        rewards = []
        for text, ids, i in zip(completions, completion_ids, index, strict=True):
            episode = world.train.episode(tasks[i])
            episode.reset()
            # As in polopt's loop, an answer that never stopped is not judged.
            rewards.append(episode.step(text).reward if ids[-1] in policy.stop else 0.0)
        return rewards

    def first_token(completion_ids: list[list[int]], **_: Any) -> list[float]:
        return [ids[0] / 1000 for ids in completion_ids]

    times, clock = Times(spec), Stopwatch()
    callback = follower(spec, times, world, policy, clock)
    with tempfile.TemporaryDirectory() as folder:
        trainer = timed_trainer(times)(
            model=model,
            reward_funcs=verify if spec.reward == "world" else first_token,
            args=arguments(spec, folder),
            train_dataset=Dataset.from_dict({"prompt": texts, "index": list(range(len(tasks)))}),
            processing_class=tokenizer,
            callbacks=[callback],
            optimizers=optimisers(spec, model),
        )
        trainer.train()
    return {"ready": callback.ready, "steps": callback.steps, "curve": callback.curve}


if __name__ == "__main__":
    work(measure)
