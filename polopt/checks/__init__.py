"""Property tests of parts and of plain losses: invariances that hold, those that break, and the smallest failing
example.
"""

from polopt.checks.cases import PartRow
from polopt.checks.finding import CheckResult
from polopt.checks.plain_loss import PlainLoss
from polopt.checks.report import Report, check
from polopt.checks.sample_batches import SampleBatch, random_batch
from polopt.checks.third_party import Peer, peer

__all__ = ["CheckResult", "PartRow", "Peer", "PlainLoss", "Report", "SampleBatch", "check", "peer", "random_batch"]
