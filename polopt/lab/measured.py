"""Small data for the metrics that read something else than logged decisions, by the format of their files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from polopt.lab.logged import small_log
from polopt.metrics import (
    CollectedData,
    DetectedViolations,
    EstimatedPolicies,
    FamilyScores,
    FrontierCurves,
    GatedRequirements,
    HierarchyEpisodes,
    LifelongLog,
    LoggedReplies,
    MeasuredScore,
    PolicyMetrics,
    PolicyRuns,
    PolicyTestResults,
    PolicyTrials,
    PrinciplePreferences,
    RankedPairs,
    Requirement,
    RevisedAnswers,
    RevisionRounds,
    ScoredTokens,
    TabularRewardPair,
    WrittenFeedback,
)
from polopt.metrics.collected_data import DATA_ROWS
from polopt.metrics.detection import DETECTION_ROWS
from polopt.metrics.discretion import COMPARISON_ROWS
from polopt.metrics.estimated_policies import ESTIMATE_ROWS
from polopt.metrics.families import FAMILY_ROWS
from polopt.metrics.frontier import FRONTIER_ROWS
from polopt.metrics.hierarchy_episodes import EPISODE_ROWS
from polopt.metrics.induced import FEEDBACK_ROWS
from polopt.metrics.lifelong import LIFELONG_ROWS
from polopt.metrics.logged_rows import LOGGED_ROWS
from polopt.metrics.policy_runs import POLICY_RUN_ROWS
from polopt.metrics.policy_tests import RESULT_ROWS
from polopt.metrics.policy_trials import TRIAL_ROWS
from polopt.metrics.ranking import PAIR_ROWS
from polopt.metrics.recommended_rows import RECOMMENDED_ROWS, Recommendations
from polopt.metrics.replies import OUTCOMES, REPLY_ROWS
from polopt.metrics.requirements import REQUIREMENT_ROWS
from polopt.metrics.revision_rounds import ROUND_ROWS
from polopt.metrics.revisions import REVISED_ROWS
from polopt.metrics.reward_rows import TRANSITION_ROWS
from polopt.metrics.row_format import RowFormat
from polopt.metrics.several_metrics import POLICY_METRIC_ROWS
from polopt.metrics.shrinkage import PREDICTED_TRIAL_ROWS, PredictedTrial
from polopt.metrics.simulated_policies import SIMULATED_ROWS, SimulatedPolicies
from polopt.metrics.token_credit import TOKEN_ROWS
from polopt.metrics.transitions import DEMONSTRATION_ROWS, TRANSITION_LOG_ROWS, LoggedTransitions
from polopt.metrics.value_class import FEATURE_ROWS, FeatureTransitions
from polopt.problems.mdp import random_mdp


def reward_pair(seed: int) -> TabularRewardPair:
    """Returns two random rewards on a random problem of 4 states, the last of them terminal."""
    g = torch.Generator().manual_seed(seed)
    problem = random_mdp(seed, states=4, actions=2)
    reward, other = torch.randn(2, 4, 2, 4, generator=g, dtype=torch.double)
    return TabularRewardPair(problem.transitions, reward, other, problem.start, torch.arange(4) == 3)


def ranked(seed: int) -> RankedPairs:
    """Returns 40 pairs of answers of 5 to 20 tokens, with a policy near its reference."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(5, 21, (2, 40))
    reference = -lengths * draw.exponential(1.0, (2, 40))
    policy = np.minimum(reference + draw.normal(0, 3, (2, 40)), -0.1)
    return RankedPairs(
        chosen_logps=policy[0],
        rejected_logps=policy[1],
        ref_chosen_logps=reference[0],
        ref_rejected_logps=reference[1],
        chosen_length=lengths[0],
        rejected_length=lengths[1],
        agreement=draw.random(40),
    )


