"""These programs measure what the paper of ReMax claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GreedyReturn
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, raised, uneven
from polopt.methods.reinforce import reinforce
from polopt.methods.remax import remax


@claim("Unbiased, with less variance than without a baseline.", kind="headline", baseline="REINFORCE")
def less_variance() -> Finding:
    tree = TokenTree.full(3, 3, lambda prompt, answer: 1 + 0.2 * sum(answer) + 0.3 * prompt, stop=2, prompts=2)
    policy = TabularPolicy(tree, spread=0.7, seed=1)
    ours, plain = expectation(remax(kl=0), tree, policy), expectation(reinforce(), tree, policy)
    return Finding(
        measured={"relative bias": ours.relative_bias, "variance ratio": ours.variance / plain.variance},
        criterion="relative bias < 1e-10; variance < 0.5 of REINFORCE's",
        holds=ours.relative_bias < 1e-10 and ours.variance < 0.5 * plain.variance,
        note="On rewards in [1, 2.5], far from 0; see the next claim for rewards 0 and 1.",
    )


@claim(
    "With rewards 0 and 1 it has more variance than REINFORCE, once the greedy answer is right.",
    kind="limit",
    baseline="REINFORCE",
)
def right_or_wrong() -> Finding:
    tree = TokenTree.bandit([1.0, 0.0, 0.0])
    ratio = {}
    for success in (0.2, 0.4, 0.8):
        probs = torch.tensor([success, (1 - success) / 2, (1 - success) / 2], dtype=torch.double)
        policy = TabularPolicy(tree).set_probabilities(probs)
        ours, plain = expectation(remax(kl=0), tree, policy), expectation(reinforce(), tree, policy)
        ratio[f"variance ratio at success {success}"] = ours.variance / plain.variance
    return Finding(
        measured=ratio,
        criterion="the ratio is 1 at 0.2, where the greedy answer is wrong, and > 2 at 0.4 and 0.8, where it is right",
        holds=all(abs(x - 1) < 1e-12 if "0.2" in name else x > 2 for name, x in ratio.items()),
        note="The baseline is then 0 or 1. While the greedy answer is wrong nothing changes; once it is right, only "
        "wrong answers teach, and the rarer they are the larger their score: variance up to 26 times REINFORCE's.",
    )


@effect(
    "With as many answers, the greedy ones included, it has learned more than REINFORCE.",
    kind="headline",
    method=lambda: remax(kl=0),
    controls={"reinforce, two answers": lambda: reinforce(group=2)},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[More("mean reward", by=0.05)],
    cost="slow",
    refuted=True,
    note="Rewards are 1 and 2. Half of its answers are greedy, and teach nothing but the baseline: it leads on "
    "average, but REINFORCE has twice the batch, and ten seeds do not tell them apart.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    found = learned(algorithm, raised(uneven(seed)), steps=80, step_size=step_size, seed=seed)
    return {"mean reward": found["mean success"]}


@mutation("The greedy answer's return is added, not taken away.", kills=less_variance)
def wrong_sign(replace: Replace) -> None:
    right = GreedyReturn.forward
    replace(GreedyReturn, "forward", lambda self, experience, returns: -right(self, experience, returns))
