"""Zero-shot RL: one policy for every reward of a reward-free log, conservative about what the log does not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.nn import Module

from polopt.algorithm import Algorithm
from polopt.credit import ConstantAdvantage
from polopt.evaluation import Evaluation, Loss
from polopt.experience import Experience
from polopt.method import Paper, method
from polopt.networks import LearnedNetwork, Relabel, VectorNetwork
from polopt.objectives import Aggregate, TokenMean
from polopt.objectives.network_losses import NetworkObjective
from polopt.objectives.targets import evaluated
from polopt.ops import per_decision_end
from polopt.outputs import NetworkOutput, Proposal
from polopt.part import Part
from polopt.rewards import EnvironmentReward
from polopt.sampling import FixedInput, PolicyInput, SphereSkill, TransitionReplay, on_sphere


@method(
    paper=Paper(
        title="On Zero-Shot Reinforcement Learning",
        authors="Jeen, Scott",
        year=2025,
        arxiv="2508.16496",
    ),
    changes="Learns where each policy of a family goes, and lowers that of actions that the log does not show.",
    room="objectives",
    tier="faithful",
)
def zero_shot_rl(
    *,
    conservative: Literal["values", "measures", "none"] = "values",
    weight: float = 0.01,
    actions: int = 6,
    dimensions: int = 50,
    mix: float = 0.5,
    orthonormal: float = 1.0,
    gamma: float = 0.98,
    tau: float = 0.01,
    noise: float = 0.2,
    noise_clip: float = 0.3,
    batch: int = 512,
    hidden: tuple[int, ...] = (256, 256),
) -> Algorithm:
    """With tasks z of length sqrt(d), a_next = pi(s_next, z) with noise, M_ij = F(s_i, a_i, z_i) B(s_next_j), and its
    slow copy N_ij = min over heads of F_slow(s_next_i, a_next_i, z_i) B_slow(s_next_j), over rows of one minibatch,

        L_FB = sum over heads of mean over j != i of (M_ij - gamma N_ij)^2 / 2 - M_ii
        L_B = orthonormal (mean over j != i of (B_i B_j)^2 - 2 B_i B_i)
        L_values = weight sum over heads of (log sum_k exp(F(s, a_k, z) z) - F(s, a, z) z)
        L_pi = -min over heads of F(s, pi(s, z), z) z

    F and B take one step on L_FB + L_B + L_values. conservative: `measures` has M_ij in the place of F z in L_values,
    `none` leaves it out. actions: the a_k that are uniform; two more are of the policy at s and s_next, one is the
    log's. mix: share of the z that are B of a state, scaled; the others are uniform. In evaluations z is the log's
    mean of r B(s_next), scaled, and after it `task_of_rewards` finds that of any other reward. batch: the rows of a
    minibatch, of which a batch is one. The policy's head must be deterministic.

    The paper's program learns the weight, clips each number of the gradient to 1, gives F and the policy separate
    encoders of (s, a) and (s, z), and takes two actions of each kind that is not uniform.
    """
    task = SphereSkill(name="task_vector", dimensions=dimensions, radius=None)
    kinds: dict[str, Sequence[Conservative]] = {"values": [ValueConservative(weight=weight)], "none": []}
    kinds["measures"] = [MeasureConservative(weight=weight)]
    loss = ForwardBackwardLoss(
        gamma=gamma,
        orthonormal=orthonormal,
        conservative=kinds[conservative],
        noise=noise,
        noise_clip=noise_clip,
    )
    F = VectorNetwork(
        outputs=dimensions, heads=2, reads_from=("observation", "extras.task_vector", "action"), hidden=hidden
    )
    B = VectorNetwork(outputs=dimensions, hidden=hidden, normalised=True)
    return Algorithm(
        sampling=TransitionReplay(rows=batch, group=batch, logged=1.0, policy_input=task),
        reward=EnvironmentReward(),
        credit=ConstantAdvantage(),
        relabel=[TaskVectors(dimensions=dimensions, mix=mix), CandidateActions(count=actions)],
        networks=[
            LearnedNetwork(name="forward", network=F, objective=loss, together_with=("backward",), target_tau=tau),
            LearnedNetwork(name="backward", network=B, objective=None, target_tau=tau),
        ],
        objective=TaskValueAscent(noise=noise, noise_clip=noise_clip),
    )


def task_of_rewards(backward: Module, observations: Tensor, rewards: Tensor) -> Tensor:
    """Returns the task vector [d] of rewards [N] at observations [N, D]: the mean of r B(s), of length sqrt(d)."""
    return on_sphere((rewards[:, None] * backward(observations)).mean(0))


FORWARD, AFTER = NetworkOutput("forward"), NetworkOutput("backward", next=True)
SLOW_AFTER = NetworkOutput("backward", target=True, next=True)
CANDIDATES = NetworkOutput("forward", column="candidate_actions")


class TaskVectors(Relabel):
    """Gives each row a task: B of the state after another row, scaled, or uniform on the sphere of radius sqrt(d).

    dimensions: d. mix: share of the rows with that of a state. decay: of the running mean of r B(s_next), which is the
    task of evaluations.
    """

    dimensions: int = 50
    mix: float = 0.5
    decay: float = 0.99

    reads = frozenset({"reward"})
    writes = frozenset({"extras.task_vector"})
    policy_outputs = frozenset({AFTER.name})

    def setup(self) -> None:
        if self.dimensions < 1 or not 0 <= self.mix <= 1 or not 0 <= self.decay < 1:
            raise ValueError(
                "methods.zero_shot_rl.TaskVectors: need dimensions >= 1, mix in [0, 1] and decay in [0, 1), found "
                f"{self.dimensions}, {self.mix} and {self.decay}"
            )
        self.register_buffer("inferred", torch.zeros(self.dimensions))

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        states, mask = evaluated(evaluation, AFTER), experience.mask
        known = states[mask]
        mean = (experience.reward[mask][:, None].to(known) * known).mean(0)
        inferred = self.get_buffer("inferred")
        inferred.lerp_(mean.to(inferred), 1 - self.decay)
        place = torch.randint(len(known), mask.shape, generator=generator)
        uniform = on_sphere(torch.randn(states.shape, generator=generator).to(states))
        is_state = torch.rand(mask.shape, generator=generator) < self.mix
        task = torch.where(is_state[..., None].to(mask.device), on_sphere(known[place.to(mask.device)]), uniform)
        return experience.replace(extras={**experience.extras, "task_vector": task})

    def evaluation_input(self) -> PolicyInput:
        return FixedInput(name="task_vector", value=tuple(on_sphere(self.get_buffer("inferred")).tolist()))


class CandidateActions(Relabel):
    """Gives each row actions [K, A], scaled to [-1, 1]: `count` uniform ones, those of the policy at s and at s_next,
    and the log's.
    """

    count: int = 6

    reads = frozenset({"extras.task_vector"})
    writes = frozenset({"extras.candidate_actions"})
    policy_outputs = frozenset(
        NetworkOutput("action", next=after, proposal=given).name
        for after, given in ((False, Proposal()), (True, Proposal()), (False, None))
    )

    def forward(self, experience: Experience, evaluation: Evaluation, generator: Generator) -> Experience:
        given = [evaluation.extras[name.removeprefix("extras.")] for name in sorted(self.policy_outputs)]
        shape = (*given[0].shape[:-1], self.count, given[0].shape[-1])
        uniform = 2 * torch.rand(shape, generator=generator).to(given[0]) - 1
        several = torch.cat([uniform, torch.stack(given, 2)], 2)
        return experience.replace(extras={**experience.extras, "candidate_actions": several})


class Conservative(Part):
    """`penalty(forward [N, H, d], candidates [N, K, H, d], backward [N, d], task [N, d]) -> [N]`.

    weight: its factor in the loss.
    """

    weight: float = 0.01

    def forward(self, forward: Tensor, candidates: Tensor, backward: Tensor, task: Tensor) -> Tensor:
        raise NotImplementedError


class ValueConservative(Conservative):
    """sum over heads of log sum_k exp(F(s, a_k, z) z) - F(s, a, z) z."""

    def forward(self, forward: Tensor, candidates: Tensor, backward: Tensor, task: Tensor) -> Tensor:
        values = (candidates * task[:, None, None]).sum(-1).logsumexp(1)
        return (values - (forward * task[:, None]).sum(-1)).sum(-1)


class MeasureConservative(Conservative):
    """mean over j of the sum over heads of log sum_k exp(F(s, a_k, z) B_j) - F(s, a, z) B_j."""

    def forward(self, forward: Tensor, candidates: Tensor, backward: Tensor, task: Tensor) -> Tensor:
        measures = torch.einsum("nkhd,md->nkhm", candidates, backward).logsumexp(1)
        return (measures - torch.einsum("nhd,md->nhm", forward, backward)).mean(-1).sum(-1)


class ForwardBackwardLoss(NetworkObjective):
    """The loss of `zero_shot_rl` for F and B, over pairs of decisions of one group.

    gamma: discount. orthonormal: weight of L_B. conservative: penalties. noise, noise_clip: of the policy's next
    action.
    """

    gamma: float = 0.98
    orthonormal: float = 1.0
    conservative: Sequence[Conservative] = ()
    noise: float = 0.2
    noise_clip: float = 0.3
    aggregate: Aggregate = TokenMean()

    tags = frozenset({"update_rule=regression"})
    binds = "group"

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"terminated", "extras.task_vector", "group"})

    @property
    def _slow(self) -> NetworkOutput:
        return NetworkOutput("forward", target=True, next=True, proposal=Proposal(False, self.noise, self.noise_clip))

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        several = [CANDIDATES] if len(self.conservative) else []
        return frozenset(output.name for output in (FORWARD, AFTER, SLOW_AFTER, self._slow, *several))

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        mask = experience.mask
        groups = experience.group[:, None].expand(mask.shape)[mask]
        over = per_decision_end(experience.terminated, mask)[mask]
        outputs = (FORWARD, AFTER, self._slow, SLOW_AFTER)
        f, b, slow_f, slow_b = (evaluated(evaluation, output)[mask] for output in outputs)
        task = experience.extras["task_vector"][mask].to(f)
        several = evaluated(evaluation, CANDIDATES)[mask] if len(self.conservative) else None
        terms, penalties = f.new_zeros(len(f)), f.new_zeros(len(f))
        terms = terms + 0 * (f.sum((1, 2)) + b.sum(1))  # a gradient of 0 where no decisions are left
        for group in groups.unique():
            at = (groups == group).nonzero()[:, 0]
            slow = torch.einsum("nhd,md->hnm", slow_f[at], slow_b[at]).amin(0).detach() * ~over[at, None]
            terms = terms.index_copy(0, at, self._representation(f[at], b[at], slow))
            if several is not None:
                parts = [p.weight * p(f[at], several[at], b[at], task[at]) for p in self.conservative]
                penalties = penalties.index_copy(0, at, torch.stack(parts).sum(0))
        loss, penalty = (
            self.aggregate(experience, torch.zeros(mask.shape).to(f).masked_scatter(mask, x))
            for x in (terms, penalties)
        )
        return Loss(loss + penalty, {"representation": loss.detach(), "penalty": penalty.detach()})

    def _representation(self, f: Tensor, b: Tensor, slow: Tensor) -> Tensor:
        """Returns L_FB + L_B of each decision of a group, [N]."""
        n = len(b)
        off = 1 - torch.eye(n, dtype=b.dtype, device=b.device)
        measure = torch.einsum("nhd,md->hnm", f, b)
        error = ((measure - self.gamma * slow).square() * off).sum(-1) / max(1, n - 1)
        overlap = b @ b.T
        spread = (overlap.square() * off).sum(-1) / max(1, n - 1) - 2 * overlap.diagonal()
        return (0.5 * error - measure.diagonal(dim1=1, dim2=2)).sum(0) + self.orthonormal * spread


class TaskValueAscent(NetworkObjective):
    """aggregate( -min_h F_h(s, pi(s, z), z) z ), through the policy's action.

    noise, noise_clip: as in `ForwardBackwardLoss`.
    """

    noise: float = 0.2
    noise_clip: float = 0.3
    aggregate: Aggregate = TokenMean()

    reads = frozenset({"extras.task_vector"})

    @property
    def _output(self) -> NetworkOutput:
        return NetworkOutput("forward", proposal=Proposal(False, self.noise, self.noise_clip))

    @property
    def policy_outputs(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self._output.name})

    def forward(self, experience: Experience, evaluation: Evaluation) -> Loss:
        mask = experience.mask[..., None]
        forward = evaluated(evaluation, self._output).masked_fill(~mask[..., None], 0)
        task = experience.extras["task_vector"].masked_fill(~mask, 0).to(forward)
        value = (forward * task[..., None, :]).sum(-1).amin(-1)
        return Loss(-self.aggregate(experience, value), {"value": self.aggregate(experience, value.detach())})
