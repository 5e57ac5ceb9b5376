"""These programs measure what the paper of PROPS claims."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from polopt.algorithm import Algorithm
from polopt.claim import Finding, Replace, claim, mutation
from polopt.claims.problems.uniform_states import (
    STATES,
    UniformStates,
    frequencies,
    probabilities,
    share_of_best,
    table_policy,
)
from polopt.experience import Experience
from polopt.lab.effects import Less, More, effect
from polopt.lab.stepping import source_of, trained
from polopt.methods.ppo import control_ppo
from polopt.methods.props import props
from polopt.metrics import t_interval
from polopt.sampling import BehaviourUpdate, Fragments, RecentFragments, Sampling, behaviour
from polopt.sampling.source_protocols import ActorSource

# Adam's step of 0.1 is for tables; the whole batch at once.
UPDATE = {"behaviour_lr": 0.1, "behaviour_minibatches": 1, "max_kl": 0.1}
PPO = {"gamma": 0.99, "lam": 0.95, "steps": 20}


def table_update() -> BehaviourUpdate:
    return BehaviourUpdate(lr=0.1, minibatches=1, max_kl=0.1)


def evened(steps: int) -> Sampling:
    return RecentFragments(behaviour=table_update(), steps=steps, every=5, recent=1)


@effect(
    "Its batches have less sampling error than those of the policy itself, and so has their policy gradient.",
    kind="headline",
    method=lambda: evened,
    controls={"decisions of the policy itself": lambda: lambda steps: Fragments(steps=steps)},
    criteria=[
        Less("divergence of 400 decisions", times=0.5),
        Less("divergence of 100 decisions", times=0.85),
        Less("gradient error of 400 decisions", times=0.85),
    ],
    seeds=20,
    cost="slow",
    note="The divergence is that of the frequencies of choices from the policy, by state; the gradient error the "
    "squared distance of its estimate without a baseline. The behaviour policy is made anew after each 5 decisions.",
)
def less_sampling_error(sampling: object, *, seed: int) -> dict[str, float]:
    world, policy, found = UniformStates(seed=seed), table_policy(seed), dict[str, float]()
    for steps in (100, 400):
        part: Sampling = sampling(steps)  # type: ignore[operator]
        said = frequencies(world, policy, part(source_of(world, policy, seed)))
        found[f"divergence of {steps} decisions"] = said.divergence
        found[f"gradient error of {steps} decisions"] = said.gradient_error
    return found


def ppo() -> Algorithm:
    return control_ppo(clip=0.2, entropy=0.0, **PPO)  # type: ignore[arg-type]


@effect(
    "It learns sooner than PPO from as many decisions, and than PPO that takes the last batch for its own.",
    kind="headline",
    method=lambda: props(every=5, **UPDATE, **PPO),  # type: ignore[arg-type]
    controls={
        "PPO": ppo,
        "PPO on two batches": lambda: props(every=5, behaviour_epochs=0, **PPO),  # type: ignore[arg-type]
    },
    step_sizes=(0.03, 0.1, 0.3, 1.0),
    criteria=[More("share of the best", by=0.0)],
    seeds=20,
    trials=2,
    budget="decisions",
    cost="slow",
    note="Share of the best expected reward, 0 of uniform choices: mean over 40 batches of 40 decisions, 5 epochs. "
    "Rewards and first policy differ from seed to seed. With ten seeds, and a gain of 0.02 asked for, the gain "
    "over PPO on two batches was 0.042 (0.003 to 0.081).",
)
def learns_sooner(algorithm: Algorithm, *, seed: int, step_size: float) -> dict[str, float]:
    world, policy, shares = UniformStates(num_envs=2, seed=seed), table_policy(seed), list[float]()

    def watch(_: int, __: Experience) -> None:
        shares.append(share_of_best(world, policy))

    trained(world, algorithm, policy, steps=40, lr=step_size, seed=seed, minibatches=1, each=watch)
    return {"share of the best": sum(shares) / len(shares), "decisions": 40.0 * len(shares)}


@claim(
    "The mean reward of its batches is that of the policy, though another policy played.",
    kind="part",
    baseline="the policy itself, whose batches vary more",
)
def unbiased() -> Finding:
    found = {}
    for name, part in {"evened": evened(100), "itself": Fragments(steps=100)}.items():
        found[name] = t_interval([_bias(part, seed) for seed in range(40)], level=0.997)
    own, other = found["evened"], found["itself"]
    return Finding(
        measured={"bias": own.estimate, "bias, the policy itself": other.estimate},
        intervals={"bias": (own.low, own.high), "bias, the policy itself": (other.low, other.high)},
        criterion="the 99.7 % interval over 40 seeds, of 100 decisions each, has 0 and is narrower than the control's",
        holds=own.low <= 0 <= own.high and own.high - own.low < other.high - other.low,
    )


def _bias(part: Sampling, seed: int) -> float:
    world, policy = UniformStates(seed=seed), table_policy(seed)
    return frequencies(world, policy, part(source_of(world, policy, seed))).bias


@claim(
    "A step without a clip, from the policy itself, is Adam's descent on the mean log-probability of what was sampled, "
    "as in robust on-policy sampling, with the moments of the step before.",
    kind="identity",
    baseline="Adam's second step, written out with the gradients of a table; that of other batches",
)
def second_step() -> Finding:
    policy, update = table_policy(3), BehaviourUpdate(lr=0.05, epochs=1, minibatches=1, max_grad_norm=1e9)
    batches = [source_of(UniformStates(num_envs=3), policy, seed).fragments(12) for seed in range(4)]
    actors = [update(policy, batch, Generator().manual_seed(0)) for batch in batches[:2]]
    moved = (actors[1].actor[0].weight - policy.actor[0].weight).detach().double()  # type: ignore[index]
    gradients = [_gradient(probabilities(policy), batch) for batch in batches]
    own, other = (float((moved + _adam(*pair)).abs().max()) for pair in (gradients[:2], gradients[2:]))
    return Finding(
        measured={"largest difference": own, "largest difference, other batches": other},
        criterion="largest difference of a logit's step < 1e-5; of other batches' > 0.01",
        holds=own < 1e-5 and other > 0.01,
    )


def _gradient(chance: Tensor, rows: Experience) -> Tensor:
    """Returns the gradient of the mean log-probability of a batch, [choices, states]."""
    found = torch.zeros_like(chance)
    state = rows.extras["observation"][:, : rows.mask.shape[1]].argmax(-1).flatten().tolist()
    for s, a in zip(state, rows.extras["action"].flatten().tolist(), strict=True):
        found[s] -= chance[s] / len(state)
        found[s, a] += 1 / len(state)
    return found.T


def _adam(first: Tensor, second: Tensor) -> Tensor:
    """Returns Adam's second step on gradients, of size 0.05."""
    mean = (0.9 * 0.1 * first + 0.1 * second) / (1 - 0.9**2)
    square = (0.999 * 0.001 * first**2 + 0.001 * second**2) / (1 - 0.999**2)
    return 0.05 * mean / (square.sqrt() + 1e-8)