def preferences_by_principle(seed: int) -> PrinciplePreferences:
    """Returns 60 comparisons by 4 principles, 30 % of them indifferent, and the labels of two annotators."""
    draw = np.random.default_rng(seed)
    votes = draw.choice([-1.0, 1.0, np.nan], p=[0.35, 0.35, 0.3], size=(60, 4))
    return PrinciplePreferences(votes, draw.choice([-1.0, 1.0], size=(60, 2)))


def scored_answers(seed: int) -> ScoredTokens:
    """Returns 40 answers of 1 to 8 tokens, with a policy near its reference and a wrong token in every second one."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(1, 9, 40)
    mask = np.arange(8) < lengths[:, None]
    reference = -draw.exponential(1.0, mask.shape)
    policy = np.minimum(reference + draw.normal(0, 1, mask.shape), -0.01)
    wrong = (np.arange(8) == draw.integers(0, lengths)[:, None]) & (np.arange(40) % 2 == 0)[:, None]
    return ScoredTokens(mask, policy, reference, wrong)


def frontier_points(seed: int) -> FrontierCurves:
    """Returns 60 evaluations of two sources, of two runs each, with KLs up to 5."""
    draw = np.random.default_rng(seed)
    kl = np.tile(np.linspace(0, 5, 15), 4) + 0.05 * draw.random(60)
    return FrontierCurves(
        source=np.repeat(["online", "offline"], 30),
        run=np.tile(np.repeat(["0", "1"], 15), 2),
        kl=kl,
        win_rate=np.clip(0.5 + 0.08 * kl + 0.02 * draw.standard_normal(60), 0, 1),
        accuracy=draw.random(60),
    )


def estimated_candidates(seed: int) -> EstimatedPolicies:
    """Returns what two estimators say of eight policies from two logs, with errors as large as the values' spread."""
    draw = np.random.default_rng(seed)
    value = np.tile(draw.normal(size=8), 4)
    return EstimatedPolicies(
        estimator=np.repeat(["pdis", "wis"], 16),
        policy=np.tile([f"policy {i}" for i in range(8)], 4),
        estimate=value + draw.normal(size=32),
        value=value,
        behaviour=np.tile(np.arange(8) == 3, 4),
        log=np.tile(np.repeat(["monday", "tuesday"], 8), 2),
    )


def gated_scores(seed: int) -> GatedRequirements:
    """Returns eight requirements: counts, intervals of known and unknown size, and a score that is missing."""
    draw = np.random.default_rng(seed)
    scores: list[MeasuredScore | None] = [MeasuredScore.of_counts(int(s), 200) for s in draw.integers(150, 201, 4)]
    for n in (None, 20, 20):
        estimate, half = draw.normal(), 0.1 + draw.random()
        scores.append(MeasuredScore(estimate, estimate - half, estimate + half, 0.9, n))
    asked = [
        Requirement(attribute="reliability", metric=f"score {i}", op=">=" if i % 2 else "<=", threshold=0.8)
        for i in range(8)
    ]
    return GatedRequirements(asked, [*scores, None])


def lifelong_measurements(seed: int) -> LifelongLog:
    """Returns two lifetimes of three tasks in seven blocks, with noise, and an expert of two of the tasks."""
    draw = np.random.default_rng(seed)
    rows = [("expert", task, 0, e, e / 20, "0") for task in "AB" for e in range(20)]
    for run in "01":
        for i, trained in enumerate("ABACABA"):
            rows += [("train", trained, 2 * i + 1, e, e / 20, run) for e in range(20)]
            rows += [("eval", task, 2 * i + 2, e, 0.5, run) for task in "ABC" for e in range(2)]
    kind, task, block, experience, performance, runs = map(list, zip(*rows, strict=True))
    noisy = np.asarray(performance, float) + 0.3 * draw.random(len(rows))
    return LifelongLog(kind, task, block, experience, noisy, runs)


