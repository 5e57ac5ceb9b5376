"""The peers' side of `benchmarks.value_peers`: their losses and gradients, by their own training code."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.networks import Space

D, A, HIDDEN = 3, 2, [16, 16]
Draws = Callable[[], AbstractContextManager[None]]
Losses = dict[str, tuple[float, list[Any], list[Tensor]]]


class Row(NamedTuple):
    """A loss of a peer. parameters: that it is differentiated by, with their gradients. networks, targets: the peer's
    functions, by polopt's names. shift: whether polopt's loss has another value, with the same gradient."""

    peer: str
    method: str
    name: str
    loss: float
    parameters: list[Any]
    gradients: list[Tensor]
    policy: Any
    networks: dict[str, Any]
    targets: dict[str, Any]
    shift: bool = False
    differs: str = ""


# Method, its settings, changes of it, and whether it is of choices.
METHODS: tuple[tuple[str, dict[str, Any], dict[str, Any], bool], ...] = (
    ("dqn", {"explore": 0}, {}, True),
    ("discrete-cql", {"alpha": 0.7}, {}, True),
    ("ddpg", {}, {}, False),
    ("td3", {}, {}, False),
    ("sac", {"temperature": 0.3}, {}, False),
    ("td3-bc", {}, {}, False),
    ("bc", {"loss": "squared"}, {}, False),
    ("iql", {}, {}, False),
    ("awac", {}, {"networks.0.objective.target.next.temperature": 1.0}, False),
    ("cql", {"entropy_backup": True}, {"networks.0.objective.error.coefficient": 1.0}, False),
)


def versions() -> dict[str, str]:
    """Returns the peers' versions."""
    return {name: importlib.metadata.version(name) for name in ("stable-baselines3", "d3rlpy", "torch")}


def peers_of(method: str, batch: Experience, draws: Draws, policy: Any) -> Iterator[Row]:
    """Yields the losses of a method that peers have. policy: `value_peers.PeerPolicy`."""
    if method in ("dqn", "ddpg", "td3", "sac"):
        yield from _of_sb3(method, batch, draws, policy)
    if method in ("discrete-cql", "td3-bc", "bc", "iql", "awac", "cql"):
        yield from _of_d3rlpy(method, batch, draws, policy)


def _columns(batch: Experience) -> dict[str, Tensor]:
    extras = batch.extras
    return {
        "observations": extras["observation"][:, 0],
        "next_observations": extras["observation"][:, 1],
        "actions": extras["action"][:, 0],
        "rewards": batch.reward,
        "dones": batch.terminated.float(),
    }


def _moved(modules: list[Any]) -> None:
    """Moves a target's weights away from those that it copied."""
    draw = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=draw))


