"""A2PR: TD3+BC that stays near the better of the logged action and one that an autoencoder of good actions gives."""

from collections.abc import Sequence

import torch
from torch import Generator, Tensor, nn

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.td3_bc import td3_bc
from polopt.networks import LearnedNetwork, Network, Relabel, Space, ValueNetwork
from polopt.networks.critics import Ensemble
from polopt.objectives import Aggregate, Backup, NetworkRegression, ProposedActionValue, Regulariser, TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated, over_heads
from polopt.outputs import NetworkOutput, Proposal


@method(
    paper=Paper(
        title="Adaptive Advantage-Guided Policy Regularization for Offline Reinforcement Learning",
        authors="Liu, Tenglong and Li, Yang and Lan, Yixing and Gao, Hao and Pan, Wei and Xu, Xin",
        year=2024,
        arxiv="2405.19909",
    ),
    changes="TD3+BC that imitates the better of the logged action and a decoded one, and neither where both are bad.",
    room="objectives",
    tier="faithful",
)
def a2pr(
    *,
    alpha: float = 2.5,
    threshold: float = 0.0,
    divergence: float = 0.5,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    hidden: tuple[int, ...] = (256, 256),
    decoder: tuple[int, ...] = (750, 750),
) -> Algorithm:
    """With A(s, a) = Q_1(s, a) - V(s), an autoencoder D(s, a) that draws a latent vector of mean m and deviation d,
    a_D = D(s, mu(s)), and c the one of a_D and the logged a with the larger A, over logged transitions,

        L_V = (r + gamma min_j min(Q_j(s_next, a_next), Q_slow_j(s_next, a_next)) - V(s))^2
        L_D = 1[A(s, a) > threshold] |D(s, a) - a|^2 / N - divergence (1 + log d^2 - m^2 - d^2) / 2
        L_mu = -alpha / mean |Q_1(s, mu(s))| Q_1(s, mu(s)) + 1[A(s, c) > threshold] |mu(s) - c|^2 / N

    with N the number of an action's dimensions, scaled to [-1, 1], and a mean over the latent ones; all else is
    TD3+BC's. c has no gradient. decoder: widths of D's hidden layers. alpha, gamma, tau, batch: as in `td3-bc`.

    In the authors' program the gradient also flows through c, D takes its step before a_D is drawn, and a_D has a
    latent vector of its own; here one noise serves both terms.
    """
    parent = td3_bc(alpha=alpha, gamma=gamma, tau=tau, batch=batch, hidden=hidden)
    target = Backup(gamma=gamma, next=LowerNextValue(target_policy=True, noise=0.2, noise_clip=0.5))
    regression = NetworkRegression(network="value", target=target)
    loss = AdvantageAutoencoderLoss(threshold=threshold, divergence=divergence)
    learned = [
        LearnedNetwork(name="value", network=ValueNetwork(hidden=hidden), objective=regression),
        LearnedNetwork(name="autoencoder", network=ActionAutoencoder(hidden=decoder), objective=loss),
    ]
    guided = AdvantageGuidedError(threshold=threshold)
    return parent.but(
        {"objective.regularise": [guided]},
        networks=[*parent.networks, *learned],
        relabel=[LatentNoise(), DecodedAction()],
    )


VALUE, LOGGED = NetworkOutput("value"), NetworkOutput("critic")
DECODED = NetworkOutput("critic", column="candidate_actions")


class LowerNextValue(ProposedActionValue):
    """min over heads and both copies of Q(s', a'), of a critic and its target copy, with a' an action of the policy at
    s'. The settings are those of `objectives.ProposedActionValue`."""

    def setup(self) -> None:
        super().setup()
        value = self._value
        self._now = NetworkOutput(value.network, next=True, proposal=value.proposal, heads=value.heads)

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return super().policy_outputs | {self._now.name}

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        slow = super().forward(experience, evaluation)
        return slow.minimum(over_heads(evaluated(evaluation, self._now), self.over))


class _Autoencoder(nn.Module):
    def __init__(self, encoder: Ensemble, decoder: Ensemble) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, observation: Tensor, action: Tensor, noise: Tensor) -> Tensor:
        mean, log_std = self.encoder(torch.cat([observation, action], -1))[..., 0, :].chunk(2, -1)
        log_std = log_std.clamp(-4, 15)
        latent = mean + log_std.exp() * noise
        decoded = self.decoder(torch.cat([observation, latent], -1))[..., 0, :].tanh()
        return torch.cat([decoded, mean, log_std], -1)


class ActionAutoencoder(Network):
    """A variational autoencoder of actions at states, of two perceptrons: the decoded action [A] within [-1, 1], and
    the latent vector's mean and log standard deviation, [2 A] each, as one vector.

    hidden: widths of the hidden layers of each.
    """

    hidden: tuple[int, ...] = (750, 750)

    inputs = ("observation", "action", "extras.latent_noise")

    def setup(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"methods.a2pr.ActionAutoencoder: hidden must be widths >= 1, found {list(self.hidden)}")

    def build(self, space: Space, generator: Generator) -> nn.Module:
        A, D = space.dimensions, space.observations
        if A is None:
            raise ValueError(
                "methods.a2pr.ActionAutoencoder: the environment's actions are choices; it needs those of a Box"
            )
        widths: Sequence[Sequence[int]] = (D + A, *self.hidden, 4 * A), (D + 2 * A, *self.hidden, A)
        return _Autoencoder(*(Ensemble(1, each, "relu", False, generator) for each in widths))