def scores_over_a_family(seed: int) -> FamilyScores:
    """Returns the scores of three methods in twelve settings of unequal mass, with two seeds and two features."""
    draw = np.random.default_rng(seed)
    features, mass = draw.random((12, 2)), 0.5 + draw.random(12)
    method, setting, run = (x.ravel() for x in np.meshgrid(np.arange(3), np.arange(12), np.arange(2), indexing="ij"))
    return FamilyScores(
        method=[f"method {i}" for i in method],
        setting=[f"setting {i:02}" for i in setting],
        score=features[setting, 0] * (method - 1) + 0.1 * draw.random(72),
        seed=run,
        features=features[setting],
        mass=mass[setting],
    )


def policies_with_metrics(seed: int) -> PolicyMetrics:
    """Returns twelve policies with three metrics, two of which conflict."""
    draw = np.random.default_rng(seed)
    helpful, harmful, cost = draw.random((3, 12))
    return PolicyMetrics(
        [f"policy {i:02}" for i in range(12)], {"helpful": helpful, "harmless": harmful - helpful, "cost": cost}
    )


# Format -> data from a seed, that can be indexed by a permutation of len(data).
def trials_of_policies(seed: int) -> PolicyTrials:
    """Returns 120 trials of three policies on two tasks, in turns, with rates of 0.3, 0.5 and 0.9 and scores."""
    draw = np.random.default_rng(seed)
    policy = np.tile([0, 1, 2], 40)
    success = draw.random(120) < np.array([0.3, 0.5, 0.9])[policy]
    return PolicyTrials(
        policy=np.array(["small", "medium", "large"])[policy],
        success=success,
        task=np.repeat(["pour", "wipe"], 60),
        score=np.where(success, 1.0, draw.random(120)),
    )


def policies_by_data(seed: int) -> CollectedData:
    """Returns 10 policies of 50 trials, six of growing environments and four of growing demonstrations."""
    draw = np.random.default_rng(seed)
    environments = np.array([1, 2, 4, 8, 16, 32, 16, 16, 16, 16])
    demonstrations = np.array([50] * 6 + [10, 25, 100, 200])
    successes = draw.binomial(50, 1 - 0.8 * environments**-0.5)
    return CollectedData(successes, np.full(10, 50), environments, None, demonstrations)


def hierarchy(
    seed: int,
    *,
    episodes: int = 60,
    plan: tuple[float, ...] = (0.8,),
    skill: tuple[float, ...] = (0.9,),
    lucky: float = 0.1,
) -> HierarchyEpisodes:
    """Returns so many episodes in each mode, of 2 to 4 skills each.

    plan, skill: rates of right plans and of skills in scenes of several kinds, which are equally likely; of one kind,
    failures are independent. lucky: how often a wrong plan reaches the goal.
    """
    draw, n = np.random.default_rng(seed), 3 * episodes
    scene, steps = draw.integers(max(len(plan), len(skill)), size=n), draw.integers(2, 5, n)
    mode = np.repeat(["planner", "controller", "joint"], episodes)
    right = draw.random(n) < np.array(plan)[scene % len(plan)]
    skills = draw.binomial(steps, np.array(skill)[scene % len(skill)])
    success = np.where(right, skills == steps, draw.random(n) < lucky)
    return HierarchyEpisodes(
        mode=mode,
        plan_correct=np.where(mode == "controller", np.nan, right),
        success=np.where(mode == "joint", success, np.nan),
        steps=steps,
        skills=np.where(mode == "controller", skills, np.nan),
        episode=[f"{i:04}" for i in range(n)],
    )


def predicted_outcomes(seed: int) -> PredictedTrial:
    """Returns 120 calibration rows and two arms of 60, predicted from measurements of the outcomes with unit noise."""
    draw = np.random.default_rng(seed)
    y = draw.normal(size=240) + 0.5 * (np.arange(240) >= 180)
    target = np.where(np.arange(240) < 120, y, np.nan)
    return PredictedTrial((y + draw.normal(size=240)) / 2, target, np.repeat(["", "a", "b"], [120, 60, 60]))


