"""Sampling: selects tasks, allocates rollouts to them and filters the rollouts of a batch."""

from polopt.backends.pool import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.sampling.allocation import allocate, allocate_exactly, apportioned, knapsack, knapsack_value, neyman
from polopt.sampling.allocators import GradientVarianceAllocator, KnapsackAllocator
from polopt.sampling.batch_mixers import BatchMixer, ReplacedBySolutions, WithDemonstrations, WithSolutions, WithTexts
from polopt.sampling.chance import RankedRows, ResampledRows
from polopt.sampling.diversity import distinct, edit_distance, mean_edit_distance, self_bleu
from polopt.sampling.fragments import Fragments
from polopt.sampling.histories import History, fit, predictor_loss
from polopt.sampling.length_recomposed import LengthRecomposed, SelectByField, shortest_right_longest_wrong
from polopt.sampling.lookahead import Lookahead, LookaheadRollouts
from polopt.sampling.paraphrases import ConsecutiveTasks, Paraphrases
from polopt.sampling.partial_rollouts import PartialRollouts
from polopt.sampling.parts import (
    EqualRollouts,
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
from polopt.sampling.predicted import PredictedAllocator, SequentialAllocator, TopPredicted, UsesPredictor
from polopt.sampling.predictor import BaseRate, InContext, Predictor
from polopt.sampling.promoting import VariancePromotingSampler
from polopt.sampling.prompt_augmenters import RulePrompts, SolutionPrefixes
from polopt.sampling.replay import Replay
from polopt.sampling.retry import RetryRollouts, trie_logp
from polopt.sampling.rollouts import Demonstrations, PreferencePairs, RawTexts, Rollouts
from polopt.sampling.segment_rollouts import SegmentRollouts, UncertainTokens
from polopt.sampling.select import BalancedGroups, MixedGroups, NonZeroAdvantage, TopK, UniqueAnswers
from polopt.sampling.source_protocols import Source, SourceError
from polopt.sampling.subsets import HighestVariance, TopDecisions, most_varied
from polopt.sampling.success import SuccessCounts
from polopt.sampling.successes import SuccessReplay
from polopt.sampling.swarm import Swarm
from polopt.sampling.tagged_prompts import ShortestCorrect, TaggedPrompts
from polopt.sampling.task_samplers import Curriculum, PosteriorScore
from polopt.sampling.task_table import TaskTable
from polopt.sampling.temperature import EntropyTemperature
from polopt.sampling.tree_rollouts import TreeRollouts
from polopt.sampling.trigger import MaskThinkDecision

__all__ = [
    "BalancedGroups",
    "BaseRate",
    "BatchMixer",
    "ConsecutiveTasks",
    "Curriculum",
    "Demonstrations",
    "EntropyTemperature",
    "EqualRollouts",
    "FolderPool",
    "Fragments",
    "GradientVarianceAllocator",
    "HighestVariance",
    "History",
    "InContext",
    "KnapsackAllocator",
    "LengthRecomposed",
    "LocalPool",
    "Lookahead",
    "LookaheadRollouts",
    "MaskThinkDecision",
    "MixedGroups",
    "NonZeroAdvantage",
    "Paraphrases",
    "PartialRollouts",
    "Pool",
    "PosteriorScore",
    "PredictedAllocator",
    "Predictor",
    "PreferencePairs",
    "PromptAugmenter",
    "PublishedGroup",
    "RankedRows",
    "RawTexts",
    "ReplacedBySolutions",
    "Replay",
    "ResampledRows",
    "RetryRollouts",
    "RolloutAllocator",
    "RolloutRequest",
    "Rollouts",
    "RulePrompts",
    "Sampling",
    "SegmentRollouts",
    "Select",
    "SelectByField",
    "SequentialAllocator",
    "ShortestCorrect",
    "SolutionPrefixes",
    "Source",
    "SourceError",
    "Start",
    "SuccessCounts",
    "SuccessReplay",
    "Swarm",
    "TaggedPrompts",
    "TaskSampler",
    "TaskTable",
    "TopDecisions",
    "TopK",
    "TopPredicted",
    "TreeRollouts",
    "UncertainTokens",
    "UniformTasks",
    "UniqueAnswers",
    "UsesPredictor",
    "VariancePromotingSampler",
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
    "mean_edit_distance",
    "most_varied",
    "neyman",
    "predictor_loss",
    "select_rows",
    "self_bleu",
    "shortest_right_longest_wrong",
    "trie_logp",
]
