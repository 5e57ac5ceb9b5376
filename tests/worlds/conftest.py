"""Worker processes for scorers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scorer_requests import SECONDS

from polopt.worlds.scoring.pool import ScorerPool


@pytest.fixture(scope="module")
def workers() -> Iterator[ScorerPool]:
    pool = ScorerPool(4, SECONDS, 0.5)
    yield pool
    pool.close()
