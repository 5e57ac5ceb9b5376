"""Loops of one's own: what `judge` does to a finished batch, and which methods the loops of the pages run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import polopt as po
from polopt.fields import ExperienceError
from polopt.lab import TreeSource
from polopt.lab.problems import digits
from polopt.methods.rec import BalancedGroups
from polopt.sampling import MixedGroups, Replay, Rollouts, TopK

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "your-loop.md").read_text()
SNIPPET = re.compile(r"```python\n(.*?)```", re.DOTALL)


def plain(outcome: list[float], **changes: Any) -> po.Experience:
    """Groups of four rows of three decisions, on policy."""
    rows = len(outcome)
    mask = torch.ones(rows, 3, dtype=torch.bool)
    fields: dict[str, Any] = {
        "outcome": torch.tensor(outcome).float(),
        "rollout_logp": torch.full((rows, 3), -1.0),
        "horizon": 9,
    }
    fields |= {"extras": {"row": torch.arange(rows)}, "group": torch.arange(rows) // 4}
    return po.Experience(mask=mask, **fields | changes)


def rows_of(batch: po.Experience) -> list[int]:
    return batch.extras["row"].tolist()


# What judge does to a finished batch -----------------------------------------------------------------------------


def test_raft_imitates_the_best_row_alone() -> None:
    judged = po.method("raft").compute_advantages(plain([0, 0, 0, 1, 0, 0, 1, 1]))
    assert rows_of(judged) == [3, 6]
    assert (judged.advantage == 1).all()


def test_dapo_leaves_out_unanimous_groups() -> None:
    judged = po.method("dapo").compute_advantages(plain([1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0]))
    assert rows_of(judged) == [4, 5, 6, 7]
    assert len(po.method("dapo").compute_advantages(plain([1.0] * 4))) == 0
    # The scale and the penalty of its reward part are there too: 2r - 1, of length 3 of 9 nothing is charged.
    assert judged.reward.tolist() == [-1, 1, -1, -1]


def test_demonstrated_rows_pass_the_filters() -> None:
    shown = {"row": torch.arange(8), "is_demonstration": torch.arange(8) == 0}
    judged = po.Algorithm(sampling=Rollouts(select=[TopK()])).compute_advantages(
        plain([0, 0, 1, 0, 1, 0, 0, 0], extras=shown)
    )
    assert sorted(rows_of(judged)) == [0, 2, 4]


def test_what_the_own_sampling_part_made_is_not_filtered_again() -> None:
    """A second pass of `BalancedGroups` drops more: without three of six 0s the mean passes 1."""
    algorithm = po.Algorithm(sampling=Rollouts(group=5, select=[BalancedGroups()]))
    batch = plain([0, 0, 0, 0, 0, 0, 1, 1.2, 4], group=torch.zeros(9, dtype=torch.long))
    once = BalancedGroups()(batch)
    assert rows_of(once) == [0, 1, 2, 6, 7, 8]
    assert rows_of(BalancedGroups()(once)) == [0, 1, 7, 8]
    tree, policy = digits()
    made = algorithm.sampling(TreeSource(tree, policy, rows=40))
    assert algorithm.sampling.made(made)
    assert len(algorithm.compute_advantages(made)) == len(made)
    assert rows_of(algorithm.compute_advantages(algorithm.sampling.mark(once))) == rows_of(once)
    assert rows_of(algorithm.compute_advantages(batch)) == rows_of(once)
    # Another sampling part's mark does not count, nor does it survive being mixed.
    other = Rollouts(group=5, select=[MixedGroups()])
    assert rows_of(algorithm.compute_advantages(other.mark(batch))) == rows_of(once)
    assert po.Experience.cat([other.mark(batch), batch]).sampled_by is None
    assert other.made(po.Experience.cat([other.mark(batch), other.mark(batch)])[:3])


@pytest.mark.parametrize("slug", ["vas", "pope", "remix", "gvm", "chord", "spo-tree", "t-ppo", "latr", "hapo"])
def test_what_is_too_late_for_a_finished_batch_is_refused(slug: str) -> None:
    algorithm, batch = po.method(slug), plain([0, 1, 0, 1])
    with pytest.raises(
        ExperienceError,
        match=r"Algorithm.compute_advantages: (sampling|methods\.\w+)\.\w+.* decides how a batch is made",
    ) as caught:
        algorithm.compute_advantages(batch)
    assert "\n" not in str(caught.value)
    made = algorithm.sampling.mark(batch)
    assert algorithm.sampling.made(made)
    assert not algorithm.sampling.made(batch)


def test_a_part_of_a_method_decides_not_its_name() -> None:
    plain_rollouts = po.method("remix").but(sampling=Rollouts())
    assert isinstance(po.method("remix").sampling, Replay)
    assert len(plain_rollouts.sampling.filtered(plain([0, 1, 0, 1]))) == 4


def test_imitation_takes_rows_that_nobody_sampled() -> None:
    sft, batch = po.method("sft"), plain([1, 1, 1, 1])
    with pytest.raises(
        ExperienceError, match=r"log-probabilities of a sampler, experience.rollout_logp: leave rollout_logp out"
    ):
        sft.compute_advantages(batch)
    assert (sft.compute_advantages(batch.replace(rollout_logp=None)).advantage == 1).all()
    shown = {"is_demonstration": torch.ones(4, dtype=torch.bool)}
    assert (sft.compute_advantages(batch.replace(extras=shown)).advantage == 1).all()


# Outcome and reward ----------------------------------------------------------------------------------------------


def test_a_reward_is_the_outcome_where_there_is_none() -> None:
    for slug in ("grpo", "dapo", "raft", "dr-grpo"):
        algorithm = po.method(slug, **({"kl": 0} if slug == "grpo" else {}))
        given = plain([0, 1, 0, 0, 1, 0, 1, 1])
        found = algorithm.compute_advantages(given.replace(reward=given.outcome, outcome=None))
        expected = algorithm.compute_advantages(given)
        assert rows_of(found) == rows_of(expected)
        torch.testing.assert_close(found.advantage, expected.advantage, rtol=0, atol=0)
    with pytest.raises(ExperienceError, match=r"needs experience.outcome of shape \[4\], found None; give each row's"):
        po.method("dr-grpo").compute_advantages(plain([0, 1, 0, 0]).replace(outcome=None))


@pytest.mark.parametrize("outcome", [None, torch.tensor([6.0, 6.0])])
def test_a_reward_for_each_decision_is_kept_or_refused(outcome: torch.Tensor | None) -> None:
    """Discounted by hand: 1 + (2 + 3/2)/2 = 2.75, 2 + 3/2 = 3.5, 3; 6/4, 6/2, 6."""
    batch = po.Experience(
        mask=torch.ones(2, 3, dtype=torch.bool),
        reward=torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 6.0]]),
        outcome=outcome,
        group=torch.arange(2),
    )
    algorithm = po.Algorithm(credit=po.credit.RewardToGo(gamma=0.5))
    with pytest.raises(
        ExperienceError, match=r"rewards\.OutcomeReward\(\) would put the outcome .*po\.rewards\.EnvironmentReward"
    ):
        algorithm.compute_advantages(batch)
    kept = algorithm.but(reward=po.rewards.EnvironmentReward()).compute_advantages(batch)
    assert kept.advantage.tolist() == [[2.75, 3.5, 3.0], [1.5, 3.0, 6.0]]
    assert kept.outcome.tolist() == [6.0, 6.0]
    priced = po.rewards.SumOfRewards(
        terms=[po.rewards.EnvironmentReward(), po.rewards.OverlongPenalty(limit=10, buffer=1)]
    )
    assert algorithm.but(reward=priced).compute_advantages(batch).advantage.tolist() == kept.advantage.tolist()


def test_a_reward_for_each_decision_may_be_anything_off_the_mask() -> None:
    batch = po.Experience(
        mask=torch.tensor([[True, False], [False, False]]),
        reward=torch.tensor([[2.0, torch.nan], [torch.nan, torch.inf]]),
        group=torch.zeros(2, dtype=torch.long),
    )
    algorithm = po.Algorithm(reward=po.rewards.EnvironmentReward(), credit=po.credit.RewardToGo())
    assert algorithm.compute_advantages(batch).advantage.tolist() == [[2.0, 0.0], [0.0, 0.0]]


# The pages -------------------------------------------------------------------------------------------------------


def named(mark: str) -> set[str]:
    found = re.search(rf"<!-- {mark} -->\n((?:`.*\n)*)", PAGE)
    assert found is not None
    return set(re.findall(r"`([^`]+)`", found.group(1)))


@pytest.fixture(scope="module")
def loop() -> dict[str, Any]:
    """The page's loop; a batch is generated once, since all begin with one seed and one model."""
    space: dict[str, Any] = {"__name__": "loop"}
    exec(SNIPPET.findall(PAGE)[0].rpartition("print(")[0], space)
    batches: dict[int, po.Experience] = {}
    generate = space["generate"]

    def generated(model: Any, copies: int) -> po.Experience:
        if copies not in batches:
            batches[copies] = generate(model, copies)
        return batches[copies]

    space["generate"] = generated
    return space


