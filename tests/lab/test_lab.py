"""The exactly solvable problems against brute force, finite differences and scipy."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from small_trees import stop_tree

import polopt as po
from polopt.lab import (
    LeafGradient,
    TabularPolicy,
    TinyTransformer,
    TokenTree,
    TreeSource,
    bias_variance,
    expectation,
    flat_gradient,
    train,
)
from polopt.lab.kl import kl_table, three_actions
from polopt.lab.problems import digits, lengths
from polopt.layers import Layer
from polopt.objectives import SequenceMean
from polopt.sampling.parts import RolloutRequest
from polopt.support import ByEntropy, Support


def brute_force(policy: TabularPolicy, support: Support = Support()) -> dict[tuple[int, tuple[int, ...]], float]:  # noqa: B008
    """Walk the tree node by node in numpy: probability of every answer to every prompt."""
    tree, probs = policy.tree, {}
    tokens, nodes = tree.leaves().extras["tokens"], tree.nodes
    for row, (prompt, answer) in enumerate(itertools.product(range(tree.prompts), tree.answers)):
        p = 1.0
        for t, token in enumerate(answer, start=tree.start):
            assert tokens[row, t] == token
            z = policy.logits[nodes[row, t]].detach().numpy() / support.temperature
            z = np.where(tree.choices[nodes[row, t]].numpy(), z, -np.inf)
            if support.top_k:
                z = np.where(z >= np.sort(z)[-support.top_k], z, -np.inf)
            p *= np.exp(z[token]) / np.exp(z).sum()
        probs[prompt, answer] = p
    return probs


def test_answers_of_a_full_tree_are_all_sequences_up_to_the_stop() -> None:
    answers = set(stop_tree().answers)
    expected = {a for n in (1, 2, 3) for a in itertools.product(range(3), repeat=n) if 2 not in a[:-1]}
    expected = {a for a in expected if a[-1] == 2 or len(a) == 3}
    assert answers == expected
    assert len(answers) == 1 + 2 + 4 * 3


@pytest.mark.parametrize("support", [Support(), Support(temperature=0.6), Support(top_k=2)])
def test_probabilities_values_and_entropy_agree_with_a_walk(support: Support) -> None:
    tree = stop_tree()
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    probs = brute_force(policy, support)
    assert sum(probs.values()) == pytest.approx(2, abs=1e-12)
    worth = {(p, a): float((sum(a) + p) % 3 == 0) + 0.1 * len(a) for p, a in probs}
    assert tree.value(policy, support).item() == pytest.approx(sum(probs[k] * worth[k] for k in probs) / 2, abs=1e-12)
    entropy = -sum(p * math.log(p) for p in probs.values() if p > 0) / 2
    assert tree.entropy(policy, support).item() == pytest.approx(entropy, abs=1e-12)


def test_kl_agrees_with_scipy_in_both_directions() -> None:
    tree = stop_tree(prompts=1)
    one, two = TabularPolicy(tree, spread=1.0, seed=3), TabularPolicy(tree, spread=1.0, seed=4)
    p, q = (list(brute_force(x).values()) for x in (one, two))
    assert tree.kl(one, two).item() == pytest.approx(stats.entropy(p, q), abs=1e-12)
    assert tree.kl(two, one).item() == pytest.approx(stats.entropy(q, p), abs=1e-12)


@pytest.mark.parametrize("make", [lambda t: TabularPolicy(t, spread=0.7, seed=1), TinyTransformer])
def test_exact_gradient_agrees_with_finite_differences(make: Any) -> None:
    tree = stop_tree()
    policy = make(tree)
    exact, start, h = tree.gradient(policy), 0, 1e-6
    with torch.no_grad():
        for p in policy.parameters():
            flat = p.view(-1)
            for i in torch.randperm(len(flat), generator=torch.Generator().manual_seed(0))[:12].tolist():
                at = flat[i].item()
                values = []
                for step in (h, -h):
                    flat[i] = at + step
                    values.append(tree.value(policy).item())
                flat[i] = at
                assert exact[start + i].item() == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-8)
            start += len(flat)


def test_state_values_are_the_expected_rest() -> None:
    tree = TokenTree.full(2, 3, lambda p, a: [0.5 * t + p for t in a], prompts=2)
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    values, probs = tree.state_values(policy), brute_force(policy)
    for row, (prompt, answer) in enumerate(itertools.product(range(2), tree.answers)):
        for t in range(3):
            same = {a: probs[prompt, a] for p, a in probs if p == prompt and a[:t] == answer[:t]}
            rest = {a: sum(0.5 * u + prompt for u in a[t:]) for a in same}
            expected = sum(same[a] * rest[a] for a in same) / sum(same.values())
            assert values[row, tree.start + t].item() == pytest.approx(expected, abs=1e-12)
    assert tree.leaves().reward.shape == tree.leaves().mask.shape
    assert torch.allclose(tree.leaves().returns(), tree.leaves().outcome)


def test_leaves_mask_prompt_and_padding() -> None:
    tree, _ = lengths()
    leaves = tree.leaves()
    assert leaves.lengths.tolist() == [len(a) for a in tree.answers]
    assert not leaves.mask[:, 0].any()
    assert leaves.horizon == 16
    assert TokenTree.bandit([[0.0, 1.0]] * 5).leaves().extras["tokens"].shape == (10, 4)  # 5 prompts: 3 binary digits


def test_sampling_frequencies_fit_the_probabilities() -> None:
    tree = stop_tree()
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    source = TreeSource(tree, policy, rows=4000, seed=1)
    batch = source.rollout(RolloutRequest(source.take(1000), 4, Support(temperature=0.7)))
    assert torch.bincount(batch.group).tolist() == [4] * 1000
    counts = torch.bincount(batch.extras["leaf"], minlength=30).numpy()
    expected = np.array(list(brute_force(policy, Support(temperature=0.7)).values())) * 2000
    assert stats.chisquare(counts, expected, ddof=1).pvalue > 1e-3
    whole = torch.where(batch.mask, batch.rollout_logp, 0).sum(1).exp().numpy()
    assert np.allclose(whole, expected[batch.extras["leaf"]] / 2000)


def test_the_source_deals_what_was_asked_for() -> None:
    tree, policy = digits()
    needs = frozenset({"value", "entropy", "extras.greedy_reward"})
    other = TabularPolicy(tree, spread=2.0, seed=9, critic=True)
    source = TreeSource(tree, policy, rows=4, needs=needs, behaviour=other)
    batch = source.rollout(RolloutRequest(source.take(2), 2, Support()))
    assert not torch.equal(batch.rollout_logp, batch.old_logp)
    greedy = []
    for prompt in range(2):  # follow the likeliest token from the root
        node, answer = tree.nodes[prompt * 7, 1], ()
        while answer not in tree.answers:
            answer = (*answer, int(source.behaviour.logits[node].argmax()))
            rows = [i for i, a in enumerate(tree.answers) if a[: len(answer)] == answer and a != answer]
            node = tree.nodes[prompt * 7 + rows[0], 1 + len(answer)] if rows else node
        greedy.append(float((sum(answer) + prompt) % 3 == 0))
    prompts = batch.extras["leaf"] // 7
    assert batch.extras["greedy_reward"].tolist() == [greedy[p] for p in prompts.tolist()]
    assert source.demonstrate(50).outcome.eq(1).all()
    shown = source.demonstrate(50).extras["leaf"]
    assert tree.outcome.flatten()[shown].eq(1).all()


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"answer \(0,\) begins answer \(0, 1\)"):
        TokenTree(2, [(0,), (0, 1)], lambda p, a: 0.0)
    with pytest.raises(ValueError, match=r"needs tokens, all in 0\.\.1"):
        TokenTree(2, [(0,), (2,)], lambda p, a: 0.0)
    tree, policy = lengths()
    with pytest.raises(ValueError, match=r"sum to .*, expected 1"):
        tree.value(TinyTransformer(tree))
    with pytest.raises(ValueError, match="give reference=policy"):
        expectation(po.method("grpo", group=2), tree, policy)
    with pytest.raises(ValueError, match="use bias_variance"):
        expectation(po.method("grpo", group=9, kl=0), tree, policy)


@pytest.mark.usefixtures("shapes_unchecked")
def test_bias_variance_finds_what_enumeration_says() -> None:
    tree, policy = digits()
    for sentence in (po.method("rloo", group=2, kl=0), po.method("grpo", group=2, kl=0)):
        exact = expectation(sentence, tree, policy)
        # Two prompts in one batch would share a token mean; one prompt a batch is what `expectation` lists.
        found = bias_variance(sentence, tree, policy, batches=800, seed=5)
        assert abs(found.variance - exact.variance) < 5 * found.variance_se
        off = (found.mean - exact.mean).abs()
        assert (off <= 5 * found.error + 1e-12).all()
    assert found.batches == 800


@pytest.mark.usefixtures("shapes_unchecked")
def test_bias_variance_can_tell_biased_from_unbiased() -> None:
    tree, policy = lengths()
    fair = bias_variance(po.method("rloo", group=2, kl=0), tree, policy, batches=1000, seed=1)
    assert fair.max_z < 4.5
    assert fair.bias < 2 * fair.bias_se
    mean = po.method("rloo", group=2, kl=0).but(**{"objective.aggregate": SequenceMean()})
    assert bias_variance(mean, tree, policy, batches=1000, seed=1).max_z > 10


def test_bias_variance_leaves_the_algorithm_as_it_was() -> None:
    tree, policy = digits()
    algorithm = po.method("reinforce-baseline")
    bias_variance(algorithm, tree, policy, batches=3)
    assert algorithm.credit.baseline.mass == 0


@pytest.mark.parametrize("method", ["rloo", "dr-grpo"])
def test_a_transformer_fits_the_same_interface(method: str) -> None:
    tree = TokenTree.full(3, 2, lambda p, a: float((sum(a) + p) % 3 == 0), stop=2, prompts=2)
    policy = TinyTransformer(tree, critic=True)
    sentence = po.method(method, group=2) if method != "rloo" else po.method(method, group=2, kl=0)
    scale = 1.0 if method == "rloo" else 0.5 / tree.horizon
    assert expectation(sentence, tree, policy, scale=scale).relative_bias < 1e-10
    # The direct gradient of one batch equals the one carried through the leaves.
    batch = sentence.compute_advantages(sentence.sampling(TreeSource(tree, policy, rows=8, seed=2)))
    probe = LeafGradient(sentence, tree, policy, Support())
    direct = flat_gradient(sentence.objective(batch, policy.evaluate(batch)).loss, policy)
    assert torch.allclose(probe.vjp(probe(batch)[None])[0], direct, atol=1e-12)


@pytest.mark.usefixtures("shapes_unchecked")
def test_training_learns_the_bandit() -> None:
    tree = TokenTree.bandit([0.0, 0.2, 1.0])
    policy = TabularPolicy(tree)
    seen = train(po.method("rloo", group=8, kl=0), tree, policy, steps=150, rate=0.5, watch=lambda: tree.value(policy))
    assert len(seen) == 150
    assert seen[-1] > 0.95 > 0.5 > seen[0]


# What a 3-action softmax says: (estimator, ratio differentiated) -> which KL's gradient it has on expectation.
ON_POLICY = {("k1", False): "zero", ("k2", False): "reverse", ("k3", False): "forward"}
ON_POLICY |= {("k1", True): "reverse", ("k2", True): "neither", ("k3", True): "reverse"}
OFF_POLICY = {("k1", False): "neither", ("k2", False): "neither", ("k3", False): "neither"}
OFF_POLICY |= {("k1", True): "reverse", ("k2", True): "neither", ("k3", True): "reverse"}


@pytest.mark.parametrize("row", kl_table(*three_actions()), ids=lambda r: f"{r.estimator}-{r.ratio}-{r.on_policy}")
def test_kl_estimators(row: Any) -> None:
    kind = (ON_POLICY if row.on_policy else OFF_POLICY)[row.estimator, row.ratio]
    distance = {"reverse": row.to_reverse, "forward": row.to_forward, "zero": row.to_zero}
    for name, value in distance.items():
        assert (value < 1e-10) == (name == kind), (name, value)
    assert (abs(row.value_bias) < 1e-12) == (row.on_policy and row.estimator != "k2")


def test_kl_table_by_hand() -> None:
    """k1 and k3 without ratio, from the closed forms in numpy."""
    p, q, b = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.3]), np.array([0.3, 0.3, 0.4])
    score = np.eye(3) - p
    reverse = score.T @ (p * np.log(p / q))
    rows = {(r.estimator, r.ratio, r.on_policy): r for r in kl_table(*three_actions())}
    for on, sampler in ((True, p), (False, b)):
        k1, k3 = score.T @ sampler, score.T @ (sampler * (1 - q / p))
        for kind, slope in (("k1", k1), ("k3", k3)):
            expected = np.linalg.norm(slope - reverse) / np.linalg.norm(reverse)
            assert rows[kind, False, on].to_reverse == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("make", [lambda t: TabularPolicy(t, spread=1.5, seed=1), TinyTransformer])
def test_temperatures_that_follow_the_entropy(make: Any) -> None:
    """Each answer is dealt as often as a walk over the tempered nodes says, and evaluated to the same numbers."""
    tree = stop_tree()
    policy, rule = make(tree), ByEntropy(strength=0.5, lowest=-0.5, pivot=-0.1, highest=0.09)
    support = Support(temperature=0.8, by_entropy=rule)
    leaf_table, probs = TreeSource(tree, policy, rows=1, needs=frozenset({"entropy"})).leaf_table(support)
    logits = policy.evaluate(tree.leaves(), frozenset({"logits"})).logits.detach()
    seen = set()
    for row, length in enumerate(leaf_table.lengths.tolist()):
        total = 0.0
        for t in range(tree.start, tree.start + length):
            law = torch.softmax(logits[row, t] / 0.8, 0)
            z = math.log(-sum(p * math.log(p) for p in law.tolist() if p > 0))
            h = (z + 0.1) / (0.19 if z > -0.1 else 0.4)
            heat = 0.8 * (1 + 0.5 * max(-1, min(1, h)))
            law = torch.softmax(logits[row, t] / heat, 0).tolist()
            assert leaf_table.extras["temperature"][row, t].item() == pytest.approx(heat, abs=1e-12)
            assert leaf_table.entropy[row, t].item() == pytest.approx(
                -sum(p * math.log(p) for p in law if p > 0), abs=1e-9
            )
            total += math.log(law[leaf_table.extras["tokens"][row, t]])
            seen.add(round(heat, 3))
        assert probs.flatten()[row].item() == pytest.approx(math.exp(total), rel=1e-9)
    assert len(seen) > 4
    assert probs.sum(1).tolist() == pytest.approx([1.0, 1.0])
    batch = leaf_table[torch.arange(len(leaf_table)).flip(0)]
    said = policy.evaluate(batch, frozenset({"value", "entropy"}))
    torch.testing.assert_close(said.logp[batch.mask], batch.rollout_logp[batch.mask], rtol=0, atol=1e-12)
    (slope,) = torch.autograd.grad(said.logp[batch.mask].sum(), list(policy.parameters())[:1])
    assert slope.isfinite().all()
    with pytest.raises(po.ExperienceError, match=r"extras\['temperature'\]"):
        policy.evaluate(tree.leaves(support))


def test_a_methods_temperature_follows_what_it_learns() -> None:
    tree, policy = digits()
    algorithm, supports = po.method("hapo", group=4, refills=0), []

    class Listening(TreeSource):
        def rollout(self, request: RolloutRequest) -> po.Experience:
            supports.append(request.support)
            return super().rollout(request)

    source = Listening(tree, policy, rows=8, needs=algorithm.required_fields)
    for _ in range(3):
        source.refresh()
        batch = algorithm.compute_advantages(algorithm.sampling(source))
        said = policy.evaluate(batch, algorithm.objective.required_outputs)
        assert algorithm.objective(batch, said).metrics["ratio/square"].item() in (pytest.approx(1.0), 0.0)
        with torch.no_grad():
            policy.logits.mul_(1.5)
    assert supports[0] == Support()
    assert supports[1].by_entropy.pivot > supports[2].by_entropy.pivot


def test_a_transformer_is_a_function_of_its_seed() -> None:
    """And neither listens to the global random numbers nor uses them up."""
    tree, found = stop_tree(), []
    for noise in (1, 2):
        torch.manual_seed(noise)
        state = torch.get_rng_state()
        found.append(TinyTransformer(tree, seed=3))
        assert torch.equal(torch.get_rng_state(), state)
    for one, two in zip(found[0].parameters(), found[1].parameters(), strict=True):
        assert torch.equal(one, two)
    other = TinyTransformer(tree, seed=4)
    assert not torch.equal(found[0].head.bias, other.head.bias)


def test_a_transformers_layers_are_what_it_says_without_those_above() -> None:
    tree = stop_tree()
    policy = TinyTransformer(tree, layers=3, seed=1)
    leaves = tree.leaves(Support(temperature=0.7))
    layers = [Layer(1), Layer(2), Layer(3, normed=True)]
    needs = frozenset(f"extras.{layer.name(said)}" for layer in layers for said in ("logp", "entropy"))
    said = policy.evaluate(leaves, needs)
    for layer in layers:
        shorter = copy.deepcopy(policy)
        shorter.layers = shorter.layers[: layer.number]
        expected = shorter.evaluate(leaves, frozenset({"entropy"}))
        torch.testing.assert_close(said.extras[layer.name("logp")], expected.logp, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(said.extras[layer.name("entropy")], expected.entropy, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="layer 4 was asked for, and the policy has layers 1 to 3"):
        policy.evaluate(leaves, frozenset({"extras." + Layer(4).name("logp")}))


@pytest.mark.parametrize("slug", ["bupo", "rover"])
def test_what_is_said_besides_has_its_gradient_too(slug: str) -> None:
    """Through one evaluation of all leaves, as by differentiating the batch itself."""
    algorithm = po.method(slug, **({"layer": 1} if slug == "bupo" else {}))
    tree = stop_tree()
    policy, old = TinyTransformer(tree, seed=1), TinyTransformer(tree, seed=2)
    source = TreeSource(tree, old, rows=32, seed=1, needs=algorithm.active_fields("reads"))
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    probe = LeafGradient(algorithm, tree, policy, po.Support())
    found = probe.vjp(probe(batch)[None])[0]
    said = policy.evaluate(batch, algorithm.objective.active_fields("policy_outputs"))
    expected = flat_gradient(algorithm.objective(batch, said).loss, policy)
    assert expected.abs().max() > 1e-4
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
