"""These programs measure what the paper of KTO claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import ReferencePoint
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree
from polopt.lab.effects import More, effect
from polopt.lab.preferences import labelled
from polopt.methods.kto import kto
from polopt.methods.sft import sft
from polopt.objectives import LogisticLink, SigmoidLink

STEPS, ANSWERS = 100, 12


def taught(algorithm: Algorithm, seed: int, step_size: float, prompts: int = 40, labels: int = 800) -> float:
    """True success, by enumeration, after learning from answers of a reference policy with labels: each is good with
    the probability that its success has."""
    draw = torch.Generator().manual_seed(seed)
    worth = torch.rand(prompts, ANSWERS, generator=draw, dtype=torch.double)
    tree = TokenTree.full(ANSWERS, 1, lambda prompt, answer: float(worth[prompt, answer[0]]), prompts=prompts)
    reference, policy = (TabularPolicy(tree, spread=1.0, seed=seed) for _ in range(2))
    chances = tree.log_probabilities(reference).detach().exp()
    which = torch.multinomial(chances, labels // prompts, replacement=True, generator=draw)
    rows = (torch.arange(prompts)[:, None] * ANSWERS + which).flatten()
    good = torch.rand(labels, generator=draw) < worth.flatten()[rows].float()
    batch = labelled(tree, reference, rows, good, generator=draw)
    if "rated" not in algorithm.sampling.source_capabilities:  # imitation of what is good
        batch = batch[(batch.outcome > 0) & ~batch.extras["mismatched"]]
    for _ in range(STEPS):
        _step(algorithm, batch, policy, step_size)
    return float(tree.value(policy).detach())


def _step(algorithm: Algorithm, batch: Experience, policy: TabularPolicy, step_size: float) -> Tensor:
    """Takes a gradient step on all rows, and returns the gradient."""
    ready = batch.replace(old_logp=policy.evaluate(batch).logp.detach())
    ready = algorithm.compute_advantages(algorithm.sampling.mark(ready))
    loss = algorithm.objective(ready, policy.evaluate(ready)).loss
    (gradient,) = torch.autograd.grad(loss, policy.logits)
    with torch.no_grad():
        policy.logits.sub_(step_size * gradient)
    return gradient


@effect(
    "From labels of single answers it becomes better than by imitating the good ones.",
    kind="headline",
    method=kto,
    controls={"sft": sft},
    step_sizes=(256.0, 1024.0, 4096.0, 16384.0),
    criteria=[More("success", by=0.02)],
    cost="slow",
    note="The paper compares win rates of language models; the bound is ours.",
)
def labels_teach(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"success": taught(algorithm, seed, step_size)}


def _two(seed: int) -> tuple[TokenTree, TabularPolicy, TabularPolicy, Experience]:
    """Three answers to each of two prompts, a reference, a policy elsewhere, and six rows with labels."""
    tree = TokenTree.full(3, 1, lambda prompt, answer: 0.0, prompts=2)
    reference, policy = TabularPolicy(tree, spread=1.0, seed=1), TabularPolicy(tree, spread=2.0, seed=seed)
    rows, good = torch.tensor([0, 1, 2, 3, 4, 4]), torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    draw = torch.Generator().manual_seed(seed)
    return tree, reference, policy, labelled(tree, reference, rows, good, generator=draw)


@claim(
    "Loss and gradient are those of the formula, with a reference point that has no gradient.",
    kind="identity",
    baseline="the formula, written out",
)
def formula() -> Finding:
    found = torch.tensor([_formula(seed) for seed in range(2, 22)], dtype=torch.double)
    off, point, slope = found.T
    return Finding(
        measured={
            "largest error of the gradient": off.max().item(),
            "largest reference point": point.max().item(),
            "least gradient": slope.min().item(),
        },
        criterion="error < 1e-12 for each of 20 policies and batches, whose gradients are not 0; nor is every "
        "reference point, which has 0 as its least",
        holds=off.max().item() < 1e-12 and point.max().item() > 0.01 and slope.min().item() > 1e-6,
    )


def _formula(seed: int) -> tuple[float, float, float]:
    """Returns the gradient's largest error, the reference point and the gradient's norm, for one policy."""
    tree, reference, policy, batch = _two(seed)
    algorithm = kto(beta=0.5, desirable=1.5)
    ratio = tree.log_probabilities(policy) - tree.log_probabilities(reference).detach()
    answers, strange = batch.extras["leaf"], batch.extras["mismatched"]
    r = 0.5 * ratio.flatten()
    point = r[answers[strange]].mean().clamp(min=0).detach()
    good = (batch.outcome > 0)[~strange]
    margin = torch.where(good, 1.0, -1.0) * (r[answers[~strange]] - point)
    expected = (torch.where(good, 1.5, 1.0) * (1 - torch.sigmoid(margin))).mean()
    (slope,) = torch.autograd.grad(expected, policy.logits)
    off = (_step(algorithm, batch, policy, 0.0) - slope).abs().max()
    return off.item(), point.item(), slope.norm().item()


@claim(
    "An answer whose label contradicts the policy by far moves it no more.",
    kind="theory",
    baseline="the logistic loss, which such answers move most",
)
def contradictions() -> Finding:
    margin = torch.tensor([-20.0, 0.0, 20.0], dtype=torch.double, requires_grad=True)
    slopes = {}
    for name, link in (("KTO", SigmoidLink()), ("logistic", LogisticLink())):
        (slope,) = torch.autograd.grad(link(margin, torch.ones(3)).sum(), margin)
        slopes[name] = slope.abs()
    ours, other = slopes["KTO"], slopes["logistic"]
    return Finding(
        measured={"KTO at -20": ours[0].item(), "KTO at 0": ours[1].item(), "logistic at -20": other[0].item()},
        criterion="KTO's slope 1/4 at 0 and below 1e-8 at -20, the logistic one above 0.99 there",
        holds=abs(ours[1].item() - 0.25) < 1e-12 and ours[0].item() < 1e-8 and other[0].item() > 0.99,
    )


@mutation("The reference point is that of the answers' own prompts.", kills=formula)
def own_answers(replace: Replace) -> None:
    point = ReferencePoint._point

    def of_own(self: ReferencePoint, experience: Experience) -> Tensor:
        return point(self, experience.replace(extras={"mismatched": ~experience.extras["mismatched"]}))

    replace(ReferencePoint, "_point", of_own)


@mutation("The loss is logistic.", kills=contradictions)
def logistic(replace: Replace) -> None:
    replace(SigmoidLink, "forward", lambda self, margin, gap: -torch.nn.functional.logsigmoid(margin))