def test_the_page_names_every_method_once() -> None:
    names = [named(mark) for mark in ("runs", "more", "refused")]
    assert sorted(set().union(*names)) == po.slugs("algorithm")
    assert sum(map(len, names)) == len(po.slugs("algorithm"))


@pytest.mark.parametrize("slug", po.slugs("algorithm"))
def test_a_method_runs_where_the_page_says_so(slug: str, loop: dict[str, Any]) -> None:
    if slug in named("runs"):
        metrics = loop["learn"](po.method(slug))
        assert all(isinstance(value, float) and abs(value) < 1e6 for value in metrics.values())
        return
    with pytest.raises(
        ExperienceError,
        match=r"Algorithm\.compute_advantages: (sampling|methods\.\w+)\." if slug in named("refused") else "needs",
    ):
        loop["learn"](po.method(slug))


@pytest.mark.parametrize("slug", ["ppo", "bapo-clip", "raft"])
def test_the_loop_of_the_readme_runs_other_methods(slug: str) -> None:
    (code,) = (code for code in SNIPPET.findall((ROOT / "README.md").read_text()) if "experience_from_generate" in code)
    assert code.count('po.method("dapo")') == code.count("range(3)") == 1
    space: dict[str, Any] = {"__name__": "readme"}
    exec(code.replace('"dapo"', repr(slug)).replace("range(3)", "range(1)"), space)
    assert space["algorithm"] is not None
    assert all(p.isfinite().all() for p in space["policy"].parameters())


# Seeing what there is --------------------------------------------------------------------------------------------


def test_a_batch_prints_its_fields_and_hides_its_private_ones() -> None:
    batch = plain([0.0] * 400).replace(support=po.Support(temperature=0.5))
    micro = next(batch.split(2))
    assert len(repr(batch)) < 400
    assert "logp: float32 [400, 3]" in repr(batch)
    assert "extras.row: int64 [2]" in repr(micro)
    assert "temperature=0.5" in repr(batch)
    assert repr(po.Evaluation(logp=batch.rollout_logp)) == "Evaluation(logp: float32 [400, 3])"
    names = inspect.signature(po.Experience).parameters
    assert not [name for name in names if name.startswith("_")]
    assert {"mask", "rollout_logp", "extras", "sampled_by"} <= names.keys()


def test_diff_compares_parts() -> None:
    with pytest.raises(
        TypeError, match=r"diff compares two parts, found 'grpo'; the algorithm of a method is po\.meth"
    ):
        po.diff("grpo", "gspo")  # type: ignore[arg-type]
