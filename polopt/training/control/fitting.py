"""Refusals of algorithms that do not fit the policy and the environments of a control recipe."""

from __future__ import annotations

from gymnasium.spaces import Box, Dict, Discrete
from gymnasium.vector import VectorEnv

from polopt.algorithm import Algorithm
from polopt.config import ConfigError
from polopt.networks import LATENT_OUTPUTS, HistoryActor, PrivilegedValue
from polopt.outputs import POLICY, output_of
from polopt.policies.heads import Bounded
from polopt.policies.network import NetworkPolicy
from polopt.sampling import Fragments, TransitionReplay
from polopt.step_source import ACTION_MASK, PRIVILEGED


def check_fit(
    stage: str, algorithm: Algorithm, policy: NetworkPolicy, environments: VectorEnv, *, logged: bool
) -> None:
    """Refuses an algorithm that needs what policy or environments do not have.

    logged: whether the recipe has a log of transitions.

    Raises:
        ConfigError: naming the stage, what was found and the fix.
    """
    _check_head(stage, algorithm, policy, environments)
    _check_networks(stage, algorithm, policy)
    _check_latent(stage, algorithm, policy)
    _check_exploration(stage, algorithm, policy, environments)
    _check_memory(stage, algorithm, policy)
    if "logged_transitions" in algorithm.sampling.source_capabilities and not logged:
        raise ConfigError(
            f"stages.{stage}: it learns from logged transitions; set transitions to a file of them, or to the "
            "folder of a run that stored some"
        )


def has_illegal_choices(environments: VectorEnv) -> bool:
    """Returns whether observations mark the choices that may be taken."""
    seen = environments.single_observation_space
    return isinstance(seen, Dict) and ACTION_MASK in seen.spaces


def _check_head(stage: str, algorithm: Algorithm, policy: NetworkPolicy, environments: VectorEnv) -> None:
    """Refuses an algorithm that reads of the policy what its head has not."""
    head, space = policy.head, environments.single_action_space
    outputs = [output for name in algorithm.required_outputs if (output := output_of(name)) is not None]
    proposals = [(output, output.proposal) for output in outputs if output.proposal is not None]
    if any(output.network == POLICY for output in outputs) and head.name != "action_values":
        raise ConfigError(
            f"stages.{stage}: its policy's outputs are the values of choices; set policy.head to action_values, "
            f"which needs Discrete actions, and the environment's are {space}"
        )
    if not head.reparameterised and any(each.learns and not output.next for output, each in proposals):
        raise ConfigError(
            f"stages.{stage}: its policy climbs a critic's value through its action, and a choice has no gradient; "
            "take an environment whose actions are a Box, or another method, as ppo"
        )
    if any(proposal.of == "every" for _, proposal in proposals) and policy.space.actions is None:
        raise ConfigError(f"stages.{stage}: it reads values of every choice, and needs Discrete actions, not {space}")
    if any(proposal.of == "uniform" for _, proposal in proposals) and not isinstance(head, Bounded):
        raise ConfigError(
            f"stages.{stage}: it draws uniformly random actions, and policy.head = {head.name!r} has no bounds; "
            "set it to squashed_gaussian, which needs a bounded Box"
        )
    reads_logp = algorithm.objective.reads_logp or any(output.network == "logp" for output, _ in proposals)
    if reads_logp and not head.stochastic:
        fix = "squashed_gaussian" if head.name == "deterministic" else "categorical"
        raise ConfigError(
            f"stages.{stage}: its policy needs the density of actions, and policy.head = {head.name!r} has none; "
            f"set it to {fix}"
        )
    if "laws" in algorithm.update.loop_capabilities and not head.stochastic:
        raise ConfigError(
            f"stages.{stage}: its step is measured by the divergence of actions' densities, and policy.head = "
            f"{head.name!r} has none; set it to gaussian, or to categorical for choices"
        )
    if proposals and has_illegal_choices(environments):
        raise ConfigError(
            f"stages.{stage}: it takes the policy's choice at the state after a stored transition, and no "
            f"{ACTION_MASK} is stored; take a method of fragments, as ppo"
        )
    if "extras.mean" in algorithm.required_outputs and head.name not in ("gaussian", "squashed_gaussian"):
        raise ConfigError(
            f"stages.{stage}: it reads means and standard deviations of normal distributions, and policy.head = "
            f"{head.name!r} has none; set it to gaussian"
        )


