"""These programs measure what the paper of TGDPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import Less, effect
from polopt.lab.preferences import descended, paired
from polopt.methods.dpo import dpo
from polopt.methods.tgdpo import tgdpo
from polopt.objectives import implicit as rewards
from polopt.objectives.implicit import GuidedLogRatioReward

LENGTH, BAD = 4, 0
SHUFFLED = {"objective.implicit.guide": "shuffled"}


def one_bad_token(seed: int, pairs: int = 12, guides: float = 10.0) -> tuple[TokenTree, TabularPolicy, Experience]:
    """Returns answers of four tokens, of which token 0 is bad, the uniform policy, and comparisons of an answer without
    it and another, random one with it at one place; with a guide that makes it exp(-guides) times as likely as the
    others, and one whose rewards are shuffled among the tokens of each position."""
    tree = TokenTree.full(3, LENGTH, lambda _, answer: -float(answer.count(BAD)))
    number = {answer: i for i, answer in enumerate(tree.answers)}
    g = torch.Generator().manual_seed(seed)
    drawn = list[tuple[int, int]]()
    for _ in range(pairs):
        chosen, rejected = (torch.randint(1, 3, (LENGTH,), generator=g).tolist() for _ in range(2))
        rejected[int(torch.randint(LENGTH, (1,), generator=g))] = BAD
        drawn.append((number[tuple(chosen)], number[tuple(rejected)]))
    policy = TabularPolicy(tree, tied=tree.positions)
    batch = paired(tree, policy, drawn)
    laws = {"guide": [BAD] * LENGTH, "shuffled": torch.randint(3, (LENGTH,), generator=g).tolist()}
    extras = {}
    for name, disliked in laws.items():
        guide = TabularPolicy(tree, tied=tree.positions)
        with torch.no_grad():
            guide.logits[torch.arange(LENGTH), torch.tensor(disliked)] -= guides
        extras[f"{name}_logp"] = guide.evaluate(batch).logp.detach()
    return tree, policy, batch.replace(extras=extras)


@effect(
    "When the bad token is nearly gone, the tokens that make no difference have moved less.",
    kind="headline",
    method=tgdpo,
    controls={"dpo": dpo, "a guide with shuffled rewards": lambda: tgdpo().but(SHUFFLED)},
    step_sizes=(3.0, 10.0, 30.0),
    criteria=[Less("drift", times=0.9)],
    seeds=10,
    cost="slow",
    note="Drift is the mean distance of the two good tokens' log-probabilities, when a token is bad with probability "
    "0.05, or after 400 steps. The guide is the optimum of the reward -1 for each bad token. The bound is ours: the "
    "paper counts wins of models, and fewer steps are what a longer step size buys too.",
)
def focused(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    _, policy, batch = one_bad_token(seed)
    for _ in range(400):
        descended(algorithm, batch, policy, step_size, 1)
        law = policy.logits.detach().log_softmax(1)
        if law[:, BAD].exp().mean() < 0.05:
            break
    return {"drift": (law[:, 1] - law[:, 2]).abs().mean().item()}


@claim(
    "Each token pulls as DPO's does, times its strength 1 + alpha g in the preferred answer, 1 - alpha g in the other.",
    kind="identity",
    baseline="DPO, where every token of an answer pulls alike",
)
def strengths() -> Finding:
    beta, alpha = 0.2, 0.5
    mask = torch.ones(2, 3, dtype=torch.bool)
    guide = torch.tensor([[-1.0, -3.0, -2.0], [-2.0, -6.0, -1.0]], dtype=torch.double)
    batch = Experience(
        mask=mask,
        ref_logp=torch.full((2, 3), -2.0, dtype=torch.double),
        outcome=torch.tensor([1.0, 0.0], dtype=torch.double),
        group=torch.tensor([0, 0]),
        extras={"guide_logp": guide},
    )

    def pulls(algorithm: Algorithm) -> torch.Tensor:
        logp = torch.full((2, 3), -2.0, dtype=torch.double, requires_grad=True)
        return torch.autograd.grad(algorithm.objective(batch, Evaluation(logp=logp)).loss, logp)[0]

    sign = torch.tensor([[1.0], [-1.0]], dtype=torch.double)
    expected = -sign * beta / 2 * (1 + sign * alpha * beta * (guide + 2))
    ours, plain = ((pulls(algorithm) - expected).abs().max().item() for algorithm in (tgdpo(beta=beta), dpo(beta=beta)))
    zero = (pulls(tgdpo(beta=beta, alpha=0.0)) - pulls(dpo(beta=beta))).abs().max().item()
    return Finding(
        measured={"largest error": ours, "of DPO": plain, "from DPO with alpha 0": zero},
        criterion="< 1e-15 of the formula, of DPO > 0.01; with alpha 0, DPO's to 1e-15",
        holds=max(ours, zero) < 1e-15 and plain > 0.01,
    )


@mutation("Both answers of a pair have the strengths of the preferred one.", kills=strengths)
def one_sign(replace: Replace) -> None:
    replace(rewards, "preferred_sign", lambda experience: torch.ones_like(experience.outcome))


@mutation("alpha is ignored.", kills=strengths)
def no_guide(replace: Replace) -> None:
    forward = GuidedLogRatioReward.forward
    replace(GuidedLogRatioReward, "forward", lambda self, *given: forward(self.but(alpha=0.0), *given))
