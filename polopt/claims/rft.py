"""These programs measure what the paper of RFT claims."""

from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.claims import right_entropy
from polopt.methods.rft import rft
from polopt.sampling import TopK, UniqueAnswers


@claim("What it fits is more diverse than all right answers with their repeats.", kind="part", baseline="no Distinct")
def diversity() -> Finding:
    distinct = right_entropy(rft())
    repeats = right_entropy(rft().but(**{"sampling.select": [TopK(count=100, threshold=1.0)]}))
    return Finding(
        measured={"effective right answers": distinct, "with repeats": repeats},
        criterion="> 1.2x of with repeats",
        holds=distinct > 1.2 * repeats,
    )


@claim(
    "Each prompt's different right answers count once, though the prompts share answers.",
    kind="identity",
    baseline="all right answers with their repeats",
)
def each_once() -> Finding:
    tree = TokenTree.bandit([[1.0] * 4 + [0.0] * 4] * 3)
    policy = TabularPolicy(tree, spread=0.5, seed=2)
    kept, every = (
        algorithm.sampling(TreeSource(tree, policy, rows=300)).extras["leaf"].tolist()
        for algorithm in (rft(), rft().but(**{"sampling.select": [TopK(count=100, threshold=1.0)]}))
    )
    return Finding(
        measured={"answers": float(len(kept)), "different": float(len(set(kept))), "with repeats": float(len(every))},
        criterion="all 4 right answers of 3 prompts are kept, 12 rows, none twice; with repeats > 100",
        holds=sorted(kept) == sorted(set(every)) and len(kept) == 12 and len(every) > 100,
    )


@mutation("What another prompt's group has already is left out.", kills=each_once)
def over_all_groups(replace: Replace) -> None:
    def forward(_: UniqueAnswers, experience: Experience) -> Experience:
        answers = list(experience.extras["answer"])
        return experience[[row for row, answer in enumerate(answers) if answer not in answers[:row]]]

    replace(UniqueAnswers, "forward", forward)
