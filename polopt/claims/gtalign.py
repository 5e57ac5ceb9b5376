"""These programs measure what the paper of GTAlign claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource, train
from polopt.lab.effects import More, effect
from polopt.lab.tree import flat_gradient
from polopt.methods.gtalign import StandardisedReturns, arithmetic_mean, choose, efficient, gtalign, standardised
from polopt.rewards import FieldReward, GeometricMean, OutcomeReward, SumOfRewards, geometric_mean


@claim(
    "Of 2,000 random 3 x 2 games its choice is always efficient, and whoever has least is never worse off.",
    kind="theory",
    baseline="the arithmetic mean, and the model's own utility",
)
def games() -> Finding:
    payoffs = torch.rand(2000, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    ours, plain, alone = [], [], []
    for game in payoffs:
        ours.append(choose(game, geometric_mean))
        plain.append(choose(game, arithmetic_mean))
        alone.append(choose(game, geometric_mean, weights=torch.tensor([0.0, 1.0], dtype=torch.double)))
    reached = {
        name: payoffs[torch.arange(2000), :, torch.stack(chosen)]
        for name, chosen in (("geometric", ours), ("arithmetic", plain), ("model", alone))
    }
    best = sum(bool(efficient(game)[n]) for game, n in zip(payoffs, ours, strict=True)) / 2000
    fair = (reached["geometric"].amin(1) >= reached["arithmetic"].amin(1)).double().mean().item()
    differ = (torch.stack(ours) != torch.stack(plain)).double().mean().item()
    gain = reached["geometric"][:, 0] - reached["model"][:, 0]
    measured = {"efficient": best, "least no worse than by the arithmetic mean": fair, "choices that differ": differ}
    measured |= {"user better off than if only the model counts": (gain > 0).double().mean().item()}
    measured |= {"user worse off": (gain < 0).double().mean().item()}
    return Finding(
        measured=measured,
        criterion="efficient and no worse in all; they differ in 2 to 15 %; user worse off in none, better in > 40 %",
        holds=best == 1
        and fair == 1
        and 0.02 < differ < 0.15
        and measured["user worse off"] == 0
        and measured["user better off than if only the model counts"] > 0.4,
    )


@claim(
    "Two sources that pay on scales ten apart pull equally hard.",
    kind="part",
    baseline="the same without units of the source",
)
def sources() -> Finding:
    means = torch.tensor([[0.0, 0.5, 1.0], [0.0, 5.0, 10.0]], dtype=torch.double)
    tree = TokenTree.bandit(means.tolist(), kinds=["plain", "large"])
    ratios = {}
    for name, credit in (("with units", gtalign().credit), ("without", gtalign().credit.credit)):  # type: ignore[attr-defined]
        policy = TabularPolicy(tree, critic=True)
        algorithm = gtalign(group=512).but(reward=OutcomeReward(), credit=credit)
        algorithm = algorithm.but(**{"objective.regularise": []})
        batch = algorithm.compute_advantages(
            algorithm.sampling(TreeSource(tree, policy, rows=1024, needs=algorithm.required_fields))
        )
        gradient = flat_gradient(algorithm.objective(batch, policy.evaluate(batch)).loss, policy)[
            : policy.logits.numel()
        ]
        plain, large = gradient.view(policy.logits.shape).norm(dim=1)
        ratios[name] = (large / plain).item()
    return Finding(
        measured={f"large scale over plain, {name}": ratio for name, ratio in ratios.items()},
        criterion="within 10 % of 1 with units; > 5 without",
        holds=abs(ratios["with units"] - 1) < 0.1 and ratios["without"] > 5,
    )


@claim(
    "The reward is U_user^user U_model^model to the power 1 / (user + model), on answers of words.",
    kind="identity",
    baseline="both exponents 1",
)
def exponents() -> Finding:
    words, quality = [5, 100, 700, 2000], torch.tensor([1.0, 0.0, 1.0, 0.5], dtype=torch.double)
    batch = Experience(
        mask=torch.ones(4, 1, dtype=torch.bool),
        outcome=quality,
        extras={"answer": [" ".join(["word"] * count) for count in words]},
    )

    def window(low: float, high: float) -> Tensor:
        length = torch.tensor(words, dtype=torch.double)
        return torch.sigmoid(0.005 * (length - low)) * torch.sigmoid(0.005 * (high - length))

    of_user = 1e-4 + 0.5 * quality + 0.2 * window(20, 500)
    of_model = 1e-4 + 0.4 * quality + 0.2 * window(500, 1000)
    off, alike = 0.0, 0.0
    plain = gtalign(blocks=False).reward(batch)
    for user, model in ((1.0, 1.0), (3.0, 1.0), (1.0, 0.0), (0.0, 1.0)):
        found = gtalign(blocks=False, user=user, model=model).reward(batch)
        expected = (of_user**user * of_model**model) ** (1 / (user + model))
        off = max(off, (found - expected).abs().max().item())
        alike = max(alike, (plain - expected).abs().max().item())
    return Finding(
        measured={"largest error": off, "of exponents 1": alike},
        criterion="< 1e-6 at four pairs of exponents; with both 1 throughout > 0.05",
        holds=off < 1e-6 and alike > 0.05,
    )


PARTIES = {"terms": [FieldReward(name="signal_user"), FieldReward(name="signal_model")]}


def _welfare() -> Algorithm:
    """The sentence on utilities that are given: the terms are those of the two parties."""
    return gtalign(group=32, blocks=False).but({f"reward.{name}": value for name, value in PARTIES.items()})


@effect(
    "An answer that gives one party nothing is not worth its other half.",
    kind="headline",
    method=_welfare,
    controls={"mean of the utilities": lambda: _welfare().but(reward=SumOfRewards(**PARTIES, weights=[0.5, 0.5]))},
    step_sizes=(4.0, 8.0, 16.0),
    criteria=[More("good for both", by=0.8)],
    seeds=5,
    trials=1,
    note="Reading the utilities off an answer is `exponents`.",
)
def no_trade(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Answers are worth (1, 0), (0.45, 0.45) and (0, 1) to user and model: the first and the last have the larger
    sum."""
    tree = TokenTree.bandit([[0.0, 1.0, 0.0]])
    policy = TabularPolicy(tree, critic=True)
    user = torch.tensor([[1.0, 0.45, 0.0]], dtype=torch.double)
    train(algorithm, tree, policy, steps=40, rate=step_size, seed=seed, signals={"user": user, "model": user.flip(1)})
    return {"good for both": tree.value(policy).item()}


@mutation("The exponents `user` and `model` are ignored.", kills=exponents)
def equal_parties(replace: Replace) -> None:
    def rule(self: GeometricMean, values: Tensor, weights: Tensor) -> Tensor:
        return geometric_mean(values, torch.ones_like(weights), self.floor)

    replace(GeometricMean, "rule", rule)


@mutation("The reward is the arithmetic mean of the utilities.", kills=no_trade)
def arithmetic(replace: Replace) -> None:
    replace(GeometricMean, "rule", lambda self, values, weights: arithmetic_mean(values, weights))


@mutation("Returns are standardised over the whole batch, not over their kind of task.", kills=sources)
def no_kinds(replace: Replace) -> None:
    def worth(self: StandardisedReturns, returns: Tensor, experience: Experience) -> Tensor:
        return standardised(returns, torch.zeros_like(experience.group), self.by)

    replace(StandardisedReturns, "worth", worth)
