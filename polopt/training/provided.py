"""The capabilities of the language loop, and the refusal of stages in which an algorithm cannot do its work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from polopt.algorithm import Algorithm
from polopt.capabilities import CORE_FIELDS, Capabilities, capabilities_of
from polopt.config import ConfigError
from polopt.part_names import name_of
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.policies.vocabulary import REDUCTIONS
from polopt.sampling.source_protocols import CAPABILITIES, STEPPED
from polopt.situation import Situation
from polopt.teachers import TEACHER_FIELDS
from polopt.worlds.contract import new_episode
from polopt.worlds.protocol import Tasks, TaskSplit, are_verified, has_sections, signals_of

# Tasks that are inspected before a stage begins.
FIRST = 64

# The prefix of fields with a world's signals, its numbers on an answer in addition to the reward.
SIGNAL = "extras.signal_"
SECTION = "extras.section"

_FIELDS = CORE_FIELDS | {
    *("final_value", "entropy", "turn", "extras.answer_reward", "extras.given"),
    *("extras.hinted", "extras.turn_state"),
    *("extras.tokens", "extras.answer", "extras.feedback", "extras.task", "extras.index", "extras.kind"),
    *("extras.kept", "extras.greedy_reward", "extras.prompt_logp"),
}
_CANNOT = "needs {names}, which {loop} cannot provide; "
LANGUAGE = Capabilities(
    name="language training",
    advantage_fields=_FIELDS | {"advantage"},
    loss_fields=_FIELDS | {"advantage"},
    prefixes=(SIGNAL, SECTION),
    policy_outputs=frozenset({"entropy", "logits", "value", "extras.candidate_logp", "extras.hidden"})
    | {f"extras.{name}" for name in REDUCTIONS},
    layers=True,
    old_outputs=True,
    source_capabilities=frozenset(CAPABILITIES) - STEPPED | {"rollouts"},
    updates=frozenset({"optimiser", "batch", "laws"}),
    clauses={
        "": _CANNOT + "take another part, or train it in a loop of your own",
        "value_target": _CANNOT + "take a credit that has targets for a critic, as credit: {part: credit.GAE, cut: "
        "zero}",
        **dict.fromkeys(
            TEACHER_FIELDS, _CANNOT + "give the algorithm a teacher, as teacher: {part: teachers.SelfTeacher}"
        ),
        "extras.is_opponent": "compares answers with an opponent's, and nothing samples any; add an opponent to the "
        "sampling, as sampling.mix: [{part: sampling.OpponentRollouts}]",
        "extras.extrapolation": _CANNOT + "give the algorithm a teacher, as teacher: {part: teachers.ContrastTeacher}",
    },
)
# Property that tasks may lack -> the clause of the sentence on a part that needs it.
_COME_WITHOUT: Mapping[str, str] = {
    SIGNAL: "reads {names}, which the tasks do not report{nearest}; take tasks whose steps give these signals, or "
    "another part",
    SECTION: "reads {names}, and the tasks have no answers in sections; take tasks.kind: with-subgoals",
    "texts": "reads raw texts, and the tasks come without; set tasks.texts to a file of them",
    "demonstrations": "imitates solutions, and the tasks come without; leave the stage out, or give the tasks "
    "solutions",
    "pairs": "compares preferred with rejected answers, and the tasks come without; take tasks.kind: pairs, or another "
    "method",
    "rated": "learns from answers with labels or scores, and the tasks come without; take tasks.kind: labelled, or "
    "another method",
    "rollouts": "samples answers, and nothing verifies them: all that is known of these tasks are answers and their "
    "scores; take a method that learns from pairs, as dpo, or from labels, as kto, a reward that does not read the "
    "outcome, as rewards.JudgedReward, or tasks with a verifier",
}


def with_tasks(capabilities: Capabilities, algorithm: Algorithm, split: TaskSplit) -> Capabilities:
    """Returns the capabilities of a language loop with these tasks: only their signals, and only the source
    capabilities that they support."""
    signals = {SIGNAL + name for name in signals_of(split.train)}
    told = signals | ({SECTION} if has_sections(split.train) else set())
    required = frozenset[str]().union(*(capabilities_of(part, algorithm) for part in algorithm.parts()))
    absent = {
        name
        for name, there in (
            ("texts", lambda: bool(split.texts)),
            ("demonstrations", lambda: _demonstrates(split.train)),
            ("pairs", lambda: split.train[0].is_ranked),
            ("rated", lambda: bool(split.train[0].rated)),
            ("rollouts", lambda: are_verified(split.train) or not _reads_outcome(algorithm)),
        )
        if name in required and not there()
    }
    return dataclasses.replace(
        capabilities,
        advantage_fields=capabilities.advantage_fields | told,
        loss_fields=capabilities.loss_fields | told,
        prefixes=tuple(prefix for prefix in capabilities.prefixes if prefix not in (SIGNAL, SECTION)),
        source_capabilities=capabilities.source_capabilities - absent,
        clauses={**capabilities.clauses, **_COME_WITHOUT},
    )


def check_split(stage: str, algorithm: Algorithm, split: TaskSplit) -> None:
    """Refuses an algorithm that needs what these tasks come without, whichever loop it is trained in.

    Raises:
        ConfigError: naming the stage, the part and the fix.
    """
    narrowed, anyway = with_tasks(LANGUAGE, algorithm, split), set(LANGUAGE.lacking(algorithm))
    for sentence in narrowed.sentences(lack for lack in narrowed.lacking(algorithm) if lack not in anyway):
        raise ConfigError(f"stages.{stage}: {sentence}")


def situation_of(stage: str, algorithm: Algorithm, tasks: Tasks, limit: int, policy: LanguagePolicy) -> Situation:
    """Returns a stage's situation before it begins, from its first tasks and the policy."""
    first = [tasks[i] for i in range(min(FIRST, len(tasks)))]
    dialogue = Dialogue(policy.tokenizer)
    return Situation(
        stage=stage,
        group=algorithm.sampling.compared,
        limit=limit,
        turns=tasks.turns,
        solutions=[task.solution for task in first],
        kinds=list(tasks.kinds),
        fields=frozenset.intersection(*(frozenset(task.row) for task in first)) if first else frozenset(),
        tokens=lambda text: len(dialogue.answer(text)) - 1,
        block=lambda block: list(policy.named_block(block)),
    )


