"""GTAlign: an answer is worth the geometric mean of what it is worth to the user and to the model."""

import torch

from polopt.algorithm import Algorithm
from polopt.credit import RelativeAdvantage, StandardisedReturns
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.tree import flat_gradient
from polopt.method import Finding, Paper, method
from polopt.methods.ppo import ppo
from polopt.rewards import (
    Brevity,
    ConditionalReward,
    DistinctPayoffs,
    GeometricMean,
    HasBlock,
    LeadingBlocks,
    LegiblePayoffs,
    LengthWindow,
    MinimumReward,
    OutcomeReward,
    PositiveReward,
    Reward,
    SumOfRewards,
    arithmetic_mean,
    choose,
    efficient,
    geometric_mean,
)

BLOCKS = ("thinking", "payoff", "analyze", "response")
# What each utility has beside its terms, so that none is 0.
EPSILON = 1e-4


@method(
    paper=Paper(
        title="GTAlign: Game-Theoretic Alignment of LLM Assistants for Mutual Welfare",
        authors="Zhu, Siqi and others",
        year=2025,
        arxiv="2510.08872",
    ),
    changes="PPO paid the geometric mean of the user's and the model's utility, read off four blocks of the answer, in "
    "units of each source of tasks.",
    room="rewards",
    tier="faithful",
)
def gtalign(
    *,
    group: int = 1,
    user: float = 1.0,
    model: float = 1.0,
    blocks: bool = True,
    answer: tuple[float, float] = (20, 500),
    whole: tuple[float, float] = (500, 1000),
    steepness: float = 0.005,
) -> Algorithm:
    """R = (U_user^user U_model^model)^(1 / (user + model)), z-scored per kind of task over the batch, then PPO, with

        U_user  = 1e-4 + 0.5 Q + 0.2 window(words of the response) + 0.3 exp(-characters before the response / 500)
        U_model = 1e-4 + 0.4 Q + 0.2 F + 0.2 P + 0.2 window(words of the whole)

    Q what the world pays, F 1 for an answer that begins with the blocks thinking, payoff, analyze, response in this
    order, P for payoffs that tell the parties apart, and window(L) = sigmoid(k (L - low)) sigmoid(k (high - L)). An
    answer without a response, or without a payoff that can be read, is worth 0. user 1, model 0 is the user-only
    baseline, and the other way round.

    This follows the authors' program, of which the tasks' scores and the format were read, with these differences. Its
    quality is a judge's or BLEU; here the world's own verdict is both parties' quality. Its z-score divides by n, ours
    by n - 1. Payoffs that are not finite cannot be read here.

    The policy must write the four blocks: teach it to first, as the authors do. blocks=False is polopt's own, for
    policies that do not: what reads the blocks is dropped, and Q and the length of the answer are left. P pays for
    unequal numbers, true or not. While an answer is written, `rewards.choose` reads its payoffs, priced, and gives the
    move to go on with.
    """
    soft = {"steepness": steepness, "unit": "words"}
    length = LengthWindow(low=answer[0], high=answer[1], block="response" if blocks else None, **soft)  # type: ignore[arg-type]
    of_user: list[tuple[float, Reward]] = [(0.5, OutcomeReward(shift=EPSILON / 0.5)), (0.2, length)]
    of_model: list[tuple[float, Reward]] = [
        (0.4, OutcomeReward(shift=EPSILON / 0.4)),
        (0.2, LengthWindow(low=whole[0], high=whole[1], **soft)),  # type: ignore[arg-type]
    ]
    if blocks:
        of_user += [(0.3, Brevity(scale=500, unit="characters", before="response"))]
        of_model += [(0.2, LeadingBlocks(names=BLOCKS)), (0.2, DistinctPayoffs())]
    parties = [
        SumOfRewards(terms=[term for _, term in terms], weights=[weight for weight, _ in terms])
        for terms in (of_user, of_model)
    ]
    welfare = GeometricMean(terms=parties, weights=[user, model])
    plain = ppo(group=group, kl=0)
    readable = PositiveReward(reward=MinimumReward(terms=[LegiblePayoffs(), HasBlock(name="response")]))
    return plain.but(
        reward=ConditionalReward(reward=welfare, when=readable) if blocks else welfare,
        credit=StandardisedReturns(credit=plain.credit, by="zscore"),
    )


@gtalign.claim(
    "Of 2,000 random 3 x 2 games its choice is always efficient, and whoever has least is never worse off.",
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


@gtalign.claim(
    "Two sources that pay on scales ten apart pull equally hard.", baseline="the same without units of the source"
)
def sources() -> Finding:
    means = torch.tensor([[0.0, 0.5, 1.0], [0.0, 5.0, 10.0]], dtype=torch.double)
    tree = TokenTree.bandit(means.tolist(), kinds=["plain", "large"])
    pulls = {}
    for name, credit in (("with units", gtalign().credit), ("without", gtalign().credit.credit)):  # type: ignore[attr-defined]
        policy = TabularPolicy(tree, critic=True)
        algorithm = gtalign(group=512).but(reward=OutcomeReward(), credit=credit)
        algorithm = algorithm.but(**{"objective.regularise": []})
        batch = algorithm.judge(algorithm.sampling(TreeSource(tree, policy, rows=1024, needs=algorithm.all_needs)))
        slope = flat_gradient(algorithm.objective(batch, policy.evaluate(batch)).loss, policy)[: policy.logits.numel()]
        plain, large = slope.view(policy.logits.shape).norm(dim=1)
        pulls[name] = (large / plain).item()
    return Finding(
        measured={f"large scale over plain, {name}": ratio for name, ratio in pulls.items()},
        criterion="within 10 % of 1 with units; > 5 without",
        holds=abs(pulls["with units"] - 1) < 0.1 and pulls["without"] > 5,
    )


@gtalign.claim(
    "An answer that gives one party nothing is not worth its other half.", baseline="the weighted sum of utilities"
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
            source = TreeSource(tree, policy, rows=64, seed=seed, needs=algorithm.all_needs)
            batch = algorithm.judge(algorithm.sampling(source))
            loss = algorithm.objective(batch, policy.evaluate(batch)).loss
            with torch.no_grad():
                policy.logits.sub_(10.0 * torch.autograd.grad(loss, policy.logits)[0])
        chosen[name] = tree.log_probabilities(policy).exp()[0, 1].item()
    return Finding(
        measured={f"probability of the answer good for both, {name}": p for name, p in chosen.items()},
        criterion="> 0.9 by the geometric mean, < 0.1 by the arithmetic one",
        holds=chosen["geometric"] > 0.9 and chosen["arithmetic"] < 0.1,
    )
