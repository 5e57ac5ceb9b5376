"""Opponents: whose answers they are, what compares with them, and that nothing is learned from them."""

from __future__ import annotations

import pytest
import torch

import polopt as po
from polopt.fields import ExperienceError
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.comparisons import TablePreference, compared_sequences
from polopt.rewards import WinRate
from polopt.sampling import (
    AveragedPolicy,
    EntropyTemperature,
    OpponentPolicy,
    OpponentRollouts,
    PolicyMixture,
    ReferenceMixture,
    RolloutRequest,
    Rollouts,
    with_opponents,
)
from polopt.support import Support


def two_policies(prompts: int = 2) -> tuple[TokenTree, TabularPolicy, TabularPolicy]:
    tree = TokenTree.full(3, 3, lambda prompt, answer: float(sum(answer)), stop=2, prompts=prompts)
    return tree, TabularPolicy(tree, spread=1.0, seed=1), TabularPolicy(tree, spread=1.0, seed=2)


def source_of(
    rows: int = 12, seed: int = 0, prompts: int = 2, needs: frozenset[str] = frozenset({"ref_logp"})
) -> TreeSource:
    tree, policy, reference = two_policies(prompts)
    return TreeSource(tree, policy, rows=rows, seed=seed, reference=reference, needs=needs)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_mixture_is_of_tokens_and_not_of_answers(share: float, temperature: float) -> None:
    source = source_of()
    tree, support = source.tree, Support(temperature=temperature)
    table, chances = source.leaf_table(support, mixture=PolicyMixture("reference", share))
    own, other = (p.logits.detach().masked_fill(~tree.choices, -torch.inf) for p in two_policies()[1:])
    weights = [own.softmax(-1), other.softmax(-1)]
    # Products of powers of probabilities, normalised at every prefix; a temperature is one more power.
    powers = (weights[0] ** (1 - share) * weights[1] ** share) ** (1 / temperature)
    nodes = powers / powers.sum(-1, keepdim=True)
    leaves = tree.leaves()
    tokens = torch.where(leaves.mask, nodes[tree.nodes, leaves.extras["tokens"]], 1.0)
    torch.testing.assert_close(chances, tokens.prod(1).view(2, -1), rtol=1e-12, atol=0)
    torch.testing.assert_close(table.rollout_logp[leaves.mask], tokens[leaves.mask].log(), rtol=0, atol=1e-12)
    if 0 < share < 1:
        logs = [tree.log_probabilities(p).detach() for p in two_policies()[1:]]
        answers = ((1 - share) * logs[0] + share * logs[1]).softmax(1)
        assert (answers - chances).abs().max() > 1e-3


def test_every_group_gets_answers_to_its_own_prompt() -> None:
    source = source_of(rows=12, prompts=5)
    batch = Rollouts(group=3, mix=[OpponentRollouts(count=2)])(source)
    assert len(batch) == 12 + 8
    assert batch.extras["is_opponent"].sum() == 8
    assert (batch.extras["opponents"] == 2).all()
    for group in batch.group.unique():
        rows = batch.group == group
        assert len(batch.extras["index"][rows].unique()) == 1
        assert batch.extras["is_opponent"][rows].sum() == 2
    assert source.drawn == 20


def test_the_rollouts_are_those_without_opponents() -> None:
    plain = Rollouts(group=3)(source_of(rows=6))
    batch = Rollouts(group=3, mix=[OpponentRollouts(count=2)])(source_of(rows=6))
    own = batch[~batch.is_opponent]
    assert torch.equal(own.extras["leaf"], plain.extras["leaf"])
    assert torch.equal(own.rollout_logp, plain.rollout_logp)


def test_opponents_answer_as_their_policy() -> None:
    """Frequencies of 20,000 answers are within 5 standard errors of the mixture's probabilities."""
    source = source_of(rows=2)
    part = OpponentRollouts(count=10_000, policy=ReferenceMixture(share=0.4))
    batch = Rollouts(group=1, mix=[part])(source)
    chances = source.leaf_table(mixture=PolicyMixture("reference", 0.4))[1]
    found = batch[batch.is_opponent].extras["leaf"].bincount(minlength=chances.numel()).view_as(chances) / 10_000
    assert ((found - chances).abs() < 5 * (chances * (1 - chances) / 10_000).sqrt() + 1e-12).all()
    own = source.leaf_table()[1]
    assert ((found - own).abs() > 5 * (own * (1 - own) / 10_000).sqrt()).any()


def test_an_averaged_opponent_has_averaged_parameters() -> None:
    tree, policy, _ = two_policies()
    source = TreeSource(tree, policy, rows=4)
    part = AveragedPolicy(decay=0.75)
    expected = policy.logits.detach().clone()
    request = RolloutRequest(torch.tensor([0, 1]), 200)
    for step in range(4):
        if step:
            with torch.no_grad():
                policy.logits.add_(torch.randn(policy.logits.shape, generator=torch.Generator().manual_seed(step)))
            source.refresh()
            expected = 0.75 * expected + 0.25 * policy.logits.detach()
        before = policy.logits.detach().clone()
        rows = part(source, request)
        assert torch.equal(policy.logits, before)
        torch.testing.assert_close(part.average[0], expected.flatten(), rtol=0, atol=1e-12)
        with torch.no_grad():
            other = TabularPolicy(tree)
            other.logits.copy_(expected)
        logp = other.evaluate(rows).logp.detach()
        torch.testing.assert_close(rows.rollout_logp[rows.mask], logp[rows.mask], rtol=0, atol=1e-12)
    held = part.average[0].clone()
    part.eval()(source, request)
    assert torch.equal(part.average[0], held)
    again = AveragedPolicy(decay=0.75)
    again.load_state_dict(part.state_dict())
    assert torch.equal(again.average[0], held)


