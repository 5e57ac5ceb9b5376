"""The side of stable-baselines3 of the comparison on CartPole; run by benchmarks.control alone.

python -m benchmarks.control_peer train SEED      processor time, steps and returns until the task is solved, as JSON
python -m benchmarks.control_peer update F.npz    one batch, its loss and the gradient, written to F.npz
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch

GOAL, EPISODES, EVERY = 475.0, 100, 8192
# rl-baselines3-zoo's settings for CartPole-v1.
ZOO: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20}
COPIES, STEPS = 8, 100_000


def environments(copies: int) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(copies)])


def train(seed: int) -> dict[str, Any]:
    """Trains until the mean return of 100 greedy episodes is 475. Evaluations are not counted in the time."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    tests = environments(COPIES)
    tests.seed(10_000 + seed)

    class Watch(BaseCallback):
        """Measures the return every so many steps, and stops at the goal."""

        def __init__(self) -> None:
            super().__init__()
            self.seconds, self.begun, self.points = 0.0, time.process_time(), list[tuple[int, float, float]]()

        def _on_rollout_start(self) -> None:
            if self.num_timesteps >= EVERY * (len(self.points) + 1):
                self.seconds += time.process_time() - self.begun
                self.points.append((self.num_timesteps, self.seconds, mean_return(self.model, tests)))
                self.begun = time.process_time()

        def _on_step(self) -> bool:
            return not self.points or self.points[-1][2] < GOAL

    watch = Watch()
    settings = {**ZOO, "learning_rate": lambda left: 1e-3 * left, "clip_range": lambda left: 0.2 * left}
    model = PPO("MlpPolicy", environments(COPIES), seed=seed, device="cpu", **settings)
    watch.begun = time.process_time()
    model.learn(STEPS + EVERY, callback=watch)
    return {"points": watch.points}


def mean_return(model: Any, tests: Any) -> float:
    """The mean return of 100 greedy episodes; each copy plays its share, so that short ones are not preferred."""
    shares = [EPISODES // COPIES + (i < EPISODES % COPIES) for i in range(COPIES)]
    found: list[list[float]] = [[] for _ in range(COPIES)]
    totals, seen = np.zeros(COPIES), tests.reset()
    while any(len(own) < share for own, share in zip(found, shares, strict=True)):
        action, _ = model.predict(seen, deterministic=True)
        seen, reward, over, _ = tests.step(action)
        totals += reward
        for i in over.nonzero()[0]:
            if len(found[i]) < shares[i]:
                found[i].append(float(totals[i]))
            totals[i] = 0.0
    return float(np.mean([value for own in found for value in own]))


def update(path: str) -> dict[str, Any]:
    """Writes a batch, the weights, and the loss and gradient of one minibatch that is all of it."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import CallbackList

    model: Any = PPO(
        "MlpPolicy",
        environments(COPIES),
        n_steps=64,
        batch_size=64 * COPIES,
        n_epochs=1,
        gae_lambda=0.8,
        gamma=0.98,
        ent_coef=0.01,
        max_grad_norm=float("inf"),
        seed=0,
        device="cpu",
    )
    model._setup_learn(10_000)
    callback = CallbackList([])
    callback.init_callback(model)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 64)
    buffer, policy = model.rollout_buffer, model.policy
    with torch.no_grad():
        last = policy.predict_values(torch.as_tensor(model._last_obs)).flatten().numpy()
    data = {
        "observation": np.concatenate([buffer.observations, model._last_obs[None]]),
        "over": np.concatenate([buffer.episode_starts[1:], model._last_episode_starts[None]]),
        "last_value": last,
    }
    data |= {name: getattr(buffer, name).copy() for name in ("actions", "rewards", "values", "log_probs")}
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from the sampler, so that ratios are clipped
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    data |= {f"weight.{name}": value.detach().numpy().copy() for name, value in policy.named_parameters()}
    gradient: dict[str, np.ndarray] = {}

    def keep(*_: Any, **__: Any) -> None:
        gradient.update({f"gradient.{n}": p.grad.numpy().copy() for n, p in policy.named_parameters()})

    policy.optimizer.step = keep
    model.train()
    logged = model.logger.name_to_value
    np.savez(path, loss=logged["train/loss"], clip_fraction=logged["train/clip_fraction"], **data, **gradient)
    return {}


def main() -> None:
    from importlib.metadata import version

    torch.set_num_threads(1)
    task, argument = sys.argv[1:]
    found = train(int(argument)) if task == "train" else update(argument)
    print(json.dumps({**found, "versions": {"stable-baselines3": version("stable-baselines3")}}))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
