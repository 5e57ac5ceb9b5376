"""These programs measure what the paper of GTAlign claims."""

import torch

from polopt.claim import Finding, claim
from polopt.credit import RelativeAdvantage
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.tree import flat_gradient
from polopt.methods.gtalign import arithmetic_mean, choose, efficient, gtalign
from polopt.rewards import OutcomeReward, geometric_mean


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
    "An answer that gives one party nothing is not worth its other half.",
    kind="headline",
    baseline="the weighted sum of utilities",
)
def no_trade() -> Finding:
    # Arms: worth (user, model). The first has the larger sum, the second something for both.
    utilities = torch.tensor([[1.0, 0.0], [0.45, 0.45], [0.0, 1.0]], dtype=torch.double).T
    chosen = {}
    for name, rule in (("geometric", geometric_mean), ("arithmetic", arithmetic_mean)):
        tree = TokenTree.bandit(rule(utilities, torch.ones(2, dtype=torch.double)).tolist())
        policy = TabularPolicy(tree)
        algorithm = gtalign(group=64).but(reward=OutcomeReward(), credit=RelativeAdvantage(scale=None))
        algorithm = algorithm.but(**{"objective.regularise": []})
        for seed in range(30):
            source = TreeSource(tree, policy, rows=64, seed=seed, needs=algorithm.required_fields)
            batch = algorithm.compute_advantages(algorithm.sampling(source))
            loss = algorithm.objective(batch, policy.evaluate(batch)).loss
            with torch.no_grad():
                policy.logits.sub_(10.0 * torch.autograd.grad(loss, policy.logits)[0])
        chosen[name] = tree.log_probabilities(policy).exp()[0, 1].item()
    return Finding(
        measured={f"probability of the answer good for both, {name}": p for name, p in chosen.items()},
        criterion="> 0.9 by the geometric mean, < 0.1 by the arithmetic one",
        holds=chosen["geometric"] > 0.9 and chosen["arithmetic"] < 0.1,
    )
