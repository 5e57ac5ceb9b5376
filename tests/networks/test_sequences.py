"""Sequences of actions after one look: the recurrent trunk, proposals at a model's states, plans, the score."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.methods.sac import sac
from polopt.methods.srl_sequence import srl_sequence
from polopt.metrics import frequency_averaged_score
from polopt.networks import ActionSequence, Space, VectorNetwork
from polopt.objectives import ModelRegression, ValueAscent
from polopt.outputs import NetworkOutput, Proposal, output_of
from polopt.policies.network import NetworkPolicy
from polopt.policies.open_loop import OpenLoop
from polopt.sampling import HindsightReplay, LastAction, TransitionReplay
from polopt.step_source import StepSource
from polopt.training.control.replay_source import ReplaySource


def recurrent(observations: int = 3, dimensions: int = 2) -> NetworkPolicy:
    made = NetworkPolicy(
        observations=observations,
        dimensions=dimensions,
        head="squashed_gaussian",
        low=[-2.0] * dimensions,
        high=[1.0] * dimensions,
        trunk=ActionSequence(hidden=(7, 5)),
        inputs={"last_action": dimensions},
    )
    for parameter in made.actor.parameters():
        torch.nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(len(parameter)))
    return made


def test_a_sequence_is_the_recurrence_written_out() -> None:
    policy, seen = recurrent().double(), torch.randn(4, 6, 5, dtype=torch.float64)
    action, logp = policy.propose_sequence(seen, 3, torch.Generator().manual_seed(1))
    assert action.shape == (4, 6, 3, 2)
    assert logp.shape == (4, 6, 3)
    weights = dict(policy.actor.named_parameters())
    first = (seen[..., :3] @ weights["begin.0.weight"].T + weights["begin.0.bias"]).relu()
    state = first @ weights["begin.2.weight"].T + weights["begin.2.bias"]
    last, generator = seen[..., 3:], torch.Generator().manual_seed(1)
    for j in range(3):
        reads = last @ weights["cell.weight_ih"].T + weights["cell.bias_ih"]
        keeps = state @ weights["cell.weight_hh"].T + weights["cell.bias_hh"]
        (r1, z1, n1), (r2, z2, n2) = reads.chunk(3, -1), keeps.chunk(3, -1)
        reset, update = (r1 + r2).sigmoid(), (z1 + z2).sigmoid()
        state = (1 - update) * (n1 + reset * n2).tanh() + update * state
        law = policy.head.law(state @ weights["out.0.weight"].T + weights["out.0.bias"])
        expected = policy.head.sample(law, generator)
        torch.testing.assert_close(action[:, :, j], expected.action)
        torch.testing.assert_close(logp[:, :, j], expected.logp)
        last = expected.action


def test_a_single_decision_is_the_first_of_a_sequence() -> None:
    policy, seen = recurrent(), torch.randn(9, 5)
    one = policy.act(seen, torch.Generator(), greedy=True)
    several = policy.propose_sequence(seen, 4, torch.Generator(), greedy=True)
    assert torch.equal(one.action, several.action[:, 0])
    assert torch.equal(one.logp, several.logp[:, 0])
    assert not torch.allclose(several.action[:, 0], several.action[:, 1])


def test_the_gradient_flows_through_the_actions_before() -> None:
    policy, seen = recurrent(), torch.randn(9, 5)
    action = policy.propose_sequence(seen, 2, torch.Generator().manual_seed(0)).action
    action[:, 1].sum().backward()
    single = recurrent()
    frozen = action[:, 0].detach()
    held = single.actor.cell(frozen, single.actor.cell(seen[:, 3:], single.actor.begin(seen[:, :3])))  # type: ignore
    draw = torch.Generator().manual_seed(0)
    single.head.sample(single.law(seen), draw)
    single.head.sample(single.head.law(single.actor.out(held)), draw).action.sum().backward()  # type: ignore
    ours, without = (p.actor.out[0].weight.grad for p in (policy, single))  # type: ignore
    assert not torch.allclose(ours, without)


def test_a_policy_without_sequences_holds_its_action() -> None:
    policy = NetworkPolicy(observations=3, dimensions=2, head="squashed_gaussian", low=[-1, -1], high=[1, 1])
    found = policy.propose_sequence(torch.randn(5, 3), 3, torch.Generator())
    assert torch.equal(found.action[:, 0], found.action[:, 2])
    assert found.logp[:, 0].abs().min() > 0
    assert not found.logp[:, 1:].any()


@pytest.mark.parametrize(
    ("space", "found"),
    [
        (Space(3, dimensions=2), "none"),
        (Space(3, actions=2, inputs=(("last_action", 2),)), "no numbers"),
        (Space(3, dimensions=2, inputs=(("skill", 2),)), "skill"),
    ],
)
def test_a_trunk_of_sequences_needs_the_action_before(space: Space, found: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){found}.*LastAction"):
        ActionSequence().build(space, 4, torch.Generator())


def test_the_name_of_a_proposal_of_a_sequence() -> None:
    output = NetworkOutput("critic", proposal=Proposal(sequence=8, model="model"))
    assert output_of(output.name) == output
    assert output.proposal is not None
    assert output.proposal.several
    assert output.proposal.learns


def test_the_model_learns_the_next_state(tmp_path: Path) -> None:
    made = srl_sequence(sequence=2, hidden=(8,), model_hidden=(8,))
    loss = made.networks[2].objective
    assert isinstance(loss, ModelRegression)
    from polopt.claims.srl_sequence import random_rows
    from polopt.network_training import NetworkTraining

    policy = NetworkPolicy(
        observations=2,
        dimensions=1,
        head="squashed_gaussian",
        low=[-1.0],
        high=[1.0],
        trunk=ActionSequence(hidden=(8,)),
        inputs={"last_action": 1},
    )
    networks, rows = NetworkTraining(policy, made, 1e-3, torch.Generator()), random_rows(3)
    found = loss(rows, networks.evaluate(rows, loss)).loss
    seen, after = rows.extras["observation"].unbind(1)
    said = networks.modules["model"](seen, rows.extras["action"][:, 0])
    torch.testing.assert_close(found, torch.nn.functional.mse_loss(said, after))


def with_networks(objective: ValueAscent, **changes: object) -> Algorithm:
    made = sac(hidden=(8,))
    return made.but({k.replace("__", "."): v for k, v in changes.items()}, objective=objective)


def test_a_model_is_one_of_the_networks() -> None:
    lost = with_networks(ValueAscent(sequence=3, model="dynamics"))
    with pytest.raises(ValueError, match="'dynamics', which must be one of networks that reads observation and action"):
        lost.check_networks()
    made = srl_sequence(hidden=(8,), model_hidden=(8,))
    with pytest.raises(ValueError, match="reads observation and action"):
        made.but({"networks.2.network": VectorNetwork(reads_from=("observation",))}).check_networks()
    with pytest.raises(ValueError, match=r"'critic' is read at states of a model, and reads \['extras.last_action'\]"):
        made.but({"networks.0.network.policy_inputs": ("last_action",)}).check_networks()
    with pytest.raises(ValueError, match="a sequence needs the name of a model"):
        ValueAscent(sequence=3)


def test_sequences_are_refused_where_actions_are_not_the_policys() -> None:
    with pytest.raises(ValueError, match="samples of the policy; set noise"):
        TransitionReplay(sequence=2, noise=0.1)
    with pytest.raises(ValueError, match="n_steps and sequence must be 1, found 1 and 3"):
        HindsightReplay(sequence=3)


class Counts(gymnasium.Env[np.ndarray, np.ndarray]):
    """The observation is the number of steps so far; an episode ends after 5."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,))
    action_space = gymnasium.spaces.Box(-2.0, 1.0, (1,))

    def reset(self, **_: object) -> tuple[np.ndarray, dict[str, object]]:  # type: ignore[override]
        self.count = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.count += 1
        return np.full(1, self.count, dtype=np.float32), 1.0, self.count == 5, False, {}


