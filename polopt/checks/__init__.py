"""Invariances of parts and of plain losses: what holds, what breaks, and on which smallest example."""

from polopt.checks.batches import SampleBatch, random_batch
from polopt.checks.finding import CheckResult
from polopt.checks.peers import Peer, peer
from polopt.checks.plain import PlainLoss
from polopt.checks.report import Report, check
from polopt.checks.trials import PartRow

__all__ = ["CheckResult", "PartRow", "Peer", "PlainLoss", "Report", "SampleBatch", "check", "peer", "random_batch"]
