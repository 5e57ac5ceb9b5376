"""These programs measure what the paper of ProGRPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.features.rows import Confidence
from polopt.lab import TabularPolicy, TokenTree, expectation, flat_gradient
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned
from polopt.lab.shapes import coin
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


def _ends(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """What is kept after 300 batches from 8 prompts, on each of which 8 of 32 arms are right nine times in ten, and the
    others once; and `different`, the expected number of different right arms in 32 samples.

    Without that noise larger steps are always better: the first batch rules out what is wrong.
    """
    tree = TokenTree.bandit([[0.9] * 8 + [0.1] * 24] * 8)
    policy = TabularPolicy(tree, spread=0.5, seed=seed)
    found = learned(algorithm, (tree, policy), steps=300, step_size=step_size, seed=seed, draw=coin)
    right = tree.log_probabilities(policy).detach().exp()[:, :8]
    return {**found, "different": (1 - (1 - right) ** 32).sum(1).mean().item()}


@effect(
    "It ends with more different right answers, and as often right.",
    kind="headline",
    method=lambda: progrpo(group=16),
    controls={"alpha 0": lambda: progrpo(group=16, alpha=0.0)},
    step_sizes=(8.0, 32.0, 128.0, 512.0),
    criteria=[More("entropy", times=5.0), More("different", by=0.0), More("success", by=-0.005)],
    best=More("mean success", by=0.0),
    trials=1,
    budget="answers",
    cost="slow",
    refuted=True,
    note="At the steps that learn soonest both end on one arm or two of each prompt. Without noise in the rewards, and "
    "at a quarter of these steps, entropy is 25 times as high (15 to 42), as the paper says.",
)
def diversity(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _ends(algorithm, seed=seed, step_size=step_size)


@effect(
    "With the group's mean in place of the prompt's confidence it ends with more entropy.",
    kind="ours",
    method=lambda: progrpo(group=16, than="group"),
    controls={"the prompt's confidence": lambda: progrpo(group=16)},
    step_sizes=(8.0, 32.0, 128.0, 512.0),
    criteria=[More("entropy", times=1.25), More("success", by=-0.005)],
    best=More("mean success", by=0.0),
    trials=1,
    budget="answers",
    cost="slow",
    refuted=True,
    note="At the steps that learn soonest neither keeps any. On one prompt, without noise, at a step size of 1, "
    "it was 0.68 nats against 0.38.",
)
def offset(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _ends(algorithm, seed=seed, step_size=step_size)


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
