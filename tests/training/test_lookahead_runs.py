"""Trees of rollouts on a language model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_swarm_runs import source_of

import polopt as po
from polopt.methods.latr import LookaheadRollouts
from polopt.sampling import Lookahead
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber


def language() -> LanguageSource:
    return source_of(GuessNumber(1, 9, turns=3, size=6), limit=12, rows=24)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("support", [Support(), Support(temperature=0.6)], ids=str)
def test_on_a_language_model(share: float, support: Support) -> None:
    """Episodes of several turns, of which the first answers are a tree's; log-probabilities are the policy's own."""
    rule: dict[str, Any] = {"least": 0.02, "apart": 0.5, "windows": (2,), "edit": 0.4}
    part = LookaheadRollouts(group=6, look=Lookahead(**rule), share=share, support=support)
    source = language()
    batch = part(source)
    assert len(batch) == 24
    assert (batch.turn.amax(1) > 0).any()
    assert batch.extras["explored"].view(4, 6).sum(1).tolist() == [round(6 * share)] * 4
    with torch.no_grad():
        now = source.player.policy.evaluate(batch, {"entropy"})
    torch.testing.assert_close(now.logp[batch.mask], batch.rollout_logp[batch.mask], rtol=0, atol=1e-9)
    torch.testing.assert_close(now.entropy[batch.mask], batch.entropy[batch.mask], rtol=0, atol=1e-9)
    again = source.restore_rows(batch)
    assert again.extras["answer"] == batch.extras["answer"]
    if share == 0:
        plain = po.sampling.Rollouts(group=6, support=support)(language())
        assert torch.equal(plain.extras["tokens"], batch.extras["tokens"])
        assert torch.equal(plain.rollout_logp, batch.rollout_logp)
    if share == 1:
        first = [tuple(row[batch.turn[i] == 0].tolist()) for i, row in enumerate(batch.extras["tokens"])]
        plain = language().rollout(RolloutRequest(language().take(4), 6, support))
        drawn = [tuple(row[plain.turn[i] == 0].tolist()) for i, row in enumerate(plain.extras["tokens"])]
        assert 24 >= len({(i // 6, f) for i, f in enumerate(first)}) >= len({(i // 6, f) for i, f in enumerate(drawn)})
