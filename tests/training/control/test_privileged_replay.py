"""Critics of stored transitions that read what the environment tells and the policy does not see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from test_control_runs import left_by
from test_history_trunks import Told
from test_transition_runs import recipe
from tiny_runs import Stop, StopAt

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.methods.sac import sac
from polopt.network_training import NetworkTraining
from polopt.outputs import NetworkOutput
from polopt.policies.network import NetworkPolicy
from polopt.training.control.replay_source import ReplaySource
from polopt.training.launch import resume, train


def asymmetric(**settings: Any) -> Algorithm:
    made: Algorithm = sac(hidden=(5,), **settings)
    return made.but({"networks.0.network.policy_inputs": ("privileged",)})


def source_of(mode: AutoresetMode, folder: Path) -> ReplaySource:
    policy = NetworkPolicy(
        observations=1, dimensions=1, privileged=2, head="squashed_gaussian", low=[-1.0], high=[1.0], hidden=(5,)
    )
    environments = SyncVectorEnv([Told] * 2, autoreset_mode=mode)
    return ReplaySource(
        environments, policy, seed=0, generator=torch.Generator().manual_seed(0), folder=folder, checkpoint_every=1
    )


@pytest.mark.parametrize("n_steps", [1, 2])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_is_told_is_stored_before_and_after_a_transition(
    mode: AutoresetMode, n_steps: int, tmp_path: Path
) -> None:
    source = source_of(mode, tmp_path)
    for _ in range(3):
        rows = source.transitions(200, steps=7, start=0, capacity=100, noise=0, n_steps=n_steps, gamma=0.9)
    now, after = rows.extras["privileged"][:, 0], rows.extras["final_privileged"][:, 0]
    before, behind = rows.extras["observation"][:, 0, 0], rows.extras["observation"][:, 1, 0]
    torch.testing.assert_close(now[:, 1], before)  # its second number is the count of steps that is seen, too
    torch.testing.assert_close(after[:, 1], behind)
    torch.testing.assert_close(after[:, 0], now[:, 0])  # its first one the number of the episode
    assert set((behind - before).tolist()) == ({1.0} if n_steps == 1 else {1.0, 2.0})


def test_the_critic_reads_it_on_both_sides(tmp_path: Path) -> None:
    made = asymmetric(batch=40)
    source = source_of(AutoresetMode.SAME_STEP, tmp_path)
    rows = source.transitions(40, steps=9, start=0, capacity=100, noise=0)
    draw = torch.Generator()
    networks = NetworkTraining(source.policy, made, 1e-3, draw)
    objective: Any = made.networks[0].objective
    critic, slow = networks.modules["critic"], networks.targets["critic"]
    for parameter in (*critic.parameters(), *slow.parameters()):
        torch.nn.init.normal_(parameter)
    name = NetworkOutput("critic").name.removeprefix("extras.")

    def changed(column: str | None) -> tuple[torch.Tensor, torch.Tensor]:
        """The critic's values and the targets, with zeros in the place of a column."""
        extras = {k: torch.zeros_like(v) if k == column else v for k, v in rows.extras.items()}
        draw.manual_seed(0)
        with torch.no_grad():
            found = networks.evaluate(rows.replace(extras=extras), objective)
            return found.extras[name], objective.target(rows.replace(extras=extras), found)

    value, target = changed(None)
    expected = critic(rows.extras["observation"][:, :-1], rows.extras["privileged"], rows.extras["action"])
    torch.testing.assert_close(value, expected.detach())
    value_alone, target_alone = changed("final_privileged")
    assert torch.equal(value, value_alone)
    assert not torch.allclose(target, target_alone)
    value_alone, target_alone = changed("privileged")
    assert not torch.allclose(value, value_alone)
    assert torch.equal(target, target_alone)


def changes(**further: Any) -> dict[str, Any]:
    return {
        "environment": {"id": "polopt/HiddenDynamics-v0"},
        "policy": {"head": "gaussian", "hidden": [5]},
        "stages.rl.but": {"networks.0.network.policy_inputs": ["privileged"], "sampling.start": 0},
    } | further


def test_it_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    whole = train(recipe(**changes()), tmp_path / "whole")
    with pytest.raises(Stop):
        train(recipe(**changes()), tmp_path / "run", watchers=(StopAt(2),))
    assert left_by(resume(tmp_path / "run").folder) == left_by(whole.folder)


def test_an_environment_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    told = changes(environment={"id": "Pendulum-v1"})
    with pytest.raises(ConfigError, match=r"the network 'critic': .*'privileged'.* give the environment's obs"):
        train(recipe(**told), tmp_path / "run")


def test_a_log_that_tells_nothing_is_refused(tmp_path: Path) -> None:
    told = changes(**{"stages.rl.but": {**changes()["stages.rl.but"], "sampling.logged": 0.5}})
    with pytest.raises(ConfigError, match=r"reads privileged, which no log has; set sampling.logged to 0"):
        train(recipe(**told), tmp_path / "run")
