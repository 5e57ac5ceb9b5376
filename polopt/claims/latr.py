"""These programs measure what the paper of LATR claims."""

from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.crossroads import Roads, branchings, crossroads, distinct
from polopt.lab.effects import Less, effect
from polopt.methods.latr import latr
from polopt.sampling import Lookahead

# Both kinds of branching are within these thresholds.
RULE = Lookahead(least=0.15, apart=0.25)


@claim(
    "Eight rows of a tree take all eight likely ways, and one of them is right where one in eighteen is.",
    kind="part",
    baseline="independent rollouts",
)
def all_ways() -> Finding:
    roads = crossroads()
    ours, drawn = distinct(roads, RULE, share=1.0), distinct(roads, RULE, share=0.0)
    return Finding(
        measured={
            "different decisions of 8": ours[0],
            "independent": drawn[0],
            "pass@8": ours[1],
            "pass@8, independent": drawn[1],
        },
        criterion="8 different ways, independent < 7; pass@8 1, independent < 0.5 (200 groups of 8)",
        holds=ours[0] == 8 and drawn[0] < 7 and ours[1] == 1 and drawn[1] < 0.5,
    )


@claim("Looking ahead drops the branches that only say it in other words.", kind="part", baseline="no pruning")
def paraphrases() -> Finding:
    roads = crossroads()
    kept, of_all = branchings(roads, RULE), branchings(roads, RULE.but(edit=None))
    return Finding(
        measured={
            "decisions kept": kept.decisions,
            "paraphrases dropped": 1 - kept.paraphrases,
            "without pruning, different ways": distinct(roads, RULE.but(edit=None), share=1.0)[0],
        },
        criterion=">= 0.95 of both; without pruning fewer than 8 ways",
        holds=kept.decisions >= 0.95
        and 1 - kept.paraphrases >= 0.95
        and of_all.paraphrases == 1
        and distinct(roads, RULE.but(edit=None), share=1.0)[0] < 8,
    )


@effect(
    "Where the right way is a rare one, the first batches find it sooner.",
    kind="headline",
    method=lambda: latr(share=((0, 1.0), (20, 0.5), (40, 0.0)), kl=0.0).but({"sampling.look": RULE}),
    controls={"grpo": lambda: latr(share=((0, 0.0),), kl=0.0).but({"sampling.look": RULE})},
    step_sizes=(8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[Less("batches", by=0.0)],
    seeds=10,
    trials=2,
    cost="slow",
    refuted=True,
    note="In the longest steps, which are the best for both, GRPO needs fewer. Batches are of one group, until half of "
    "the answers are right; with share 0 all rows are GRPO's. The paper has no number.",
)
def sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    return {"batches": float(Roads.learn(algorithm, seed, rate=step_size))}


@mutation("A tree branches where the likeliest token is far ahead of the other one.", kills=all_ways)
def far_apart(replace: Replace) -> None:
    def opens(self: Lookahead, p: Tensor) -> tuple[Tensor, Tensor]:
        best, ids = p.topk(min(self.top, p.shape[-1]), dim=-1)
        found = (best > self.least) & (best[:, :1] - best > self.apart)
        found[:, 0] = True
        return ids, found

    replace(Lookahead, "opens", opens)


@mutation("Branches are never dropped.", kills=paraphrases)
def never_dropped(replace: Replace) -> None:
    replace(Lookahead, "same", lambda self, a, b: False)
