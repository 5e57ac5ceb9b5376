"""These programs measure what the paper of HGPO claims."""

import torch

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.credit import RewardToGo, StateRelativeAdvantage
from polopt.credit.parts import Credit
from polopt.experience import Experience
from polopt.features.groupings import SamePrompt
from polopt.lab.effects import Less, More, effect
from polopt.lab.measure import train
from polopt.lab.recurring import contexts
from polopt.lab.shapes import coin
from polopt.methods.gigpo import gigpo
from polopt.methods.grpo import grpo
from polopt.methods.hgpo import hgpo

GROUP = 16


@effect(
    "A decision after two hidden draws of nature is learned better than with GiGPO and GRPO.",
    kind="headline",
    method=lambda: hgpo(group=GROUP, kl=0.0),
    controls={
        "GiGPO": lambda: gigpo(group=GROUP, kl=0.0),
        "GRPO": lambda: grpo(group=GROUP, kl=0.0),
    },
    step_sizes=(40.0, 80.0, 160.0, 320.0, 640.0),
    trials=5,
    criteria=[More("right", by=0.0)],
    seeds=10,
    cost="slow",
    note="16 prompts that share 12 features, 60 batches of 16 rollouts of each. Nature's draws move the chance of a "
    "success by 0.3 and 0.15, the right action by 0.05. GiGPO's states show neither draw.",
)
def learns_better(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    tree, policy, decides = contexts(seed)
    train(algorithm, tree, policy, steps=60, rate=step_size, rows=tree.prompts, seed=seed, draw=coin)
    probability = tree.log_probabilities(policy).detach().exp()
    return {"right": (probability * decides).sum(1).mean().item()}


class SingleDepth(Credit):
    """Compares turns of exactly `states` last states, of a row's last turn alone."""

    states: int

    def forward(self, experience: Experience) -> torch.Tensor:
        state = experience.extras["turn_state"]
        key = [tuple(row) for row in torch.cat([experience.group[:, None], state[:, -self.states :]], 1).tolist()]
        sums: dict[tuple[int, ...], list[float]] = {}
        for k, r in zip(key, experience.reward.tolist(), strict=True):
            sums.setdefault(k, []).append(r)
        mean = torch.tensor([sum(sums[k]) / len(sums[k]) for k in key], dtype=torch.double)
        return torch.where(experience.mask, (experience.reward - mean)[:, None], 0)


DEPTHS = {f"depth {n}": (lambda n=n: SingleDepth(states=n)) for n in (1, 2, 3)}


@effect(
    "Its estimate of a decision's advantage has at most 0.9 of the squared error of the best single depth.",
    kind="part",
    method=lambda: hgpo(gamma=1.0).credit,
    controls=DEPTHS,
    criteria=[Less("error", times=0.9)],
    seeds=10,
    note="One decision with chance 0.5 + 0.25 x + 0.125 y of a success, x and y each -1, 0 or 1, seen one and two "
    "turns before; 600 groups of 16 a seed. With few contexts of large effect the right single depth is as good.",
)
def nearer_the_advantage(credit: Credit, *, seed: int) -> dict[str, float]:
    draw, groups = torch.Generator().manual_seed(seed), 600
    drawn = torch.randint(3, (groups * GROUP, 2), generator=draw)
    chance = 0.5 + 0.25 * (drawn[:, 0].double() - 1) + 0.125 * (drawn[:, 1].double() - 1)
    reward = torch.bernoulli(chance, generator=draw)
    state = torch.stack([10 + drawn[:, 1], 20 + drawn[:, 0], torch.full_like(drawn[:, 0], 30)], 1)
    batch = Experience(
        mask=torch.ones(len(drawn), 3, dtype=torch.bool),
        turn=torch.arange(3).repeat(len(drawn), 1),
        reward=reward,
        outcome=reward,
        group=torch.arange(groups).repeat_interleave(GROUP),
        extras={"turn_state": state},
    )
    return {"error": (credit(batch)[:, 2] - (reward - chance)).square().mean().item()}


def _rows(seed: int) -> Experience:
    draw = torch.Generator().manual_seed(seed)
    state = torch.randint(2, (24, 5), generator=draw)
    # Few values, so that some differences are exactly 0.
    reward = torch.randint(2, (24,), generator=draw).double()
    return Experience(
        mask=torch.ones(24, 5, dtype=torch.bool),
        turn=torch.arange(5).repeat(24, 1),
        reward=reward,
        outcome=reward,
        group=torch.arange(24) // 8,
        extras={"turn_state": state},
    )


@claim(
    "The advantage is the weighted mean over depths of the paper, without depths that say nothing.",
    kind="identity",
    baseline="depth 1 alone, the step part of GiGPO",
)
def is_the_formula() -> Finding:
    off = moved = 0.0
    for power, history, base_group in ((1.0, 2, False), (0.0, 3, False), (2.0, 1, True)):
        rows = _rows(int(power))
        states, groups, gamma = rows.extras["turn_state"].tolist(), rows.group.tolist(), 0.9
        found = hgpo(power=power, history=history, gamma=gamma, base_group=base_group).credit(rows)
        plain = StateRelativeAdvantage(returns=RewardToGo(gamma=gamma, unit="turn"), normalise=False)(rows)
        to_go = [[float(rows.reward[i]) * gamma ** (4 - h) for h in range(5)] for i in range(24)]
        start = grpo(group=8, kl=0.0).credit(rows)
        for i in range(24):
            for h in range(5):
                terms = [(1.0, float(start[i, h]))] if base_group else []
                for n in range(1, min(history, h) + 2):
                    own = states[i][h + 1 - n : h + 1]
                    same = [
                        to_go[j][u]
                        for j in range(24)
                        for u in range(n - 1, 5)
                        if groups[j] == groups[i] and states[j][u + 1 - n : u + 1] == own
                    ]
                    terms.append(((n + 1) ** power, to_go[i][h] - sum(same) / len(same) if len(same) > 1 else 0.0))
                kept = [(w, a) for w, a in terms if abs(a) > 1e-9]
                expected = sum(w * a for w, a in kept) / sum(w for w, _ in kept) if kept else 0.0
                off = max(off, abs(float(found[i, h]) - expected))
                moved = max(moved, abs(float(plain[i, h]) - expected))
    return Finding(
        measured={"largest error": off, "largest difference from depth 1": moved},
        criterion="error < 1e-9 on 360 turns at three settings, a difference > 0.1",
        holds=off < 1e-9 and moved > 0.1,
    )


@claim(
    "A large power leaves the longest history that has other turns, no history the step part of GiGPO.",
    kind="limit",
    baseline="the default power",
)
def of_one_depth() -> Finding:
    rows, last = _rows(5), slice(4, 5)
    step = StateRelativeAdvantage(returns=RewardToGo(gamma=1.0, unit="turn"), normalise=False)(rows)
    off = (hgpo(history=0, gamma=1.0).credit(rows) - step).abs().max().item()
    # With the turn in the state, the last turn is compared with last turns alone.
    timed = rows.replace(extras={"turn_state": rows.extras["turn_state"] + 10 * rows.turn})
    deep = hgpo(power=200.0, gamma=1.0).credit(timed)[:, last]
    single = {n: SingleDepth(states=n)(timed)[:, last] for n in (1, 2, 3)}
    longest = torch.where(single[3] != 0, single[3], torch.where(single[2] != 0, single[2], single[1]))
    off = max(off, (deep - longest).abs().max().item())
    otherwise = (hgpo(gamma=1.0).credit(timed)[:, last] - longest).abs().max().item()
    return Finding(
        measured={"largest error": off, "with power 1": otherwise},
        criterion="error < 1e-9, otherwise > 0.01",
        holds=off < 1e-9 and otherwise > 0.01,
    )


@mutation("Depths that say nothing count, too.", kills=is_the_formula)
def counts_zeros(replace: Replace) -> None:
    own = StateRelativeAdvantage._compared
    tiny = 1e-30

    def compared(self: StateRelativeAdvantage, returns: torch.Tensor, cluster: torch.Tensor) -> torch.Tensor:
        found = own(self, returns, cluster)
        return torch.where(found == 0, tiny, found)

    replace(StateRelativeAdvantage, "_compared", compared)


@mutation("Histories reach into the row before.", kills=is_the_formula)
def over_rows(replace: Replace) -> None:
    def clusters(
        self: StateRelativeAdvantage, experience: Experience, row: torch.Tensor
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        state = experience.extras["turn_state"].flatten()
        cluster = SamePrompt()(experience)[row]
        found = [(torch.ones_like(cluster, dtype=torch.bool), cluster)]
        for n in range(self.depth):
            cluster = cluster * 100 + state.roll(n)
            found.append((torch.ones_like(cluster, dtype=torch.bool), cluster))
        return found

    replace(StateRelativeAdvantage, "_clusters", clusters)
