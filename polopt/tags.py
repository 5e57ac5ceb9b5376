"""Two surveys' vocabularies for methods and parts: closed lists of tags on axes.

A class of parts declares its tags (`Part.tags`). The tags of a method are derived from the parts that it builds with
its paper's settings, never written by hand; axes on which nothing here differs stay empty, and are shown so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polopt.errors import UserError
from polopt.method import Paper
from polopt.names import nearest

AGENTS = Paper(
    title="A Survey on the Optimization of Large Language Model-based Agents",
    authors="Du, Shangheng and Zhao, Jiabao and Shi, Jinxin and Xie, Zhentao and Jiang, Xin and "
    "Bai, Yanhong and He, Liang",
    year=2025,
    arxiv="2503.12434",
)
MANIPULATION = Paper(
    title="Towards a Unified Understanding of Robot Manipulation: A Comprehensive Survey",
    authors="Bai, Shuanghao and others",
    year=2025,
    arxiv="2510.10903",
)
SURVEYS = {"llm-agent-opt-survey": AGENTS, "robot-manipulation-survey": MANIPULATION}

# Axis -> tag -> meaning. The first six axes are of the survey of agents, the others of that of manipulation.
TAGS: Mapping[str, Mapping[str, str]] = {
    "data_source": {
        "demonstrations": "given answers to imitate, of people or of a stronger model",
        "rated": "given answers with a label, or pairs of a better and a worse one",
        "self": "the policy's own rollouts, new for every batch",
        "others": "rollouts of other policies: opponents, a swarm, earlier selves",
    },
    "filter": {
        "outcome": "rows are kept by their outcome, which the environment, a rule or a model gives",
        "other": "rows are kept by something else: repeats, lengths, places",
        "none": "all rows are learned from",
    },
    "negative_use": {
        "discard": "bad answers are left out",
        "contrast": "a bad answer is compared with a good one in one loss",
        "weight": "bad answers are made less likely, by their advantage",
        "none": "there are only good answers",
    },
    "update_rule": {
        "sft": "the likelihood of kept answers",
        "dpo": "a loss of pairs or labels on log-ratios to a reference: DPO and its variants",
        "ppo": "an advantage that a critic estimates",
        "grpo": "an advantage relative to the other rollouts of the prompt",
        "reinforce": "an advantage from neither critic nor group",
        "regression": "a squared error of log-ratios or values",
        "distillation": "the teacher's distribution, token by token",
    },
    "reward_source": {
        "task": "the task's scorer: an environment, a rule, tests",
        "model": "a judge or another model",
        "preference": "comparisons of answers",
        "shaped": "terms that are added to or change another reward",
        "none": "no reward is read",
    },
    "iteration": {
        "once": "from a fixed data set",
        "online": "each batch is collected by the present policy",
        "mixed": "new rollouts, and given or stored answers beside them",
    },
    "plan_medium": {
        "language": "plans are text",
        "code": "plans are programs",
        "motion": "plans are motions",
        "affordance": "plans are places and ways to act on things",
        "representation-3d": "plans are made in a representation of space",
        "task-and-motion": "symbolic plans with motions",
    },
    "input": {
        "text": "tokens",
        "image": "pictures",
        "point-cloud": "points in space",
        "touch": "forces and contacts",
        "state": "a vector of the system's state",
    },
    "latent": {
        "state-latent": "a learned representation of what is seen",
        "action-latent": "a learned representation of actions",
        "none": "none beside the policy's own layers",
    },
    "head": {
        "transformer": "a distribution over tokens",
        "flow": "a velocity or noise of a flow or diffusion",
        "mlp": "a small network",
        "energy": "an energy of actions",
        "ssm": "a state-space model",
    },
    "supervision": {
        "demonstration": "actions to imitate",
        "reward": "numbers for what was done",
        "preference": "comparisons or labels of answers",
        "teacher": "another model's distribution",
    },
    "embodiment": {
        "arm": "one arm",
        "bimanual": "two arms",
        "hand": "a dexterous hand",
        "mobile": "a mobile manipulator",
        "humanoid": "a humanoid",
        "none": "no body: text, pictures, games",
    },
}
SURVEY_OF = {axis: AGENTS if i < 6 else MANIPULATION for i, axis in enumerate(TAGS)}
Tag = tuple[str, str]


class UnknownTag(UserError, ValueError):
    """There is no such axis or tag; the message names the nearest one, or all."""


def check_tag(axis: str, tag: str) -> Tag:
    """Returns the tag.

    Raises:
        UnknownTag: the axis, or the tag on it, is not in the vocabulary.
    """
    if axis not in TAGS:
        known = nearest(axis, TAGS) or f"; give one of {', '.join(TAGS)}"
        raise UnknownTag(f"there is no axis {axis!r:.60} of tags{known}")
    if tag not in TAGS[axis]:
        raise UnknownTag(f"{axis} has no tag {tag!r:.60}; give one of {', '.join(TAGS[axis])}")
    return axis, tag


def parsed_tag(text: str) -> Tag:
    """Returns the tag of a text such as update_rule=dpo.

    Raises:
        UnknownTag: no such text, or as `check_tag`.
    """
    axis, equals, tag = text.partition("=")
    if not equals:
        raise UnknownTag(f"{text!r:.60} is no tag: give AXIS=TAG, as in update_rule=dpo")
    return check_tag(axis.strip(), tag.strip())


def cells(tagged: Mapping[str, Iterable[Tag]]) -> dict[Tag, list[str]]:
    """Returns the names of what has each tag of the vocabulary, empty cells included.

    tagged: name -> its tags.
    """
    found: dict[Tag, list[str]] = {(axis, tag): [] for axis, tags in TAGS.items() for tag in tags}
    for name, tags in tagged.items():
        for axis, tag in tags:
            found[check_tag(axis, tag)].append(name)
    return found
