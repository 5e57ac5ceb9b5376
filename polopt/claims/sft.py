"""These programs measure what the paper of SFT claims."""

import polopt.methods.sft as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.claims import fitted
from polopt.methods.sft import sft
from polopt.objectives import SequenceMean


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


@mutation("The mean is over rows, so that tokens of long answers weigh less.", kills=frequencies)
def mean_over_rows(replace: Replace) -> None:
    replace(module, "TokenMean", SequenceMean)
