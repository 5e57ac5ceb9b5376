"""These programs measure what the paper of RAFT claims."""

from polopt import ops
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import expectation
from polopt.lab.claims import collapse
from polopt.lab.problems import many_right
from polopt.methods.dr_grpo import dr_grpo
from polopt.methods.raft import raft
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


@claim(
    "At equal reward it leaves fewer different right answers.",
    kind="part",
    baseline="Dr. GRPO, at 0.95 success",
    refuted=True,
)
def collapses() -> Finding:
    ours = collapse(raft(group=64, keep=64, threshold=1.0))
    base = collapse(dr_grpo(group=64, length=1))
    return Finding(
        measured={"effective right answers": ours, "Dr. GRPO": base},
        criterion="not larger than Dr. GRPO's (24 seeds, 8 of 32 arms right)",
        holds=ours <= base,
        note="On average both move in the same direction, so only noise parts them: groups of 64 keep more under RAFT, "
        "groups of 16 with rates of 2 and more keep less.",
    )


@mutation("Answers below the threshold are kept.", kills=like_reinforce)
def no_threshold(replace: Replace) -> None:
    def forward(self: TopK, experience: Experience) -> Experience:
        count = len(experience) if self.count is None else self.count
        return experience[ops.group_place(experience.outcome, experience.group) < count]

    replace(TopK, "forward", forward)