def recommended(seed: int) -> Recommendations:
    """Returns the lists of 12 users, of 8 items of 20 each, with equal scores, grades from 0 to 2 and all that can be
    known of an item."""
    draw = np.random.default_rng(seed)
    item = np.concatenate([draw.permutation(20)[:8] for _ in range(12)])
    return Recommendations(
        user=np.repeat([f"u{i}" for i in range(12)], 8),
        item=[f"i{i}" for i in item],
        score=draw.integers(0, 5, 96),
        relevance=draw.integers(0, 3, 96),
        prediction=draw.random(96),
        popularity=draw.uniform(0.01, 1, 20)[item],
        features=draw.normal(size=(20, 3))[item],
    )


def simulated(seed: int) -> SimulatedPolicies:
    """Returns eight policies' success rates in two simulators and in 20 trials each."""
    draw = np.random.default_rng(seed)
    true = draw.binomial(20, draw.random(8)) / 20
    predicted = np.clip(np.tile(true, 2) + draw.normal(0, 0.2, 16), 0, 1)
    models, names = np.repeat(["one", "other"], 8), [f"policy {i}" for i in range(8)] * 2
    return SimulatedPolicies(names, predicted, np.tile(true, 2), np.full(16, 20), models)


def feature_samples(seed: int) -> FeatureTransitions:
    """Returns 90 transitions of 15 states and actions with 3 features, in 9 episodes."""
    draw = np.random.default_rng(seed)
    phi, pair = draw.normal(size=(15, 3)), draw.integers(0, 15, 90)
    return FeatureTransitions(
        features=phi[pair],
        next_features=phi[draw.integers(0, 15, 90)],
        weight=draw.uniform(0.5, 2, 90),
        target_weight=draw.uniform(0.5, 2, 90),
        pair=pair,
        episode=np.repeat(np.arange(9), 10),
    )


def revised_samples(seed: int) -> RevisedAnswers:
    """Returns 5 answers to each of 12 questions and their revisions, which are right as often as chance has it."""
    draw = np.random.default_rng(seed)
    return RevisedAnswers.of_samples(np.repeat(np.arange(12), 5), *draw.integers(0, 2, (2, 60)))


def answers_by_round(seed: int) -> RevisionRounds:
    """Returns the answers of two modes to 10 items in 3 rounds; the choices have probabilities."""
    draw = np.random.default_rng(seed)
    answer = draw.integers(0, 3, 60)
    options = [*draw.dirichlet(np.ones(3), 30), *[None] * 30]
    mode = np.repeat(["choices", "free"], 30)
    item, at = np.tile(np.repeat(np.arange(10), 3), 2), np.tile(np.arange(3), 20)
    return RevisionRounds(item, at, answer == 0, answer, options, mode)


def replied(seed: int) -> LoggedReplies:
    """Returns 200 replies of three kinds in two contexts, and random responses, 30 % of which backfire."""
    draw = np.random.default_rng(seed)
    outcome = draw.choice(OUTCOMES, 200, p=[0.4, 0.3, 0.3])
    return LoggedReplies(draw.integers(0, 2, 200), draw.integers(0, 3, 200), outcome, np.full(200, 1 / 3))


def tested_rules(seed: int) -> PolicyTestResults:
    """Returns 80 runs of 40 tests of two to four of six rules, each of which is broken in a fifth of them."""
    draw = np.random.default_rng(seed)
    tested = [draw.permutation(6)[: draw.integers(2, 5)] for _ in range(40)]
    runs = [rules for rules in tested for _ in range(2)]
    broken = [[rule for rule in rules if draw.random() < 0.2] for rules in runs]
    return PolicyTestResults(np.repeat(np.arange(40), 2), runs, broken, [2 * len(rules) for rules in runs])


