"""Sampling: selects tasks, allocates rollouts to them and filters the rollouts of a batch."""

from polopt.backends.pool import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.sampling.allocation import allocate, allocate_exactly, apportioned, knapsack, knapsack_value, neyman
from polopt.sampling.batch_buffer import WeightBank
from polopt.sampling.batch_mixers import BatchMixer, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.behaviour import BehaviourUpdate, RecentFragments
from polopt.sampling.diversity import distinct, edit_distance, mean_edit_distance, self_bleu
from polopt.sampling.filters import (
    ExtremeRows,
    MatchedRows,
    MixedGroups,
    NonZeroAdvantage,
    ResampledRows,
    TopK,
    UncertainTokens,
    UniqueAnswers,
)
from polopt.sampling.fragments import Fragments
from polopt.sampling.hindsight import GoalDistanceReward, GoalReward, HindsightReplay
from polopt.sampling.histories import History, fit, predictor_loss
from polopt.sampling.hybrid import FragmentsAndLog
from polopt.sampling.log_weights import LogWeights, TrajectoryWeights, WeightedLog
from polopt.sampling.lookahead import Lookahead
from polopt.sampling.opponents import AveragedPolicy, OpponentPolicy, OpponentRollouts, ReferenceMixture, with_opponents
from polopt.sampling.partial_rollouts import PartialRollouts
from polopt.sampling.parts import (
    EqualRollouts,
    PolicyMixture,
    PromptAugmenter,
    RolloutAllocator,
    RolloutRequest,
    Sampling,
    Select,
    Start,
    TaskSampler,
    UniformTasks,
    select_rows,
)
from polopt.sampling.policy_inputs import (
    BernoulliInput,
    EpisodeHistory,
    FixedInput,
    LastAction,
    Memory,
    OneHotSkill,
    PolicyInput,
    SphereSkill,
    on_sphere,
    policy_input_of,
)
from polopt.sampling.predicted import TopPredicted, UsesPredictor
from polopt.sampling.predictor import BaseRate, InContext, Predictor
from polopt.sampling.replay import Replay
from polopt.sampling.rollouts import Demonstrations, PreferencePairs, RatedAnswers, RawTexts, Rollouts
from polopt.sampling.source_protocols import Source, SourceError
from polopt.sampling.success import SuccessCounts
from polopt.sampling.successes import SuccessReplay
from polopt.sampling.task_samplers import ConsecutiveTasks, Curriculum, KindCurriculum
from polopt.sampling.task_table import TaskTable
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.transitions import TransitionReplay, marked, spanning, successors, transition_rows
from polopt.sampling.tree_search import SearchNode, StepPairs, TreeSearch

__all__ = [
    "AveragedPolicy",
    "BaseRate",
    "BatchMixer",
    "BehaviourUpdate",
    "BernoulliInput",
    "ConsecutiveTasks",
    "Curriculum",
    "Demonstrations",
    "EntropyTemperature",
    "EpisodeHistory",
    "EqualRollouts",
    "ExtremeRows",
    "FixedInput",
    "FolderPool",
    "Fragments",
    "FragmentsAndLog",
    "GoalDistanceReward",
    "GoalReward",
    "HindsightReplay",
    "History",
    "InContext",
    "KindCurriculum",
    "LastAction",
    "LocalPool",
    "LogWeights",
    "Lookahead",
    "MatchedRows",
    "Memory",
    "MixedGroups",
    "NonZeroAdvantage",
    "OneHotSkill",
    "OpponentPolicy",
    "OpponentRollouts",
    "PartialRollouts",
    "PolicyInput",
    "PolicyMixture",
    "Pool",
    "Predictor",
    "PreferencePairs",
    "PromptAugmenter",
    "PublishedGroup",
    "RatedAnswers",
    "RawTexts",
    "RecentFragments",
    "ReferenceMixture",
    "Replay",
    "ResampledRows",
    "RolloutAllocator",
    "RolloutRequest",
    "Rollouts",
    "Sampling",
    "SearchNode",
    "Select",
    "Source",
    "SourceError",
    "SphereSkill",
    "Start",
    "StepPairs",
    "SuccessCounts",
    "SuccessReplay",
    "TaskSampler",
    "TaskTable",
    "TopK",
    "TopPredicted",
    "TrajectoryWeights",
    "TransitionReplay",
    "TreeSearch",
    "UncertainTokens",
    "UniformTasks",
    "UniqueAnswers",
    "UsesPredictor",
    "WeightBank",
    "WeightedLog",
    "WithDemonstrations",
    "WithSolutions",
    "WithTexts",
    "allocate",
    "allocate_exactly",
    "apportioned",
    "distinct",
    "edit_distance",
    "fit",
    "knapsack",
    "knapsack_value",
    "marked",
    "mean_edit_distance",
    "neyman",
    "on_sphere",
    "policy_input_of",
    "predictor_loss",
    "select_rows",
    "self_bleu",
    "spanning",
    "successors",
    "transition_rows",
    "with_opponents",
]
