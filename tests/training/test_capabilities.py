"""What each loop declares it really provides, and what it does not declare it refuses at the door."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tiny_runs
import torch

import polopt as po
from polopt.bridges.capabilities import BridgeError
from polopt.bridges.table import HOSTS
from polopt.capabilities import Capabilities, Lack, UnprovidedError
from polopt.config import ConfigError
from polopt.evaluation import Evaluation
from polopt.fields import OLD
from polopt.lab import TabularPolicy, TinyTransformer, TokenTree, TreeSource, train
from polopt.lab.provided import TREE
from polopt.layers import Layer
from polopt.objectives import Ratio
from polopt.rewards import Reward
from polopt.sampling.source_protocols import CAPABILITIES, members_of
from polopt.teachers import SelfTeacher
from polopt.training import recipe as recipes
from polopt.training.control.domain import CONTROL, ControlDomain
from polopt.training.control.logged import FURTHER
from polopt.training.control.recipe import ControlRecipe
from polopt.training.domain import check_algorithm
from polopt.training.language import LanguageDomain
from polopt.training.provided import LANGUAGE, SIGNAL
from polopt.training.stage_learning import StageLearning

LOOPS = (LANGUAGE, CONTROL, TREE)
PLANTED = "extras.nothing"


class ReadingReward(Reward):
    """The outcome, having read these fields."""

    names: Sequence[str] = ()

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"outcome", *self.names})

    def forward(self, experience: po.Experience) -> torch.Tensor:
        return experience.outcome


class ReadingRatio(Ratio):
    """A ratio of 1 that reads these fields and these outputs of the policy."""

    names: Sequence[str] = ()
    outputs: Sequence[str] = ()

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.names)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset(self.outputs)

    def forward(self, experience: po.Experience, evaluation: Evaluation) -> torch.Tensor:
        return evaluation.logp - evaluation.logp.detach()


def fields_of(loop: Capabilities) -> frozenset[str]:
    """Every field that the loop declares; of those given by a rule, one of each."""
    old = {OLD + name.removeprefix("extras.") for name in outputs_of(loop) if name.startswith("extras.")}
    # Candidates are the test's own, and not there when the learner says what it would have said before its update.
    return loop.advantage_fields | loop.loss_fields | ((old - {OLD + "candidate_logp"}) if loop.old_outputs else set())


def outputs_of(loop: Capabilities) -> frozenset[str]:
    layers = {f"extras.{Layer(1).name('logp')}", f"extras.{Layer(1, normed=True).name('entropy')}"}
    return loop.policy_outputs | (layers if loop.layers else set())


def absent(held: po.Experience | Evaluation, names: Iterable[str]) -> set[str]:
    """Those names of which a batch, or an evaluation, holds nothing."""
    found = {name: getattr(held, name, None) for name in names if not name.startswith("extras.")}
    found |= {name: held.extras.get(name.removeprefix("extras.")) for name in names if name.startswith("extras.")}
    return {name for name, value in found.items() if value is None}


def with_candidates(batch: po.Experience) -> po.Experience:
    return batch.replace(extras={"candidates": torch.zeros(*batch.mask.shape, 2, dtype=torch.int32)})


def reward_of(loop: Capabilities) -> dict[str, Any]:
    names = sorted(fields_of(loop) - {"advantage"})
    return {"part": f"{Path(__file__).resolve()}:ReadingReward", "names": names}


def learned(domain: Any, recipe: Any, algorithm: po.Algorithm) -> po.Experience:
    stage = recipe.stages["rl"]
    learning = StageLearning(domain, algorithm, stage, domain.source("rl"), torch.Generator())
    return algorithm.with_advantages(learning.provide(algorithm.sampling(learning.source)))


def language() -> tuple[po.Experience, Evaluation]:
    """A batch of language training over a truncated support, and what the policy computes of it."""
    but = {"reward": reward_of(LANGUAGE), "sampling.support": {"top_k": 5}}
    stage = {"method": "grpo", "but": but, "steps": 1, "rows": 8, "group": 4}
    settings = tiny_runs.recipe(stages={"rl": stage})
    domain = LanguageDomain(settings)
    batch = learned(domain, settings, domain.algorithms["rl"])
    return batch, domain.policy.evaluate(with_candidates(batch), outputs_of(LANGUAGE))


def cartpole(environment: str = "CartPole-v1", **but: Any) -> ControlRecipe:
    small: dict[str, Any] = {
        "environment.id": environment,
        "threads": 1,
        "policy.hidden": [8],
        "stages.rl.rows": 4,
        "evaluation.problems": 2,
    }
    small |= {"stages.rl.but.sampling": {"part": "sampling.Fragments", "steps": 16, **but.pop("sampling", {})}}
    small |= {f"stages.rl.but.{name}": value for name, value in but.items()}
    return ControlRecipe.require(recipes.load("cartpole", small))


def control() -> tuple[po.Experience, Evaluation]:
    """In an environment of vectors, whose policy has all that a control policy can say of a decision."""
    trunk = {"part": "networks.HistoryEncoder", "latent": 2, "encoder": [4], "hidden": [4]}
    given = {"part": "sampling.EpisodeHistory", "length": 2, "noise": 2}
    settings = cartpole("polopt/HiddenDynamics-v0", trunk=trunk, sampling={"policy_input": given})
    domain = ControlDomain(settings)
    reward = ReadingReward(names=sorted(fields_of(CONTROL) - {"advantage"}))
    algorithm = domain.algorithms["rl"].but(reward=po.rewards.EnvironmentReward())
    algorithm = algorithm.but(**{"objective.ratio": ReadingRatio(names=reward.names)})
    batch = learned(domain, settings, algorithm)
    try:
        return batch, domain.policy.evaluate(batch, outputs_of(CONTROL))
    finally:
        domain.close()


def tree() -> tuple[po.Experience, Evaluation]:
    worth = TokenTree.full(3, 2, lambda prompt, answer: float(sum(answer)))
    policy = TinyTransformer(worth, critic=True)
    source = TreeSource(worth, policy, rows=8, reference=policy, needs=fields_of(TREE))
    algorithm = po.Algorithm(reward=ReadingReward(names=sorted(fields_of(TREE) - {"advantage"})))
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    return batch, policy.evaluate(with_candidates(batch), outputs_of(TREE))


# Columns that a batch has where a log, or an environment, has them.
OF_LOGS = {f"extras.{name}" for name in (*FURTHER, "cost")}
MADE = {"language": (LANGUAGE, language), "control": (CONTROL, control), "lab": (TREE, tree)}


@pytest.mark.parametrize("which", MADE)
def test_what_is_declared_is_there(which: str) -> None:
    """In a batch that the loop made, and in what its policy computes of it. A planted declaration is found."""
    loop, made = MADE[which]
    batch, evaluation = made()
    assert absent(batch, fields_of(loop)) <= OF_LOGS
    assert absent(evaluation, outputs_of(loop)) == set()
    false = dataclasses.replace(
        loop,
        advantage_fields=loop.advantage_fields | {PLANTED},
        policy_outputs=loop.policy_outputs | {PLANTED},
        old_outputs=False,
    )
    assert absent(batch, fields_of(false)) - OF_LOGS == {PLANTED}
    assert absent(evaluation, outputs_of(false)) == {PLANTED}


@pytest.mark.parametrize("which", MADE)
def test_declared_capabilities_are_the_sources(which: str) -> None:
    """Every member of every declared capability is there, and some of each undeclared one is not."""
    loop, _ = MADE[which]
    source = {
        "language": lambda: LanguageDomain(tiny_runs.recipe()).source("rl"),
        "control": lambda: ControlDomain(cartpole()).source("rl"),
        "lab": lambda: TreeSource(two_arms(), TabularPolicy(two_arms()), rows=4),
    }[which]()
    for name, protocol in CAPABILITIES.items():
        there = all(hasattr(source, member) for member in members_of(protocol) - {"rows", "generator"})
        # Goals are those of goal-conditioned environments.
        assert there or name not in loop.source_capabilities or name == "goal_transitions"
        assert name in loop.source_capabilities or not there
    assert hasattr(source, "rollout") == ("rollouts" in loop.source_capabilities)


def two_arms() -> TokenTree:
    return TokenTree.bandit([0.0, 1.0])


def needing(reward: Sequence[str] = (), ratio: Sequence[str] = (), outputs: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "reward": ReadingReward(names=list(reward)),
        "objective.ratio": ReadingRatio(names=list(ratio), outputs=list(outputs)),
    }


NEEDS: dict[str, tuple[dict[str, Any], str]] = {
    "reward": (needing(reward=[PLANTED]), rf"ReadingReward (needs|reads) {PLANTED}"),
    "objective": (needing(ratio=[PLANTED]), rf"ReadingRatio (needs|reads) {PLANTED}"),
    "output": (needing(outputs=[PLANTED]), rf"ReadingRatio (needs|reads) {PLANTED}"),
    "both": (needing(ratio=["extras.other"], outputs=[PLANTED]), rf"ReadingRatio needs {PLANTED}, extras\.other"),
}


def plain(loop: Capabilities) -> po.Algorithm:
    """An algorithm that the loop can run."""
    sampling = po.sampling.Fragments() if loop is CONTROL else po.sampling.Rollouts()
    return po.Algorithm(sampling=sampling)


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("loop", [*LOOPS, *HOSTS], ids=lambda loop: loop.name)
def test_an_undeclared_need_is_refused(loop: Capabilities, need: str) -> None:
    """By every instance, with the part and the field; polopt's own loops name the fix too."""
    changes, sentence = NEEDS[need]
    assert loop.lacking(plain(loop)) == []
    lacks = loop.lacking(plain(loop).but(**changes))
    assert PLANTED in {lack.name for lack in lacks}
    assert {lack.kind for lack in lacks} <= {"field", "output"}
    fix = r", which .* cannot provide; take another part" if loop in LOOPS else ""
    with pytest.raises(UnprovidedError, match=sentence + fix):
        loop.check(plain(loop).but(**changes))


