"""These programs measure what the paper of HPT claims."""

import torch
from torch import Tensor

import polopt.methods.unified_hpt as module
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import TreeSource, train
from polopt.lab.demonstrations import two_kinds
from polopt.lab.effects import More, effect
from polopt.methods.unified_hpt import ReplacedBySolutions, unified_hpt
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


def _sft() -> Algorithm:
    return unified_hpt(gate=1)


def _half_of_each() -> Algorithm:
    half = {"objective.routes.0.weight": 0.5, "objective.routes.1.weight": 0.5}
    return _sft().but(half, select=[])


@effect(
    "It keeps what rollouts find better than the demonstration, and imitates where they find nothing.",
    kind="headline",
    method=unified_hpt,
    controls={"RL alone": lambda: unified_hpt(gate=-1), "SFT alone": _sft, "half of each": _half_of_each},
    step_sizes=(10.0, 40.0, 160.0),
    criteria=[More("reward", by=0.05)],
    seeds=5,
    trials=1,
    cost="slow",
    note="Half of each imitates 0.8 even where the policy had found 1.0.",
)
def best_of_both(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    solvable, needles = learned(algorithm, seed=seed, step_size=step_size)
    return {"reward": (solvable + needles) / 2}


def learned(algorithm: Algorithm, known: bool = True, *, seed: int = 0, step_size: float = 40.0) -> tuple[float, float]:
    """Mean reward after 150 steps, of prompts that can be solved, and of needles."""
    tree, policy, demonstrations = two_kinds(known, half=5)
    ways = {"steps": 150, "rate": step_size, "rows": tree.prompts, "seed": seed}
    train(algorithm, tree, policy, demonstrations=demonstrations, **ways)  # type: ignore[arg-type]
    reward = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    return reward[:5].mean().item(), reward[5:].mean().item()


@claim(
    "Where no rollout finds the better answers at first, it stays at the demonstration.",
    kind="limit",
    baseline="what it reaches where they are found",
    cost="slow",
)
def stays_at_the_demonstration() -> Finding:
    reached = {known: learned(unified_hpt(), known=known)[0] for known in (True, False)}
    return Finding(
        measured={"solvable, found at first": reached[True], "solvable, not found": reached[False]},
        criterion="not found: 0.8, what is demonstrated, within 0.02; found at first > 0.95",
        holds=abs(reached[False] - 0.8) < 0.02 and reached[True] > 0.95,
        note="Once the demonstration is learned, all rollouts are alike, and nothing is left to learn from.",
    )


@claim(
    "A prompt's batch is its rollouts if one of them is right, else its demonstration alone.",
    kind="identity",
    baseline="rollouts of every prompt",
)
def switched() -> Finding:
    tree, policy, demonstrations = two_kinds(half=5)
    algorithm = unified_hpt()
    source = TreeSource(tree, policy, rows=8 * tree.prompts, demonstrations=demonstrations)
    batch = algorithm.compute_advantages(algorithm.sampling(source))
    index, shown = batch.extras["index"], batch.is_demonstration
    rollouts, imitated = (torch.bincount(index[rows], minlength=10) for rows in (~shown, shown))
    solvable, needles = torch.arange(10) < 5, torch.arange(10) >= 5
    right = (rollouts == torch.where(solvable, 8, 0)) & (imitated == torch.where(needles, 1, 0))
    return Finding(
        measured={
            "rollouts of what is solved": float(rollouts[solvable].sum()),
            "of needles": float(rollouts[5:].sum()),
        }
        | {"demonstrations of what is solved": float(imitated[:5].sum()), "needles'": float(imitated[5:].sum())},
        criterion="8 rollouts and no demonstration of each that is solved, the reverse of each of 200 arms that is not",
        holds=bool(right.all()),
    )


@mutation("Every prompt is imitated: the gate is ignored.", kills=switched)
def always_imitates(replace: Replace) -> None:
    replace(module, "WithSolutions", lambda gate: WithSolutions(gate=1.0 if gate == 0 else gate))


@mutation("Rollouts of prompts that are imitated stay in the batch.", kills=switched)
def rollouts_stay(replace: Replace) -> None:
    replace(ReplacedBySolutions, "forward", lambda self, experience: experience)
