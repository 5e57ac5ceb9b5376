"""These programs measure what the paper of RAFT claims."""

from polopt import ops
from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import expectation
from polopt.lab.claims import collapse
from polopt.lab.effects import Less, More, effect
from polopt.lab.problems import many_right
from polopt.lab.progress import learned, raised, uneven
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.raft import raft
from polopt.methods.reinforce import reinforce
from polopt.sampling import TopK


@claim("Keeping all right answers follows REINFORCE's direction.", kind="identity", baseline="keeping all answers")
def like_reinforce() -> Finding:
    tree, policy = many_right(right=2, arms=5)
    right = expectation(raft(group=3, keep=3, threshold=1.0), tree, policy)
    both = expectation(raft(group=3, keep=3), tree, policy)
    return Finding(
        measured={"cosine": right.cosine, "keeping all: gradient norm": both.mean.norm().item()},
        criterion="cosine > 1 - 1e-10; keeping all: no gradient, < 1e-10",
        holds=right.cosine > 1 - 1e-10 and both.mean.norm().item() < 1e-10,
    )


@effect(
    "At equal reward it leaves fewer different right answers.",
    kind="part",
    method=lambda: raft(group=16, keep=16, threshold=1.0),
    controls={"dr-grpo": lambda: dr_grpo(group=16, length=1)},
    step_sizes=(1.0,),
    criteria=[Less("right answers", times=1.0)],
    seeds=20,
    cost="slow",
    refuted=True,
    note="On average both move in the same direction, so only noise parts them.",
)
def collapses(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    """Effective number of right answers, 8 of 32 arms, at 0.95 success."""
    return {"right answers": collapse(algorithm, rate=step_size, seeds=range(seed, seed + 1))}


@effect(
    "With as many answers it has learned more than REINFORCE: of rewards only the order counts, not their level.",
    kind="headline",
    method=lambda: raft(group=8),
    controls={"reinforce": lambda: reinforce(group=8)},
    step_sizes=(16.0, 32.0, 64.0, 128.0, 256.0),
    criteria=[More("mean reward", by=0.02)],
    seeds=30,
    trials=5,
    budget="answers",
    cost="slow",
    note="Rewards are 1 and 2. The paper compares with PPO, which has a baseline; RLOO's claims compare with one.",
)
def learns_more(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    found = learned(algorithm, raised(uneven(seed)), steps=40, step_size=step_size, seed=seed)
    return {"mean reward": found["mean success"], "answers": found["answers"]}


@mutation("Answers below the threshold are kept.", kills=like_reinforce)
def no_threshold(replace: Replace) -> None:
    def forward(self: TopK, experience: Experience) -> Experience:
        count = len(experience) if self.count is None else self.count
        return experience[ops.group_place(experience.outcome, experience.group) < count]

    replace(TopK, "forward", forward)
