"""These programs measure what the paper of OTR claims."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.demonstrations import noisy_labels
from polopt.lab.effects import Less, More, effect
from polopt.methods.otr import OneToken, otr
from polopt.methods.sft import sft


@claim("Many draws say what the closed form says.", kind="identity", baseline="one draw")
def closed_form() -> Finding:
    logits = torch.randn(1, 4, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    tokens, mask = torch.tensor([[0, 3, 5, 1]]), torch.ones(1, 4, dtype=torch.bool)
    batch = Experience(mask=mask, advantage=mask.double(), extras={"tokens": tokens})
    leaf = logits.clone().requires_grad_()

    def gradient(draws: int | None) -> torch.Tensor:
        logp = leaf.log_softmax(-1)
        evaluation = Evaluation(logp=logp.gather(-1, tokens[..., None])[..., 0], logits=leaf)
        return torch.autograd.grad(otr(draws=draws).objective(batch, evaluation).loss, leaf)[0]

    exact = gradient(None)
    many, single = ((gradient(draws) - exact).abs().max().item() for draws in (100_000, 1))
    return Finding(
        measured={"largest error of 100,000 draws": many, "of one draw": single},
        criterion="< 1e-3; one draw > 1e-2",
        holds=many < 1e-3 and single > 1e-2,
    )


@effect(
    "Wrong labels that are rare are not learned.",
    kind="headline",
    method=lambda: otr(draws=None),
    controls={"sft": sft},
    step_sizes=(2.5, 5.0, 10.0, 20.0, 40.0, 80.0),
    criteria=[More("accuracy", by=0.005), Less("P(wrong)", times=0.5)],
    seeds=5,
    trials=1,
    cost="slow",
)
def robust(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """On demonstrations of which a fifth are wrong labels, after 200 batches; answers are sampled."""
    tree, policy, demonstrations = noisy_labels()
    train(algorithm, tree, policy, steps=200, rate=step_size, rows=50, seed=seed, demonstrations=demonstrations)
    wrong = tree.log_probabilities(policy).detach().exp()[:, 10:].sum(1).mean().item()
    return {"accuracy": tree.value(policy).item(), "P(wrong)": wrong}


@claim("Its price: what it holds for unlikely takes it far more steps.", kind="limit", baseline="SFT")
def unlikely() -> Finding:
    steps = {}
    for name, algorithm in (("OTR", otr(draws=None)), ("no misses", otr(draws=None, miss=0.0)), ("SFT", sft())):
        tree = TokenTree.bandit([1.0] + [0.0] * 9)
        probs = torch.tensor([5e-4] + [(1 - 5e-4) / 9] * 9, dtype=torch.double)
        policy = TabularPolicy(tree).set_probabilities(probs)
        seen = train(algorithm, tree, policy, steps=250, rate=4.0, watch=lambda: tree.value(policy).item())  # noqa: B023
        steps[f"steps, {name}"] = float(sum(value < 0.5 for value in seen))
    return Finding(
        measured=steps,
        criterion="steps until p = 0.5, from p = 0.0005, > 10x SFT's",
        holds=min(steps["steps, OTR"], steps["steps, no misses"]) > 10 * steps["steps, SFT"],
        note="What is hardly ever drawn is hardly ever rewarded; punishing misses helps, but not enough.",
    )


@mutation("The drawing probabilities have a gradient in the expectation.", kills=closed_form)
def attached(replace: Replace) -> None:
    forward = OneToken.forward

    def bent(
        self: OneToken, log_ratio: Tensor, experience: Experience, evaluation: Evaluation
    ) -> tuple[Tensor, Tensor]:
        if self.draws is not None:
            return forward(self, log_ratio, experience, evaluation)
        tokens = experience.extras["tokens"][..., None]
        probs, logp = (evaluation.logits / self.temperature).softmax(-1), evaluation.logits.log_softmax(-1)
        reward = torch.full_like(probs, self.miss).scatter(-1, tokens, 1.0)
        return -experience.advantage * (probs * reward * logp).sum(-1), torch.zeros_like(log_ratio)

    replace(OneToken, "forward", bent)


@mutation("Tokens are drawn at temperature 1.", kills=closed_form)
def temperature_ignored(replace: Replace) -> None:
    frequencies = OneToken._frequencies

    def bent(self: OneToken, probs: Tensor, tokens: Tensor) -> Tensor:
        plain = (self.temperature * probs.log()).softmax(-1)
        return frequencies(self, plain, tokens)

    replace(OneToken, "_frequencies", bent)