def _check_networks(stage: str, algorithm: Algorithm, policy: NetworkPolicy) -> None:
    """Refuses networks that do not fit the policy, or read what a log has not."""
    for spec in algorithm.networks:
        if f"extras.{PRIVILEGED}" in spec.network.inputs and getattr(algorithm.sampling, "logged", False):
            raise ConfigError(
                f"stages.{stage}: the network {spec.name!r} reads {PRIVILEGED}, which no log has; set sampling.logged "
                "to 0, or leave it out of the network's policy_inputs"
            )
        try:
            spec.network.check(policy.space)
        except ValueError as error:
            raise ConfigError(f"stages.{stage}: the network {spec.name!r}: {error}") from None


def _check_latent(stage: str, algorithm: Algorithm, policy: NetworkPolicy) -> None:
    """Refuses an algorithm that reads a latent vector, or features of a privileged state, which the policy has not."""
    latent = algorithm.required_outputs & LATENT_OUTPUTS
    if latent and not isinstance(policy.actor, HistoryActor):
        raise ConfigError(
            f"stages.{stage}: it reads {', '.join(sorted(latent))} of a policy with a latent vector, and the policy "
            "has none; set the stage's but: {trunk: {part: networks.HistoryEncoder}}"
        )
    if "extras.privileged_features" in latent and not isinstance(policy.critic, PrivilegedValue):
        raise ConfigError(
            f"stages.{stage}: it learns from what a simulator tells beside the observation, and the environment's "
            f"observations have no entry {PRIVILEGED!r}; make them a Dict of observation and {PRIVILEGED}, a Box of "
            "what is hidden from the policy, or take another method, as ppo"
        )


def _check_memory(stage: str, algorithm: Algorithm, policy: NetworkPolicy) -> None:
    """Refuses what reads single decisions of a policy whose memory is learned through the decisions of a fragment."""
    if policy.per_decision:
        return
    sampling = f"{type(algorithm.sampling).__module__.split('.')[1]}.{type(algorithm.sampling).__name__}"
    if type(algorithm.sampling) is not Fragments:
        raise ConfigError(
            f"stages.{stage}: a policy with a memory learns from whole fragments, and {sampling} has single decisions; "
            "take a method of sampling.Fragments, as ppo, or sampling.EpisodeHistory for sampling.policy_input"
        )
    if policy.compiled:
        raise ConfigError("compiled = true is for single decisions, and a memory for whole fragments; set it to false")


def _check_exploration(stage: str, algorithm: Algorithm, policy: NetworkPolicy, environments: VectorEnv) -> None:
    """Refuses random actions that do not fit the environment's."""
    sampling, space = algorithm.sampling, environments.single_action_space
    if not isinstance(sampling, TransitionReplay) or sampling.logged == 1:
        return
    if sampling.noise and isinstance(space, Discrete):
        raise ConfigError(
            f"stages.{stage}: noise = {sampling.noise} is Gaussian noise on vectors, and the environment's actions "
            f"are {space}; set the method's noise to 0, and sampling.epsilon for random choices"
        )
    if sampling.epsilon and not isinstance(space, Discrete):
        raise ConfigError(
            f"stages.{stage}: epsilon is the chance of a random choice, and the environment's actions are "
            f"{space}; set the method's epsilon to 0, and sampling.noise for random vectors"
        )
    if sampling.sequence > 1 and has_illegal_choices(environments):
        raise ConfigError(
            f"stages.{stage}: sequence = {sampling.sequence} actions in turn are chosen at once, and which may be "
            f"taken changes with the state, by {ACTION_MASK}; set sampling.sequence to 1"
        )
    drawn = sampling.start or sampling.noise
    if drawn and not policy.head.whole_box:
        raise ConfigError(
            f"stages.{stage}: uniform and noisy actions are no shares of a whole, as those of policy.head = "
            f"{policy.head.name!r}; set the method's start and noise to 0"
        )
    if drawn and not ((isinstance(space, Box) and space.is_bounded()) or isinstance(space, Discrete)):
        raise ConfigError(
            f"stages.{stage}: uniform and noisy actions need bounds, and the environment's are {space}; set the "
            "method's start and noise to 0"
        )
