"""METRA: skills that move far apart in the number of steps between states."""

from torch import Generator, Tensor
from torch.nn import Module

from polopt.algorithm import Algorithm
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.methods.sac import sac
from polopt.networks import LearnedNetwork, Relabel, Temperature, VectorNetwork
from polopt.objectives import Aggregate, TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated
from polopt.outputs import NetworkOutput
from polopt.sampling import OneHotSkill, SphereSkill, on_sphere


@method(
    paper=Paper(
        title="METRA: Scalable Unsupervised RL with Metric-Aware Abstraction",
        authors="Park, Seohong and Rybkin, Oleh and Levine, Sergey",
        year=2023,
        arxiv="2310.08887",
    ),
    changes="Replaces the reward by progress of a learned encoding along a skill, no faster than a unit a step.",
    room="rewards",
    tier="faithful",
)
def metra(
    *,
    skills: int = 2,
    discrete: bool = False,
    slack: float = 1e-3,
    multiplier: float = 30.0,
    gamma: float = 0.99,
    tau: float = 0.005,
    batch: int = 256,
    start: int = 1000,
    capacity: int = 1_000_000,
    steps: int = 1,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With a skill z, held for an episode, and d = phi(s_next) - phi(s) of an encoder phi,

        r = d z
        L_phi = -(d z + lambda min(slack, 1 - |d|^2))
        L_lambda = log lambda min(slack, 1 - |d|^2)

    and SAC on r with a policy and critics that read z. skills: dimensions of z, a point of the unit circle or sphere;
    with `discrete`, of which r takes K / (K - 1) (z - 1 / K), how many there are. slack: how far below its bound the
    constraint may count. multiplier: lambda at the beginning. gamma, tau, batch, start, capacity, steps: as in `sac`.

    The paper's constraint |d| <= 1 is kept; the authors' program takes a mean over the dimensions of d^2 for the sum.
    r is of the encoder before the minibatch's step, where the paper takes the one after it.
    """
    made = sac(gamma=gamma, tau=tau, batch=batch, start=start, capacity=capacity, steps=steps, hidden=hidden)
    skill = OneHotSkill(count=skills) if discrete else SphereSkill(dimensions=skills)
    phi, price = VectorNetwork(outputs=skills, hidden=hidden), Temperature(initial=multiplier)
    learned = [
        LearnedNetwork(name="encoder", network=phi, objective=MetricEncoderLoss(slack=slack, centred=discrete)),
        LearnedNetwork(name="multiplier", network=price, objective=MultiplierLoss(slack=slack)),
    ]
    changes = {"sampling.policy_input": skill, "networks.0.network.policy_inputs": ("skill",)}
    made = made.but(changes, relabel=[SkillProgressReward(centred=discrete)])
    return made.but(networks=[*learned, *made.networks])


PHI = NetworkOutput("encoder"), NetworkOutput("encoder", next=True)


def progress(experience: Experience, evaluation: Evaluation, centred: bool) -> tuple[Tensor, Tensor]:
    """Returns d z and |d|^2, [B, T], with d = phi(s_next) - phi(s) and 0 off the mask.

    centred: whether K / (K - 1) (z - 1 / K) takes the place of z.
    """
    mask = experience.mask[..., None]
    now, after = (evaluated(evaluation, output).masked_fill(~mask, 0) for output in PHI)
    skill = experience.extras["skill"].masked_fill(~mask, 0).to(now)
    count = skill.shape[-1]
    along = (skill - 1 / count) * count / (count - 1) if centred else skill
    moved = after - now
    return (moved * along).sum(-1), moved.square().sum(-1)


class SkillProgressReward(Relabel):
    """r = (phi(s_next) - phi(s)) z, of the network `encoder` and the policy's input `skill`.

    centred: whether K / (K - 1) (z - 1 / K) takes the place of z, of K discrete skills.
    """

    centred: bool = False

    reads = frozenset({"extras.skill"})
    writes = frozenset({"reward"})
    policy_outputs = frozenset(output.name for output in PHI)

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        return experience.replace(reward=progress(experience, evaluation, self.centred)[0])


class MetricEncoderLoss(NetworkObjective):
    """aggregate( -(d z + lambda min(slack, 1 - |d|^2)) ), with d = phi(s_next) - phi(s) and lambda without gradient.

    slack: how far below its bound the constraint may count. centred: as in `SkillProgressReward`.
    """

    slack: float = 1e-3
    centred: bool = False
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.skill"})
    policy_outputs = frozenset(output.name for output in (*PHI, NetworkOutput("multiplier")))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        along, length = progress(experience, evaluation, self.centred)
        price = evaluated(evaluation, NetworkOutput("multiplier")).detach().masked_fill(~experience.mask, 0)
        terms = along + price * (1 - length).clamp(max=self.slack)
        metrics = {
            "progress": self.aggregate(experience, along.detach()),
            "speed": self.aggregate(experience, length.detach()),
        }
        return Loss(-self.aggregate(experience, terms), metrics)


class MultiplierLoss(NetworkObjective):
    """aggregate( log lambda min(slack, 1 - |d|^2) ), d without gradient: lambda rises where |d| > 1.

    slack: as in `MetricEncoderLoss`.
    """

    slack: float = 1e-3
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.skill"})
    policy_outputs = frozenset(output.name for output in (*PHI, NetworkOutput("multiplier")))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        _, length = progress(experience, evaluation, centred=False)
        price = evaluated(evaluation, NetworkOutput("multiplier")).masked_fill(~experience.mask, 1)
        terms = price.log() * (1 - length.detach()).clamp(max=self.slack)
        return Loss(self.aggregate(experience, terms), {"value": self.aggregate(experience, price.detach())})


def goal_skill(encoder: Module, state: Tensor, goal: Tensor) -> Tensor:
    """Returns the skill [..., K] that leads from states to goals, [..., D]: (phi(g) - phi(s)) / |phi(g) - phi(s)|.

    encoder: the run's network of that name.
    """
    return on_sphere(encoder(goal) - encoder(state), 1.0)
