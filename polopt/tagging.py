"""The tags of parts, which their classes declare, and of an algorithm, derived from its parts."""

from __future__ import annotations

from collections.abc import Iterable

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.objectives import NetworkRegression, Objective, Surrogate
from polopt.part import Part
from polopt.sampling import TopK
from polopt.tags import TAGS, Tag, check_tag, parsed_tag

# Axes on which every algorithm has a tag.
REQUIRED = ("data_source", "filter", "negative_use", "update_rule", "reward_source", "iteration", "supervision")
RATED = frozenset({"pairs", "rated", "logged_transitions"})
SHOWN = frozenset({"demonstrations", "solutions", "texts"})
OTHERS = frozenset({"imported_answers", "restored_rows"})
# Fields of a policy whose decisions are steps of a flow or diffusion.
FLOW = frozenset({"extras.noise_level", "extras.velocity", "extras.dt"})


def tags_of(part: Part) -> tuple[Tag, ...]:
    """Returns the tags of a part, in the vocabulary's order: those that it declares, and of an algorithm those that
    follow from its parts together. None of a solver, a metric or a guard, which the surveys' axes do not describe."""
    if not isinstance(part, Algorithm):
        return declared_tags(type(part))
    found = {
        "data_source": _data_source(part),
        "filter": _filter(part),
        "update_rule": _update_rule(part),
    }
    found["reward_source"] = _reward_source(part, found)
    found["negative_use"] = _negative_use(part, found)
    found["iteration"] = _iteration(found)
    found["supervision"] = _supervision(found)
    if FLOW & (part.required_fields | part.required_outputs):
        found["head"] = {"flow"}
    return tuple(check_tag(axis, tag) for axis, tags in TAGS.items() for tag in tags if tag in found.get(axis, ()))


def declared_tags(cls: type) -> tuple[Tag, ...]:
    """Returns the tags that a class of parts or policies declares, in the vocabulary's order.

    Raises:
        UnknownTag: one is not in the vocabulary.
    """
    declared = {parsed_tag(text) for text in getattr(cls, "tags", ())}
    return tuple((axis, tag) for axis, tags in TAGS.items() for tag in tags if (axis, tag) in declared)


def _declared(axis: str, parts: Iterable[Part]) -> set[str]:
    """Returns the tags on an axis that some parts declare."""
    return {tag for part in parts for own, tag in declared_tags(type(part)) if own == axis}


def _data_source(algorithm: Algorithm) -> set[str]:
    capabilities = frozenset[str]().union(*(part.source_capabilities for part in algorithm.parts()))
    given = frozenset[str]().union(*(part.source_capabilities for part in algorithm.sampling.parts())) & (RATED | SHOWN)
    others = OTHERS & capabilities or any("extras.is_opponent" in part.writes for part in algorithm.parts())
    own = algorithm.sampling.rollout_support is not None or not given
    return {
        tag
        for tag, holds in (
            ("demonstrations", SHOWN & capabilities),
            ("rated", RATED & capabilities),
            ("self", own),
            ("others", others),
        )
        if holds
    }


def _learns_values(algorithm: Algorithm) -> bool:
    """Tests whether values of actions are learned, by a network beside the policy or by the policy itself."""
    return any(
        "update_rule=regression" in part.tags for network in algorithm.networks for part in network.parts()
    ) or any(isinstance(part, NetworkRegression) for part in algorithm.objective.parts())


def _filter(algorithm: Algorithm) -> set[str]:
    return _declared("filter", [algorithm.sampling, *algorithm.sampling.filters, *algorithm.select]) or {"none"}


def _update_rule(algorithm: Algorithm) -> set[str]:
    found = _declared("update_rule", algorithm.objective.parts())
    credit = algorithm.credit
    if _learns_values(algorithm):
        found.add("regression")
    for part in algorithm.objective.parts():
        if isinstance(part, Surrogate):
            if isinstance(credit, ConstantAdvantage):
                found.add("sft")
            elif "value" in credit.required_fields | algorithm.objective.required_outputs:
                found.add("ppo")
            else:
                found.add("grpo" if "group" in credit.required_fields else "reinforce")
        elif isinstance(part, Objective) and part.binds == "group":
            found.add("dpo")
    if "regression" in found:
        found.discard("dpo")
    if algorithm.teacher is not None:
        found.add("distillation")
    return found


def _reward_source(algorithm: Algorithm, found: dict[str, set[str]]) -> set[str]:
    unread = isinstance(algorithm.credit, ConstantAdvantage) and not _learns_values(algorithm)
    if unread and "outcome" not in found["filter"]:
        # The reward is not read, but pairs are labelled by it.
        if "rated" in found["data_source"]:
            return {"preference"}
        if "dpo" not in found["update_rule"]:
            return {"none"}
    return _declared("reward_source", algorithm.reward.parts()) or {"task"}


def _negative_use(algorithm: Algorithm, found: dict[str, set[str]]) -> set[str]:
    rules = found["update_rule"]
    surrogates = [part for part in algorithm.objective.parts() if isinstance(part, Surrogate)]
    # A likelihood whose term reads the outcome treats wrong answers otherwise than right ones.
    signed = any({"outcome", "reward"} & part.required_fields for part in surrogates)
    valued = _learns_values(algorithm)
    uses = {"contrast"} if rules & {"dpo", "regression"} and not valued else set()
    uses |= {"weight"} if signed or valued or rules & {"ppo", "grpo", "reinforce"} else set()
    kept = [*algorithm.sampling.filters, *algorithm.select]
    uses |= {"discard"} if "sft" in rules and any(isinstance(each, TopK) for each in kept) else set()
    return uses or {"none"}


def _iteration(found: dict[str, set[str]]) -> set[str]:
    sources = found["data_source"]
    if "self" not in sources:
        return {"once"}
    return {"mixed"} if len(sources) > 1 else {"online"}


def _supervision(found: dict[str, set[str]]) -> set[str]:
    rewards = found["reward_source"]
    kinds = {"demonstration"} if "demonstrations" in found["data_source"] else set()
    kinds |= {"preference"} if "preference" in rewards else set()
    kinds |= {"reward"} if rewards & {"task", "model", "shaped"} else set()
    kinds |= {"teacher"} if "distillation" in found["update_rule"] else set()
    return kinds
