"""These programs measure what the paper of HPT claims."""

import torch
from torch import Tensor

import polopt.methods.unified_hpt as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import train
from polopt.lab.demonstrations import two_kinds
from polopt.methods.unified_hpt import unified_hpt
from polopt.objectives import Clip, ClipWeight, PolicyGradient, SaturatedRatio, Surrogate
from polopt.sampling import WithSolutions


def slots(stable: Tensor, denominator: Tensor, advantage: Tensor, logp: Tensor) -> Tensor:
    """The unified estimator: 1_stable (1 / denominator) A grad pi, by decision, in units of grad logp."""
    return stable / denominator * advantage * logp.exp()


@claim(
    "SFT, REINFORCE, PPO, CISPO and shaped offline RL are one estimator.",
    kind="identity",
    baseline="each other's slots",
)
def four_slots() -> Finding:
    draw = torch.randn(3, 9, 9, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    logp, old, A = -1 - draw[0].abs(), -1 - (draw[0] + 0.3 * draw[1]).abs(), draw[2]
    one, p, r = torch.ones_like(A), logp.exp(), (logp - old).exp()
    stable = ~(((A > 0) & (r > 1.2)) | ((A < 0) & (r < 0.8)))
    score, cispo = Surrogate(ratio=None, trust=PolicyGradient()), Surrogate(trust=ClipWeight(high=0.2))
    # objective, advantage, the sampler's logp; and the slots: mask, denominator
    cases: dict[str, tuple[Surrogate, Tensor, Tensor, Tensor, Tensor]] = {
        "SFT": (score, one, old, one, p),
        "REINFORCE": (score, A, old, one, p),
        "PPO": (Surrogate(trust=Clip()), A, old, stable.double(), old.exp()),
        "CISPO": (cispo, A, old, one, p / r.clamp(max=1.2)),
        "offline": (Surrogate(trust=SaturatedRatio(bend=0.1)), A, 0 * old, one, (p + 0.1).square() / 0.1),
    }
    errors, others = dict[str, float](), list[float]()
    for name, (objective, advantage, sampler, *_) in cases.items():
        leaf = logp.clone().requires_grad_()
        batch = Experience(mask=one.bool(), rollout_logp=sampler, advantage=advantage)
        (found,) = torch.autograd.grad(objective(batch, Evaluation(logp=leaf)).loss, leaf)
        for other, (_, credit, _, mask, denominator) in cases.items():
            error = (found * -A.numel() - slots(mask, denominator, credit, logp)).abs().max().item()
            errors |= {name: error} if name == other else {}
            others += [] if name == other else [error]
    return Finding(
        measured={**errors, "least error with another's": min(others)},
        criterion="every error < 1e-12, with another's slots > 1e-3",
        holds=max(errors.values()) < 1e-12 and min(others) > 1e-3,
    )


def learned(algorithm: Algorithm, known: bool = True) -> tuple[float, float]:
    """Mean reward after 150 steps on prompts that can be solved, and on needles."""
    tree, policy, demonstrations = two_kinds(known)
    train(algorithm, tree, policy, steps=150, rate=40.0, rows=tree.prompts, demonstrations=demonstrations)
    reward = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    return reward[:10].mean().item(), reward[10:].mean().item()


@claim(
    "It keeps what rollouts find better than the demonstration, and imitates where they find nothing.",
    kind="headline",
    baseline="RL alone, SFT alone, half of each",
)
def best_of_both() -> Finding:
    everywhere = unified_hpt(gate=1)
    half = {"objective.routes.0.weight": 0.5, "objective.routes.1.weight": 0.5}
    others = {"RL": unified_hpt(gate=-1), "SFT": everywhere, "half of each": everywhere.but(half, select=[])}
    found = {"HPT": learned(unified_hpt()), **{name: learned(other) for name, other in others.items()}}
    reward = {name: sum(kinds) / 2 for name, kinds in found.items()}
    best = max(reward[name] for name in others)
    return Finding(
        measured={**reward, "HPT, solvable": found["HPT"][0], "HPT, needles": found["HPT"][1]},
        criterion="HPT >= the best other + 0.05",
        holds=reward["HPT"] >= best + 0.05,
        note="Half of each imitates 0.8 even where the policy had found 1.0.",
    )


@mutation("Every prompt is imitated: the gate is ignored.", kills=best_of_both)
def always_imitates(replace: Replace) -> None:
    replace(module, "WithSolutions", lambda gate: WithSolutions(gate=1.0 if gate == 0 else gate))
