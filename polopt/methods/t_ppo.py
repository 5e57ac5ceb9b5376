"""T-PPO: nobody waits for the longest answer."""

from collections.abc import Callable

import torch

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.credit import GAE
from polopt.experience import Experience
from polopt.lab import TreeSource
from polopt.lab.claims import with_exact_critic
from polopt.lab.problems import corridor
from polopt.method import Finding, Paper, method
from polopt.objectives import (
    AuxiliaryLoss,
    Branch,
    BranchedObjective,
    Clip,
    FieldMask,
    Finished,
    Surrogate,
    TokenMean,
    TokenRatio,
    ValueLoss,
)
from polopt.sampling import PartialRollouts


@method(
    paper=Paper(
        title="Truncated Proximal Policy Optimization",
        authors="Fan, Tiantian and Liu, Lingjun and Yue, Yu and Chen, Jiaze and Wang, Chengyi and others",
        year=2025,
        arxiv="2506.15050",
    ),
    changes="PPO on answers that grow by a window a batch: advantages of unfinished answers, a critic taught by "
    "finished ones.",
    room="sampling",
    tier="reading",
)
def t_ppo(
    *, window: int = 8192, clip: float = 0.2, lam: float = 0.95, value_lam: float = 1.0, value: float = 0.5
) -> Algorithm:
    """Each batch generates at most `window` tokens of every answer. Finished answers leave, new prompts enter,
    unfinished answers go on in the next batch. Extended GAE ends an unfinished answer y_0..y_(l-1) with
    V(s_l) := V(s_(l-1)),

        delta_t = r_t + V(s_(t+1)) - V(s_t),    A_t = sum_(u >= t) lam^(u - t) delta_u,    so A_(l-1) = 0,

    and L = mean_w max(-A r, -A clip(r, 1 - clip, 1 + clip)) + value * mean_f 0.5 (V - R)^2, with w the tokens of this
    batch's window, each of them policy data once, and f all tokens of the answers that this batch finished; R is their
    lambda-return with `value_lam`, at 1 the outcome.

    Ratios are to the policy that sampled the window. Values of earlier windows are the critic's of now. An answer cut
    off at the episode's own limit is worth 0 from there on, as in `ppo`; with a window as long as that this is PPO with
    decoupled lambdas, without whitening and KL. The paper's are a window of 8k of 24k tokens and learning rates of its
    own for actor and critic, which share a trunk and an optimiser here, and a critic that is warmed up. Which tokens
    each loss takes, and both lambdas, could not be confirmed and are our reading.
    """
    critic = ValueLoss(target=GAE(lam=value_lam, cut="zero"), coefficient=value, clip=None)
    actor = Surrogate(ratio=TokenRatio(), trust=Clip(low=clip, high=clip), aggregate=TokenMean())
    return Algorithm(
        sampling=PartialRollouts(window=window),
        credit=GAE(lam=lam, cut="zero", open="last"),
        objective=BranchedObjective(
            routes=[
                Branch(objective=actor, rows=FieldMask(name="window")),
                Branch(objective=AuxiliaryLoss(regularise=[critic]), rows=Finished()),
            ]
        ),
    )


LENGTH, WINDOW = 60, 15
# As if an unfinished answer had ended where its window does.
AS_ENDED = {"credit.open": "cut"}


def _unfinished() -> tuple[Experience, torch.Tensor]:
    """Walks of one window under a critic that is exact, and which of them go on."""
    tree, policy = with_exact_critic(*corridor(LENGTH))
    sentence = t_ppo(window=WINDOW)
    batch = sentence.sampling(TreeSource(tree, policy, rows=64, needs=sentence.all_needs))
    return batch, ~batch.terminated


@t_ppo.claim("The last decision of an unfinished answer has advantage 0.", baseline="GAE told to end with that value")
def last_is_zero() -> Finding:
    batch, going = _unfinished()
    found, last = t_ppo().credit(batch), ops.last_decision(batch.mask)
    copied = torch.where(last, batch.value, 0).sum(1)
    told = GAE(lam=0.95)(batch.replace(final_value=copied))
    off = (found - told).abs().max().item()
    cut = found[last & going[:, None]].abs().max().item()
    return Finding(
        measured={"at the cut": cut, "largest difference from the baseline": off, "largest": found.abs().max().item()},
        criterion="both 0, the largest > 0.01",
        holds=cut == 0 and off == 0 and found.abs().max().item() > 0.01,
    )


@t_ppo.claim("Ending answers with the window instead blames their last decisions.", baseline="the same with cut zero")
def biased_at_the_cut() -> Finding:
    batch, going = _unfinished()
    last = ops.last_decision(batch.mask) & going[:, None]
    blame = {}
    for name, credit in (("extended", t_ppo().credit), ("as ended", t_ppo().but(AS_ENDED).credit)):
        blame[name] = (credit(batch)[last].mean() / batch.value[last].mean()).item()
    return Finding(
        measured=blame,
        criterion="mean advantage at the cut in units of V: 0 extended, <= -0.5 as ended",
        holds=blame["extended"] == 0 and blame["as ended"] <= -0.5,
    )


def _efforts(build: Callable[[], Algorithm], seeds: int = 2) -> tuple[float, float]:
    """Tokens, and steps in a row, until the corridor's policy is right in 0.8 of its walks; 120 batches at most."""
    tokens = waits = 0
    for seed in range(seeds):
        tree, policy = corridor(LENGTH)
        sentence = build()
        source = TreeSource(tree, policy, rows=32, seed=seed, needs=sentence.all_needs)
        optimiser = torch.optim.Adam(policy.parameters(), lr=0.05)
        for _ in range(120):
            source.refresh()
            batch = sentence.sampling(source)
            waits += int(batch.extras["window"].sum(1).max())
            batch = sentence.judge(batch)
            for _ in range(2):
                optimiser.zero_grad()
                said = policy.evaluate(batch, sentence.objective.all_evaluates)
                sentence.objective(batch, said).loss.backward()
                optimiser.step()
            if tree.value(policy) >= 0.8:
                break
        tokens += source.decided
    return tokens / seeds, waits / seeds


@t_ppo.claim(
    "A corridor of 60 steps in windows of 15: no more tokens than PPO, and half the time.",
    baseline="a window of 60; windows that end the answer",
)
def corridor_in_windows() -> Finding:
    ours, whole = _efforts(lambda: t_ppo(window=WINDOW)), _efforts(lambda: t_ppo(window=LENGTH))
    ended = _efforts(lambda: t_ppo(window=WINDOW).but(AS_ENDED))
    measured = {"tokens over PPO's": ours[0] / whole[0], "steps in a row over PPO's": ours[1] / whole[1]}
    return Finding(
        measured=measured | {"as ended, tokens over PPO's": ended[0] / whole[0]},
        criterion="tokens <= 1.1x; steps in a row, the longest row of each batch, <= 0.5x; as ended > 2x the tokens",
        holds=ours[0] <= 1.1 * whole[0] and ours[1] <= 0.5 * whole[1] and ended[0] > 2 * whole[0],
        note="32 rows a batch. A batch of windows holds fewer tokens, so tokens buy more updates: that is why it needs "
        "fewer of them here. Stopped at 120 batches, which hides how much worse ending them is.",
    )
