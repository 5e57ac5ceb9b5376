"""What a policy reads beside the observation: held for an episode in every autoreset mode, stored, and learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_autoreset import Counting
from test_control_runs import left_by
from test_transition_runs import recipe
from tiny_runs import Stop, StopAt

from polopt.config import ConfigError
from polopt.networks import Space
from polopt.policies.network import NetworkPolicy
from polopt.sampling import EpisodeHistory, FixedInput, LastAction, OneHotSkill, PolicyInput, SphereSkill
from polopt.step_source import StepSource
from polopt.training.control.domain import ControlDomain
from polopt.training.control.logged import load_transitions
from polopt.training.control.replay_source import ReplaySource
from polopt.training.control.transition_store import stored
from polopt.training.launch import resume, train

SIZES = Space(2, dimensions=1)


class Pushed(Counting):
    """The same with a number as action."""

    action_space: Any = Box(-1.0, 1.0, (1,), np.float32)


def transitions(mode: AutoresetMode, given: PolicyInput, folder: Path) -> dict[str, torch.Tensor]:
    environments = SyncVectorEnv([Pushed] * 2, autoreset_mode=mode)
    policy = NetworkPolicy(observations=2, dimensions=1, inputs={given.name: given.width(SIZES)})
    source = ReplaySource(
        environments,
        policy,
        seed=0,
        generator=torch.Generator().manual_seed(0),
        folder=folder,
        checkpoint_every=1,
        policy_input=given,
    )
    for steps in (1, 4, 12):
        drawn = source.transitions(50, steps=steps, start=3, capacity=1000, noise=0)
    assert drawn.extras[given.name].shape == (50, 1, given.width(SIZES))
    return stored(folder)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_skill_is_held_for_an_episode(mode: AutoresetMode, tmp_path: Path) -> None:
    kept = transitions(mode, SphereSkill(), tmp_path)
    episodes: dict[int, set[tuple[float, ...]]] = {}
    for observation, skill in zip(kept["observation"], kept["skill"], strict=True):
        episodes.setdefault(int(observation[0]), set()).add(tuple(skill.tolist()))
    assert len(episodes) >= 4
    assert all(len(skills) <= 2 for skills in episodes.values())  # of two copies
    assert len(set().union(*episodes.values())) >= 2 * len(episodes) - 1
    torch.testing.assert_close(kept["skill"].norm(dim=1), torch.ones(len(kept["skill"])))


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_last_action_is_that_of_the_step_before(mode: AutoresetMode, tmp_path: Path) -> None:
    kept = transitions(mode, LastAction(), tmp_path)
    steps = kept["observation"][:, 1]
    assert (kept["last_action"][steps == 0] == 0).all()
    for episode in kept["observation"][:, 0].unique():
        own = kept["observation"][:, 0] == episode
        for step in (1, 2):
            given = kept["last_action"][own & (steps == step)].flatten().sort().values
            taken = kept["action"][own & (steps == step - 1)].flatten().sort().values
            assert torch.isin(given, taken).all()


@pytest.mark.parametrize("choices", [False, True])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_history_is_that_of_the_episode(mode: AutoresetMode, choices: bool) -> None:
    """Before and after each decision the last two observations and actions, found by walking back, and fresh noise."""
    environments = SyncVectorEnv([Counting if choices else Pushed] * 2, autoreset_mode=mode)
    given, n = EpisodeHistory(length=2, noise=3), environments.single_action_space.n if choices else 1
    sizes = Space(2, actions=n) if choices else Space(2, dimensions=1)
    policy = NetworkPolicy(**sizes._asdict() | {"low": None, "high": None, "inputs": {"history": given.width(sizes)}})
    source = StepSource(environments, policy, seed=0, generator=torch.Generator().manual_seed(0), policy_input=given)
    batch = source.fragments(14)
    columns, over = batch.extras, batch.terminated | batch.truncated
    action = torch.nn.functional.one_hot(columns["action"], n).float() if choices else columns["action"]
    assert over.sum() >= 4
    for copy in range(2):
        begun = 0
        for t in range(14):
            if not batch.mask[copy, t]:
                begun = t + 1
                continue
            for end, name in ((t, "history"), (t + 1, "final_history")):
                window = torch.zeros(2, 2 + n)
                for place, step in enumerate(range(end - 2, end)):
                    if step >= begun:
                        window[place] = torch.cat([columns["observation"][copy, step], action[copy, step]])
                torch.testing.assert_close(columns[name][copy, t, :-3], window.flatten())
            begun = t + 1 if over[copy, t] else begun
    noise = torch.cat([columns[name][..., -3:].flatten(0, 1) for name in ("history", "final_history")])
    assert len(noise.unique()) >= 3 * 14 * 2
    greedy = source.fragments(3, greedy=True).extras["history"]
    assert (greedy[..., -3:] == 0).all()
    assert (greedy[..., :-3] != 0).any()


def test_a_history_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"need length >= 1 and noise >= 0, found 0 and -1"):
        EpisodeHistory(length=0, noise=-1)


def test_a_run_with_skills_goes_on_bit_for_bit(tmp_path: Path) -> None:
    changes = {
        "stages.rl.method": {"name": "metra", "batch": 32, "steps": 5, "start": 20, "capacity": 30, "hidden": [8]}
    }
    whole = train(recipe(**changes), tmp_path / "whole").folder
    with pytest.raises(Stop):
        train(recipe(**changes), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == left_by(whole)
    assert stored(whole / "transitions-rl")["skill"].shape[1] == 2
    again = NetworkPolicy.load(whole / "policy")
    assert again.inputs == {"skill": 2}
    log = load_transitions(whole, "transitions", observations=3, action=(1,), inputs={"skill": 2})
    assert log["skill"].dtype == torch.float32
    with pytest.raises(ConfigError, match="has no task_vector"):
        load_transitions(whole, "transitions", observations=3, action=(1,), inputs={"task_vector": 2})


def test_a_network_that_reads_an_input_that_the_policy_has_not(tmp_path: Path) -> None:
    changes = {"stages.rl.but": {"networks.0.network.policy_inputs": ["skill"]}}
    with pytest.raises(ConfigError, match=r"networks\.QNetwork needs extras\.skill"):
        train(recipe(**changes), tmp_path / "run")


def test_draws() -> None:
    draw = torch.Generator().manual_seed(0)
    assert OneHotSkill(count=3).draw(300, 3, draw).mean(0).sub(1 / 3).abs().max() < 0.1
    torch.testing.assert_close(
        SphereSkill(dimensions=4, radius=None).draw(2, 4, draw).norm(dim=1), torch.full((2,), 2.0)
    )
    with pytest.raises(ValueError, match="count must be >= 2"):
        OneHotSkill(count=1)
    with pytest.raises(ValueError, match="actions are choices"):
        LastAction().width(Space(2, actions=3))


def test_a_run_learns_tasks_from_a_log_and_is_measured_on_the_logs_own_reward(tmp_path: Path) -> None:
    log = train(recipe(), tmp_path / "log").folder
    small = {"name": "zero-shot-rl", "batch": 32, "dimensions": 3, "hidden": [8]}
    changes = {"stages.rl.method": small, "stages.rl.minibatches": 1, "policy.head": "deterministic"}
    made = recipe(**changes, transitions=str(log))
    whole = train(made, tmp_path / "whole").folder
    with pytest.raises(Stop):
        train(made, tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == left_by(whole)
    domain = ControlDomain(made)
    given = domain._evaluation_input("rl")
    domain.close()
    assert isinstance(given, FixedInput)
    assert len(given.value) == 3


def test_a_trunk_that_does_not_fit_the_environment(tmp_path: Path) -> None:
    changes = {"stages.rl.method": {"name": "sgrl-set", "batch": 32, "start": 20}, "policy.head": "deterministic"}
    with pytest.raises(ConfigError, match="are observations of 15 numbers and actions of 3, found 3 and 1"):
        train(recipe(**changes), tmp_path / "run")