@pytest.mark.parametrize("mode", [*AutoresetMode])
def test_a_plan_lasts_until_it_or_the_episode_ends(mode: AutoresetMode) -> None:
    environments = SyncVectorEnv([Counts] * 2, autoreset_mode=mode)
    policy = recurrent(1, 1)
    source = StepSource(
        environments, policy, seed=0, generator=torch.Generator().manual_seed(5), policy_input=LastAction()
    )
    parts = [source.fragments(4, greedy=True, sequence=3), source.fragments(9, greedy=True, sequence=3)]
    mask = torch.cat([part.mask for part in parts], 1)[0]
    seen = torch.cat([part.extras["observation"][:, :-1] for part in parts], 1)[0, mask]
    action = torch.cat([part.extras["action"] for part in parts], 1)[0, mask]
    last = torch.cat([part.extras["last_action"] for part in parts], 1)[0, mask]
    assert seen[:, 0].tolist()[:10] == [0, 1, 2, 3, 4] * 2
    for begin in (0, 3, 5, 8):  # looks at steps 0 and 3 of each episode, of which the second plan is cut
        length = min(3, 5 - begin % 5)
        plan = policy.propose_sequence(torch.cat([seen[begin], last[begin]]), 3, torch.Generator(), greedy=True)
        assert torch.allclose(action[begin : begin + length], plan.action[:length], atol=1e-6)
    assert last[0] == last[5] == 0
    assert last[3] == action[2]


