"""What parts call on a source is what they declare, and a source that lacks it is refused before it is called."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from battery import public_parts

import polopt as po
import polopt.sampling
from polopt.lab import ChainSource, GaussianChain, TabularPolicy, TokenTree, TreeSource
from polopt.part import Part
from polopt.policies.point_source import PointSource
from polopt.sampling.source_protocols import CAPABILITIES, STEPPED, ContinuingSource, Source, SourceError, members_of
from polopt.step_source import StepSource
from polopt.training.control.goal_source import GoalReplaySource
from polopt.training.control.replay_source import ReplaySource
from polopt.training.source import LanguageSource

SAMPLERS = (po.sampling.TaskSampler, po.sampling.RolloutAllocator, po.sampling.PromptAugmenter, po.sampling.Select)


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(polopt.sampling.__path__, "polopt.sampling."):
        yield importlib.import_module(found.name)


def defined(module: ModuleType) -> Iterator[type[Part]]:
    for value in vars(module).values():
        if inspect.isclass(value) and issubclass(value, Part) and value.__module__ == module.__name__:
            yield value


PARTS = sorted(
    {part for module in modules() for part in defined(module)}
    | {part for part in public_parts() if issubclass(part, (po.sampling.Sampling, po.sampling.BatchMixer, *SAMPLERS))},
    key=lambda part: part.__qualname__,
)


def called(node: Any, where: ModuleType, seen: frozenset[str] = frozenset()) -> set[str]:
    """Members of `source` that a class or function reads, and the functions of its module that it hands one to."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(node)))
    found = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "source"}
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id not in seen):
            continue
        function = vars(where).get(call.func.id)
        if inspect.isfunction(function) and any(ast.unparse(a) == "source" for a in call.args):
            found |= called(function, importlib.import_module(function.__module__), seen | {call.func.id})
    return found


def undeclared(part: type[Part]) -> set[str]:
    """Members of the source that a part calls, in its own body or an inherited one, and does not declare."""
    bodies = [base for base in part.__mro__ if issubclass(base, Part) and base.__module__ != "polopt.part"]
    found = set[str]().union(*(called(base, importlib.import_module(base.__module__)) for base in bodies))
    own: Any = part.source_capabilities
    declared = [CAPABILITIES[name] for name in (part().source_capabilities if isinstance(own, property) else own)]
    return found - members_of(Source).union(*map(members_of, declared))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__qualname__)
def test_a_part_declares_what_it_calls(part: type[Part]) -> None:
    assert undeclared(part) == set()


def handed(source: Any) -> Any:
    return source.import_answers


class Undeclared(po.sampling.PartialRollouts):
    """Calls a member that belongs to a capability which it does not declare, and hands the source on."""

    def forward(self, source: Any) -> po.Experience:
        handed(source)
        return source.demonstrate(3)


def test_an_undeclared_call_is_found() -> None:
    assert undeclared(Undeclared) == {"demonstrate", "import_answers"}
    assert len(PARTS) > 40
    calls = set[str]().union(*(called(part, importlib.import_module(part.__module__)) for part in PARTS))
    assert calls > {"extend", "encode", "prompts", "task_ids", "answers", "gradient_norms", "fragments", "pairs"}


def test_a_source_has_few_members_and_each_capability_its_own() -> None:
    assert len(members_of(Source)) == 6
    owners = [name for protocol in {*CAPABILITIES.values()} for name in members_of(protocol)]
    assert len(owners) == len(set(owners))


ROLLOUTS = CAPABILITIES.keys() - STEPPED - {"weights"}
SOURCES = [
    (LanguageSource, ROLLOUTS),
    (TreeSource, ROLLOUTS),
    (StepSource, {"actors", "fragments"}),
    (ReplaySource, STEPPED - {"goal_transitions"}),
    (GoalReplaySource, STEPPED),
    (PointSource, {"demonstrations", "pairs", "rated", "steps", "weights"}),
]


@pytest.mark.parametrize(("source", "capabilities"), SOURCES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_source_takes_what_its_protocols_declare(source: type, capabilities: set[str]) -> None:
    """Each member exists, with the parameters of the protocol, in their order and with their defaults."""
    for name in capabilities:
        protocol = CAPABILITIES[name]
        for member in sorted(members_of(protocol)):
            wanted = getattr(protocol, member, None)
            if not inspect.isfunction(wanted):
                continue
            found = list(inspect.signature(getattr(source, member)).parameters.values())
            expected = list(inspect.signature(wanted).parameters.values())
            assert [(p.name, p.default) for p in found[: len(expected)]] == [(p.name, p.default) for p in expected]


WANTING = {
    "continuations": po.sampling.PartialRollouts(),
    "demonstrations": po.sampling.Demonstrations(),
    "encoding": po.methods.rex_rag.RetryRollouts(texts=["1"]),
    "fragments": po.sampling.Fragments(),
    "goal_transitions": po.sampling.HindsightReplay(),
    "gradient_norms": po.sampling.Rollouts(budget=po.methods.gvm.GradientVarianceAllocator()),
    "actors": po.sampling.RecentFragments(behaviour=po.sampling.BehaviourUpdate()),
    "imported_answers": po.methods.sapo_swarm.Swarm(),
    "kinds": po.sampling.Rollouts(choice=po.sampling.KindCurriculum()),
    "logged_transitions": po.sampling.TransitionReplay(logged=1.0),
    "pairs": po.sampling.PreferencePairs(),
    "prompts": po.sampling.Rollouts(choice=po.sampling.TopPredicted()),
    "rated": po.sampling.RatedAnswers(),
    "restored_rows": po.sampling.Rollouts(mix=[po.sampling.SuccessReplay()]),
    "solutions": po.sampling.Rollouts(mix=[po.sampling.WithSolutions()]),
    "texts": po.sampling.Rollouts(mix=[po.sampling.WithTexts()]),
    "transitions": po.sampling.TransitionReplay(),
    "weights": po.methods.diffusion_nft.SlowRollouts(),
}


def test_each_capability_is_wanted_by_some_part() -> None:
    assert WANTING.keys() | {"steps", "mixtures"} == CAPABILITIES.keys()


@pytest.mark.parametrize("capability", WANTING)
def test_a_source_without_a_capability_is_refused(capability: str) -> None:
    """A chain of Gaussian steps plays rollouts and nothing else."""
    source = ChainSource(GaussianChain(1, [1.0], [1.0]), lambda points: points[:, 0], rows=8)
    first = {"encoding": "continuations", "solutions": "demonstrations"}.get(capability, capability)  # by name
    missing = min(members_of(CAPABILITIES[first]))
    with pytest.raises(
        SourceError, match=r"(sampling|methods\.\w+)\.\w+ needs a source with \w+, and ChainSource has no .*\w+; take"
    ):
        WANTING[capability](source)
    with pytest.raises(SourceError, match=missing):
        WANTING[capability](source)
    assert source.generator.initial_seed() == 0
    assert torch.equal(source.generator.get_state(), torch.Generator().manual_seed(0).get_state())


def test_a_tree_is_no_source_of_fragments() -> None:
    tree = TokenTree.bandit([0.0, 1.0])
    with pytest.raises(SourceError, match=r"sampling\.Fragments needs a source with fragments, and TreeSource has no"):
        po.sampling.Fragments()(TreeSource(tree, TabularPolicy(tree), rows=4))
    assert members_of(ContinuingSource) == {"extend"}