class _World(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (D,), np.float32)

    def __init__(self, choices: bool) -> None:
        box = gymnasium.spaces.Box(-1.0, 1.0, (A,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(4) if choices else box


def _captured(model: Any, optimisers: dict[str, Any], batch: Experience, draws: Draws) -> Losses:
    """Runs one update of stable-baselines3 whose optimisers take no step, and returns losses and gradients."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    columns = _columns(batch)
    actions = columns["actions"]
    sample = ReplayBufferSamples(
        observations=columns["observations"],
        actions=actions[:, None] if actions.ndim == 1 else actions,
        next_observations=columns["next_observations"],
        dones=columns["dones"],
        rewards=columns["rewards"],
        discounts=None,
    )
    model.replay_buffer.sample = lambda *_, **__: sample
    gradients: dict[str, Any] = {}

    def keep(name: str, optimiser: Any) -> Callable[..., None]:
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        return lambda *_, **__: gradients.__setitem__(name, (parameters, [p.grad.clone() for p in parameters]))

    for name, optimiser in optimisers.items():
        optimiser.step = keep(name, optimiser)
    with draws():
        model.train(gradient_steps=1, batch_size=len(batch))
    values = model.logger.name_to_value
    names = {"critic": "train/critic_loss", "policy": "train/actor_loss", "temperature": "train/ent_coef_loss"}
    if len(optimisers) == 1:
        names = {"policy": "train/loss"}
    return {name: (float(values[names[name]]), *found) for name, found in gradients.items()}


def _of_sb3(method: str, batch: Experience, draws: Draws, policy: Any) -> Iterator[Row]:
    import stable_baselines3 as sb3
    from stable_baselines3.common.logger import Logger

    settings: dict[str, Any] = {
        "policy_kwargs": {"net_arch": HIDDEN},
        "device": "cpu",
        "buffer_size": 100,
        "seed": 0,
        "tau": 0.0,
    }
    # tau: the copies stay as they are.
    settings |= {"dqn": {"max_grad_norm": 1e9}, "td3": {"policy_delay": 1}, "sac": {"ent_coef": "auto_0.3"}}.get(
        method, {}
    )
    model = getattr(sb3, method.upper())("MlpPolicy", _World(method == "dqn"), **settings)
    model.set_logger(Logger(None, []))
    networks: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    if method == "dqn":
        _moved([model.q_net_target])
        own = policy(Space(D, actions=4), action_values=model.q_net)
        slow = model.q_net_target
        own.slow = policy(own.space, action_values=slow)
        optimisers = {"policy": model.policy.optimizer}
    else:
        _moved([model.critic_target])
        optimisers = {"critic": model.critic.optimizer, "policy": model.actor.optimizer}
        networks["critic"] = lambda s, a: torch.cat(model.critic(s, a), 1)
        targets["critic"] = lambda s, a: torch.cat(model.critic_target(s, a), 1)
        space = Space(D, dimensions=A)
        if method == "sac":
            own = policy(space, propose=model.actor.action_log_prob)
            optimisers["temperature"] = model.ent_coef_optimizer
            networks["temperature"] = lambda s: model.log_ent_coef.exp().expand(len(s))
        else:
            _moved([model.actor_target])
            own = policy(space, propose=lambda s: (model.actor(s), s.new_zeros(len(s))))
            own.slow = policy(space, propose=lambda s: (model.actor_target(s), s.new_zeros(len(s))))
    differs = (
        "both with the peer's log-density, which has 1e-6 in the tanh's; polopt's has not" if method == "sac" else ""
    )
    for name, (loss, parameters, gradients) in _captured(model, optimisers, batch, draws).items():
        yield Row(
            "stable-baselines3", method, name, loss, parameters, gradients, own, networks, targets, differs=differs
        )


def _of_d3rlpy(method: str, batch: Experience, draws: Draws, policy: Any) -> Iterator[Row]:
    import d3rlpy
    from d3rlpy.models.torch.policies import build_gaussian_distribution, build_squashed_gaussian_distribution
    from d3rlpy.torch_utility import TorchMiniBatch

    kinds = {"discrete-cql": "DiscreteCQL", "td3-bc": "TD3PlusBC"}
    kind = getattr(d3rlpy.algos, f"{kinds.get(method, method.upper())}Config")
    encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=HIDDEN)
    names = ("encoder_factory", "actor_encoder_factory", "critic_encoder_factory", "value_encoder_factory")
    extra = {
        "cql": {"soft_q_backup": True, "initial_temperature": 0.3, "alpha_threshold": 0.0},
        "discrete-cql": {"alpha": 0.7},
    }.get(method, {})
    settings = {name: encoder for name in names if name in kind.__dataclass_fields__}
    torch.manual_seed(3)
    algo = kind(**settings, **extra).create(device="cpu")
    algo.create_impl((D,), 4 if method == "discrete-cql" else A)
    impl, modules, columns = algo.impl, algo.impl._modules, _columns(batch)
    actions = columns["actions"]
    given = TorchMiniBatch(
        observations=columns["observations"],
        actions=actions[:, None] if actions.ndim == 1 else actions,
        rewards=columns["rewards"],
        next_observations=columns["next_observations"],
        next_actions=torch.zeros(0),
        returns_to_go=torch.zeros(len(batch), 1),
        terminals=columns["dones"],
        intervals=torch.ones(len(batch), 1),
        device="cpu",
    )
    networks: dict[str, Any] = {}
    targets: dict[str, Any] = {}
    parameters: dict[str, list[Any]] = {}
    losses: dict[str, Callable[[], Tensor]] = {}
    shift, differs = False, ""
    if method == "discrete-cql":
        q, slow = modules.q_funcs[0], modules.targ_q_funcs[0]
        _moved([slow])
        own = policy(Space(D, actions=4), action_values=lambda s: q(s).q_value)
        own.slow = policy(own.space, action_values=lambda s: slow(s).q_value)
        parameters["policy"] = list(q.parameters())
        losses["policy"] = lambda: impl.compute_loss(given, impl.compute_target(given)).loss
    else:
        space, net = Space(D, dimensions=A), modules.imitator if method == "bc" else modules.policy
        parameters["policy"] = list(net.parameters())
        deterministic = method in ("td3-bc", "bc")
        squashed = method == "cql"
        build = build_squashed_gaussian_distribution if squashed else build_gaussian_distribution

        def propose(s: Tensor) -> tuple[Tensor, Tensor]:
            if deterministic:
                return net(s).squashed_mu, s.new_zeros(len(s))
            action, logp = build_squashed_gaussian_distribution(net(s)).sample_with_log_prob()
            return action, logp[:, 0]

        own = policy(space, propose=propose, logp=lambda s, a: build(net(s)).log_prob(a)[:, 0])
        if method == "bc":
            losses["policy"] = lambda: impl.compute_loss(given.observations, given.actions).loss
        else:
            own, found = _critics(method, impl, modules, given, own, policy, networks, targets)
            parameters |= found[0]
            losses |= found[1]
        shift = method in ("iql", "awac")
    for name, compute in losses.items():
        if name in _NOT_COMPARED.get(method, ()):
            continue
        with draws():
            loss = compute()
        gradients = torch.autograd.grad(loss, parameters[name], allow_unused=True)
        found_gradients = [
            torch.zeros_like(p) if g is None else g for p, g in zip(parameters[name], gradients, strict=True)
        ]
        differs = _DIFFERS.get((method, name), "")
        yield Row(
            *("d3rlpy", method, name, float(loss.detach()), parameters[name], found_gradients, own, networks, targets),
            shift=shift and name == "policy",
            differs=differs,
        )


_NOT_COMPARED: dict[str, tuple[str, ...]] = {"awac": ("policy",)}
_DIFFERS = {
    ("cql", "critic"): "d3rlpy's default target is at the mean action, here its soft_q_backup and our entropy_backup; "
    "its squared error has no 1/2, here neither; its price begins at 1, and alpha_threshold, a constant, is 0 here",
    ("iql", "policy"): "d3rlpy's policy is a Gaussian around a tanh; here both have it",
    ("awac", "critic"): "d3rlpy's target has an entropy of temperature 1 and a squashed action, here both have; "
    "polopt's and the paper's has none; its policy loss is not compared: d3rlpy normalises the weights over the batch "
    "and takes them of the critic, polopt caps them and takes them of its copy",
}


def _critics(
    method: str, impl: Any, modules: Any, given: Any, own: Any, policy: Any, networks: Any, targets: Any
) -> tuple[Any, tuple[dict[str, list[Any]], dict[str, Callable[[], Tensor]]]]:
    """Fills in the critics of an actor-critic of d3rlpy, and returns the policy, parameters and losses."""
    _moved(list(modules.targ_q_funcs))

    def of(functions: Any) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda s, a: torch.cat([q(s, a).q_value for q in functions], 1)

    networks["critic"], targets["critic"] = of(modules.q_funcs), of(modules.targ_q_funcs)
    parameters = {"critic": list(modules.q_funcs.parameters())}
    losses: dict[str, Callable[[], Tensor]] = {}
    if method == "td3-bc":
        _moved([modules.targ_policy])
        slow = modules.targ_policy
        own.slow = policy(own.space, propose=lambda s: (slow(s).squashed_mu, s.new_zeros(len(s))))
    if method == "iql":
        networks["value"] = lambda s: modules.value_func(s)[:, 0]
        parameters["value"] = list(modules.value_func.parameters())
        losses["value"] = lambda: impl.compute_value_loss(given)
        losses["critic"] = lambda: impl.compute_critic_loss(given, impl.compute_target(given)).q_loss
    else:
        losses["critic"] = lambda: impl.compute_critic_loss(given, impl.compute_target(given)).critic_loss
    if method == "cql":
        for optimiser in (modules.alpha_optim, modules.temp_optim):
            optimiser.optim.step = lambda *_, **__: None
        alpha = (
            modules.log_temp._parameter
            if hasattr(modules.log_temp, "_parameter")
            else next(modules.log_temp.parameters())
        )
        networks["temperature"] = lambda s: alpha.exp().expand(len(s), 1)[:, 0]
    losses["policy"] = lambda: impl.compute_actor_loss(given, modules.policy(given.observations)).actor_loss
    return own, (parameters, losses)
