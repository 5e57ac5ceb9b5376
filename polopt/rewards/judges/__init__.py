"""Judges for answers that no program can verify: models that score texts, and models behind a server."""

from polopt.rewards.judges.ensemble import EnsembleJudge
from polopt.rewards.judges.http import HTTPJudge
from polopt.rewards.judges.learned import LearnedJudge
from polopt.rewards.judges.parts import Judge, Judgement
from polopt.rewards.judges.sliding import HTTPWindowJudge, RubricResult, SlidingRubric, Window, WindowJudge

__all__ = [
    "EnsembleJudge",
    "HTTPJudge",
    "HTTPWindowJudge",
    "Judge",
    "Judgement",
    "LearnedJudge",
    "RubricResult",
    "SlidingRubric",
    "Window",
    "WindowJudge",
]