def test_a_plan_is_not_kept_over_a_checkpoint() -> None:
    environments = SyncVectorEnv([Counts] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    source = StepSource(
        environments, recurrent(1, 1), seed=0, generator=torch.Generator().manual_seed(5), policy_input=LastAction()
    )
    source.fragments(1, sequence=3)
    source.state()
    again = source.fragments(2, greedy=True, sequence=3)
    assert again.extras["last_action"][:, 0].eq(0).all()
    assert again.extras["observation"][:, 0].eq(0).all()


def test_transitions_of_sequences(tmp_path: Path) -> None:
    environments = SyncVectorEnv([Counts] * 2, autoreset_mode=AutoresetMode.SAME_STEP)
    policy = recurrent(1, 1)
    calls = list[int]()
    original = policy.propose_sequence

    def counted(seen: Tensor, *arguments: object, **settings: object) -> object:
        calls.append(len(seen))
        return original(seen, *arguments, **settings)  # type: ignore[arg-type]

    policy.propose_sequence = counted  # type: ignore[method-assign, assignment]
    source = ReplaySource(
        *(environments, policy),
        seed=0,
        generator=torch.Generator(),
        folder=tmp_path,
        checkpoint_every=10,
        policy_input=LastAction(),
    )
    made = TransitionReplay(rows=4, steps=10, sequence=5, policy_input=LastAction())
    assert made(source).extras["last_action"].shape == (4, 1, 1)
    assert sum(calls) == 4  # two copies, two episodes each of one plan


def test_rows_of_open_loop_plans_are_the_copies_own() -> None:
    plan, seen = OpenLoop(3, 2), torch.arange(3.0)[:, None].expand(3, 1)
    policy = NetworkPolicy(observations=1, dimensions=1)
    first = plan.act(policy, seen, torch.Generator(), greedy=True).action
    plan.drop(torch.tensor([False, True, False]))
    second = plan.act(policy, seen + 5, torch.Generator(), greedy=True).action
    new = policy.act(seen + 5, torch.Generator(), greedy=True).action
    assert torch.equal(second[[0, 2]], first[[0, 2]])
    assert torch.allclose(second[1], new[1])
    assert first[1] != second[1]


def test_the_frequency_averaged_score() -> None:
    lengths = [*range(1, 31)]
    assert frequency_averaged_score(lengths, [7.0] * 30, largest=7) == pytest.approx(29 / 30)
    falling = [30.0 - n for n in lengths]  # a triangle from 29 to 0
    assert frequency_averaged_score(lengths, falling, largest=30) == pytest.approx(29 * 29 / 2 / 900)
    shifted = frequency_averaged_score([1, 3, 4], [-2.0, 0.0, 1.0], largest=4, shift=2)
    assert shifted == pytest.approx((2 * 1 + 2.5) / 16)
    for wrong in ([1], [1, 1, 2], [0, 1, 2], [3, 2, 1]):
        with pytest.raises(ValueError, match="frequency_averaged_score: "):
            frequency_averaged_score(wrong, [1.0, 2.0, 3.0][: len(wrong)], largest=1)
    with pytest.raises(ValueError, match="largest must be > 0, found 0"):
        frequency_averaged_score([1, 2], [1.0, 1.0], largest=0)


def test_a_plan_that_begins_where_a_copy_is_being_reset_looks_at_the_new_episode() -> None:
    """After fragments without plans, whose last step ended an episode."""
    environments = SyncVectorEnv([Counts] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    policy = NetworkPolicy(observations=1, dimensions=1, head="deterministic", low=[-2.0], high=[1.0], seed=4)
    for parameter in policy.actor.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(len(parameter)))
    source = StepSource(environments, policy, seed=0, generator=torch.Generator())
    assert source.fragments(5).terminated[:, -1].all()
    played = source.fragments(4, greedy=True, sequence=3)
    assert played.mask[0].tolist() == [False, True, True, True]
    seen, action = played.extras["observation"][0, 1], played.extras["action"][0]
    assert seen == 0
    expected = policy.act(seen[None], torch.Generator(), greedy=True).action[0]
    assert torch.allclose(action[1:], expected.expand(3, 1))
    assert not torch.allclose(action[0], expected)
