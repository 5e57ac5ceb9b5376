"""These programs measure what the paper of JuggleRL claims."""

import math

import torch
from torch import Tensor

from polopt.claim import Finding, Replace, claim, mutation
from polopt.lab.effects import More, effect
from polopt.lab.stepping import policy_for, trained
from polopt.methods.jugglerl import jugglerl
from polopt.policies.network import NetworkPolicy
from polopt.worlds.control import ControlRule, Juggling
from polopt.worlds.control.juggling import BALL, GRAVITY, STEP

SEEDS = range(41, 44)
BATCHES = 50
# Weights of the reward that counts hits alone.
HITS_ALONE = {"centre": 0.0, "height": 0.0, "alive": 0.0, "away": 0.0, "tilt": 0.0, "change": 0.0}
DRAWN = (0.65, 0.95)


def world(copies: int, restitution: tuple[float, float] = DRAWN, shaping: dict[str, float] | None = None) -> Juggling:
    """Returns juggling in a vertical plane, for ten seconds."""
    return Juggling(copies, dims=2, restitution=restitution, shaping=shaping, horizon=500)


def juggler(seed: int, **settings: object) -> NetworkPolicy:
    """Returns a policy that has learned from 205,000 steps in `world(128, **settings)`."""
    own = world(128, **settings)  # type: ignore[arg-type]
    policy = policy_for(own, seed=seed, normalise=True)
    return trained(own, jugglerl(steps=32), policy, steps=BATCHES, lr=2e-3, seed=seed)


def juggled(tried: Juggling, actor: ControlRule | NetworkPolicy, seed: int) -> dict[str, float]:
    """Returns the hits and the return of the first episode of each copy, means over copies. Actions are the likeliest
    ones."""
    seen, _ = tried.reset(seed=seed)
    draw, over = torch.Generator().manual_seed(seed), torch.zeros(tried.num_envs, dtype=torch.bool)
    hits, total = torch.zeros(tried.num_envs), torch.zeros(tried.num_envs)
    for _ in range(tried.horizon):
        action = actor(seen, draw) if isinstance(actor, ControlRule) else actor.act(seen, draw, greedy=True).action
        seen, reward, terminated, truncated, _ = tried.step(action)
        total += torch.where(over, 0, reward)
        over |= terminated | truncated
        hits = torch.where(over, hits, tried.hits)
        if over.all():
            break
    return {"hits": float(hits.mean()), "return": float(total.mean())}


@claim(
    "A ball on a racket at rest rises to c^2 of its height after each impact, at the times of free fall.",
    kind="identity",
    baseline="impacts at the end of the step in which they happen",
)
def apexes() -> Finding:
    errors = {"exact times": apex_error(exact=True), "ends of steps": apex_error(exact=False)}
    return Finding(
        measured=errors,
        criterion="energy after 3 impacts, c = 0.8, within 1e-4 of c^6 of the first; at the ends of steps > 1e-2 off",
        holds=errors["exact times"] < 1e-4 and errors["ends of steps"] > 1e-2,
    )


def apex_error(exact: bool) -> float:
    """Returns the relative error of the ball's energy after three impacts."""
    tried = Juggling(1, dims=3, restitution=(0.8, 0.8), spread=0.0, apex=0.5)
    tried.reset(seed=0)
    first = GRAVITY * (float(tried.ball[0, -1]) - BALL)
    down, c = math.sqrt(2 * first) / GRAVITY, 0.8
    height, speed = first / GRAVITY, 0.0
    for _ in range(math.ceil((down * (1 + 2 * c + 2 * c**2) + down * c**3) / STEP)):
        tried.step(torch.zeros(1, 3))
        height, speed = height + speed * STEP - GRAVITY * STEP**2 / 2, speed - GRAVITY * STEP
        if height < 0 and speed < 0:
            speed = -c * speed
    energy = GRAVITY * (float(tried.ball[0, -1]) - BALL) + float(tried.ball_velocity.square().sum()) / 2
    found = energy if exact else GRAVITY * height + speed**2 / 2
    return abs(found / (first * c**6) - 1)


@effect(
    "The shaped reward makes PPO hit the ball more often than a reward for hits alone.",
    kind="part",
    method=lambda: None,
    controls={"hits alone": lambda: HITS_ALONE},
    criteria=[More("hits", times=1.5)],
    seeds=len(SEEDS),
    cost="slow",
    refuted=True,
    note="Ten seconds, 205,000 steps of training, seeds 41 to 43, one step size for both. A reward for hits alone "
    "keeps the ball up as well here, where a hit must send it 0.2 m up to count.",
)
def shaping(weights: dict[str, float] | None, *, seed: int) -> dict[str, float]:
    seed += SEEDS[0]
    return juggled(world(128), juggler(seed, shaping=weights), 1000 + seed)


@mutation("The ball leaves a racket as fast as it came.", kills=apexes)
def without_loss(replace: Replace) -> None:
    right = Juggling._impact

    def impact(self: Juggling, normal: Tensor, hit: Tensor) -> Tensor:
        own, self.c = self.c, torch.ones_like(self.c)
        found = right(self, normal, hit)
        self.c = own
        return found

    replace(Juggling, "_impact", impact)
