"""Shrinking, on conditions whose smallest case is known."""

from __future__ import annotations

import pytest
import torch

from polopt.checks.sample_batches import random_batch
from polopt.checks.shrink import smallest


def shrunk(fails, seed: int = 0):
    batch = random_batch(seed, clean=True)
    assert fails(batch)
    found = smallest(batch, fails)
    assert fails(found)
    return found


def test_anything_at_all_shrinks_to_one_decision():
    found = shrunk(lambda b: True)
    assert found.mask.tolist() == [[True]]
    assert found.leaves.keys() == {"logp"}
    assert found.leaves["logp"].tolist() == [[-1.0]]
    assert found.experience.extras == {}
    assert all(
        getattr(found.experience, n) is None for n in ("rollout_logp", "advantage", "reward", "group", "terminated")
    )


@pytest.mark.parametrize("seed", range(4))
def test_two_rows_that_must_differ(seed):
    """Two rows of unlike advantages stay, with 1 and the next simplest number."""

    def fails(b):
        A = b.experience.advantage
        return A is not None and (A[:, 0] != A[0, 0]).any().item()

    found = shrunk(fails, seed)
    assert found.mask.shape == (2, 1)
    assert sorted(found.experience.advantage.flatten().tolist()) == [-1.0, 1.0]


def test_a_hole_in_the_mask_stays_if_it_matters():
    found = shrunk(lambda b: (~b.mask).any().item() and b.mask.any().item())
    assert sorted(found.mask.flatten().tolist()) == [False, True]


def test_numbers_keep_the_digits_that_they_need():
    def fails(b):
        A = b.experience.advantage
        return A is not None and (A.flatten() > 1.2).any().item() and (A.flatten() < 1.9).all().item()

    batch = random_batch(0, clean=True)
    batch = batch.replace(advantage=torch.full_like(batch.experience.advantage, 1.23456))
    assert fails(batch)
    value = smallest(batch, fails).experience.advantage.item()
    assert value == 1.23  # 1 and 2 are outside, and so is 1.2


def test_log_probabilities_stay_log_probabilities():
    found = shrunk(lambda b: b.leaves["logp"].detach().min().item() < -1.5)
    assert found.leaves["logp"].item() == -2.0


def test_groups_get_small_numbers():
    def fails(b):
        return b.experience.group is not None and len(b.experience.group.unique()) > 1

    assert sorted(shrunk(fails).experience.group.tolist()) == [0, 1]


def test_nothing_decided_is_no_example():
    """A batch without decisions would be smaller still."""
    assert shrunk(lambda b: b.mask.sum() <= 40).mask.any()