DOORS: dict[str, tuple[Capabilities, Callable[[po.Algorithm], Any], type[Exception], str]] = {
    "language": (LANGUAGE, lambda one: check_algorithm("rl", one, LANGUAGE), ConfigError, r"^stages\.rl: .*; take"),
    "control": (CONTROL, lambda one: check_algorithm("rl", one, CONTROL), ConfigError, r"^stages\.rl: .*; take"),
    "lab": (
        TREE,
        lambda one: train(one, two_arms(), TabularPolicy(two_arms()), steps=1, rate=1.0),
        UnprovidedError,
        r"; take",
    ),
    **{
        host.name: (host, lambda one, host=host: host.refuse("one", one), BridgeError, "^one cannot run in .*Take")
        for host in HOSTS
    },
}


@pytest.mark.parametrize("door", DOORS)
def test_each_door_refuses(door: str) -> None:
    loop, enter, error, sentence = DOORS[door]
    with pytest.raises(error, match=sentence) as refused:
        enter(plain(loop).but(**needing(reward=[PLANTED])))
    assert PLANTED in str(refused.value)
    assert "ReadingReward" in str(refused.value)


def test_a_stage_is_refused_before_anything_is_made() -> None:
    """By the domains themselves."""
    reward = {"part": f"{Path(__file__).resolve()}:ReadingReward", "names": [PLANTED]}
    stage = {"method": "grpo", "but": {"reward": reward}, "steps": 1, "rows": 8, "group": 4}
    with pytest.raises(ConfigError, match=r"stages\.rl: .*ReadingReward needs extras\.nothing, which language"):
        LanguageDomain(tiny_runs.recipe(stages={"rl": stage}))
    sampling = {"part": "sampling.Fragments", "steps": 16}
    for but, sentence in (
        ({"sampling": sampling, "reward": reward}, "ReadingReward needs extras.nothing, which control training"),
        ({"sampling": {"part": "sampling.Rollouts"}}, "sampling.Rollouts samples answers to tasks, and a control"),
        ({"sampling": {"part": "sampling.Demonstrations"}}, "sampling.Demonstrations needs demonstrations, which"),
    ):
        settings = ControlRecipe.require(recipes.load("cartpole", {"stages.rl.but": but, "stages.rl.minibatches": 1}))
        with pytest.raises(ConfigError, match=sentence):
            ControlDomain(settings)


