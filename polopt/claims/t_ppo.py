"""These programs measure what the paper of T-PPO claims."""

import torch

import polopt.methods.t_ppo as module
from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GAE
from polopt.experience import Experience
from polopt.lab import TreeSource
from polopt.lab.claims import with_exact_critic
from polopt.lab.effects import Less, effect
from polopt.lab.problems import corridor
from polopt.methods.t_ppo import DecoupledTargets, t_ppo

LENGTH, WINDOW = 60, 15
STEP_SIZES = (0.05, 0.1, 0.2, 0.4, 0.8)
# As if an unfinished answer had ended where its window does.
AS_ENDED = {"credit.credit.open": "cut"}


def _unfinished() -> tuple[Experience, torch.Tensor]:
    """Walks of one window under a critic that is exact, and which of them go on."""
    tree, policy = with_exact_critic(*corridor(LENGTH))
    algorithm = t_ppo(window=WINDOW)
    batch = algorithm.sampling(TreeSource(tree, policy, rows=64, needs=algorithm.required_fields))
    return batch, ~batch.terminated


@claim(
    "The last decision of an unfinished answer has advantage 0.",
    kind="identity",
    baseline="GAE told to end with that value",
)
def last_is_zero() -> Finding:
    batch, going = _unfinished()
    found, last = t_ppo().credit(batch), ops.last_decision(batch.mask)
    copied = torch.where(last, batch.value, 0).sum(1)
    expected = GAE(lam=0.95)(batch.replace(final_value=copied))
    off = (found - expected).abs().max().item()
    cut = found[last & going[:, None]].abs().max().item()
    return Finding(
        measured={"at the cut": cut, "largest difference from the baseline": off, "largest": found.abs().max().item()},
        criterion="both 0, the largest > 0.01",
        holds=cut == 0 and off == 0 and found.abs().max().item() > 0.01,
    )


@claim(
    "Ending answers with the window instead blames their last decisions.",
    kind="identity",
    baseline="the same with cut zero",
)
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


def _effort(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Tokens, and steps in a row, the longest row of each batch, until the corridor's policy is right in 0.8 of its
    walks; 120 batches of 32 rows at most. Adam."""
    tree, policy = corridor(LENGTH)
    source = TreeSource(tree, policy, rows=32, seed=seed, needs=algorithm.required_fields)
    optimiser, waits = torch.optim.Adam(policy.parameters(), lr=step_size), 0
    for _ in range(120):
        source.refresh()
        batch = algorithm.sampling(source)
        waits += int(batch.extras["window"].sum(1).max())
        batch = algorithm.compute_advantages(batch)
        for _ in range(2):
            optimiser.zero_grad()
            evaluation = policy.evaluate(batch, algorithm.objective.required_outputs)
            algorithm.objective(batch, evaluation).loss.backward()
            optimiser.step()
        if tree.value(policy) >= 0.8:
            break
    return {"tokens": float(source.decided), "steps in a row": float(waits)}


@effect(
    "A corridor of 60 steps in windows of 15: no more tokens than PPO, and half the time.",
    kind="headline",
    method=lambda: t_ppo(window=WINDOW),
    controls={"a window of 60 (ppo)": lambda: t_ppo(window=LENGTH)},
    step_sizes=STEP_SIZES,
    criteria=[Less("steps in a row", times=0.5), Less("tokens", times=1.1)],
    seeds=12,
    trials=3,
    cost="slow",
    refuted=True,
    note="At small steps, equal for both, it needs 0.6 of the tokens and 0.4 of the time, as a batch of windows holds "
    "fewer tokens. Whole walks bear larger steps, and then need fewer batches.",
)
def corridor_in_windows(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _effort(algorithm, seed, step_size)


@effect(
    "Windows that end the answer need more tokens.",
    kind="part",
    method=lambda: t_ppo(window=WINDOW),
    controls={"windows that end the answer": lambda: t_ppo(window=WINDOW).but(AS_ENDED)},
    step_sizes=STEP_SIZES,
    criteria=[Less("tokens", times=1.0)],
    seeds=6,
    trials=2,
    cost="slow",
    note="Stopped at 120 batches, which hides how much more.",
)
def ending_costs(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return _effort(algorithm, seed, step_size)


@claim(
    "The critic learns the outcome of finished answers, whatever lambda the advantages have.",
    kind="identity",
    baseline="the targets of the advantages' own lambda",
)
def targets() -> Finding:
    tree, policy = with_exact_critic(*corridor(LENGTH))
    algorithm = t_ppo(window=WINDOW)
    source = TreeSource(tree, policy, rows=64, needs=algorithm.required_fields)
    batch = algorithm.sampling(source)
    found, own = algorithm.credit.value_target(batch), GAE(lam=0.95, cut="zero").value_target(batch)
    assert found is not None
    assert own is not None
    rows = batch.mask & batch.terminated[:, None]
    off, other = ((x - batch.outcome[:, None])[rows].abs().max().item() for x in (found, own))
    return Finding(
        measured={"largest error": off, "at the advantages' lambda": other, "decisions": float(rows.sum())},
        criterion="< 1e-12; at the advantages' lambda > 0.01",
        holds=off < 1e-12 and other > 0.01,
    )


@mutation("Answers end with their window.", kills=biased_at_the_cut)
def ends_with_the_window(replace: Replace) -> None:
    replace(module, "GAE", lambda lam, cut, open="cut": GAE(lam=lam, cut=cut, open="cut"))


@mutation("The critic's targets have the lambda of the advantages.", kills=targets)
def one_lambda(replace: Replace) -> None:
    replace(module, "DecoupledTargets", lambda credit, target: DecoupledTargets(credit=credit, target=credit))
