"""These programs measure what the paper of STEER claims."""

import math
import sys

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.entropies import arms, correlation, entropy_after, entropy_kept, softmaxes
from polopt.methods.steer import STEERWeight, entropy_change, steer
from polopt.objectives import Surrogate
from polopt.ops import entropy_of
from polopt.policies.vocabulary import entropy_slope


@claim(
    "Over 4,000 random distributions of 50 choices the exact score is the change of entropy; the paper's is related.",
    kind="theory",
    baseline="the paper's score",
)
def first_order() -> Finding:
    logits, generator = softmaxes(4000, 50), torch.Generator().manual_seed(1)
    logp = logits.log_softmax(-1)
    chosen = torch.multinomial(logp.exp(), 1, generator=generator)
    push = torch.randn(4000, 1, generator=generator, dtype=torch.double)
    step = push * (torch.zeros_like(logits).scatter(1, chosen, 1.0) - logp.exp())
    true = entropy_after(logits, 1e-4 * step) / 1e-4
    known = (push[:, 0], logp.gather(1, chosen)[:, 0], entropy_of(logp))
    exact, paper = entropy_change(*known, entropy_slope(logp)), entropy_change(*known)
    agree = (paper.sign() == true.sign()).double().mean().item()
    measured = {"exact": correlation(exact, true), "paper": correlation(paper, true), "paper, equal signs": agree}
    return Finding(
        measured=measured,
        criterion="correlation exact >= 0.999, paper within [0.5, 0.8]",
        holds=measured["exact"] >= 0.999 and 0.5 <= measured["paper"] <= 0.8,
    )


@claim(
    "With weights down to 0.2 a bandit learnt to 0.98 success keeps more entropy, most with the exact score.",
    kind="headline",
    baseline="weights of 1 (GRPO)",
    cost="slow",
)
def keeps_entropy() -> Finding:
    plain, paper, exact, published = (
        entropy_kept(steer(group=16, score=score, weight=weight), arms(), success=0.98, steps=600, rate=1.0)  # type: ignore[arg-type]
        for score, weight in (("paper", 1.0), ("paper", 0.2), ("exact", 0.2), ("paper", 0.8))
    )
    return Finding(
        measured={
            "at 0.98, weights of 1": plain.then,
            "at 0.98, paper's score": paper.then,
            "at 0.98, exact score": exact.then,
            "at the end, weights of 1": plain.last,
            "at the end, paper's score": paper.last,
            "at the end, exact score": exact.last,
            "at the end, paper's score down to 0.8": published.last,
            "least success": min(k.success for k in (plain, paper, exact)),
        },
        criterion="at 0.98: paper > 1.5x, exact > 2x GRPO's; at the end exact >= 5x and > paper; success >= 0.98",
        holds=exact.then > 2 * plain.then
        and paper.then > 1.5 * plain.then
        and exact.last >= max(5 * plain.last, paper.last)
        and all(k.reached and k.success >= 0.98 for k in (plain, paper, exact)),
        note="The default, down to 0.8, is a mild intervention: what it leaves differs little from GRPO's.",
    )


@claim(
    "The decision whose update changes the entropy most weighs 0.8, one that does not change it 1.",
    kind="identity",
    baseline="GRPO: 1 for all",
)
def weighed() -> Finding:
    """Of three decisions, the second is taken with the probability at which the score is 0: log pi = -H."""
    probabilities = torch.tensor([0.1, math.exp(-1.0), 0.6], dtype=torch.double)[:, None]
    evaluation = Evaluation(logp=probabilities.log(), entropy=torch.ones(3, 1, dtype=torch.double))
    batch = Experience(
        mask=torch.ones(3, 1, dtype=torch.bool),
        advantage=torch.tensor([[1.0], [-1.0], [0.5]], dtype=torch.double),
        rollout_logp=probabilities.log(),
        full_batch_evaluation=evaluation,
    )
    objective = steer(weight=0.8).objective
    assert isinstance(objective, Surrogate)
    found = objective.weights[0](batch, evaluation)[:, 0]
    change = (batch.advantage * (1 - probabilities) * (probabilities.log() + 1)).abs()[:, 0]
    off = (found - 0.8 ** (change / change.max())).abs().max().item()
    return Finding(
        measured={"most change": found[0].item(), "none": found[1].item(), "less": found[2].item(), "error": off},
        criterion="0.8, 1, and between them; error < 1e-12",
        holds=off < 1e-12 and abs(found[0].item() - 0.8) < 1e-12 and found[1].item() > 1 - 1e-12,
    )


@mutation("Decisions that change the entropy most weigh most.", kills=weighed)
def backwards(replace: Replace) -> None:
    whole = STEERWeight._map
    replace(STEERWeight, "_map", lambda self, change: whole(self, change.max() - change))


@mutation("The entropy is left out of the score.", kills=first_order)
def without_entropy(replace: Replace) -> None:
    def bare(push: Tensor, logp: Tensor, entropy: Tensor, entropy_slope: Tensor | None = None) -> Tensor:
        return whole(push, logp, 0 * entropy, entropy_slope)

    whole = entropy_change
    replace(sys.modules[__name__], "entropy_change", bare)