@claim(
    "Without steps of the behaviour policy, and of one batch, it samples and learns as PPO.",
    kind="identity",
    baseline="the same with steps",
)
def without_steps() -> Finding:
    gaps = {}
    for epochs in (0, 16):
        algorithm = props(every=5, recent=1, behaviour_epochs=epochs, **UPDATE, **PPO)  # type: ignore[arg-type]
        one, other = (_weights(each) for each in (algorithm, ppo()))
        gaps[epochs] = float((one - other).abs().max())
    return Finding(
        measured={"largest difference of a logit": gaps[0], "with steps": gaps[16]},
        criterion="after 3 batches 0, bit for bit; with steps > 1e-3",
        holds=gaps[0] == 0 and gaps[16] > 1e-3,
    )


def _weights(algorithm: Algorithm) -> Tensor:
    policy = table_policy(5)
    trained(UniformStates(num_envs=2, seed=5), algorithm, policy, steps=3, lr=0.1, seed=5)
    return policy.choice_logp(torch.eye(STATES)).detach()


@mutation("the behaviour policy makes likelier what was sampled", kills=less_sampling_error)
def likelier(replace: Replace) -> None:
    right = BehaviourUpdate._loss

    def loss(self: BehaviourUpdate, log_ratio: Tensor) -> tuple[Tensor, float]:
        found, divergence = right(self, log_ratio)
        return -found, divergence

    replace(BehaviourUpdate, "_loss", loss)


@mutation("the behaviour policy does not see the batch that is being sampled", kills=less_sampling_error)
def without_the_present(replace: Replace) -> None:
    def actor(self: RecentFragments, source: ActorSource, known: list[Experience]) -> object:
        held = [batch for batch in known if "age" in batch.extras]
        return right(self, source, held) if held else source.policy

    right = RecentFragments._actor
    replace(RecentFragments, "_actor", actor)


@mutation("each behaviour policy begins with the moments of none before", kills=second_step)
def forgets(replace: Replace) -> None:
    replace(behaviour.TensorStore, "tensors", lambda self: {})
