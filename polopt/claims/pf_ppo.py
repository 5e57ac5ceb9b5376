"""These programs measure what the paper of PF-PPO claims."""

from typing import Any

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, train
from polopt.lab.effects import More, effect
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


PLAIN: dict[str, Any] = {"select": []}


def _true_reward(side: tuple[Algorithm, int], seed: int, step_size: float) -> dict[str, float]:
    """The true value after 40 batches of a policy trained on the reward of a bandit of 32 contexts and 16 arms. Rewards
    are to be trusted at their extremes. A side is a sentence and the prompts of a batch."""
    algorithm, prompts = side
    reward, truth = rewarded(32, 16, "extreme reward", seed)
    tree = TokenTree.bandit(reward.tolist())
    policy = TabularPolicy(tree, critic=True)
    train(algorithm, tree, policy, steps=40, rate=step_size, rows=prompts, seed=seed)
    true = (tree.log_probabilities(policy).detach().exp() * truth).sum(1).mean().item()
    return {"true reward": true, "reward": tree.value(policy).item()}


@effect(
    "From as many updated rows it learns more of the truth.",
    kind="headline",
    method=lambda: (pf_ppo(kl=0.0), 32),
    controls={"ppo": lambda: (pf_ppo(kl=0.0).but(PLAIN), 8)},
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[More("true reward", by=0.0)],
    cost="slow",
    note="64 rows a batch on both sides; a filtered batch costs 4 times the rollouts of a plain one of as many rows.",
)
def learns(side: tuple[Algorithm, int], *, seed: int, step_size: float) -> dict[str, float]:
    return _true_reward(side, seed, step_size)


@effect(
    "It does so from as many rollouts, too.",
    kind="limit",
    method=lambda: (pf_ppo(kl=0.0), 32),
    controls={"ppo": lambda: (pf_ppo(kl=0.0).but(PLAIN), 32)},
    step_sizes=(4.0, 8.0, 16.0, 32.0, 64.0, 128.0),
    criteria=[More("true reward", by=0.0)],
    cost="slow",
)
def as_many_rollouts(side: tuple[Algorithm, int], *, seed: int, step_size: float) -> dict[str, float]:
    return _true_reward(side, seed, step_size)


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
