"""Search trees, branches and plans on a language policy that plays episodes of several turns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_extend import source_of

import polopt as po
from polopt.experience import Experience
from polopt.methods.himac import PlansAndExecutions
from polopt.methods.step_q import StepReranker
from polopt.worlds import GuessNumber


class Even(GuessNumber):
    """Ends well after an answer of an even number of characters, so that a policy that knows nothing does in half."""

    def episode(self, task: Any) -> Any:
        episode = super().episode(task)
        step = episode.step

        def judged(action: str) -> Any:
            found = step(action)
            return found._replace(reward=float(found.over and len(action) % 2 == 0))

        episode.step = judged  # type: ignore[method-assign]
        return episode


def rows_alike(batch: Experience, one: int, other: int, columns: int) -> bool:
    tokens = batch.extras["tokens"]
    return torch.equal(tokens[one, :columns], tokens[other, :columns])


def test_a_search_replays_the_world_up_to_each_node() -> None:
    sampling: Any = po.method("itool", expansions=5, width=3, step_length=None, hardest=1.0).sampling
    source = source_of()
    rows, trees = sampling.search(source, source.take(2))
    assert len(trees) == 2
    for task, tree in enumerate(trees):
        here = (rows.group == task).nonzero().flatten().tolist()
        assert tree.visits == len(here)
        for node in tree.walk():
            end = rows.mask.shape[1] if node.column < 0 else node.column
            same = [row for row in here if rows_alike(rows, row, node.row, end)] if node is not tree else here
            assert node.visits == len(same)
            assert node.value == pytest.approx(float(rows.outcome[same].mean()))
            if node.column >= 0 and node is not tree:
                # A turn begins there, after what the world said.
                assert rows.mask[node.row, node.column]
                assert not rows.mask[node.row, node.column - 1]
                assert rows.turn[node.row, node.column] > rows.turn[node.row, node.begin]


@pytest.mark.parametrize("slug", ["agent-r", "itool", "step-q"])
def test_what_is_learned_from_a_search_has_a_loss(slug: str) -> None:
    settings = {"step_length": None, "hardest": 1.0} if slug == "itool" else {}
    algorithm = po.method(slug, expansions=6, width=4, **settings)
    source = source_of(world=Even(1, 9, turns=3, size=6))
    policy: Any = source.player.policy
    batch = algorithm.sampling(source)
    assert len(batch)
    if algorithm.objective.active_fields("reads") & {"ref_logp"}:
        batch = batch.replace(ref_logp=policy.evaluate(batch).logp.detach())
    batch = algorithm.with_advantages(batch)
    loss = algorithm.objective(batch, policy.evaluate(batch, algorithm.objective.active_fields("policy_outputs"))).loss
    assert loss.isfinite()
    loss.backward()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in policy.parameters())


def test_branches_fill_groups_with_rows_that_share_their_beginning() -> None:
    sampling: Any = po.method("arpo-agentic", group=6, first=2, base=1.0).sampling
    source = source_of()
    batch = sampling(source)
    begun = batch.extras["branch_turn"]
    assert (begun >= 0).any()
    for group in batch.group.unique().tolist():
        rows = (batch.group == group).nonzero().flatten()
        assert len(rows) == 6
        assert float(batch.extras["leaf_weight"][rows].sum()) == pytest.approx(float((begun[rows] < 0).sum()))
        assert len({batch.extras["task"][row].id for row in rows.tolist()}) == 1
    for row in (begun >= 0).nonzero().flatten().tolist():
        number = batch.turn[row] - batch.turn[row][batch.mask[row]].min()
        first = int((batch.mask[row] & (number >= begun[row])).int().argmax())
        others = [other for other in (batch.group == batch.group[row]).nonzero().flatten().tolist() if other != row]
        assert any(rows_alike(batch, row, other, first) for other in others)


def test_plans_are_executed_again_and_then_kept() -> None:
    sampling = PlansAndExecutions(group=4)
    source = source_of()
    sampling.train()
    macro = sampling(source)
    assert macro.extras["macro"].all()
    first = macro.turn[macro.mask].min()
    assert (macro.turn[macro.mask] == first).all()
    micro = sampling(source)
    assert not micro.extras["macro"].any()
    assert (micro.turn[micro.mask] > first).all()
    plans = set()
    for row in range(len(macro)):
        plan = macro.extras["tokens"][row][macro.mask[row]].tolist()
        plans.add((int(macro.extras["index"][row]), tuple(plan)))
    for row in range(len(micro)):
        planned = micro.turn[row] == first
        assert (int(micro.extras["index"][row]), tuple(micro.extras["tokens"][row][planned].tolist())) in plans
    # In evaluation mode nothing is kept.
    sampling.eval()
    assert sampling(source).extras["macro"].all()
    assert sampling(source).extras["macro"].all()


def test_an_agent_is_ranked_by_another_policy_turn_by_turn() -> None:
    source = source_of(sure=True)
    agent = source.weights()
    tasks = source.take(3)
    plain = StepReranker(candidates=2)(source, tasks, agent)
    assert [plain.extras["index"][i] for i in range(3)] == tasks.tolist()
    assert (plain.terminated | plain.truncated).all()
    # Ranks of a policy that is the agent are equal: the first candidate is played, as the agent samples it.
    gains = StepReranker(candidates=2).gains(source, plain[[0, 0]], [int(plain.mask[0].int().argmax())], agent)
    assert gains.tolist() == [0.0, 0.0]
    assert torch.equal(source.weights(), agent)
