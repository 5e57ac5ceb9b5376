"""LUSPO: GSPO in which a long answer pulls as hard, token for token, as a short one."""

import torch

from polopt.algorithm import Algorithm
from polopt.lab import expectation, train
from polopt.lab.problems import longer_is_better
from polopt.method import Finding, Paper, method
from polopt.methods.gspo import gspo
from polopt.objectives import SequenceMean, SequenceSum


@method(
    paper=Paper(
        title="Length-Unbiased Sequence Policy Optimization: "
        "Revealing and Controlling Response Length Variation in RLVR",
        authors="Liu, Fanfan and others",
        year=2026,
        arxiv="2602.05261",
    ),
    changes="GSPO with each answer's loss multiplied by its length.",
    room="objectives",
    tier="proven",
)
def luspo(*, group: int = 8, low: float = 2e-3, high: float = 2.5e-3) -> Algorithm:
    """s_i = exp( (1/|y_i|) sum_t log r_it ) and A_i as in GSPO, and

        L = (1/B) sum_i |y_i| max(-A_i s_i, -A_i clip(s_i, 1 - low, 1 + high))

    Where nothing is clipped the gradient is (1/B) sum_i s_i A_i sum_t grad logp_it: the 1/|y_i| that s_i brings is
    gone. On policy that is Dr. GRPO's with C = 1. The loss is larger than GSPO's by about the mean length: lower the
    learning rate, and expect a gradient clip to act. |y_i| counts decisions alone, and a row without any counts in B.
    TRL's loss_type="luspo" is the same with importance_sampling_level="sequence" and another loss with "token".
    The group of 8 is ours; no KL.
    """
    return gspo(group=group, low=low, high=high).but(**{"objective.aggregate": SequenceSum(length=1)})


GSPO = {"objective.aggregate": SequenceMean()}
CENTRED = {"credit.scale": None}  # a z-score would change the expected gradient of both


@luspo.claim("On policy, exactly (1 - 1/G) of the true gradient, whatever the lengths.", baseline="GSPO's mean")
def unbiased() -> Finding:
    tree, policy = longer_is_better()
    ours = expectation(luspo(group=2).but(CENTRED), tree, policy, scale=1 - 1 / 2)
    mean = expectation(luspo(group=2).but(CENTRED, **GSPO), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "cosine": ours.cosine, "GSPO's mean: cosine": mean.cosine},
        criterion="relative bias < 1e-10 and cosine > 0.9999; GSPO's mean: cosine < 0.9",
        holds=ours.relative_bias < 1e-10 and ours.cosine > 0.9999 and mean.cosine < 0.9,
    )


@luspo.claim("Where longer answers are better, answers grow longer and better.", baseline="GSPO's mean, equal step")
def grows() -> Finding:
    found = {}
    for name, change in (("LUSPO", {}), ("GSPO", GSPO)):
        tree, policy = longer_is_better(prompts=10)  # alike, and apart in the table: ten seeds at once
        train(luspo().but(CENTRED, **change), tree, policy, steps=400, rate=10.0, rows=10)
        odds = tree.log_probabilities(policy).detach().exp().mean(0)
        lengths = torch.tensor([float(len(a)) for a in tree.answers], dtype=torch.double)
        found[name] = tree.value(policy).item(), (odds @ lengths).item()
    (value, length), (base, shorter) = found["LUSPO"], found["GSPO"]
    return Finding(
        measured={"value": value, "length": length, "GSPO's mean: value": base, "length of it": shorter},
        criterion="400 steps, 10 prompts: length > 15.5 and value > 0.69; GSPO's mean < 15 and < 0.685",
        holds=length > 15.5 and value > 0.69 and shorter < 15 and base < 0.685,
    )
