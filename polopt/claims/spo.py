"""These programs measure what the paper of SPO-chain claims."""

import torch

import polopt.methods.spo as module
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import RelativeAdvantage
from polopt.experience import Experience
from polopt.lab import TabularPolicy, TokenTree, TreeSource
from polopt.lab.claims import effort
from polopt.methods.grpo import grpo
from polopt.methods.spo import SegmentAdvantage, spo


def _problem(spread: float) -> tuple[TokenTree, TabularPolicy]:
    """Twelve tokens of two kinds; seven of one kind are right."""
    tree = TokenTree.full(2, 12, lambda prompt, answer: float(sum(answer) >= 7))
    return tree, TabularPolicy(tree, spread=spread, seed=0)


def _exact(batch: Experience, tree: TokenTree, policy: TabularPolicy) -> torch.Tensor:
    values = tree.state_values(policy)[batch.extras["leaf"]]
    return SegmentAdvantage()(batch.replace(extras={"cut_value": values}))


@claim(
    "Advantages from 9 rollouts a cut are nearer to the exact ones of their segments.",
    kind="headline",
    baseline="the trajectory's advantage, in its group of 8, on every token",
)
def nearer() -> Finding:
    tree, policy = _problem(spread=1.0)
    quotient = {}
    for interval in (1, 5):
        source = TreeSource(tree, policy, rows=32, seed=0)
        off, broad = [], []
        for _ in range(4):
            batch = spo(interval=interval).sampling(source)
            exact, learns = _exact(batch, tree, policy), batch.mask & (batch.extras["cut"].cumsum(1) > 0)
            off.append((SegmentAdvantage()(batch) - exact)[learns].square())
            broad.append((RelativeAdvantage(scale=None)(batch) - exact)[learns].square())
        quotient[f"interval {interval}"] = (torch.cat(broad).mean() / torch.cat(off).mean()).item()
    return Finding(
        measured=quotient,
        criterion="mean squared error >= 4x smaller at both intervals",
        holds=min(quotient.values()) >= 4,
        note="12 tokens of two kinds, a random policy. Where one token alone decides and the policy is uniform it is "
        "3.8x at interval 5.",
    )


@claim(
    "A row's segments add up to its reward minus the value at its first cut.",
    kind="identity",
    baseline="none: an identity",
)
def telescopes() -> Finding:
    tree, policy = _problem(spread=1.5)
    batch = spo(group=64, interval=3).sampling(TreeSource(tree, policy, rows=64))
    cut, advantage = batch.extras["cut"], SegmentAdvantage()(batch)
    first = cut & (cut.cumsum(1) == 1)
    start = (batch.extras["cut_value"] * first).sum(1)
    off = ((advantage * cut).sum(1) - (batch.outcome - start))[cut.any(1)].abs().max().item()
    cuts = cut.sum(1).double().mean().item()
    return Finding(
        measured={"largest error": off, "cuts a row": cuts},
        criterion="< 1e-12, with more than 2 cuts a row",
        holds=off < 1e-12 and cuts > 2,
    )


@claim(
    "Half the updates to learn the task, at no more than 1.2x the sampled tokens.",
    kind="headline",
    baseline="GRPO, with and without its standard deviation: the better one",
    cost="slow",
    refuted=True,
)
def learns_faster() -> Finding:
    def decisive(prompt: int, answer: tuple[int, ...]) -> float:
        return float(answer[2] == 1)

    def shared(prompt: int, answer: tuple[int, ...]) -> float:
        return sum(answer) / len(answer)

    measured: dict[str, float] = {}
    plain = lambda: grpo(group=8, kl=0)  # noqa: E731
    for name, reward, goal in (("one token decides", decisive, 0.95), ("every token pays", shared, 0.9)):
        tree = TokenTree.full(2, 8, reward)
        ours = effort(spo, tree, goal)
        base = min(effort(plain, tree, goal), effort(lambda: plain().but(**{"credit.scale": None}), tree, goal))
        measured |= {f"{name}, updates": ours[0] / base[0], f"{name}, tokens": ours[1] / base[1]}
    return Finding(
        measured=measured,
        criterion="updates <= 0.5x and tokens <= 1.2x, in both problems",
        holds=all(v <= (0.5 if "updates" in n else 1.2) for n, v in measured.items()),
        note="8 tokens, Adam. Where one token decides, a whole answer's reward says all that there is to know of it: "
        "nothing is gained. Where each token pays its share, the others' noise goes, and some updates with it, but the "
        "rollouts cost more tokens than that saves.",
    )


@mutation("The last segment ends with its own value, not with the reward.", kills=telescopes)
def ends_without_reward(replace: Replace) -> None:
    def forward(self: SegmentAdvantage, experience: Experience) -> torch.Tensor:
        last = experience.extras["cut_value"].gather(1, experience.extras["cut"].int().cumsum(1).argmax(1)[:, None])
        return whole(self, experience.replace(outcome=last[:, 0]))

    whole = SegmentAdvantage.forward
    replace(SegmentAdvantage, "forward", forward)


@mutation("Rows of a group share values at equal places, whatever they have said before.", kills=nearer)
def shares_by_place(replace: Replace) -> None:
    def states(batch: Experience, rows: torch.Tensor, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        blank = batch.replace(extras={"tokens": torch.zeros_like(batch.extras["tokens"])})
        return by_tokens(blank, rows, columns)

    by_tokens = module._states
    replace(module, "_states", states)
