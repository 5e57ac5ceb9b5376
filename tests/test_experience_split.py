"""A batch of which nothing contributes has no micro-batches: there is nothing to evaluate."""

import torch

from polopt import Experience


def test_nothing_to_learn_from_is_no_micro_batch() -> None:
    batch = Experience(mask=torch.ones(4, 2, dtype=torch.bool))
    assert list(batch.split(2, only=torch.zeros(4, dtype=torch.bool))) == []
    assert [len(part) for part in batch.split(2, only=torch.tensor([True, False, True, True]))] == [2, 1]
