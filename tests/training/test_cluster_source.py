"""Rollouts that are dealt to workers: the same rows, whoever plays them; and batches ahead of their turn."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from cluster_runs import HereCrew
from safetensors.torch import load
from tiny_runs import Stop, StopAt, outcome, recipe, training_of

from polopt.backends.pool import LocalPool
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.sampling.parts import RolloutRequest
from polopt.support import PLAIN
from polopt.training import recipe as recipes
from polopt.training.cluster.connect import worker_pool_of
from polopt.training.cluster.weights import flat, load_flat
from polopt.training.language import LanguageDomain
from polopt.training.language_recipe import LanguageRecipe
from polopt.training.launch import create
from polopt.training.loop import Training
from polopt.training.process_group import ProcessGroup
from polopt.training.run import Run
from polopt.training.source import Shuffles

WARM: dict[str, Any] = {"method": "sft", "steps": 15, "rows": 16, "optimiser": {"lr": 0.03}}
# One method for each thing that a sampling part asks of its source, with what the tiny policy has room for.
RISING = {"part": "schedules.Schedule", "knots": [[0, 0.0], [1, 0.5], [5, 1.0]]}
REPLAY = {"but": {"sampling": {"part": "sampling.Replay", "share": RISING}}}
LOOK = {"but": {"sampling": {"part": "methods.latr.LookaheadRollouts", "share": 0.5}}}
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "gvm": {"block": "wte"},
    "pope": {},
    "remax": {},
    "remix": {},
    "rex-rag": {"texts": ["2", "4"], "chance": 1.0, "keep": 1.0},
    "sapo-swarm": {},
    "spo": {},
    "t-ppo": {},
    "unified-hpt": {},
}
CLUSTER = "cluster/", "staleness/"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def settings(method: str | dict[str, Any] = "grpo", cluster: Any = None, **changes: Any) -> LanguageRecipe:
    stage = {"method": method, "steps": 4, "rows": 16, "group": 4, "optimiser": {"lr": 0.01}} | changes
    return recipe(stages={"warmup": WARM, "rl": stage}, evaluation={"problems": 4}, cluster=cluster)


def trained(
    found: LanguageRecipe, folder: Path, *, watchers: Any = (), lose: float = 0.0, crew: HereCrew | None = None
) -> Training:
    """The run, begun or gone on with, its workers in this process."""
    LocalPool().clear()
    run = Run.open(folder) if (folder / "recipe.yaml").is_file() else create(found, folder)
    crew = crew or (None if found.cluster is None else HereCrew(found, lose))
    training = training_of(found, run, watchers, None, crew)  # type: ignore[arg-type]
    training.run()
    return training


def left_by(folder: Path) -> dict[str, Any]:
    """As `outcome`, without what only a cluster logs, and without what it alone notes of rows that are remembered."""
    found = outcome(folder)
    state = load(found["state"])
    found["state"] = {k: v.numpy().tobytes() for k, v in state.items() if not k.endswith("extras/version")}
    found["metrics"] = [{k: v for k, v in m.items() if not k.startswith(CLUSTER)} for m in found["metrics"]]
    return found


@pytest.mark.parametrize("method", [*METHODS, "lookahead"])
def test_one_share_is_the_run_without_workers(method: str, tmp_path: Path) -> None:
    """Bit for bit, for every way in which a sampling part uses its source; two workers take the orders by lot."""
    about = {"name": method, **METHODS[method]} if method in METHODS else {"name": "grpo"}
    more = {} if method in METHODS else LOOK
    for name, cluster in (("alone", None), ("dealt", {"workers": 2, "shares": 1})):
        trained(settings(about, cluster, steps=3, **more), tmp_path / name, lose=0.2)
    assert left_by(tmp_path / "dealt") == left_by(tmp_path / "alone")
    # The policy learned; otherwise equal weights would say nothing.
    assert max(m.get("grad_norm", 0) for m in left_by(tmp_path / "dealt")["metrics"][-3:]) > 0


@pytest.mark.parametrize(("method", "ahead"), [("grpo", 0), ("gvm", 0), ("rex-rag", 2), ("spo", 2), ("sapo-swarm", 2)])
def test_who_plays_a_share_and_how_often_changes_nothing(method: str, ahead: int, tmp_path: Path) -> None:
    """One worker against three that lose a third of what they have played."""
    about = {"name": method, **METHODS[method]}
    made = settings(about, {"workers": 3, "ahead": ahead})
    trained(made, tmp_path / "three", lose=0.3)
    few = made.model_copy(update={"cluster": made.cluster.model_copy(update={"workers": 1, "shares": 3})})  # type: ignore[union-attr]
    trained(few, tmp_path / "one")
    assert left_by(tmp_path / "three") == left_by(tmp_path / "one")


def rollouts(made: LanguageRecipe, tmp_path: Path, copies: list[int], *, lose: float = 0.0) -> tuple[Any, Experience]:
    crew = HereCrew(made, lose)
    domain = LanguageDomain(made, None, crew)  # type: ignore[arg-type]
    crew.publish(0, flat(domain.policy))
    source: Any = domain.source("rl")
    tasks = source.take(len(copies))
    return source, source.rollout(RolloutRequest(tasks, torch.tensor(copies), PLAIN))


def test_every_row_comes_once_and_in_its_place(tmp_path: Path) -> None:
    """Against the plan, written out: the tasks of the order, each as often as it was asked for, lost shares or not."""
    made, copies = settings(cluster={"workers": 2, "shares": 3}), [4, 0, 1, 5, 2, 3, 1]
    source, found = rollouts(made, tmp_path, copies, lose=0.5)
    order = [task for _, task in Shuffles(1000, made.seed_of("tasks", "rl")).take(len(copies))]
    plan = [(place, task) for place, task in enumerate(order) for _ in range(copies[place])]
    assert list(zip(found.group.tolist(), found.extras["index"].tolist(), strict=True)) == plan
    assert [task.id for task in found.extras["task"]] == [f"digit/0/{task}" for _, task in plan]
    assert source.worker_pool.counts.again > 0
    assert sorted(source.worker_pool.played) == [(0, 0, i) for i in range(3)]
    # Shares have random numbers of their own, or copies of a group would repeat those of another.
    said = [tuple(row) for row in found.extras["tokens"].tolist()]
    assert len(set(said)) > len(said) // 2


def test_rows_are_those_of_the_weights_that_they_name(tmp_path: Path) -> None:
    """Rows of batch t name version t - ahead, and their log-probabilities are what those weights say of them."""

    class Seen(HereCrew):
        def __init__(self, recipe: LanguageRecipe) -> None:
            super().__init__(recipe)
            self.all: dict[int, Any] = {}
            self.rows: list[tuple[int, Experience]] = []

        def publish(self, version: int, weights: Any) -> None:
            super().publish(version, weights)
            self.all[version] = weights.clone()

        def _play(self, order: Any) -> Any:
            answer = super()._play(order)
            self.rows.append((order.number[0], answer.value))
            return answer

    made = settings(cluster={"workers": 2, "ahead": 2}, steps=6)
    crew = Seen(made)
    training = trained(made, tmp_path / "run", crew=crew)
    own = [(batch, rows) for batch, rows in crew.rows if isinstance(rows, Experience)]
    versions = {}
    for batch, rows in own:
        version = 15 + max(0, batch - 2)
        versions[batch] = version
        load_flat(training.domain.policy, crew.all[version])
        said = training.domain.policy.evaluate(rows).logp
        assert torch.allclose(said[rows.mask], rows.rollout_logp[rows.mask], atol=1e-5)
        load_flat(training.domain.policy, crew.all[version + 1])
        assert not torch.allclose(
            training.domain.policy.evaluate(rows).logp[rows.mask], rows.rollout_logp[rows.mask], atol=1e-5
        )
    assert versions == {0: 15, 1: 15, 2: 15, 3: 16, 4: 17, 5: 18}
    logged = [m for m in outcome(tmp_path / "run")["metrics"] if m["stage"] == "rl"]
    assert [m["staleness/max"] for m in logged] == [0, 1, 2, 2, 2, 2]


class Slow(HereCrew):
    """Takes its time now and then, and notes what was begun while how much had been learned."""

    def __init__(self, recipe: LanguageRecipe, seed: int) -> None:
        super().__init__(recipe)
        self.clock, self.begun, self.newest, self.held = random.Random(seed), list[tuple[int, int]](), 0, 0

    def publish(self, version: int, weights: Any) -> None:
        super().publish(version, weights)
        self.newest, self.held = version, max(self.held, len(self.versions))
        time.sleep(self.clock.choice([0, 0.02]))

    def _play(self, order: Any) -> Any:
        self.begun.append((order.number[0], self.newest))
        time.sleep(self.clock.choice([0, 0.02]))
        return super()._play(order)


@pytest.mark.parametrize("ahead", [1, 3])
def test_no_more_than_so_many_batches_wait(ahead: int, tmp_path: Path) -> None:
    """Whoever is slow: a batch is not begun before its weights are there, and older weights are let go."""
    made = settings(cluster={"workers": 2, "ahead": ahead}, steps=8)
    left = []
    for seed in range(2):
        crew = Slow(made, seed)
        trained(made, tmp_path / str(seed), crew=crew)
        own = [(batch, newest - 15) for batch, newest in crew.begun if newest >= 15]
        assert {batch for batch, _ in own} == set(range(8))
        assert all(batch - learned <= ahead for batch, learned in own)
        assert crew.held <= ahead + 2
        assert not crew.versions
        left.append(left_by(tmp_path / str(seed)))
    assert left[0] == left[1]


@pytest.mark.parametrize(("method", "step"), [("grpo", 18), ("replay", 18), ("t-ppo", 17)])
def test_a_run_that_is_ahead_resumes_exactly(method: str, step: int, tmp_path: Path) -> None:
    """Batches that were sampled and not learned from leave no trace, and the same weights draw them again."""
    more = REPLAY if method == "replay" else {}
    made = settings("grpo" if more else method, {"workers": 2, "ahead": 2}, steps=6, **more)
    trained(made, tmp_path / "whole")
    replayed = [m.get("replayed", 0) for m in outcome(tmp_path / "whole")["metrics"]]
    assert (max(replayed) > 0) == bool(more)
    with pytest.raises(Stop):
        trained(made, tmp_path / "cut", watchers=(StopAt(step),))
    trained(made, tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_a_stage_that_ends_early_leaves_no_trace_of_what_was_ahead(tmp_path: Path) -> None:
    """The next stage begins from the same random numbers, however far its predecessor had sampled."""
    first = {"method": "grpo", "steps": 9, "rows": 16, "group": 4, "until": {"metric": "reward/mean", "above": -1}}
    stages = {"warmup": WARM, "first": first, "rl": {"method": "grpo", "steps": 2, "rows": 16, "group": 4}}
    made = recipe(stages=stages, evaluation={"problems": 4}, cluster={"workers": 2, "ahead": 3})
    left = []
    for seed in range(2):
        trained(made, tmp_path / str(seed), crew=Slow(made, seed))
        left.append(left_by(tmp_path / str(seed)))
    assert [m["stage"] for m in left[0]["metrics"]] == ["warmup"] * 15 + ["first"] + ["rl"] * 2
    assert left[0] == left[1]


def test_what_goes_wrong_in_the_sampling_thread_reaches_the_run(tmp_path: Path) -> None:
    class Broken(HereCrew):
        def _play(self, order: Any) -> Any:
            if order.number[0] == 3:
                raise OSError("the judge's server is gone")
            return super()._play(order)

    made = settings(cluster={"workers": 1, "ahead": 1})
    with pytest.raises(OSError, match="the judge's server is gone"):
        trained(made, tmp_path / "run", crew=Broken(made))


@pytest.mark.parametrize(
    ("method", "refused"),
    [("reinforce", True), ("rloo", True), ("policyrollout", True), ("grpo", False), ("sft", False)],
)
def test_objectives_without_a_ratio_to_the_sampler_stay_on_policy(method: str, refused: bool) -> None:
    about = {"name": method, **({"rules": " 2"} if method == "policyrollout" else {})}
    made = settings(about, {"ahead": 1})
    if not refused:
        assert made.algorithms
        return
    with pytest.raises(ConfigError, match=r"stages\.rl: .* cluster\.ahead = 1; set cluster\.ahead to 0, or weigh"):
        _ = made.algorithms
    weighed = settings(about, {"ahead": 1}, but={"objective.weights": [{"part": "objectives.ImportanceWeight"}]})
    assert weighed.algorithms
    assert settings(about, {"ahead": 0}).algorithms


def test_the_door_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, dealt = settings(), settings(cluster={})
    assert plain.on_cluster(None) is plain
    assert plain.on_cluster("auto").cluster is not None
    assert dealt.on_cluster("auto") is dealt
    for made, address, sentence in (
        (plain, "auto", "begun without a cluster"),
        (dealt, None, "name it, as in --cluster auto"),
        (dealt, "127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
    ):
        with pytest.raises(ConfigError, match=sentence), worker_pool_of(made, address, ProcessGroup(), LanguageDomain):
            pass
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with (
        pytest.raises(ConfigError, match=r'pip install "polopt\[cluster\]"'),
        worker_pool_of(dealt, "auto", ProcessGroup(), LanguageDomain),
    ):
        pass


def test_a_recipe_keeps_its_cluster(tmp_path: Path) -> None:
    made = settings(cluster={"workers": 3, "ahead": 1})
    (tmp_path / "r.yaml").write_text(made.to_yaml())
    assert recipes.load(tmp_path / "r.yaml") == made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_travel_bit_for_bit(dtype: torch.dtype) -> None:
    """Of several types and shapes, one of an odd size, and without those that never learn."""
    make = lambda: torch.nn.ModuleList(  # noqa: E731
        [torch.nn.Linear(3, 5).to(dtype), torch.nn.Linear(7, 1).bfloat16(), torch.nn.Linear(2, 3).double()]
    )
    one, other = make(), make()
    one[2].bias.requires_grad_(False)
    other[2].bias.requires_grad_(False)
    kept = other[2].bias.clone()
    data = flat(one)
    with torch.no_grad():
        one[0].weight.add_(0)  # what was taken is a copy
    load_flat(other, data)
    same = [torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True)]
    assert same == [True] * 5 + [False]
    assert torch.equal(other[2].bias, kept)
    with pytest.raises(ValueError, match="do not fit"):
        load_flat(other, data[:-1])
