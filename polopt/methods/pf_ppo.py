"""PF-PPO: learn from the rollouts whose reward can be believed."""

from polopt.algorithm import Algorithm
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.selection import Trusted, as_rows, rewarded
from polopt.method import Finding, Paper, method
from polopt.methods.ppo import ppo
from polopt.metrics import most_reliable
from polopt.sampling import RankedRows


@method(
    paper=Paper(
        title="Policy Filtration for RLHF to Mitigate Noise in Reward Models",
        authors="Zhang, Chuheng and Shen, Wei and others",
        year=2024,
        arxiv="2409.06957",
    ),
    changes="PPO on the best and the worst answer of each group, where the reward model errs least.",
    room="sampling",
    tier="faithful",
)
def pf_ppo(*, group: int = 8, best: int = 1, worst: int = 1, others: int = 0, kl: float = 0.05) -> Algorithm:
    """Of the N = `group` answers to a prompt, ordered by reward, PPO learns from the `best` highest, the `worst` lowest
    and `others` of the rest by chance: BW is 1, 1, 0 (the default), BR 1, 0, 1, BoN 1, 0, 0.

    Which to take is measured: `metrics.most_reliable` gives R^2 between reward and truth on what each would keep of a
    few labelled answers, all answers among them. Advantages are computed and whitened before anything is left out; the
    authors' code (BR) whitens what is left. Ties at the top go to the earlier row. verl draws the whole batch again
    instead: select=[ResampledRows()] with its weights "power", "extremes" and "best".
    """
    return ppo(group=group, kl=kl).but(select=[RankedRows(best=best, worst=worst, others=others)])


SELECTIONS = {
    "all": RankedRows(best=8),
    "best": RankedRows(best=1),
    "best and another": RankedRows(best=1, others=1),
    "best and worst": RankedRows(best=1, worst=1),
}


def chosen(trusted: Trusted) -> tuple[str | None, dict[str, float]]:
    """What R^2 says to train with, from 8 answers to each of 4,000 prompts."""
    reward, truth = rewarded(4000, 8, trusted)
    rows = as_rows(reward)
    kept = {name: part.but()(rows).extras["row"] for name, part in SELECTIONS.items()}
    return most_reliable(reward.flatten(), truth.flatten(), kept)


@pf_ppo.claim(
    "Where extreme rewards are the reliable ones, best and worst are believed most, then best and another.",
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


def true_reward(sentence: Algorithm, prompts: int) -> float:
    """True value after 40 batches of a policy trained on the reward of a bandit of 32 contexts and 16 arms; mean of 5
    seeds. Rewards are to be trusted at their extremes."""
    found = []
    for seed in range(5):
        reward, truth = rewarded(32, 16, "extreme reward", seed)
        tree = TokenTree.bandit(reward.tolist())
        policy = TabularPolicy(tree, critic=True)
        train(sentence.but(), tree, policy, steps=40, rate=16.0, rows=prompts, seed=seed)
        found.append((tree.log_probabilities(policy).detach().exp() * truth).sum(1).mean().item())
    return sum(found) / len(found)


@pf_ppo.claim(
    "From as many updated rows it learns at least as much of the truth.",
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
