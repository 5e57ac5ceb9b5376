"""Judges for answers that no program can verify: small models trained here, and models behind a server."""

from polopt.rewards.judges.http import HTTPJudge
from polopt.rewards.judges.learned import LearnedJudge
from polopt.rewards.judges.parts import Judge, Judgement

__all__ = ["HTTPJudge", "Judge", "Judgement", "LearnedJudge"]
