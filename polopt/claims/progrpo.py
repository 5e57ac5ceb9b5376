"""These programs measure what the paper of ProGRPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.rows import Confidence
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient, train
from polopt.lab.problems import many_right
from polopt.methods.progrpo import RelativeSurprisal, progrpo


@claim(
    "On answers of one token the correction climbs the collision entropy, -sum p^2, and nothing else.",
    kind="identity",
    baseline="GRPO, which stands still among right answers",
)
def direction() -> Finding:
    tree = TokenTree.bandit([1.0] * 5)
    policy = TabularPolicy(tree, spread=1.0, seed=1)
    p = tree.log_probabilities(policy).exp()
    target, shannon = flat_gradient(-p.square().sum(), policy), flat_gradient(tree.entropy(policy), policy)
    ours = expectation(progrpo(group=3, alpha=0.5, than="group"), tree, policy).mean
    plain = expectation(progrpo(group=3, alpha=0.0, than="group"), tree, policy).mean.norm().item()
    scale = 0.5 * (1 - 1 / 3) / 2
    off = ((ours - scale * target).norm() / (scale * target).norm()).item()
    cosine = torch.nn.functional.cosine_similarity(ours, shannon, dim=0).item()
    return Finding(
        measured={"relative error": off, "cosine with Shannon's": cosine, "GRPO: gradient norm": plain},
        criterion="alpha (1 - 1/G) / 2 times the gradient to 1e-10; GRPO's norm < 1e-10",
        holds=off < 1e-10 and plain < 1e-10,
    )


@claim(
    "An answer is as confident as the least likely fifth of its tokens.",
    kind="identity",
    baseline="all of its tokens",
)
def least_likely() -> Finding:
    p = torch.rand(8, 10, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    right = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.double)
    batch = Experience(
        mask=torch.ones(8, 10, dtype=torch.bool),
        rollout_logp=p.log(),
        outcome=right,
        group=torch.arange(8) // 4,
        extras={"prompt_logp": torch.full((8,), 0.5, dtype=torch.double).log()},
    )
    found = RelativeSurprisal(weight=0.3, of=Confidence(share=0.2))(batch)[:, 0]
    fifth, all_tokens = (p.sort(1).values[:, :n].log().mean(1).exp() for n in (2, 10))
    off, other = ((found - 0.3 * (0.5 - c)).abs().max().item() for c in (fifth, all_tokens))
    return Finding(
        measured={"largest error": off, "of all tokens": other},
        criterion="alpha (c(q) - c(o)) to 1e-12, 8 answers of 10 tokens; of all tokens > 0.01",
        holds=off < 1e-12 and other > 0.01,
    )


def ends(algorithm: Algorithm) -> list[tuple[float, float, float]]:
    """(success, entropy, expected number of different right arms in 32 samples) after 600 batches, for each of 10
    seeds."""
    found = []
    for seed in range(10):
        tree, policy = many_right()[0], TabularPolicy(many_right()[0])
        train(algorithm.but(), tree, policy, steps=600, rate=1.0, seed=seed)
        p = tree.log_probabilities(policy).detach().exp()[0]
        different = (1 - (1 - p[:8]) ** 32).sum().item()
        found.append((tree.value(policy).item(), tree.entropy(policy).item(), different))
    return found


def mean(rows: list[tuple[float, float, float]]) -> list[float]:
    return [sum(x) / len(rows) for x in zip(*rows, strict=True)]


PLAIN = progrpo(group=16, alpha=0.0)


@claim(
    "It ends with more right answers, and as often right.",
    kind="ours",
    baseline="GRPO, 8 of 32 arms right",
    cost="slow",
)
def diversity() -> Finding:
    ours, base = ends(progrpo(group=16, than="group")), ends(PLAIN)
    more = sum(a[2] > b[2] for a, b in zip(ours, base, strict=True))
    (success, entropy, _), (plain, flat, _) = mean(ours), mean(base)
    return Finding(
        measured={
            "success": success,
            "GRPO: success": plain,
            "entropy": entropy,
            "GRPO: entropy": flat,
            "seeds of 10 with more different right arms in 32": more,
        },
        criterion="success at most 0.005 lower and > 0.99; entropy >= 5 times GRPO's; more arms in >= 8 of 10 seeds",
        holds=success >= max(0.99, plain - 0.005) and entropy >= 5 * flat and more >= 8,
    )


@claim(
    "The prompt's confidence serves as well as the group's mean.",
    kind="headline",
    baseline="than='group'",
    cost="slow",
    refuted=True,
)
def offset() -> Finding:
    ours, group = mean(ends(progrpo(group=16))), mean(ends(progrpo(group=16, than="group")))
    return Finding(
        measured={"entropy": ours[1], "with the group's mean": group[1]},
        criterion="entropy at least 0.8 of that with the group's mean (10 seeds)",
        holds=ours[1] >= 0.8 * group[1],
        note="There is one prompt, so its confidence is 1 and every sample is praised, the unlikely ones more. What "
        "all have in common is nothing on average, but in each batch it pulls towards what happened to be drawn.",
    )


@mutation("Confident answers are lifted, unlikely ones lowered.", kills=direction)
def wrong_sign(replace: Replace) -> None:
    right = RelativeSurprisal.forward
    replace(RelativeSurprisal, "forward", lambda self, experience: -right(self, experience))


@mutation("The most likely tokens are read.", kills=least_likely)
def most_likely(replace: Replace) -> None:
    def forward(self: Confidence, experience: Experience) -> torch.Tensor:
        logp = experience.rollout_logp
        return logp.topk(round(self.share * logp.shape[1]), 1).values.mean(1).exp()

    replace(Confidence, "forward", forward)