def test_a_source_capability_is_refused_at_the_door() -> None:
    """What no source of the loop can do is found before it is made: stepped environments in a language run, raw texts
    in a control run."""
    with pytest.raises(ConfigError, match=r"stages\.rl: sampling\.Fragments needs fragments, which language training"):
        check_algorithm("rl", plain(CONTROL), LANGUAGE)
    with pytest.raises(UnprovidedError, match=r"sampling\.Fragments needs fragments, which the lab's tree cannot"):
        train(plain(CONTROL), two_arms(), TabularPolicy(two_arms()), steps=1, rate=1.0)
    with pytest.raises(ConfigError, match=r"stages\.rl: sampling\.RawTexts needs texts, which control training"):
        check_algorithm("rl", po.Algorithm(sampling=po.sampling.RawTexts()), CONTROL)


def test_kinds_beside_fields() -> None:
    """One lack for each flag that an instance leaves out, and the sentences of them."""
    part = po.Algorithm(teacher=SelfTeacher(), reference_tau=0.5, select=[po.sampling.NonZeroAdvantage()])
    none = dict.fromkeys(("teaches", "moves_reference", "selects"), False)
    without = dataclasses.replace(LANGUAGE, name="nobody", clauses={}, **none)
    assert LANGUAGE.lacking(part) == []
    assert without.lacking(part) == [
        Lack("sampling.NonZeroAdvantage()", "selection"),
        Lack("teachers.SelfTeacher()", "teacher"),
        Lack("its reference", "reference"),
    ]
    assert without.refusals(part)[2] == "its reference is an average of the policy"
    assert dataclasses.replace(LANGUAGE, prefixes=()).lacking(po.Algorithm(reward=ReadingReward(names=[SIGNAL + "a"])))
    assert not LANGUAGE.lacking(po.Algorithm(reward=ReadingReward(names=[SIGNAL + "a"])))
    assert {field.name for field in dataclasses.fields(Capabilities)} == set(inspect.signature(Capabilities).parameters)