def check_effects(algorithm: Algorithm, situation: Situation) -> list[str]:
    """Refuses a stage in which some part of the algorithm cannot do its work, before anything is spent on it. Returns
    sentences on parts that will run there without effect.

    Raises:
        ConfigError: naming the stage, the part, what was found and the fix.
    """
    cautions: list[str] = []
    for part in algorithm.parts():
        where = f"stages.{situation.stage}: {name_of(type(part))}"
        for sentence in part.refusals(situation):
            raise ConfigError(f"{where}: {sentence}")
        cautions += [f"{where}: {sentence}" for sentence in part.cautions(situation)]
    return list(dict.fromkeys(cautions))


def _reads_outcome(algorithm: Algorithm) -> bool:
    """Returns whether the environment's reward of a rollout has an effect on it."""
    parts = (algorithm.reward, algorithm.sampling, algorithm.objective, *algorithm.select)
    return bool({"outcome", "reward"} & frozenset[str]().union(*(part.required_fields for part in parts)))


def _demonstrates(tasks: Tasks) -> bool:
    """Returns whether the world demonstrates its first task."""
    episode = new_episode(tasks, tasks[0])
    episode.reset()
    return episode.demonstrate() is not None


def check_layers(stage: str, algorithm: Algorithm, policy: LanguagePolicy) -> None:
    """Refuses an algorithm that reads layers which the policy does not have.

    Raises:
        ConfigError: naming the stage, the part and the layers that there are.
    """
    for part in algorithm.parts():
        try:
            policy.check_layers(part.policy_outputs)
        except ValueError as error:
            raise ConfigError(f"stages.{stage}: {name_of(type(part))}: {error}") from None