def remarked(seed: int) -> WrittenFeedback:
    """Returns remarks on 24 runs of an agent with three behaviours, each done well or badly."""
    draw = np.random.default_rng(seed)
    sides = {"refund": ("calculated", "guessed"), "tone": ("calmed", "sharpened"), "search": ("filtered", "repeated")}
    texts, records = [], []
    for _ in range(24):
        done = {topic: int(draw.integers(2)) for topic in sides}
        topic = str(draw.choice(list(sides)))
        word = sides[topic][done[topic]]
        texts.append(f"Bad that it {word} the {topic}." if done[topic] else f"Good that it {word} the {topic}.")
        records.append("; ".join(f"{sides[name][bad]} {name}" for name, bad in done.items()))
    return WrittenFeedback([f"run {i:02}" for i in range(24)], records, texts)


def logged_walks(seed: int) -> LoggedTransitions:
    """Returns two data sets of six episodes of up to eight decisions on a line, every other episode not done."""
    draw = np.random.default_rng(seed)
    lengths = draw.integers(2, 9, 12)
    number, steps = np.repeat(np.arange(12), lengths), np.concatenate([np.arange(n) for n in lengths])
    return LoggedTransitions(
        episode=[f"{i:02}" for i in number],
        step=steps,
        state=draw.normal(size=(len(number), 2)).round(1),
        action=draw.integers(2, size=len(number)),
        reward=draw.choice([0.0, 1.0], len(number)),
        done=(steps == lengths[number] - 1) & (number % 2 == 0),
        dataset=np.where(number < 6, "one", "other"),
    )


def detections(seed: int) -> DetectedViolations:
    """Returns 60 detections in two domains, two of each trajectory, by a detector that is right more often than not."""
    draw = np.random.default_rng(seed)
    violated = draw.random(60) < 0.4
    probability = np.clip(0.3 + 0.4 * violated + 0.2 * draw.standard_normal(60), 0, 1)
    names = np.repeat([f"trajectory {i}" for i in range(30)], 2)
    return DetectedViolations(violated, probability, draw.random(60), np.tile(["map", "shop"], 30), names)


def runs_under_policies(seed: int) -> PolicyRuns:
    """Returns 20 tasks of two runs each, with three policies of two dimensions."""
    draw = np.random.default_rng(seed)
    dormant = draw.random(120) < 0.3
    return PolicyRuns(
        task=np.repeat([f"task {i}" for i in range(20)], 6),
        run=np.tile(np.repeat(["0", "1"], 3), 20),
        success=np.repeat(draw.random(40) < 0.6, 3),
        policy=np.tile(["a", "b", "c"], 40),
        dimension=np.tile(["scope", "scope", "consent"], 40),
        violated=~dormant & (draw.random(120) < 0.2),
        dormant=dormant,
    )


EXAMPLES: dict[RowFormat, Callable[[int], Any]] = {
    LOGGED_ROWS: small_log,
    TRANSITION_ROWS: reward_pair,
    PAIR_ROWS: ranked,
    FRONTIER_ROWS: frontier_points,
    COMPARISON_ROWS: preferences_by_principle,
    TOKEN_ROWS: scored_answers,
    ESTIMATE_ROWS: estimated_candidates,
    REQUIREMENT_ROWS: gated_scores,
    POLICY_METRIC_ROWS: policies_with_metrics,
    FAMILY_ROWS: scores_over_a_family,
    LIFELONG_ROWS: lifelong_measurements,
    TRIAL_ROWS: trials_of_policies,
    PREDICTED_TRIAL_ROWS: predicted_outcomes,
    DATA_ROWS: policies_by_data,
    EPISODE_ROWS: hierarchy,
    RECOMMENDED_ROWS: recommended,
    SIMULATED_ROWS: simulated,
    FEATURE_ROWS: feature_samples,
    FEEDBACK_ROWS: remarked,
    RESULT_ROWS: tested_rules,
    REPLY_ROWS: replied,
    REVISED_ROWS: revised_samples,
    ROUND_ROWS: answers_by_round,
    TRANSITION_LOG_ROWS: logged_walks,
    DEMONSTRATION_ROWS: logged_walks,
    DETECTION_ROWS: detections,
    POLICY_RUN_ROWS: runs_under_policies,
}
