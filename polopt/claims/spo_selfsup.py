"""These programs measure what the paper of SPO (self-supervised preference optimisation) claims."""

from __future__ import annotations

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TinyTransformer, TokenTree
from polopt.lab.effects import More, effect
from polopt.methods.dpo import dpo
from polopt.methods.spo_selfsup import DegradedCopies, DegreeClassification, DiscriminantHead, Intact, spo_selfsup

# Answers of 8 tokens out of 12, of which the first six, each rare, are the key ones. The first token is the prompt.
VOCABULARY, LENGTH, KEYS, RATE = 12, 8, 6, 0.05
FLIPPED = 0.3


def key_tokens(tokens: Tensor) -> Tensor:
    """Counts the key tokens of answers [N, LENGTH]: their true reward, [N]."""
    return (tokens < KEYS).sum(1)


def answers(count: int, generator: torch.Generator) -> Tensor:
    """Returns random answers, [count, LENGTH]."""
    law = torch.tensor([RATE] * KEYS + [(1 - RATE * KEYS) / (VOCABULARY - KEYS)] * (VOCABULARY - KEYS))
    return torch.multinomial(law.expand(count, -1), LENGTH, replacement=True, generator=generator)


def small_policy(seed: int) -> TinyTransformer:
    """Returns a transformer of about 6000 weights."""
    return TinyTransformer(TokenTree(VOCABULARY, [(0,) * LENGTH], lambda *_: 0.0), width=16, layers=2, seed=seed)


def batch_of(tokens: Tensor, outcome: Tensor, group: Tensor, reference: TinyTransformer) -> Experience:
    """Returns the batch of these answers, with the reference's log-probabilities."""
    rows = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
    mask = torch.ones(rows.shape, dtype=torch.bool)
    mask[:, 0] = False
    batch = Experience(mask=mask, outcome=outcome.double(), group=group, extras={"tokens": rows})
    return batch.replace(ref_logp=reference.evaluate(batch).logp.detach())


def noisy_pairs(seed: int, pairs: int, reference: TinyTransformer) -> Experience:
    """Returns pairs of answers with different numbers of key tokens; the one with more is preferred, but for a share
    FLIPPED of the pairs."""
    g = torch.Generator().manual_seed(seed)
    one, other = answers(4 * pairs, g), answers(4 * pairs, g)
    unequal = (key_tokens(one) != key_tokens(other)).nonzero().flatten()[:pairs]
    one, other = one[unequal], other[unequal]
    first = (key_tokens(one) > key_tokens(other)) ^ (torch.rand(pairs, generator=g) < FLIPPED)
    outcome, group = torch.stack([first, ~first], 1).flatten(), torch.arange(pairs).repeat_interleave(2)
    return batch_of(torch.stack([one, other], 1).flatten(0, 1), outcome, group, reference)


def trained(algorithm: Algorithm, seed: int, step_size: float, pairs: int = 500, epochs: int = 6) -> TinyTransformer:
    """Trains a policy on noisy pairs with Adam, 40 pairs a step."""
    reference, policy = small_policy(seed), small_policy(seed)
    batch, g = noisy_pairs(seed, pairs, reference), torch.Generator().manual_seed(seed)
    outputs = algorithm.objective.active_fields("policy_outputs")
    optimiser = torch.optim.Adam(policy.parameters(), lr=step_size)
    for _ in range(epochs):
        for part in torch.randperm(pairs, generator=g).split(40):
            rows = (2 * part[:, None] + torch.arange(2)).flatten()
            given = algorithm.compute_advantages(batch[rows])
            optimiser.zero_grad()
            algorithm.objective(given, policy.evaluate(given, outputs)).loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return policy


def held_out(seed: int, count: int = 500) -> Experience:
    """Returns other answers, one a group, with the policy before training as the reference."""
    tokens = answers(count, torch.Generator().manual_seed(10_000 + seed))
    return batch_of(tokens, torch.zeros(count), torch.arange(count), small_policy(seed))


def rank_correlation(x: Tensor, y: Tensor) -> float:
    """Returns Spearman's correlation; equal values share their mean rank."""

    def ranks(values: Tensor) -> Tensor:
        _, place, count = values.unique(return_inverse=True, return_counts=True)
        return (count.cumsum(0) - (count - 1) / 2).double()[place]

    return float(torch.corrcoef(torch.stack([ranks(x), ranks(y)]))[0, 1])


def fitted() -> Algorithm:
    """Returns SPO as this problem suits it best of what was tried."""
    return spo_selfsup(weight=1.0, degrees=3, share=0.5, shrinkage=0.3)


