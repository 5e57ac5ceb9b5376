"""These programs measure what the paper of RFT claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.claims import right_entropy
from polopt.lab.effects import More, effect
from polopt.methods.rft import rft
from polopt.sampling import TopK, UniqueAnswers


def with_repeats() -> Algorithm:
    """RFT that keeps all right answers of a group."""
    return rft().but(**{"sampling.select": [TopK(count=100, threshold=1.0)]})


@effect(
    "What it fits is more diverse than all right answers with their repeats.",
    kind="headline",
    method=rft,
    controls={"with repeats": with_repeats},
    criteria=[More("right answers", times=1.15)],
    seeds=30,
    note="The effective number of right answers of the policy that fits one batch, 8 of 32 arms right. Fits: no step.",
)
def diversity(algorithm: Algorithm, *, seed: int) -> dict[str, float]:
    return {"right answers": right_entropy(algorithm, seeds=range(seed, seed + 1))}


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
        for algorithm in (rft(), with_repeats())
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
