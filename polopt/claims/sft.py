"""These programs measure what the paper of SFT claims."""

from polopt.claim import Finding, claim
from polopt.lab.claims import fitted
from polopt.methods.sft import sft


@claim(
    "Its minimiser plays each answer as often as it was demonstrated.", kind="identity", baseline="the policy before"
)
def frequencies() -> Finding:
    before, after = fitted(sft(), counts=[9, 4, 2, 1, 0, 3, 1])
    return Finding(
        measured={"total variation": after, "before": before},
        criterion="total variation < 1e-3, before > 0.1",
        holds=after < 1e-3 and before > 0.1,
    )
