"""A KL penalty from a soup: PPO's but for a name, and geometric means against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from polopt.claims.salsa import soup_of, tuned
from polopt.experience import Experience
from polopt.lab.measure import train
from polopt.lab.soft_values import soft_optimum
from polopt.methods.ppo import ppo
from polopt.methods.salsa import salsa
from polopt.part_diff import diff
from polopt.rewards import KLPenalty
from polopt.training import recipe as recipes


def test_it_is_ppo_but_for_the_anchor() -> None:
    assert [path for path, *_ in diff(salsa(kl=0.1), ppo(kl=0.1))] == ["reward.terms.1.anchor"]
    assert diff(salsa().but({"reward.terms.1.anchor": "reference"}), ppo()) == []
    assert "extras.soup_logp" in salsa().required_fields
    assert "ref_logp" not in salsa().required_fields


def test_a_penalty_from_another_policy_by_hand() -> None:
    mask = torch.tensor([[True, True, False]])
    soup = torch.tensor([[-2.0, -1.0, torch.nan]], dtype=torch.double)
    rollout = torch.tensor([[-1.0, -3.0, 0.0]], dtype=torch.double)
    batch = Experience(mask=mask, rollout_logp=rollout, extras={"soup_logp": soup})
    found = KLPenalty(coefficient=0.5, anchor="soup")(batch)
    torch.testing.assert_close(found[mask], torch.tensor([-0.5, 1.0], dtype=torch.double))
    assert KLPenalty(turn=1, anchor="soup").reads == {"rollout_logp", "extras.soup_logp", "turn"}
    with pytest.raises(ValueError, match="plain name of a policy that the stage names, found 'a soup'"):
        KLPenalty(anchor="a soup")


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_the_optimum_is_a_tilted_geometric_mean(alpha: float) -> None:
    tree, a, b = tuned(3, prompts=4)
    best, _ = soft_optimum(tree, soup_of(a, b, alpha), 0.3)
    p, q = (tree.log_probabilities(policy).detach().exp().numpy() for policy in (a, b))
    expected = p**alpha * q ** (1 - alpha) * np.exp(tree.outcome.numpy() / 0.3)
    np.testing.assert_allclose(
        tree.log_probabilities(best).detach().exp().numpy(), expected / expected.sum(1, keepdims=True), rtol=1e-10
    )


def test_it_comes_near_that_optimum() -> None:
    """Without whitening and with exact steps it stays where it is best: few steps from there move it by noise alone."""
    tree, a, b = tuned(0, prompts=4)
    soup, algorithm = soup_of(a, b), salsa(kl=1.0, group=64)
    best, _ = soft_optimum(tree, soup, 1.0)
    policy, far = a, tree.kl(a, best).item()
    train(algorithm, tree, policy, steps=200, rate=2.0, rows=4, policies={"soup": soup})
    assert tree.kl(policy, best).item() < 0.1 * far


def test_the_recipe_averages_two_stages_of_one_ancestor() -> None:
    stages = recipes.load("salsa").stages
    assert [recipes.name_of_method(stage.method) for stage in stages.values()] == ["sft", "sft", "sft", "salsa"]
    assert list(stages["rl"].policies) == ["soup"]
