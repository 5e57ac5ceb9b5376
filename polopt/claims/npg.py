"""These programs measure what the paper of the natural policy gradient claims."""

import math

import torch
from torch import Tensor, nn

from polopt.claim import Finding, Replace, claim, mutation
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.methods.npg import npg
from polopt.problems.mdp import TabularMDP, random_mdp
from polopt.updates import BatchLoss, PlainSettings, UpdateRule
from polopt.updates.batch_loss import categorical_divergence

SEEDS = (41, 42, 43, 44, 45)


class TabularSoftmax(nn.Module):
    """A softmax over choices in each state, of logits A theta; states count by `weight` [S], which sums to S, in the
    mean divergence."""

    def __init__(self, theta: Tensor, mixing: Tensor | None = None) -> None:
        super().__init__()
        self.theta, self.mixing = nn.Parameter(theta.clone()), mixing
        self.weight = torch.ones(len(theta)).double()

    def log_probs(self) -> Tensor:
        logits = self.theta if self.mixing is None else (self.mixing @ self.theta.flatten()).view_as(self.theta)
        return logits.log_softmax(-1)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        state, action = experience.extras["state"], experience.extras["action"]
        return Evaluation(logp=self.log_probs()[state, action])

    def laws(self, experience: Experience) -> tuple[Tensor, ...]:
        state = experience.extras["state"]
        return self.log_probs()[state], self.weight[state]

    def law_divergence(self, old: tuple[Tensor, ...], new: tuple[Tensor, ...]) -> Tensor:
        return old[1] * categorical_divergence(old[0], new[0])


def action_values(problem: TabularMDP, policy: Tensor, reward: Tensor) -> tuple[Tensor, Tensor]:
    """Returns Q [S, A] and V [S], discounted sums of rewards."""
    states = len(problem.start)
    moves = torch.einsum("sa,sat->st", policy, problem.transitions)
    value = torch.linalg.solve(torch.eye(states).double() - problem.discount * moves, (policy * reward).sum(1))
    return reward + problem.discount * problem.transitions @ value, value


