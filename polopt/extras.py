"""The registry of `Experience.extras`: what each named entry of a batch holds, and which part or loop writes it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

Kind = Literal["float", "int", "bool", "number", "list"]


class Extra(NamedTuple):
    """One named entry of `Experience.extras`.

    name: its key.
    shape: its dimensions; those called B and T are the batch's, and "..." at the end means any further ones.
    kind: of its numbers, "number" for integers or floats; "list" is a list with one entry a row.
    meaning: what it holds, with its unit.
    writer: the part or the loop that writes it.
    """

    name: str
    shape: tuple[str, ...]
    kind: Kind
    meaning: str
    writer: str

    def problem(self, value: Any, rows: int, decisions: int) -> str | None:
        """Returns what such an entry must be, if this value is not one; None if it is."""
        if self.kind == "list":
            return None if isinstance(value, list | tuple) else f"a list of B = {rows} entries"
        known = {"B": rows, "T": decisions}
        named = self.shape[:-1] if self.shape[-1] == "..." else self.shape
        if isinstance(value, Tensor) and _is_of(value, self.kind):
            right = value.ndim == len(named) or (named != self.shape and value.ndim > len(named))
            if right and all(known.get(n, size) == size for n, size in zip(named, value.shape, strict=False)):
                return None
        sizes = ", ".join(str(known.get(name, name)) for name in self.shape)
        return f"{_SPELT[self.kind]} of shape [{', '.join(self.shape)}] = [{sizes}]"


def _is_of(value: Tensor, kind: Kind) -> bool:
    if kind == "bool":
        return value.dtype == torch.bool
    if kind == "float":
        return value.is_floating_point()
    return value.dtype != torch.bool and not value.is_complex() and (kind == "number" or not value.is_floating_point())


_SPELT = {"float": "floating point", "int": "integer", "number": "integer or floating point", "bool": "bool"}
_LANGUAGE = "sources of rollouts"
_TEACHER = "the loop, for algorithms with a teacher"
_CONTROL = "sources of fragments"
_POINTS = "sources of points"
_ENCODERS = "policies that encode the history"
_B, _BT = ("B",), ("B", "T")

# Names that are not written out here: `signal_<name>` [B] is what a world reports of a row beside its reward;
# `old_<output>` is an output of the policy before its first update on the batch; `<name>_logp` [B, T] are the
# log-probabilities under the frozen policy that a stage calls so.
_POINT = "credit.ReferencePoint"

EXTRAS: dict[str, Extra] = {
    extra.name: extra
    for extra in (
        Extra(
            "achieved_later",
            ("B", "T", "G"),
            "float",
            "goal that the same episode achieved, to be a desired one",
            "sources of goal-conditioned environments",
        ),
        Extra("action", ("B", "T", "..."), "number", "what was decided", _CONTROL),
        Extra(
            "advantages", ("B", "T", "K"), "float", "several advantages of each decision", "methods.copo.MultiAdvantage"
        ),
        Extra("age", _B, "int", "batches since the row was sampled", "sampling.Replay and its like"),
        Extra("answer", _B, "list", "text of the policy's answer", _LANGUAGE),
        Extra("answer_reward", _BT, "float", "reward of each answer, on its last decision", _LANGUAGE),
        Extra("aux", _BT, "float", "auxiliary reward of each decision, of a designer's hint", "the source"),
        Extra(
            "balance",
            ("B", "T", "1"),
            "float",
            "inverse temperature of a decision's weight",
            "methods.famo2o.DrawnBalance",
        ),
        Extra("base_features", ("B", "S", "F"), "float", "features of decisions of the base policy", "the source"),
        Extra("base_mask", ("B", "S"), "bool", "where the base policy decided", "the source"),
        Extra(
            "branch_turn",
            _B,
            "int",
            "turn before which the row branched off another, -1 for none",
            "methods.arpo_agentic",
        ),
        Extra(
            "candidate_actions",
            ("B", "T", "K", "A"),
            "float",
            "several actions at each decision, scaled from their bounds to [-1, 1]",
            "parts of `networks.Relabel`",
        ),
        Extra("candidates", ("B", "T", "C"), "int", "token ids compared with the teacher's, -1 for none", _TEACHER),
        Extra("choice_advantage", ("B", "T", "n"), "float", "advantage of every choice in each state", "relabelling"),
        Extra("chosen", _B, "bool", "rows to learn from", "methods.rorecomp.LengthRecomposed"),
        Extra("context", _B, "int", "number of what a row's point was asked for", _POINTS),
        Extra("cost", ("B", "T", "K"), "float", 'costs of a decision, info["cost"] of its step', _CONTROL),
        Extra("cut", _BT, "bool", "decisions before which a row is cut into segments", "methods.spo.SegmentRollouts"),
        Extra("cut_value", _BT, "float", "value of the state there, 0 elsewhere", "methods.spo.SegmentRollouts"),
        Extra("degree", _B, "int", "part of the key content that was replaced", "methods.spo_selfsup.DegradedCopies"),
        Extra("discount", _BT, "float", "discount of the value after each transition", "sampling.TransitionReplay"),
        Extra("drawn", _BT, "int", "draws averaged in one decision", "policies.mixture"),
        Extra("dt", _BT, "float", "length of each step's interval of time", "diffusion and flow policies"),
        Extra("entropy_history", _B, "float", "mean entropy of earlier batches, nats", "methods.epo.EntropyHistory"),
        Extra("episode_length", _BT, "float", "decisions of the episode that ended there, 0 elsewhere", _CONTROL),
        Extra("episode_return", _BT, "float", "undiscounted return of the episode that ended there", _CONTROL),
        Extra("explored", _B, "bool", "rows that are leaves of a lookahead tree", "methods.latr.LookaheadRollouts"),
        Extra("external", _B, "bool", "rows sampled by another node", "methods.sapo_swarm.Swarm"),
        Extra("extrapolation", _BT, "float", "weight of a teacher's contrast of two policies", _TEACHER),
        Extra("features", ("B", "T", "F"), "float", "features of each decision in its state", "the source"),
        Extra("feedback", _B, "list", "text with which the world answered, or None", _LANGUAGE),
        Extra("final_history", ("B", "T", "K"), "float", "history after each decision, of the episode", _CONTROL),
        Extra(
            "final_last_action", ("B", "T", "A"), "float", "last action after each decision, which is that", _CONTROL
        ),
        Extra("final_masked", ("B", "T", "1"), "float", "`masked` after each decision", _CONTROL),
        Extra("final_memory", ("B", "T", "K"), "float", "memories after each decision, of the episode", _CONTROL),
        Extra(
            "final_observation",
            ("B", "T", "D"),
            "float",
            "observation after each decision, where the next column is another episode's",
            _CONTROL,
        ),
        Extra(
            "final_privileged",
            ("B", "T", "P"),
            "float",
            "what the environment tells beside the observation, after each decision",
            _CONTROL,
        ),
        Extra("given", _B, "int", "decisions of the demonstrated solution that began the row", _LANGUAGE),
        Extra("greedy_reward", _B, "float", "reward of the greedy answer to the row's prompt", "the loop"),
        Extra("has_teacher_signal", _B, "bool", "rows that the teacher had more context for", _TEACHER),
        Extra("hinted", _B, "bool", "rows sampled behind a hidden hint", _LANGUAGE),
        Extra(
            "history",
            ("B", "T", "K"),
            "float",
            "observations and actions of the episode before each decision",
            _CONTROL,
        ),
        Extra("index", _B, "int", "number of the row's task", _LANGUAGE),
        Extra(
            "is_demonstration",
            _B,
            "bool",
            "rows that were decided elsewhere, to be imitated",
            "sampling.WithDemonstrations and its like",
        ),
        Extra(
            "is_opponent",
            _B,
            "bool",
            "rows that others are compared with, and that are not learned from",
            "sampling.OpponentRollouts and its like",
        ),
        Extra("kept", ("B", "T", "K"), "int", "token ids left by a truncated support, -1 for none", _LANGUAGE),
        Extra("kind", _B, "list", "kind of the row's task", _LANGUAGE),
        Extra("last_action", ("B", "T", "A"), "float", "action before each decision, 0 for none", _CONTROL),
        Extra(
            "latent_log_std", ("B", "T", "Z"), "float", "logarithm of a latent vector's standard deviations", _ENCODERS
        ),
        Extra("latent_mean", ("B", "T", "Z"), "float", "mean of a latent vector", _ENCODERS),
        Extra("latent_noise", ("B", "T", "Z"), "float", "normal noise of latent vectors", "methods.a2pr.LatentNoise"),
        Extra("leaf_weight", _B, "float", "weight of the row as a leaf of a tree of rollouts", "methods.arpo_agentic"),
        Extra("legal", ("B", "T", "..."), "bool", "choices that may be taken, [B, T, n]", _CONTROL),
        Extra("level", _B, "int", "depth of the row's prompt in its tree, from 0", "methods.spo_tree.TreeRollouts"),
        Extra("log_std", ("B", "T", "A"), "float", "logarithm of a decision's standard deviations", "Gaussian heads"),
        Extra("logged", _BT, "bool", "whether the decision is of a log, and not played", "`sampling.FragmentsAndLog`"),
        Extra("macro", _B, "bool", "whether the row's plan is learned, and not its execution", "methods.himac"),
        Extra("masked", ("B", "T", "1"), "float", "whether a decision is within a program's interval", _CONTROL),
        Extra(
            "mean",
            ("B", "T", "..."),
            "float",
            "mean of the Gaussian that each decision was drawn from",
            "Gaussian policies",
        ),
        Extra("memory", ("B", "T", "K"), "float", "memories of actor and critic before each decision", _CONTROL),
        Extra("mismatched", _B, "bool", "rows that hold an answer to another prompt", "sampling.RatedAnswers"),
        Extra(
            "mixture", ("B", "T", "V"), "float", "points of the simplex that were read and decided", "policies.mixture"
        ),
        Extra("noise", ("B", "T", "D"), "float", "normal noise of each draw", _POINTS),
        Extra("noise_level", _BT, "float", "share of the noise in each draw, from 0 to 1", _POINTS),
        Extra(
            "observation",
            ("B", "T + 1", "D"),
            "float",
            "observations before each decision and after the last",
            _CONTROL,
        ),
        Extra("opponents", _B, "int", "opponents in the row's group", "sampling.OpponentRollouts and its like"),
        Extra("plain_entropy", _BT, "float", "entropy in nats at temperature 1", _LANGUAGE),
        Extra("point", ("B", "D"), "float", "point that a generative policy made, or was given", _POINTS),
        Extra(
            "policy_logp", _BT, "float", "log-probability without the inserted text", "methods.rex_rag.RetryRollouts"
        ),
        Extra("predicted", _B, "float", "predicted probability of success", "sampling.UsesPredictor"),
        Extra("predicted_features", ("B", "T", "F"), "float", "features predicted from a latent vector", _ENCODERS),
        Extra("privileged", ("B", "T", "P"), "float", "what the environment tells beside the observation", _CONTROL),
        Extra("privileged_features", ("B", "T", "F"), "float", "features of what the environment tells", _ENCODERS),
        Extra("probe", _B, "bool", "rows into which a text was inserted", "methods.rex_rag.RetryRollouts"),
        Extra(
            "probe_logp",
            _BT,
            "float",
            "log-probability of the distribution that inserted it",
            "methods.rex_rag.RetryRollouts",
        ),
        Extra("prompt_logp", _B, "float", "mean log-probability of the row's prompt", "the loop"),
        Extra("reference_point", _B, "float", "what implicit rewards of labels are compared with", _POINT),
        Extra("responses", ("B", "T", "K"), "float", "rewards of further responses to each decision", "logs"),
        Extra(
            "restarted", _BT, "bool", "decisions of the turn that a row began anew with", "methods.refuel.TurnRestarts"
        ),
        Extra("revised", _B, "bool", "whether the row joins a failed path to a good one", "methods.agent_r"),
        Extra(
            "rollout_is_weights", _BT, "float", "importance weights of verl's rollout correction", "bridges.verl_loss"
        ),
        Extra("row_reward", _B, "float", "reward of rows without decisions, where reward is [B, T]", "rewards.Reward"),
        Extra("sampled", _B, "int", "number of the batch in which the row was sampled", "sampling.SuccessReplay"),
        Extra("seat", _B, "int", "place of the row among those of its group, from 0", "methods.rso.RejectionSampled"),
        Extra("section", _BT, "int", "what an answer decides there, as `polopt.sections` numbers it", _LANGUAGE),
        Extra("skill", ("B", "T", "K"), "float", "skill that the policy was given for the episode", _CONTROL),
        Extra("skipped", _B, "int", "shared groups that were passed over", "methods.sapo_swarm.Swarm"),
        Extra("solved", _B, "bool", "whether the row's task was solved", _LANGUAGE),
        Extra("std", _BT, "float", "standard deviation of that Gaussian", "Gaussian policies"),
        Extra("step_label", _BT, "float", "label of the steps before the decision, NaN for none", "methods.meds3"),
        Extra("step_labelled", _BT, "bool", "decisions before which steps have a label", "methods.meds3"),
        Extra("support_mask", ("B", "T", "V"), "bool", "tokens that a mixture may have weight on", "policies.mixture"),
        Extra("targets", ("B", "T", "V"), "float", "distribution that each decision is drawn towards", "the source"),
        Extra("task", _B, "list", "the row's task", _LANGUAGE),
        Extra("task_vector", ("B", "T", "K"), "float", "task that the policy was given", _CONTROL),
        Extra(
            "teacher_candidate_logp", ("B", "T", "C"), "float", "teacher's log-probability of each candidate", _TEACHER
        ),
        Extra("teacher_entropy", _BT, "float", "teacher's entropy in nats", _TEACHER),
        Extra("teacher_log_std", ("B", "T", "A"), "float", "logarithm of the teacher's standard deviations", "logs"),
        Extra("teacher_logp", _BT, "float", "teacher's log-probability of the decision", _TEACHER),
        Extra("teacher_mean", ("B", "T", "A"), "float", "mean of the teacher's normal distribution", "logs"),
        Extra("temperature", _BT, "float", "temperature of a support that follows the entropy", _LANGUAGE),
        Extra("thought", _BT, "bool", "decisions that are mixtures", "policies.mixture"),
        Extra("tokens", _BT, "int", "token ids, decided and read, -1 behind the row", _LANGUAGE),
        Extra("turn_state", _BT, "int", "number of what was read before the decision's turn", _LANGUAGE),
        Extra("valued", _BT, "bool", "decisions at which the critic has a target", "methods.hiper"),
        Extra("version", _B, "int", "version of the weights that drew the row's last decision", "workers of a cluster"),
        Extra("window", _BT, "bool", "decisions taken in this batch", "sampling.PartialRollouts"),
    )
}
