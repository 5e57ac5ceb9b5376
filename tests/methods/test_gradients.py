"""Every ancestor method's gradient against its formula, listed group by group in plain numpy."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import polopt as po
from polopt.lab import TabularPolicy, TokenTree, bias_variance, expectation
from polopt.lab.problems import digits

# --- the formulas once more: plain loops over one group of answers to one prompt -------------------------------


@dataclasses.dataclass
class Row:
    """What is known of one answer: arrays over its tokens, and numbers."""

    new: np.ndarray
    old: np.ndarray
    ref: np.ndarray
    value: np.ndarray
    outcome: float
    greedy: float
    answer: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.new)


Coefficients = list[np.ndarray]  # d objective / d logp, by row and token
BASELINE, KL = 0.37, 0.1


def z_scores(R: list[float]) -> list[float]:
    mean = sum(R) / len(R)
    std = math.sqrt(sum((r - mean) ** 2 for r in R) / (len(R) - 1))
    return [(r - mean) / (std + 1e-6) for r in R]


def clip_slope(A: float, r: float, low: float, high: float) -> float:
    """d min(A r, A clip(r)) / d log r."""
    stopped = (A > 0 and r > 1 + high) or (A < 0 and r < 1 - low)
    return 0.0 if stopped else A * r


def penalised(row: Row) -> float:
    return row.outcome - KL * float((row.old - row.ref).sum())


def reinforce(g: list[Row]) -> Coefficients:
    return [np.full(len(x), x.outcome / len(g)) for x in g]


def reinforce_baseline(g: list[Row]) -> Coefficients:
    return [np.full(len(x), (x.outcome - BASELINE) / len(g)) for x in g]


def rloo(g: list[Row]) -> Coefficients:
    R = [penalised(x) for x in g]
    others = [sum(R[:i] + R[i + 1 :]) / (len(g) - 1) for i in range(len(g))]
    return [np.full(len(x), (R[i] - others[i]) / len(g)) for i, x in enumerate(g)]


def remax(g: list[Row]) -> Coefficients:
    return [np.full(len(x), (penalised(x) - x.greedy) / len(g)) for x in g]


def grpo(g: list[Row]) -> Coefficients:
    A = z_scores([x.outcome for x in g])
    out = []
    for a, x in zip(A, g, strict=True):
        pull = [clip_slope(a, math.exp(n - o), 0.2, 0.2) for n, o in zip(x.new, x.old, strict=True)]
        k3 = [1 - math.exp(r - n) for n, r in zip(x.new, x.ref, strict=True)]
        out.append((np.array(pull) - 0.04 * np.array(k3)) / len(x) / len(g))
    return out


def dr_grpo(g: list[Row]) -> Coefficients:
    mean = sum(x.outcome for x in g) / len(g)
    return [
        np.array([clip_slope(x.outcome - mean, r, 0.2, 0.2) for r in np.exp(x.new - x.old)]) / len(g) / 2 for x in g
    ]


def dapo(g: list[Row]) -> Coefficients:
    if len({x.outcome for x in g}) == 1:
        return [np.zeros(len(x)) for x in g]
    # horizon 2, buffer max(1, 2 // 5) = 1: a token too many costs 1
    A = z_scores([2 * x.outcome - 1 + min(0, 2 - 1 - len(x)) for x in g])
    tokens = sum(map(len, g))
    return [
        np.array([clip_slope(a, r, 0.2, 0.28) for r in np.exp(x.new - x.old)]) / tokens
        for a, x in zip(A, g, strict=True)
    ]


def gspo(g: list[Row]) -> Coefficients:
    A, out = z_scores([x.outcome for x in g]), []
    for a, x in zip(A, g, strict=True):
        s = math.exp((x.new - x.old).mean())
        out.append(np.full(len(x), clip_slope(a, s, 3e-4, 4e-4) / len(x) / len(g)))
    return out


def cispo(g: list[Row]) -> Coefficients:
    A, tokens = z_scores([x.outcome for x in g]), sum(map(len, g))
    return [a * np.minimum(np.exp(x.new - x.old), 5.0) / tokens for a, x in zip(A, g, strict=True)]


def likelihood(g: list[Row], kept: set[int]) -> Coefficients:
    tokens = max(1, sum(len(g[i]) for i in kept))
    return [np.full(len(x), (i in kept) / tokens) for i, x in enumerate(g)]


def raft(g: list[Row]) -> Coefficients:
    return likelihood(g, {max(range(len(g)), key=lambda i: (g[i].outcome, -i))})


def rft(g: list[Row]) -> Coefficients:
    right = [i for i, x in enumerate(g) if x.outcome >= 1]
    return likelihood(g, {i for i in right if all(g[j].answer != g[i].answer for j in right if j < i)})


def ppo_advantages(g: list[Row]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """GAE with gamma 1, lam 0.95, and the same whitened over the batch."""
    raw = []
    for x in g:
        reward = -KL * (x.old - x.ref)
        reward[-1] += x.outcome
        A = np.zeros(len(x))
        for t in range(len(x)):
            for u in range(t, len(x)):
                following = x.value[u + 1] if u + 1 < len(x) else 0.0
                A[t] += 0.95 ** (u - t) * (reward[u] + following - x.value[u])
        raw.append(A)
    whole = np.concatenate(raw)
    spread = math.sqrt(((whole - whole.mean()) ** 2).sum() / max(1, len(whole) - 1))
    return raw, [(A - whole.mean()) / (spread + 1e-8) for A in raw]


def ppo(g: list[Row]) -> Coefficients:
    _, white = ppo_advantages(g)
    tokens = sum(map(len, g))
    return [
        np.array([clip_slope(a, math.exp(n - o), 0.2, 0.2) for a, n, o in zip(A, x.new, x.old, strict=True)]) / tokens
        for A, x in zip(white, g, strict=True)
    ]


SETTINGS: dict[str, dict[str, Any]] = {
    "reinforce": {}, "reinforce-baseline": {}, "rloo": {"group": 2, "kl": KL}, "remax": {"kl": KL},
    "ppo": {"group": 2, "kl": KL}, "grpo": {"group": 2}, "dr-grpo": {"group": 2}, "dapo": {"group": 2, "refills": 0},
    "gspo": {"group": 2}, "cispo": {"group": 2}, "raft": {"group": 2}, "rft": {"group": 3},
}  # fmt: skip
HAND: dict[str, Callable[[list[Row]], Coefficients]] = {
    "reinforce": reinforce, "reinforce-baseline": reinforce_baseline, "rloo": rloo, "remax": remax, "ppo": ppo,
    "grpo": grpo, "dr-grpo": dr_grpo, "dapo": dapo, "gspo": gspo, "cispo": cispo, "raft": raft, "rft": rft,
}  # fmt: skip


# --- listing all groups ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class World:
    tree: TokenTree
    policy: TabularPolicy
    behaviour: TabularPolicy
    reference: TabularPolicy

    def rows(self) -> list[Row]:
        """Every leaf, in plain numbers, from logits by softmax in numpy."""
        found = []
        for i, (prompt, answer) in enumerate(itertools.product(range(self.tree.prompts), self.tree.answers)):
            nodes = self.tree.nodes[i, 1 : 1 + len(answer)].tolist()

            def logp(policy: TabularPolicy, nodes: list[int] = nodes, answer: tuple[int, ...] = answer) -> np.ndarray:
                z = policy.logits.detach().numpy()[nodes]
                return np.array([row[a] - np.log(np.exp(row).sum()) for row, a in zip(z, answer, strict=True)])

            found.append(
                Row(
                    new=logp(self.policy),
                    old=logp(self.behaviour),
                    ref=logp(self.reference),
                    value=self.policy.values.detach().numpy()[nodes],
                    outcome=float((sum(answer) + prompt) % 3 == 0),
                    greedy=self.greedy(prompt),
                    answer=answer,
                )
            )
        return found

    def greedy(self, prompt: int) -> float:
        root = int(self.tree.nodes[prompt * len(self.tree.answers), 1])
        first = int(self.behaviour.logits[root].argmax())
        if first == 2:
            return float((2 + prompt) % 3 == 0)
        row = self.tree.answers.index((first, 0)) + prompt * len(self.tree.answers)
        second = int(self.behaviour.logits[self.tree.nodes[row, 2]].argmax())
        return float((first + second + prompt) % 3 == 0)

    def scores(self) -> list[list[np.ndarray]]:
        """d logp / d logits of every token of every leaf, flat."""
        table = self.policy.logits.detach().numpy()
        out = []
        for i, answer in enumerate(self.tree.answers * self.tree.prompts):
            per_token = []
            for t, token in enumerate(answer):
                node, slope = int(self.tree.nodes[i, 1 + t]), np.zeros_like(table)
                slope[node] = -np.exp(table[node]) / np.exp(table[node]).sum()
                slope[node, token] += 1
                per_token.append(slope.ravel())
            out.append(per_token)
        return out

    def expected(self, hand: Callable[[list[Row]], Coefficients], group: int) -> np.ndarray:
        """Sum over prompts and all ordered groups of P(group) * hand-made gradient."""
        rows, scores, n = self.rows(), self.scores(), len(self.tree.answers)
        total = np.zeros(self.policy.logits.numel())
        for prompt in range(self.tree.prompts):
            for chosen in itertools.product(range(prompt * n, prompt * n + n), repeat=group):
                p = math.prod(math.exp(rows[i].old.sum()) for i in chosen) / self.tree.prompts
                for i, c in zip(chosen, hand([rows[i] for i in chosen]), strict=True):
                    total += p * sum(c[t] * s for t, s in enumerate(scores[i]))
        return total


def world(on_policy: bool) -> World:
    tree, policy = digits()
    with torch.no_grad():
        policy.values.copy_(torch.linspace(-0.5, 0.5, len(policy.values), dtype=torch.double))
    other = TabularPolicy(tree, spread=0.9, seed=7, critic=True)
    return World(tree, policy, policy if on_policy else other, TabularPolicy(tree, spread=0.5, seed=11))


def built(slug: str) -> po.Algorithm:
    algorithm = po.method(slug, **SETTINGS[slug])
    if slug == "reinforce-baseline":
        algorithm.credit.baseline.total.fill_(BASELINE)
        algorithm.credit.baseline.mass.fill_(1.0)
    return algorithm


@pytest.mark.parametrize("on_policy", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("slug", list(HAND))
def test_expected_gradient_is_the_formula_listed_by_hand(slug: str, on_policy: bool) -> None:
    w, algorithm = world(on_policy), built(slug)
    found = expectation(algorithm, w.tree, w.policy, behaviour=w.behaviour, reference=w.reference)
    ours = found.mean[: w.policy.logits.numel()].numpy()
    expected = w.expected(HAND[slug], SETTINGS[slug].get("group", 1))
    assert np.abs(expected).max() > 1e-4
    np.testing.assert_allclose(ours, expected, atol=1e-12)


def bonferroni(parameters: int, level: float = 1e-3) -> float:
    return float(stats.norm.isf(level / parameters / 2))


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("slug", [s for s in HAND if s != "reinforce-baseline"])
def test_sampled_gradient_agrees_with_the_formula(slug: str) -> None:
    w, algorithm = world(False), built(slug)
    found = bias_variance(
        algorithm, w.tree, w.policy, batches=500, seed=3, behaviour=w.behaviour, reference=w.reference
    )
    n = w.policy.logits.numel()
    off = np.abs(found.mean[:n].numpy() - w.expected(HAND[slug], SETTINGS[slug].get("group", 1)))
    # 500 batches are few for a normal limit of a skewed weight: one more standard error of slack.
    assert (off <= (bonferroni(n) + 1) * found.error[:n].numpy() + 1e-12).all()


def test_ppo_critic_and_entropy_gradients_by_hand() -> None:
    w = world(True)
    algorithm = po.method("ppo", group=2, kl=KL, entropy=0.03)
    found = expectation(algorithm, w.tree, w.policy, reference=w.reference)
    rows, n, shape = w.rows(), len(w.tree.answers), w.policy.logits.shape
    values, entropies = np.zeros(shape[0]), np.zeros(shape)
    for prompt in range(2):
        for chosen in itertools.product(range(prompt * n, prompt * n + n), repeat=2):
            group = [rows[i] for i in chosen]
            p = math.prod(math.exp(x.old.sum()) for x in group) / 2
            raw, _ = ppo_advantages(group)
            for i, A in zip(chosen, raw, strict=True):
                for t in range(len(A)):
                    node = int(w.tree.nodes[i, 1 + t])
                    values[node] += p * 0.5 * A[t] / sum(map(len, group))  # -0.5 d/dV (V - (A + V_old))^2 / 2
                    z = w.policy.logits[node].detach().numpy()
                    q = np.exp(z) / np.exp(z).sum()
                    H = -(q * np.log(q)).sum()
                    entropies[node] += p * 0.03 * -q * (np.log(q) + H) / sum(map(len, group))
    np.testing.assert_allclose(found.mean[entropies.size :].numpy(), values, atol=1e-12)
    expected = w.expected(ppo, 2) + entropies.ravel()
    np.testing.assert_allclose(found.mean[: entropies.size].numpy(), expected, atol=1e-12)


@pytest.mark.usefixtures("shapes_unchecked")
def test_sft_pulls_towards_the_demonstrations() -> None:
    w = world(True)
    found = bias_variance(po.method("sft"), w.tree, w.policy, batches=1000, rows=1, seed=2)
    rows, scores, total = w.rows(), w.scores(), 0.0
    for prompt in range(2):
        right = [i for i in range(prompt * 7, prompt * 7 + 7) if rows[i].outcome == 1]
        for i in right:
            total = total + sum(scores[i]) / len(rows[i]) / len(right) / 2
    off = np.abs(found.mean[: len(total)].numpy() - total)
    assert (off <= bonferroni(len(total)) * found.error[: len(total)].numpy() + 1e-12).all()
    listed = expectation(po.method("sft"), w.tree, w.policy).mean[: len(total)].numpy()
    np.testing.assert_allclose(listed, total, atol=1e-12)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize(
    ("slug", "settings", "scale"),
    [
        ("reinforce", {}, 1.0),
        ("reinforce-baseline", {"group": 2}, 1.0),
        ("rloo", {"group": 3, "kl": 0}, 1.0),
        ("remax", {"kl": 0}, 1.0),
        ("dr-grpo", {"group": 3}, (1 - 1 / 3) / 2),
    ],
)
def test_unbiased(slug: str, settings: dict[str, Any], scale: float) -> None:
    tree, policy = digits()
    found = bias_variance(po.method(slug, **settings), tree, policy, batches=1000, rows=2, seed=4, scale=scale)
    assert found.max_z < bonferroni(len(found.mean))
    assert found.cosine > 0.98
    wrong = ((found.mean - 1.5 * found.exact).abs() / found.error).nan_to_num(0).max()
    assert wrong > bonferroni(len(found.mean))


def test_kl_in_the_reward_is_the_gradient_of_the_regularised_return() -> None:
    tree, policy = digits()
    reference = TabularPolicy(tree, spread=0.5, seed=11)
    found = expectation(po.method("rloo", group=2, kl=0.3), tree, policy, reference=reference)
    (slope,) = torch.autograd.grad(tree.value(policy) - 0.3 * tree.kl(policy, reference), policy.logits)
    np.testing.assert_allclose(found.mean[: slope.numel()].numpy(), slope.flatten().numpy(), atol=1e-12)


# slug -> the ratios between which a token of positive, then of negative advantage keeps its gradient (the papers')
BANDS = {
    "ppo": (0.0, 1.2, 0.8, 1e6), "grpo": (0.0, 1.2, 0.8, 1e6), "dr-grpo": (0.0, 1.2, 0.8, 1e6),
    "dapo": (0.0, 1.28, 0.8, 1e6), "gspo": (0.0, 1.0004, 0.9997, 1e6),
}  # fmt: skip


@pytest.mark.parametrize("slug", list(BANDS))
def test_clip_bounds_are_the_published_ones(slug: str) -> None:
    settings = {"kl": 0} if slug in ("ppo", "grpo") else {}
    objective = po.method(slug, **settings).objective.but(regularise=[])
    for sign, (low, high) in ((1.0, BANDS[slug][:2]), (-1.0, BANDS[slug][2:])):
        for ratio in (low * (1 - 1e-6), low * (1 + 1e-6), high * (1 - 1e-6), high * (1 + 1e-6)):
            if not 0 < ratio < 1e5:
                continue
            batch = po.Experience(
                mask=torch.ones(1, 1, dtype=torch.bool),
                rollout_logp=torch.full((1, 1), -20 - math.log(ratio), dtype=torch.double),
                advantage=torch.full((1, 1), sign, dtype=torch.double),
                horizon=1,
            )
            logp = torch.full((1, 1), -20.0, dtype=torch.double, requires_grad=True)
            (pull,) = torch.autograd.grad(objective(batch, po.Evaluation(logp=logp)).loss, logp)
            inside = low < ratio < high
            assert pull.item() == pytest.approx(-sign * ratio if inside else 0.0, abs=1e-12)
