"""These programs measure what the paper of RFT claims."""

from polopt.claim import Finding, claim
from polopt.lab.claims import right_entropy
from polopt.methods.rft import rft
from polopt.sampling import TopK


@claim("What it fits is more diverse than all right answers with their repeats.", kind="part", baseline="no Distinct")
def diversity() -> Finding:
    distinct = right_entropy(rft())
    repeats = right_entropy(rft().but(**{"sampling.select": [TopK(count=100, threshold=1.0)]}))
    return Finding(
        measured={"effective right answers": distinct, "with repeats": repeats},
        criterion="> 1.2x of with repeats",
        holds=distinct > 1.2 * repeats,
    )