def step(policy: TabularSoftmax, problem: TabularMDP, reward: Tensor, rule: UpdateRule, lr: float) -> None:
    """Takes a step of the rule along the exact gradient of the discounted return; states count by their occupancy."""
    states, actions = reward.shape
    probs = policy.log_probs().exp().detach()
    occupancy = problem.occupancy(probs)
    q, v = action_values(problem, probs, reward)
    policy.weight = states * occupancy.sum(1)
    gain = occupancy * (q - v[:, None]) / (1 - problem.discount)
    place = torch.arange(states * actions)
    batch = Experience(
        mask=torch.ones(len(place), 1, dtype=torch.bool),
        advantage=len(place) * gain.reshape(-1, 1),  # the loss is a mean
        group=place,
        extras={"state": place[:, None] // actions, "action": place[:, None] % actions},
    )
    objective = npg().but({"objective.regularise": []}).objective
    stepper = rule.begin(list(policy.parameters()), PlainSettings(lr=lr))
    stepper.step_on_batch(BatchLoss(policy, objective, policy.evaluate, [batch]))


def exact(damping: float = 0.0) -> UpdateRule:
    return npg(damping=damping).but({"update.solver.iterations": 2000, "update.solver.tolerance": 1e-15}).update


def problem_of(seed: int, states: int = 6, actions: int = 3) -> tuple[TabularMDP, Tensor, Tensor]:
    """Returns a problem that may begin in any state, its rewards on [0, 1], and logits [S, A]."""
    draw = torch.Generator().manual_seed(seed)
    problem = random_mdp(seed, states=states, actions=actions, discount=0.8)
    problem = TabularMDP(problem.transitions, torch.full((states,), 1 / states, dtype=torch.double), problem.discount)
    reward, logits = torch.rand(states, actions, generator=draw), torch.randn(states, actions, generator=draw)
    return problem, reward.double(), logits.double()


@claim(
    "In a table the step multiplies each probability by exp(lr A / (1 - gamma)).",
    kind="identity",
    baseline="the same with a damping of 0.1",
)
def exponential_weights() -> Finding:
    off = {0.0: 0.0, 0.1: 0.0}
    for seed in SEEDS:
        problem, reward, logits = problem_of(seed)
        before = logits.log_softmax(-1).exp()
        q, v = action_values(problem, before, reward)
        weights = before * (0.3 * (q - v[:, None]) / (1 - problem.discount)).exp()
        expected = weights / weights.sum(1, keepdim=True)
        for damping in off:
            policy = TabularSoftmax(logits)
            step(policy, problem, reward, exact(damping), lr=0.3)
            off[damping] = max(off[damping], float((policy.log_probs().exp() - expected).detach().abs().max()))
    return Finding(
        measured={"largest difference": off[0.0], "with damping": off[0.1]},
        criterion="5 problems: largest difference of a probability < 1e-8; with damping > 1e-3",
        holds=off[0.0] < 1e-8 and off[0.1] > 1e-3,
    )


@claim(
    "The step of the policy does not depend on how its parameters are chosen.",
    kind="headline",
    baseline="the gradient itself, the Fisher matrix replaced by the identity",
)
def covariant() -> Finding:
    found = {"natural": 0.0, "gradient": math.inf}
    for seed in SEEDS:
        problem, reward, logits = problem_of(seed)
        size = logits.numel()
        mixing = torch.randn(size, size, generator=torch.Generator().manual_seed(seed)).double() / size**0.5
        mixing = mixing + 2 * torch.eye(size).double()
        other = torch.linalg.solve(mixing, logits.flatten()).view_as(logits)
        for name, damping, lr in (("natural", 0.0, 0.3), ("gradient", 1e6, 0.3e6)):  # far above the Fisher matrix
            moved = []
            for theta, how in ((logits, None), (other, mixing)):
                policy = TabularSoftmax(theta, how)
                step(policy, problem, reward, exact(damping), lr=lr)
                moved.append(policy.log_probs().exp().detach())
            apart = float((moved[0] - moved[1]).abs().max())
            found[name] = max(found[name], apart) if name == "natural" else min(found[name], apart)
    return Finding(
        measured=found,
        criterion="5 problems, each in two parametrisations: largest difference of a probability after a step < 1e-6; "
        "of the gradient > 1e-2 on each",
        holds=found["natural"] < 1e-6 and found["gradient"] > 1e-2,
    )


def gap(seed: int, damping: float, lr: float, count: int) -> float:
    """Returns how far the mean value of the last of `count` policies is from the best one's."""
    problem, reward, logits = problem_of(seed)
    best = torch.zeros(len(logits)).double()
    for _ in range(500):
        best = (reward + problem.discount * problem.transitions @ best).amax(1)
    policy = TabularSoftmax(torch.zeros_like(logits))
    for _ in range(count):
        step(policy, problem, reward, exact(damping), lr)
    _, value = action_values(problem, policy.log_probs().exp().detach(), reward)
    return float((best - value).mean())


@claim(
    "After K steps of lr = (1 - gamma)^2 log |A| the gap is below 2 / ((1 - gamma)^2 K), and below the gradient's.",
    kind="theory",
    baseline="as many steps of the gradient with the same lr",
    cost="slow",
)
def rate() -> Finding:
    """The bound is that of Agarwal et al. 2019 (arXiv:1908.00261)."""
    count, discount = 20, 0.8
    lr = (1 - discount) ** 2 * math.log(3)
    own = [gap(seed, 0.0, lr, count) for seed in SEEDS]
    other = [gap(seed, 1e6, 1e6 * lr, count) for seed in SEEDS]
    bound = 2 / ((1 - discount) ** 2 * count)
    ratio = max(a / b for a, b in zip(own, other, strict=True))
    return Finding(
        measured={"largest gap": max(own), "bound": bound, "largest ratio to the gradient's gap": ratio},
        criterion="5 problems, 20 steps: every gap below the bound, and below half of the gradient's",
        holds=max(own) < bound and ratio < 0.5,
    )


@mutation("The Fisher matrix counts all states alike.", kills=exponential_weights)
def unweighted(replace: Replace) -> None:
    replace(TabularSoftmax, "law_divergence", lambda self, old, new: categorical_divergence(old[0], new[0]))


@mutation("The Fisher matrix is replaced by the identity.", kills=covariant)
def no_fisher(replace: Replace) -> None:
    replace(BatchLoss, "fisher_product", lambda self, parameters, vector: vector)
