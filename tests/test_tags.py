"""Tags of methods: a closed vocabulary, derived from parts, every algorithm on every axis that describes algorithms."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cli.command import flat, polopt

from polopt import catalogue, index, part_list
from polopt.algorithm import Algorithm
from polopt.credit import GAE, ConstantAdvantage
from polopt.objectives import PolicyGradient, Surrogate
from polopt.rewards import JudgedReward, LearnedJudge, Reward
from polopt.sampling import Demonstrations, MixedGroups, Rollouts, TopK
from polopt.tagging import REQUIRED, declared_tags, tags_of
from polopt.tags import SURVEY_OF, TAGS, UnknownTag, cells, check_tag, parsed_tag


def tagged(algorithm: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for axis, tag in tags_of(algorithm):
        found.setdefault(axis, set()).add(tag)
    return found


def test_every_algorithm_has_its_tags_and_nothing_else_has_any() -> None:
    for slug in catalogue.slugs():
        built = catalogue.part(slug)
        axes = tagged(built)
        assert all(check_tag(axis, tag) for axis, tag in tags_of(built))
        if isinstance(built, Algorithm):
            assert set(REQUIRED) <= axes.keys(), slug
        else:
            assert not axes, slug
    assert set(SURVEY_OF) == set(TAGS)


# What the papers of well-known methods do, by hand.
KNOWN: dict[str, dict[str, set[str]]] = {
    "sft": {"data_source": {"demonstrations"}, "update_rule": {"sft"}, "negative_use": {"none"}, "iteration": {"once"}},
    "rft": {"data_source": {"self"}, "update_rule": {"sft"}, "negative_use": {"discard"}, "reward_source": {"task"}},
    "raft": {"data_source": {"self"}, "filter": {"outcome"}, "update_rule": {"sft"}, "iteration": {"online"}},
    "dpo": {"data_source": {"rated"}, "update_rule": {"dpo"}, "negative_use": {"contrast"}, "iteration": {"once"}},
    "kto": {"data_source": {"rated"}, "update_rule": {"dpo"}, "iteration": {"once"}},
    "orpo": {"update_rule": {"dpo", "sft"}, "reward_source": {"preference"}, "supervision": {"preference"}},
    "online-dpo": {"data_source": {"self"}, "update_rule": {"dpo"}, "iteration": {"online"}},
    "ppo": {"update_rule": {"ppo"}, "negative_use": {"weight"}, "supervision": {"reward"}},
    "grpo": {"update_rule": {"grpo"}, "filter": {"none"}, "iteration": {"online"}},
    "dapo": {"update_rule": {"grpo"}, "filter": {"outcome"}, "reward_source": {"task", "shaped"}},
    "reinforce": {"update_rule": {"reinforce"}, "reward_source": {"task"}},
    "nft": {"negative_use": {"weight"}},
    "rebel": {"update_rule": {"regression"}, "negative_use": {"contrast"}},
    "polar": {"reward_source": {"model"}},
    "aligndistil": {"update_rule": {"distillation", "sft"}, "supervision": {"teacher"}},
    "chord": {"data_source": {"demonstrations", "self"}, "iteration": {"mixed"}},
    "sapo-swarm": {"data_source": {"others", "self"}},
    "diffusion-nft": {"head": {"flow"}},
    "t-ppo": {"update_rule": {"ppo"}},
}


@pytest.mark.parametrize("slug", KNOWN)
def test_known_methods(slug: str) -> None:
    found = tagged(catalogue.part(slug))
    assert {axis: found.get(axis, set()) for axis in KNOWN[slug]} == KNOWN[slug]


def test_tags_follow_the_parts_not_the_name() -> None:
    base = catalogue.method("grpo", kl=0.0)
    assert tagged(base.but(credit=GAE()))["update_rule"] == {"ppo"}
    assert tagged(base.but(sampling=Demonstrations()))["data_source"] == {"demonstrations"}
    imitated = base.but(credit=ConstantAdvantage(), objective=Surrogate(ratio=None, trust=PolicyGradient()))
    assert tagged(imitated)["negative_use"] == {"none"}
    kept = imitated.but(sampling=Rollouts(group=4, select=[TopK(count=2)]))
    assert tagged(kept)["negative_use"] == {"discard"}
    assert tagged(base.but(sampling=Rollouts(group=4, select=[MixedGroups()])))["filter"] == {"outcome"}
    judged = base.but(reward=JudgedReward(judge=LearnedJudge()))
    assert "model" in tagged(judged)["reward_source"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("update_rul=dpo", "there is no axis 'update_rul' of tags, did you mean 'update_rule'"),
        ("colour=red", "there is no axis 'colour' of tags"),
        ("update_rule=dpoo", "update_rule has no tag 'dpoo'; give one of sft, dpo, ppo"),
        ("dpo", "'dpo' is no tag: give AXIS=TAG, as in update_rule=dpo"),
    ],
)
def test_unknown_tags_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(UnknownTag) as caught:
        parsed_tag(text)
    assert sentence.replace(",", ";").split(";")[0] in str(caught.value).replace(",", ";")
    result = polopt("methods", "--tag", text)
    assert result.exit_code != 0
    assert sentence.split(";")[0].split(",")[0] in flat(result.output)


def test_empty_cells_are_there() -> None:
    found = cells({"a": [("update_rule", "sft")], "b": [("update_rule", "sft"), ("iteration", "once")]})
    assert found["update_rule", "sft"] == ["a", "b"]
    assert found["plan_medium", "code"] == []
    assert len(found) == sum(map(len, TAGS.values()))
    with pytest.raises(UnknownTag):
        cells({"a": [("update_rule", "magic")]})


def test_the_command_filters_and_counts() -> None:
    listed = polopt("methods", "--tag", "update_rule=dpo", "--tag", "data_source=self").output.splitlines()
    names = {line.split()[0] for line in listed}
    assert "online-dpo" in names
    assert not names & {"dpo", "grpo"}
    both = {("update_rule", "dpo"), ("data_source", "self")}
    assert names == {entry.slug for entry in index.entries() if both <= set(entry.tags)}
    rows = json.loads(polopt("methods", "--by-tag", "--json").stdout)
    assert {(row["axis"], row["tag"]) for row in rows} == {(axis, tag) for axis in TAGS for tag in TAGS[axis]}
    assert next(row for row in rows if row["tag"] == "motion")["methods"] == []
    output = flat(polopt("methods", "--by-tag").output)
    assert "motion – plans are motions" in output
    row = next(row for row in json.loads(polopt("methods", "--json").stdout) if row["slug"] == "dpo")
    assert "update_rule=dpo" in row["tags"]


def test_parts_declare_tags_of_the_vocabulary_and_algorithms_have_those_of_their_parts() -> None:
    listed = part_list.entries()
    assert len({part.name for part in listed}) == len(listed)
    by_name = {part.name: set(part.tags) for part in listed}
    assert by_name["rewards.HTTPJudge"] == {("reward_source", "model")}
    assert by_name["credit.GAE"] == {("update_rule", "ppo")}
    assert by_name["rewards.SumOfRewards"] == set()
    for name, tagged_as in by_name.items():
        if name.startswith("policies."):
            assert {axis for axis, _ in tagged_as} >= {"head"}, name
    for slug in catalogue.slugs():
        built = catalogue.part(slug)
        if not isinstance(built, Algorithm):
            continue
        declared = {tag for part in built.objective.parts() for tag in declared_tags(type(part))}
        assert declared <= set(tags_of(built)), slug
        # The default reward of an algorithm that reads none is no source.
        unread = ("reward_source", "task") if ("reward_source", "none") in tags_of(built) else None
        rewards = {tag for part in built.reward.parts() for tag in declared_tags(type(part))} - {unread}
        assert rewards <= set(tags_of(built)) or ("reward_source", "preference") in tags_of(built), slug


def test_a_part_of_ones_own_declares_its_tags() -> None:
    class Applause(Reward):
        tags = frozenset({"reward_source=model"})

    class Loud(Reward):
        tags = frozenset({"reward_source=noise"})

    base = catalogue.method("grpo", kl=0.0)
    assert tagged(base.but(reward=Applause()))["reward_source"] == {"model"}
    with pytest.raises(UnknownTag, match="reward_source has no tag 'noise'"):
        tags_of(base.but(reward=Loud()))


def test_the_command_lists_parts() -> None:
    lines = polopt("parts", "--tag", "update_rule=distillation").output.splitlines()
    assert [line.split()[0] for line in lines] == [
        *("objectives.Distillation", "objectives.GaussianDistillation", "objectives.SampledDistillation")
    ]
    rows = json.loads(polopt("parts", "--room", "credit", "--filter", "returns gae", "--json").stdout)
    assert all(row["room"] == "credit" for row in rows)
    wrong = polopt("parts", "--room", "kitchen")
    assert wrong.exit_code != 0
    assert "--room kitchen: give one of" in flat(wrong.output)
