"""REBEL: the loss by hand, the minimiser of a round, its first gradient, and what is refused."""

from __future__ import annotations

import itertools

import pytest
import torch

import polopt as po
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.preferences import fitted
from polopt.methods.rebel import rebel
from polopt.part_diff import diff

GROUP = torch.tensor([0, 0, 1, 1, 1, 2])
LENGTHS = torch.tensor([3, 2, 1, 3, 2, 2])
REWARD = torch.tensor([1.0, 0.25, 0.5, 0.5, -1.0, 3.0], dtype=torch.double)


def batch_of(seed: int = 0) -> tuple[po.Experience, torch.Tensor]:
    """A pair, three answers of which two are equal, and one alone; NaN outside the mask."""
    g = torch.Generator().manual_seed(seed)
    mask = torch.arange(3) < LENGTHS[:, None]
    old, logp, ref = -3 * torch.rand(3, 6, 3, generator=g, dtype=torch.double)
    hidden = lambda x: torch.where(mask, x, torch.nan)  # noqa: E731
    batch = po.Experience(
        mask=mask, rollout_logp=hidden(old), ref_logp=hidden(ref), outcome=REWARD, reward=REWARD, group=GROUP
    )
    return batch, hidden(logp).requires_grad_()


@pytest.mark.parametrize(("eta", "kl"), [(1.0, 0.0), (3.0, 0.0), (0.5, 0.2)])
def test_the_loss_by_hand(eta: float, kl: float) -> None:
    batch, logp = batch_of()
    algorithm = rebel(eta=eta, kl=kl)
    terms = list[float]()
    moved, reward = [0.0] * 6, REWARD.tolist()
    for i, length in enumerate(LENGTHS.tolist()):
        for t in range(length):
            moved[i] += float(logp[i, t] - batch.rollout_logp[i, t])
            reward[i] -= kl * float(batch.rollout_logp[i, t] - batch.ref_logp[i, t])
    for i, j in itertools.combinations(range(6), 2):
        if GROUP[i] == GROUP[j]:
            terms.append(((moved[i] - moved[j]) / eta - (reward[i] - reward[j])) ** 2)
    assert len(terms) == 4
    ready = algorithm.compute_advantages(algorithm.sampling.mark(batch.replace(old_logp=batch.rollout_logp)))
    found = algorithm.objective(ready, po.Evaluation(logp=logp)).loss
    assert found.item() == pytest.approx(sum(terms) / 4, rel=1e-12)


@pytest.mark.parametrize("eta", [0.2, 1.0, 5.0])
def test_the_minimiser_is_a_step_of_mirror_descent(eta: float) -> None:
    """Every answer of a uniform policy once: of answers of one token, and with logits that are free."""
    tree = TokenTree.bandit([[0.3, 1.0, -0.5, 0.3], [2.0, 0.0, 1.0, 1.5]])
    policy = TabularPolicy(tree)
    leaves = tree.leaves()
    fitted(rebel(eta=eta), leaves.replace(rollout_logp=policy.evaluate(leaves).logp.detach()), policy)
    torch.testing.assert_close(tree.log_probabilities(policy).detach().exp(), (eta * tree.outcome).softmax(1))


def test_a_constant_of_the_prompt_changes_nothing() -> None:
    tree, found = TokenTree.bandit([[0.0, 1.0, 3.0]]), []
    for outcome in (tree.outcome, tree.outcome + 10):
        policy, leaves = TabularPolicy(tree, spread=1.0), tree.paying(outcome).leaves()
        fitted(rebel(), leaves.replace(rollout_logp=policy.evaluate(leaves).logp.detach()), policy)
        found.append(policy.logits.detach())
    torch.testing.assert_close(found[0], found[1])


def test_the_distance_is_a_part_of_the_reward() -> None:
    assert [path for path, *_ in diff(rebel(), rebel(kl=0.05))] == ["reward"]


@pytest.mark.parametrize("eta", [0.0, -1.0])
def test_a_step_size_that_is_not_positive_is_refused(eta: float) -> None:
    with pytest.raises(ValueError, match=r"rebel: eta must be > 0, found"):
        rebel(eta=eta)
