"""These programs measure what the paper of RLOO claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import GroupMean, LeaveOneOut
from polopt.lab import TabularPolicy, TokenTree, expectation
from polopt.lab.effects import More, effect
from polopt.lab.progress import learned, raised, uneven
from polopt.methods.raft import raft
from polopt.methods.reinforce import reinforce
from polopt.methods.rloo import rloo


@claim(
    "Unbiased at any group size.",
    kind="part",
    baseline="the mean of all, the row included, which shrinks by 1 - 1/G",
)
def unbiased() -> Finding:
    tree = TokenTree.bandit([0.0, 0.2, 0.4, 0.5, 0.9, 1.0])
    policy = TabularPolicy(tree, spread=1.0, seed=3)
    algorithm = rloo(group=2, kl=0)
    ours = expectation(algorithm, tree, policy)
    own = algorithm.but(**{"credit.baseline": GroupMean()})
    with_self, shrunk = expectation(own, tree, policy), expectation(own, tree, policy, scale=0.5)
    return Finding(
        measured={
            "relative bias": ours.relative_bias,
            "with self": with_self.relative_bias,
            "with self, against half the gradient": shrunk.relative_bias,
        },
        criterion="relative bias < 1e-12; with self 0.5, and < 1e-12 against half the gradient",
        holds=ours.relative_bias < 1e-12 and abs(with_self.relative_bias - 0.5) < 1e-9 and shrunk.relative_bias < 1e-12,
    )


@effect(
    "With as many answers it has learned more than REINFORCE without a baseline, and than RAFT.",
    kind="headline",
    method=lambda: rloo(group=4, kl=0),
    controls={"reinforce": lambda: reinforce(group=4), "raft": lambda: raft(group=4)},
    step_sizes=(16.0, 32.0, 64.0, 128.0, 256.0),
    criteria=[More("mean reward", by=0.05)],
    budget="answers",
    cost="slow",
    note="Rewards are 1 and 2. PPO, which the paper compares as well, needs a critic, and is not in this comparison.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    found = learned(algorithm, raised(uneven(seed)), steps=40, step_size=step_size, seed=seed)
    return {"mean reward": found["mean success"], "answers": found["answers"]}


@mutation("The baseline is the mean of all rows, the row itself included.", kills=unbiased)
def own_row_included(replace: Replace) -> None:
    replace(LeaveOneOut, "forward", lambda self, experience, returns: GroupMean()(experience, returns))
