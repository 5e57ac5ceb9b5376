"""HPT: reinforcement learning where the policy solves something, imitation where it does not."""

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.credit import GroupMean, RelativeAdvantage
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab import train
from polopt.lab.demonstrations import two_kinds
from polopt.method import Finding, Paper, method
from polopt.objectives import (
    Branch,
    BranchedObjective,
    Clip,
    ClipWeight,
    EntropyBonus,
    IsDemonstration,
    PolicyGradient,
    SaturatedRatio,
    SequenceSum,
    Surrogate,
    TokenMean,
    TokenRatio,
    Unclipped,
)
from polopt.sampling import ReplacedBySolutions, Rollouts, WithSolutions


@method(
    paper=Paper(
        title="Towards a Unified View of Large Language Model Post-Training",
        authors="Lv, Xingtai and others",
        year=2025,
        arxiv="2509.04419",
    ),
    changes="A prompt whose rollouts succeed too rarely is learned from its demonstration instead of from them.",
    tier="faithful",
)
def unified_hpt(*, group: int = 8, gate: float = 0.0, sft: float = 1.0, entropy: float = 0.001) -> Algorithm:
    """With P the mean outcome of a prompt's rollouts, A_i = R_i - mean_g R and r the token ratio to the sampler,

        P > gate:   (1 / (B C)) sum_it [ -A_i r_it - entropy H ]        P <= gate:   -sft mean_t logp of its solution

    summed over both kinds. C is the batch's horizon, B the rollouts that are left; the likelihood is a mean over the
    demonstrated tokens of the batch. gate < 0 is Dr. GRPO without its clip, gate >= 1 is imitation alone. The paper's
    gate is 0, or 2 of 8 (0.25) for Llama-3.1-8B, and sft 0.3 for the 1.5B model. The rollouts of a replaced prompt are
    sampled, judged and reported, and then left out.

    Where all first rollouts fail it imitates, and its rollouts become the demonstration: groups that are all equal
    teach nothing more, and it ends at what was shown even if better answers exist.

    The reference code sums the RL term over each micro-batch's rows instead of averaging it, hence its gradient clip of
    80. Its second gate, which puts a demonstration among the rollouts as an off-policy row, is left out.

    The paper's unified estimator is 1_stable / pi_den A grad pi: a trust region, a denominator, an advantage, the
    likelihood's slope. In polopt the four are trust, ratio, credit and what `ratio=None` or a ratio differentiates.
    """
    regularise = [EntropyBonus(coefficient=entropy)] if entropy else []
    return Algorithm(
        sampling=Rollouts(group=group, mix=[WithSolutions(gate=gate)]),
        credit=RelativeAdvantage(baseline=GroupMean(), scale=None),
        select=[ReplacedBySolutions()],
        objective=BranchedObjective(
            routes=[
                Branch(
                    objective=Surrogate(
                        ratio=TokenRatio(), trust=Unclipped(), aggregate=SequenceSum(), regularise=regularise
                    ),
                    rows=IsDemonstration(invert=True),
                ),
                Branch(
                    objective=Surrogate(ratio=None, trust=PolicyGradient(), aggregate=TokenMean()),
                    rows=IsDemonstration(),
                    weight=sft,
                ),
            ]
        ),
    )


def slots(stable: Tensor, denominator: Tensor, advantage: Tensor, logp: Tensor) -> Tensor:
    """The unified estimator: 1_stable (1 / denominator) A grad pi, by decision, in units of grad logp."""
    return stable / denominator * advantage * logp.exp()


@unified_hpt.claim("SFT, REINFORCE, PPO, CISPO and shaped offline RL are one estimator.", baseline="each other's slots")
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
        batch = Experience(mask=one.bool(), logp=sampler, advantage=advantage)
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
    tree, policy, shown = two_kinds(known)
    train(algorithm, tree, policy, steps=150, rate=40.0, rows=tree.prompts, demonstrations=shown)
    reward = (tree.log_probabilities(policy).detach().exp() * tree.outcome).sum(1)
    return reward[:10].mean().item(), reward[10:].mean().item()


@unified_hpt.claim(
    "It keeps what rollouts find better than the demonstration, and imitates where they find nothing.",
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