def test_narrow_parameters_are_averaged_wide() -> None:
    part = AveragedPolicy(decay=0.999)
    part._follow(torch.ones(3, dtype=torch.bfloat16))
    for _ in range(10):
        part._follow(torch.full((3,), 2.0, dtype=torch.bfloat16))
    torch.testing.assert_close(part.average[0], torch.full((3,), 2 - 0.999**10), rtol=1e-5, atol=0)


def hand_batch() -> po.Experience:
    """Two groups, of which one has two opponents; every row has two decisions and a reference."""
    extras = {
        "is_opponent": torch.tensor([False, False, True, False, True]),
        "leaf": torch.tensor([0, 1, 2, 1, 0]),
    }
    return po.Experience(
        mask=torch.ones(5, 2, dtype=torch.bool),
        rollout_logp=torch.full((5, 2), -1.0, dtype=torch.double),
        ref_logp=torch.full((5, 2), -2.0, dtype=torch.double),
        outcome=torch.zeros(5, dtype=torch.double),
        group=torch.tensor([7, 7, 7, 3, 7]),
        extras=extras,
    )


TABLE = ((0.5, 0.9, 0.2), (0.1, 0.5, 0.8), (0.8, 0.2, 0.5))


def test_a_row_is_compared_with_the_opponents_of_its_group() -> None:
    batch = hand_batch()
    found = WinRate(preference=TablePreference(table=TABLE), against="opponents")(batch)
    # Against answers 2 and 0; the row of the other group meets nobody, and opponents are not credited.
    expected = [(0.2 + 0.5) / 2, (0.8 + 0.1) / 2, 0.5, 0.5, 0.5]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)
    every = WinRate(preference=TablePreference(table=TABLE))(batch)
    assert every.tolist() == pytest.approx([(0.9 + 0.2 + 0.5) / 3, (0.1 + 0.8 + 0.1) / 3, 0.5, 0.5, 0.5], abs=1e-12)


def test_opponents_leave_before_credit() -> None:
    batch = hand_batch()
    algorithm = po.method("nash-md", tau=0.1, preference=TablePreference(table=TABLE))
    credited = algorithm.with_advantages(batch)
    assert credited.extras["leaf"].tolist() == [0, 1, 1]
    # P - 1/2 - tau times the log-ratio of the whole answer, which is 2.
    expected = torch.tensor([0.35 - 0.7, 0.45 - 0.7, -0.2], dtype=torch.double)
    torch.testing.assert_close(credited.advantage, expected[:, None].expand(3, 2), rtol=0, atol=1e-12)
    loss = algorithm.objective(credited, po.Evaluation(logp=torch.full((3, 2), -1.0, dtype=torch.double))).loss
    assert loss.item() == pytest.approx(-(expected * -2).sum().item() / 3, abs=1e-12)


def test_demonstrations_stay_beside_opponents_that_leave() -> None:
    batch = hand_batch()
    shown = torch.tensor([False, True, False, False, False])
    found = po.method("nash-md", tau=0.1, preference=TablePreference(table=TABLE)).with_advantages(
        batch.replace(extras={"is_demonstration": shown})
    )
    assert found.extras["leaf"].tolist() == [0, 1, 1]
    assert found.is_demonstration.tolist() == [False, True, False]
    assert (found.advantage[1] == 1).all()


def test_rows_without_opponents_are_only_marked() -> None:
    batch = hand_batch()
    own = batch[~batch.is_opponent]
    found = with_opponents(own, own[:0])
    assert not found.is_opponent.any()
    assert found.extras["opponents"].tolist() == [0, 0, 0]


def test_opponents_change_no_size_and_may_be_truncated_with_the_rollouts() -> None:
    part = Rollouts(group=4, support=Support(top_p=0.9), adapt=None, mix=[OpponentRollouts(count=2)])
    assert part.compared == 4
    assert part.sampling_overhead(1.0, 10) == 1.5
    assert Rollouts(group=4, adapt=EntropyTemperature(), mix=[OpponentRollouts()]).compared == 4
    batch = Rollouts(group=2, support=Support(top_k=2), mix=[OpponentRollouts(policy=OpponentPolicy())])(source_of())
    assert batch.support == Support(top_k=2)
    assert torch.isfinite(batch.rollout_logp).all()


def test_refused() -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], found 1.5"):
        ReferenceMixture(share=1.5)
    with pytest.raises(ValueError, match="anchor 'sampler' is the learner itself"):
        ReferenceMixture(anchor="sampler")
    with pytest.raises(ValueError, match=r"decay must be in \[0, 1\), found 1.0"):
        AveragedPolicy(decay=1.0)
    with pytest.raises(ValueError, match="count must be >= 1, found 0"):
        OpponentRollouts(count=0)
    with pytest.raises(ValueError, match="own counts the row itself"):
        WinRate(own=True, against="opponents")
    with pytest.raises(ValueError, match="compares answers to plain prompts"):
        Rollouts(guide=po.method("drpo-reset").sampling.guide, mix=[OpponentRollouts()])
    batch = hand_batch()
    del batch.extras["is_opponent"]
    with pytest.raises(ExperienceError, match="is_opponent"):
        WinRate(against="opponents")(batch)
    with pytest.raises(ValueError, match="no policy 'other' is given to mix with"):
        source_of().leaf_table(mixture=PolicyMixture("other", 0.5))
    algorithm = po.method("nash-md").but(**{"sampling.mix": []})
    problem = compared_sequences(0)
    with pytest.raises(ValueError, match="nothing samples any"):
        po.lab.bias_variance(algorithm, problem.tree, problem.reference, batches=1, reference=problem.reference)