def understanding(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    policy, test = trained(algorithm, seed, step_size), held_out(seed)
    evaluation = policy.evaluate(test, frozenset({"extras.hidden"}))
    implied = torch.where(test.mask, evaluation.logp - test.ref_logp, 0).sum(1).detach()
    found = {"correlation": rank_correlation(implied, key_tokens(test.extras["tokens"][:, 1:]))}
    copies = DegradedCopies(degrees=3, share=0.5).filtered(test)
    objective = DegreeClassification(degrees=3, head=DiscriminantHead(shrinkage=0.3))
    with torch.no_grad():
        metrics = objective(copies, policy.evaluate(copies, frozenset({"extras.hidden"}))).metrics
    return found | {"degrees told": float(metrics["degrees/accuracy"])}


@effect(
    "From noisy pairs, the reward that it implies orders unseen answers better than DPO's.",
    kind="headline",
    method=fitted,
    controls={"dpo": dpo, "dpo, smoothed": lambda: dpo(label_smoothing=FLIPPED)},
    step_sizes=(0.001, 0.003, 0.01),
    criteria=[More("correlation", by=0.05)],
    seeds=8,
    trials=2,
    cost="slow",
    refuted=True,
    note="500 pairs, 30 % of them with the wrong answer preferred, and the rank correlation with the number of key "
    "tokens in 500 other answers. The states do tell degrees better (`tells_degrees`), and the implied reward is no "
    "better for it: 0.74 against DPO's 0.77, 0.73 with smoothed labels; on fresh seeds 0.69, 0.65 and 0.68. A "
    "classifier that Adam trains with the policy, as the paper may mean it, ended at 0.78 against 0.77 on five seeds.",
)
def orders_unseen_answers(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return understanding(algorithm, seed, step_size)


@effect(
    "Its hidden states tell the degrees of unseen answers better than DPO's.",
    kind="part",
    method=fitted,
    controls={"dpo": dpo},
    step_sizes=(0.003,),
    criteria=[More("degrees told", by=0.02)],
    seeds=8,
    cost="slow",
    note="A classifier fitted to the states of 500 other answers and their copies, chance is a third.",
)
def tells_degrees(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return understanding(algorithm, seed, step_size)


def gradients(algorithm: Algorithm) -> tuple[float, Tensor]:
    """Returns loss and gradient of a batch of 6 pairs."""
    reference = small_policy(0)
    policy = small_policy(1)
    batch = algorithm.compute_advantages(noisy_pairs(0, 6, reference))
    evaluation = policy.evaluate(batch, algorithm.objective.active_fields("policy_outputs"))
    loss = algorithm.objective(batch, evaluation).loss
    parts = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    return float(loss.detach()), torch.cat([part.flatten() for part in parts if part is not None])


@claim(
    "With weight 0 loss and gradient are DPO's, with a probe the gradient is, and with one degree the loss is.",
    kind="identity",
    baseline="the weight 0.1, where both differ",
)
def is_dpo() -> Finding:
    loss, gradient = gradients(dpo())
    size = float(gradient.abs().max())
    off = {"weight 0.1": gradients(spo_selfsup())[1], "weight 0": gradients(spo_selfsup(weight=0.0))[1]}
    off |= {"probe": gradients(spo_selfsup(probe=True))[1]}
    measured = {name: float((g - gradient).abs().max()) / size for name, g in off.items()}
    losses = {"weight 0": gradients(spo_selfsup(weight=0.0))[0], "one degree": gradients(spo_selfsup(degrees=1))[0]}
    exact = all(value == loss for value in losses.values())
    return Finding(
        measured={f"error of the gradient, {name}": value for name, value in measured.items()}
        | {f"error of the loss, {name}": abs(value - loss) for name, value in losses.items()},
        criterion="losses equal; gradients to 1e-12 of the largest entry; with weight 0.1 more than 1e-3 away",
        holds=exact and max(measured["weight 0"], measured["probe"]) < 1e-12 and measured["weight 0.1"] > 1e-3,
    )


@claim(
    "The classifier is the Gaussian one with a shared covariance, and its gradient reaches the state through it alone.",
    kind="identity",
    baseline="a gradient through the fit too",
)
def classifies() -> Finding:
    g = torch.Generator().manual_seed(0)
    states = torch.randn(30, 4, generator=g, dtype=torch.double, requires_grad=True)
    degree = torch.arange(30) % 3
    mask = torch.ones(30, 1, dtype=torch.bool)
    batch = Experience(mask=mask, extras={"degree": degree})
    evaluation = Evaluation(logp=torch.zeros(30, 1, dtype=torch.double), extras={"hidden": states[:, None]})
    loss = DegreeClassification(degrees=3, head=DiscriminantHead(shrinkage=0.5))(batch, evaluation).loss
    (found,) = torch.autograd.grad(loss, states)
    # Bayes' rule with normal densities, and the slope of its cross-entropy with the densities held.
    x = states.detach().requires_grad_()
    means = torch.stack([x[degree == k].mean(0) for k in range(3)])
    within = x - means[degree]
    covariance = within.T @ within / 30 + 0.5 * within.square().mean() * torch.eye(4, dtype=torch.double)

    def cross_entropy(means: Tensor, covariance: Tensor) -> Tensor:
        normal = torch.distributions.MultivariateNormal(means, covariance)
        return torch.nn.functional.cross_entropy(normal.log_prob(x[:, None]), degree)

    expected = cross_entropy(means.detach(), covariance.detach())
    slopes = [
        torch.autograd.grad(value, x, retain_graph=True)[0] for value in (expected, cross_entropy(means, covariance))
    ]
    loss, expected = loss.detach(), expected.detach()
    errors = [float((found - slope).abs().max()) for slope in slopes]
    return Finding(
        measured={
            "error of the loss": abs(float(loss) - float(expected)),
            "error of the gradient": errors[0],
            "through the fit too": errors[1],
        },
        criterion="< 1e-10; with a gradient through the fit > 1e-4",
        holds=abs(float(loss) - float(expected)) < 1e-10 and errors[0] < 1e-10 and errors[1] > 1e-4,
    )


@mutation("Degraded copies are compared in pairs, as if they were answers.", kills=is_dpo)
def compares_copies(replace: Replace) -> None:
    replace(Intact, "forward", lambda self, experience: experience.extras["degree"] >= 0)


@mutation("The probe's gradient reaches the policy.", kills=is_dpo)
def probe_leaks(replace: Replace) -> None:
    forward = DegreeClassification.forward
    replace(DegreeClassification, "forward", lambda self, *given: forward(self.but(probe=False), *given))


@mutation("The classifier ignores its shrinkage.", kills=classifies)
def no_shrinkage(replace: Replace) -> None:
    forward = DiscriminantHead.forward
    replace(DiscriminantHead, "forward", lambda self, *given: forward(self.but(shrinkage=1e-9), *given))
