"""What the language loop can provide, and the refusal of algorithms that need something else."""

from __future__ import annotations

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.fields import OLD
from polopt.layers import layer_of
from polopt.names import nearest
from polopt.part_names import name_of
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.policies.vocabulary import REDUCTIONS
from polopt.situation import Situation
from polopt.teachers import TEACHER_FIELDS
from polopt.training.named_policies import check_policies
from polopt.training.specs import StageSpec
from polopt.worlds.contract import new_episode
from polopt.worlds.protocol import Tasks, TaskSplit, are_verified, signals_of

# What the loop can tell an algorithm of a batch, and the policy of its decisions.
PROVIDED = frozenset(
    {"rollout_logp", "old_logp", "ref_logp", "prev_logp", "value", "final_value", "entropy", "reward", "outcome"}
    | {"terminated", "truncated", "group", "turn", "advantage"}
    | {"extras.paid", "extras.given", "extras.hinted"}
    | {"extras.tokens", "extras.answer", "extras.feedback", "extras.task", "extras.index", "extras.kind"}
    | {"extras.kept", "extras.greedy_reward", "extras.prompt_logp", "extras.voices"}
)
SAID = frozenset({"entropy", "logits", "value", "extras.candidate_logp"} | {f"extras.{name}" for name in REDUCTIONS})


# What gives a critic its targets.
TARGETS = "take a credit that has targets for a critic, as credit: {part: credit.GAE, cut: zero}"

# Tasks that are looked at before a stage begins.
FIRST = 64

# Before the name of what a world says of an answer beside its reward.
SIGNAL = "extras.signal_"


def unprovided(algorithm: Algorithm) -> dict[str, list[str]]:
    """What the algorithm reads that neither the loop, a language policy nor another of its parts can say, by the part
    that reads it. Signals are the tasks' to give: `check_asks`."""
    provided = PROVIDED | algorithm.all_writes | (TEACHER_FIELDS if algorithm.teacher is not None else frozenset())
    found: dict[str, list[str]] = {}
    for part in algorithm.parts():
        absent = {n for n in part.reads - provided if not n.startswith(SIGNAL)}
        absent = {n for n in absent if not (n.startswith(OLD) and _is_said(_now(n)))}
        absent |= {n for n in part.policy_outputs if not _is_said(n)}
        if absent:
            name = name_of(type(part))
            found[name] = sorted(absent.union(found.get(name, ())))
    return found


def check_needs(stage: str, algorithm: Algorithm, spec: StageSpec) -> None:
    """Refuse an algorithm before anything is made for it. spec: the stage's, whose policies fill in fields.

    Raises:
        ConfigError: naming the stage, the part, what it needs and the fix.
    """
    missing = unprovided(algorithm)
    named = check_policies(stage, spec, algorithm, missing.items())
    for part, fields in missing.items():
        absent = [field for field in fields if field not in named]
        if not absent:
            continue
        if TEACHER_FIELDS.issuperset(absent):
            fix = "give the algorithm a teacher, as teacher: {part: teachers.SelfTeacher}"
        elif absent == ["value_target"]:
            fix = TARGETS
        else:
            fix = "take another part, or train it in a loop of your own"
        raise ConfigError(
            f"stages.{stage}: {part} needs {', '.join(absent)}, which language training cannot provide; {fix}"
        )


def check_asks(stage: str, algorithm: Algorithm, split: TaskSplit) -> None:
    """Refuse an algorithm whose batches hold what the tasks come without.

    Raises:
        ConfigError: naming the stage, the part and the fix.
    """
    known = {SIGNAL + name for name in signals_of(split.train)}
    for part in algorithm.parts():
        signals = sorted(n for n in part.reads if n.startswith(SIGNAL) and n not in known)
        if signals:
            raise ConfigError(
                f"stages.{stage}: {name_of(type(part))} reads {', '.join(signals)}, which the tasks do not tell"
                f"{nearest(signals[0], known)}; take tasks whose steps give these signals, or another part"
            )
        if "texts" in part.source_capabilities and not split.texts:
            raise ConfigError(
                f"stages.{stage}: {name_of(type(part))} reads raw texts, and the tasks come without; set tasks.texts "
                "to a file of them"
            )
        if "demonstrations" in part.source_capabilities and not _shows(split.train):
            raise ConfigError(
                f"stages.{stage}: {name_of(type(part))} imitates solutions, and the tasks come without; leave the "
                "stage out, or give the tasks solutions"
            )
        if "pairs" in part.source_capabilities and split.train[0].rejected is None:
            raise ConfigError(
                f"stages.{stage}: {name_of(type(part))} compares preferred with rejected answers, and the tasks come "
                "without; take tasks.kind: pairs, or another method"
            )
    if algorithm.sampling.rollout_support is not None and not are_verified(split.train):
        raise ConfigError(
            f"stages.{stage}: {name_of(type(algorithm.sampling))} samples answers, and nothing verifies them: all that "
            "is known of these tasks are pairs of a preferred and a rejected answer; take a method that learns from "
            "pairs, as dpo, or tasks with a verifier"
        )


def situation_of(stage: str, algorithm: Algorithm, tasks: Tasks, limit: int, policy: LanguagePolicy) -> Situation:
    """A stage before it begins, from its first tasks and the policy."""
    first = [tasks[i] for i in range(min(FIRST, len(tasks)))]
    dialogue = Dialogue(policy.tokenizer)
    return Situation(
        stage=stage,
        group=algorithm.sampling.compared,
        limit=limit,
        turns=tasks.turns,
        solutions=[task.solution for task in first],
        fields=frozenset.intersection(*(frozenset(task.row) for task in first)) if first else frozenset(),
        tokens=lambda text: len(dialogue.answer(text)) - 1,
        block=lambda block: list(policy.named_block(block)),
    )


def check_effects(algorithm: Algorithm, situation: Situation) -> list[str]:
    """Refuse a stage in which some part of the algorithm cannot do its work, before anything is spent on it. Sentences
    on parts that will run there and not do what they are for.

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


def _shows(tasks: Tasks) -> bool:
    """Whether the world demonstrates its first task."""
    episode = new_episode(tasks, tasks[0])
    episode.reset()
    return episode.demonstrate() is not None


def _is_said(name: str) -> bool:
    """Whether a language policy can be asked for it."""
    return name in SAID or layer_of(name.removeprefix("extras.")) is not None


def _now(name: str) -> str:
    return "extras." + name.removeprefix(OLD)


def check_layers(stage: str, algorithm: Algorithm, policy: LanguagePolicy) -> None:
    """Refuse an algorithm that asks layers which the policy does not have.

    Raises:
        ConfigError: naming the stage, the part and the layers that there are.
    """
    for part in algorithm.parts():
        try:
            policy.check_layers(part.policy_outputs)
        except ValueError as error:
            raise ConfigError(f"stages.{stage}: {name_of(type(part))}: {error}") from None
