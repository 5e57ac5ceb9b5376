"""These programs measure what the paper of PF-PPO claims."""

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.selection import Trusted, as_rows, rewarded
from polopt.methods.pf_ppo import RankedRows, pf_ppo
from polopt.metrics import most_reliable

SELECTIONS = {
    "all": RankedRows(best=8),
    "best": RankedRows(best=1),
    "best and another": RankedRows(best=1, others=1),
    "best and worst": RankedRows(best=1, worst=1),
}


def chosen(trusted: Trusted) -> tuple[str | None, dict[str, float]]:
    """The filter that R^2 selects, from 8 answers to each of 4,000 prompts."""
    reward, truth = rewarded(4000, 8, trusted)
    rows = as_rows(reward)
    kept = {name: part.but()(rows).extras["row"] for name, part in SELECTIONS.items()}
    return most_reliable(reward.flatten(), truth.flatten(), kept)


@claim(
    "Where extreme rewards are the reliable ones, best and worst are believed most, then best and another.",
    kind="part",
    baseline="all answers; and the same where the noise sits elsewhere",
)
def reliability() -> Finding:
    name, found = chosen("extreme reward")
    back, other = chosen("extreme truth")
    ordered = found["best and worst"] > found["best and another"] > found["all"]
    return Finding(
        measured={
            **{f"R^2, {n}": v for n, v in found.items()},
            **{f"noise by truth: R^2, {n}": v for n, v in other.items()},
        },
        criterion="BW > BR > all and BW is chosen; with noise conditional on the truth, all answers are",
        holds=ordered and name == "best and worst" and back == "all",
        note="Where noise depends on the truth instead of the reward, the highest rewards are those that noise lifted: "
        "filtering by reward then keeps the worst evidence, and the rule falls back to all answers.",
    )


def true_reward(algorithm: Algorithm, prompts: int) -> float:
    """True value after 40 batches of a policy trained on the reward of a bandit of 32 contexts and 16 arms; mean of 5
    seeds. Rewards are to be trusted at their extremes."""
    found = []
    for seed in range(5):
        reward, truth = rewarded(32, 16, "extreme reward", seed)
        tree = TokenTree.bandit(reward.tolist())
        policy = TabularPolicy(tree, critic=True)
        train(algorithm.but(), tree, policy, steps=40, rate=16.0, rows=prompts, seed=seed)
        found.append((tree.log_probabilities(policy).detach().exp() * truth).sum(1).mean().item())
    return sum(found) / len(found)


@claim(
    "From as many updated rows it learns at least as much of the truth.",
    kind="headline",
    baseline="PPO on all answers, 64 updated rows a batch; and on as many rollouts",
)
def learns() -> Finding:
    filtered = pf_ppo(kl=0.0)
    plain = filtered.but(select=[])
    ours, rows, rollouts = (true_reward(s, n) for s, n in ((filtered, 32), (plain, 8), (plain, 32)))
    return Finding(
        measured={"true reward": ours, "all, 64 rows": rows, "all, as many rollouts": rollouts},
        criterion="true reward >= that of all answers at equal updated rows (5 seeds, 40 batches)",
        holds=ours >= rows,
        note="A filtered batch costs 4 times the rollouts of a plain one of as many rows; the third number learns from "
        "every one of those. Extreme rows have larger advantages, which is also a longer step.",
    )


@mutation("The setting `worst` is ignored.", kills=reliability)
def worst_ignored(replace: Replace) -> None:
    forward = RankedRows.forward

    def bent(self: RankedRows, experience: Experience) -> Experience:
        return forward(self.but(worst=0), experience)

    replace(RankedRows, "forward", bent)


@mutation("Rows are ranked over the whole batch, not in their group.", kills=reliability)
def whole_batch(replace: Replace) -> None:
    forward = RankedRows.forward

    def bent(self: RankedRows, experience: Experience) -> Experience:
        return forward(self, experience.replace(group=experience.group * 0))

    replace(RankedRows, "forward", bent)
