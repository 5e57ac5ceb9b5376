"""Invariances of parts and of plain losses: what holds, what breaks, and on which smallest example."""

from polopt.checks.batches import Batch, random_batch
from polopt.checks.finding import Finding
from polopt.checks.peers import Peer, peer
from polopt.checks.plain import PlainLoss
from polopt.checks.report import Report, check
from polopt.checks.trials import Row

__all__ = ["Batch", "Finding", "Peer", "PlainLoss", "Report", "Row", "check", "peer", "random_batch"]