def decoded_parts(output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the action [..., A], and the latent mean and log standard deviation [..., 2 A], of an autoencoder."""
    A = output.shape[-1] // 5
    decoded, mean, log_std = output.split([A, 2 * A, 2 * A], -1)
    return decoded, mean, log_std


class LatentNoise(Relabel):
    """Gives each decision the noise of its latent vector, [B, T, 2 A], standard normal."""

    writes = frozenset({"extras.latent_noise"})
    policy_outputs = frozenset({NetworkOutput("action").name})

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        action = evaluated(evaluation, NetworkOutput("action"))
        noise = torch.randn(*action.shape[:-1], 2 * action.shape[-1], generator=generator).to(action)
        return experience.replace(extras={**experience.extras, "latent_noise": noise})


class DecodedAction(Relabel):
    """Gives each decision the action that the network `autoencoder` makes of the policy's, as one candidate."""

    reads = frozenset({"extras.latent_noise"})
    writes = frozenset({"extras.candidate_actions"})
    policy_outputs = frozenset({NetworkOutput("autoencoder", proposal=Proposal()).name})

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        decoded, _, _ = decoded_parts(evaluated(evaluation, NetworkOutput("autoencoder", proposal=Proposal())))
        return experience.replace(extras={**experience.extras, "candidate_actions": decoded[:, :, None]})


class AdvantageAutoencoderLoss(NetworkObjective):
    """aggregate( 1[Q_1(s, a) - V(s) > threshold] |D(s, a) - a|^2 / A - divergence mean (1 + log d^2 - m^2 - d^2) / 2 ),
    over logged actions, with m and d the latent mean and standard deviation. Only D has a gradient.

    threshold: an action is imitated above this advantage. divergence: weight of the second term.
    """

    threshold: float = 0.0
    divergence: float = 0.5
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.candidate_actions"})
    policy_outputs = frozenset(
        o.name for o in (VALUE, LOGGED, DECODED, NetworkOutput("autoencoder"), NetworkOutput("action"))
    )

    def setup(self) -> None:
        if self.divergence < 0:
            raise ValueError(f"methods.a2pr.AdvantageAutoencoderLoss: divergence must be >= 0, found {self.divergence}")

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        experience, evaluation = experience.zero_masked(), evaluation.zero_masked(experience.mask)
        decoded, mean, log_std = decoded_parts(evaluated(evaluation, NetworkOutput("autoencoder")))
        logged, other = (over_heads(evaluated(evaluation, o), "first").detach() for o in (LOGGED, DECODED))
        better = (logged - evaluated(evaluation, VALUE).detach() > self.threshold).to(decoded)
        error = (decoded - evaluated(evaluation, NetworkOutput("action")).detach()).square().mean(-1)
        divergence = -(1 + 2 * log_std - mean.square() - (2 * log_std).exp()).mean(-1) / 2
        loss = self.aggregate(experience, better * error + self.divergence * divergence)
        chosen = (other[..., 0] >= logged).to(decoded) * experience.mask
        found = {
            "better_than_value": better,
            "decoded_is_better": chosen,
            "error": error.detach(),
            "divergence": divergence.detach(),
        }
        return Loss(loss, {name: self.aggregate(experience, value) for name, value in found.items()})


class AdvantageGuidedError(Regulariser):
    """1[A(s, c) > threshold] |pi(s) - c|^2 / A of the policy's action, c being the better of the logged action and the
    candidate [B, T, 1, A], by A(s, .) = Q_1(s, .) - V(s); c, Q and V have no gradient.

    threshold: at advantages below it nothing is imitated.
    """

    threshold: float = 0.0

    reads = frozenset({"extras.candidate_actions"})
    policy_outputs = frozenset(
        o.name for o in (VALUE, LOGGED, DECODED, NetworkOutput("action"), NetworkOutput("action", proposal=Proposal()))
    )

    def forward(self, experience: Experience, evaluation: Evaluation) -> Tensor:
        value = evaluated(evaluation, VALUE)
        logged = over_heads(evaluated(evaluation, LOGGED), "first") - value
        decoded = over_heads(evaluated(evaluation, DECODED), "first")[..., 0] - value
        candidate = experience.extras["candidate_actions"][:, :, 0].masked_fill(~experience.mask[..., None], 0)
        action = evaluated(evaluation, NetworkOutput("action"))
        chosen = torch.where((decoded >= logged)[..., None], candidate.to(action), action).detach()
        kept = (decoded.maximum(logged) > self.threshold).detach()
        proposed = evaluated(evaluation, NetworkOutput("action", proposal=Proposal()))
        return torch.where(kept, (proposed - chosen).square().mean(-1), 0)
