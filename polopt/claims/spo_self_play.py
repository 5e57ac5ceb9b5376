"""These programs measure what the paper of SPO, the minimax winner by self-play, claims of training on samples."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource, expectation
from polopt.lab.comparisons import TablePreference, compared_sequences, cyclic_arms, played
from polopt.lab.effects import Less, effect
from polopt.lab.measure import train
from polopt.methods.rloo import rloo
from polopt.methods.spo_self_play import RecentAnswers, spo_self_play
from polopt.rewards import WinRate

STEPS, ROWS = 400, 8


def learned(algorithm: Algorithm, seed: int, step_size: float) -> dict[str, float]:
    """Trains on three answers that beat each other in a cycle, and returns what `played` measures."""
    return played(algorithm, cyclic_arms(tau=0.0), steps=STEPS, step_size=step_size, rows=ROWS, seed=seed)


@effect(
    "Where preferences form a cycle, its policies, averaged, are beaten by little more than one half.",
    kind="headline",
    method=lambda: spo_self_play(preference=TablePreference()),
    controls={"a reward fitted to the comparisons": lambda: rloo(group=4, kl=0.0)},
    step_sizes=(0.1, 0.3, 1.0, 3.0),
    criteria=[Less("mean policy", times=0.5), Less("mean policy", by=-0.1)],
    budget="answers",
    cost="slow",
    note="The duality gap, exact: twice what the best answer wins above 1/2. From (0.7, 0.2, 0.1), 400 batches of 8 "
    "prompts with 4 answers each. The reward is the likeliest one for comparisons of every two answers.",
)
def beaten_by_little(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return learned(algorithm, seed, step_size)


@claim(
    "The last policy has no such guarantee: it goes round.",
    kind="limit",
    baseline="the mean of the policies of the same runs",
    cost="slow",
)
def last_goes_round() -> Finding:
    runs = [learned(spo_self_play(preference=TablePreference()), seed, 1.0) for seed in range(3)]
    last, mean = (sum(run[name] for run in runs) / len(runs) for name in ("exploited", "mean policy"))
    return Finding(
        measured={"gap of the last policy": last, "of the mean": mean},
        criterion="3 runs of 400 batches with a step size of 1: the last policy's mean gap > 2 x that of the mean",
        holds=last > 2 * mean,
    )


@claim(
    "Without a queue the advantage is n / (n - 1) (R - 1/2), and its expected gradient n / (n - 1) times that of the "
    "win rate against the policy.",
    kind="identity",
    baseline="the gradient of the win rate itself, without the factor",
)
def is_the_win_rate() -> Finding:
    problem, n = compared_sequences(3), 3
    policy = TabularPolicy(problem.tree, spread=1.0, seed=11)
    law = problem.tree.log_probabilities(policy).detach()[0].exp()
    against = problem.tree.paying(problem.game.win_rates(law)[None])
    algorithm = spo_self_play(group=n, queue=0, preference=problem.preference)
    found = expectation(algorithm, against, policy, scale=n / (n - 1))
    batch = algorithm.sampling(TreeSource(against, policy, rows=60, seed=1))
    batch = algorithm.with_advantages(batch)
    first = batch.advantage.gather(1, batch.mask.int().argmax(1, keepdim=True))[:, 0]
    off = float((first - n / (n - 1) * (batch.reward - 0.5)).abs().max())
    plain = float((found.mean - found.exact * (n - 1) / n).norm() / found.exact.norm())
    return Finding(
        measured={"relative difference": found.relative_bias, "of advantages": off, "without the factor": plain},
        criterion="groups of 3, enumerated: differences < 1e-9; without the factor > 0.1",
        holds=max(found.relative_bias, off) < 1e-9 < 0.1 < plain,
    )


@claim(
    "A queue of recent answers makes win rates more exact at an equal number of new answers.",
    kind="part",
    baseline="the group's own answers alone",
)
def steadies() -> Finding:
    problem = compared_sequences(5)
    errors = {}
    for name, queue in (("queue", 10), ("group alone", 0)):
        algorithm = spo_self_play(queue=queue, preference=problem.preference)
        source = TreeSource(problem.tree, problem.reference, rows=4, seed=2)
        wins = problem.game.win_rates(problem.game.reference)
        squares = []
        for number in range(200):
            batch = algorithm.with_advantages(algorithm.sampling(source))
            if number >= 10:
                squares.append((batch.reward - wins[batch.extras["leaf"]]).square().mean())
        errors[name] = float(torch.stack(squares).mean().sqrt())
    return Finding(
        measured={f"error, {name}": error for name, error in errors.items()},
        criterion="190 batches of 4 answers of a fixed policy: root mean square error < 0.75 x the group's",
        holds=errors["queue"] < 0.75 * errors["group alone"],
    )


@claim(
    "Where preferences are those of a reward, the last policy is the best answer, as with the reward itself.",
    kind="part",
    baseline="the win rate of the uniform policy's answers: no training",
    cost="slow",
)
def finds_the_best() -> Finding:
    tree = TokenTree.bandit([0.0, 0.5, 1.0, 2.0])
    table = torch.sigmoid(tree.outcome[0, :, None] - tree.outcome[0])
    preference = TablePreference(table=tuple(map(tuple, table.tolist())))
    chances = []
    for seed in range(3):
        policy = TabularPolicy(tree)
        train(spo_self_play(preference=preference), tree, policy, steps=400, rate=3.0, rows=8, seed=seed)
        chances.append(float(tree.log_probabilities(policy).detach()[0, -1].exp()))
    return Finding(
        measured={"least probability of the best answer": min(chances), "at first": 0.25},
        criterion="3 runs of 400 batches on four answers: > 0.95",
        holds=min(chances) > 0.95,
    )


@mutation("The queue is never filled.", kills=steadies)
def forgets(replace: Replace) -> None:
    replace(RecentAnswers, "_recalled", lambda self, kept, own: None)


@mutation("An answer's tie with itself counts.", kills=is_the_win_rate)
def with_itself(replace: Replace) -> None:
    forward = WinRate.forward
    replace(WinRate, "forward", lambda self, experience: forward(self.but(own=True), experience))


@mutation("Earlier answers join another group.", kills=steadies)
def lost_groups(replace: Replace) -> None:
    recalled = RecentAnswers._recalled

    def changed(self: RecentAnswers, kept: Experience, own: Experience) -> Experience | None:
        found = recalled(self, kept, own)
        return None if found is None else found.replace(group=found.group + 1)

    replace(RecentAnswers, "_recalled", changed)
