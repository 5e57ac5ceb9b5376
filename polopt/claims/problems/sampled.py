"""As `claims.problems.bilevel`, from episodes: the inner update is an algorithm's, the outer gradient an estimate."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from polopt.algorithm import Algorithm
from polopt.claims.problems.bilevel import Bilevel
from polopt.experience import Experience
from polopt.lab.measure import learning
from polopt.lab.walks import StatePolicy, WalkSource
from polopt.methods.barfi import AlignedReward, LearnedDiscount
from polopt.sampling.parts import RolloutRequest


class SampledBilevel:
    """The quantities of `claims.problems.bilevel.align`, from sampled episodes.

    algorithm: the inner update, with `methods.barfi.AlignedReward` for its reward and `methods.barfi.LearnedDiscount`
    for its credit. rows: episodes of an inner step. outer: episodes of each of the two batches of an outer step, which
    are drawn apart, so that what is multiplied is independent. episodes: how many were drawn so far."""

    def __init__(self, problem: Bilevel, algorithm: Algorithm, *, rows: int, outer: int, seed: int = 0) -> None:
        self.problem, self.algorithm, self.outer = problem, algorithm, outer
        self.primary, self.naive = problem.primary, problem.naive
        self.policy = StatePolicy(torch.zeros_like(problem.primary))
        ways = {"rows": rows, "seed": seed, "aux": problem.aux, "horizon": 40}
        self.source = WalkSource(problem.mdp, self.policy, problem.primary, **ways)  # type: ignore[arg-type]
        self.episodes = 0

    def _at(self, theta: Tensor) -> None:
        with torch.no_grad():
            self.policy.logits.copy_(theta.view_as(self.policy.logits))

    def settle(self, theta: Tensor, phi: Tensor, steps: int, rate: float) -> Tensor:
        """theta after so many batches of the algorithm."""
        reward, credit = self.algorithm.reward, self.algorithm.credit
        if not isinstance(reward, AlignedReward) or not isinstance(credit, LearnedDiscount):
            raise ValueError(
                "SampledBilevel: the algorithm needs methods.barfi.AlignedReward and methods.barfi.LearnedDiscount"
            )
        reward.get_buffer("phi").copy_(phi[:-1].view(3, -1))
        credit.get_buffer("logit").copy_(phi[-1])
        self._at(theta)
        for batch in itertools.islice(learning(self.algorithm, self.source, self.policy, rate=rate), steps):
            self.episodes += len(batch)
        return self.policy.logits.detach().flatten().clone()

    def _episodes(self, theta: Tensor) -> Experience:
        self._at(theta.detach())
        self.episodes += self.outer
        return self.source.rollout(RolloutRequest(self.source.take(1), self.outer))

    def update(self, theta: Tensor, phi: Tensor) -> Tensor:
        """An estimate of `Bilevel.update` from fresh episodes, whose derivatives estimate its derivatives too: each
        term is weighted by the probability of what came before it, which is 1 in value and the score in gradient."""
        S, A = self.primary.shape
        batch = self._episodes(theta)
        state, action, mask = batch.extras["state"], batch.extras["action"], batch.mask
        log = theta.view(S, A).log_softmax(-1)
        policy, logp = log.exp(), torch.where(mask, log[state, action], 0)
        shares, gamma = phi[:-1].view(3, S, A), phi[-1].sigmoid()
        reward = shares[0] + shares[1] * self.primary + shares[2] * self.problem.aux
        since = logp.cumsum(1)
        weighed = torch.where(mask, (since - since.detach()).exp(), 0)
        before = torch.where(mask, (since - logp - (since - logp).detach()).exp(), 0)
        total, trace = torch.zeros(S * A, dtype=theta.dtype), torch.zeros(len(batch), S * A, dtype=theta.dtype)
        eye = torch.eye(S * A, dtype=theta.dtype)
        rows = torch.nn.functional.one_hot(torch.arange(S), S).to(theta.dtype)
        means = (rows[:, :, None] * policy[:, None, :]).view(S, S * A)  # E grad log pi(a | s) e_s
        entropy_gradient = policy * (log - (policy * log).sum(-1, keepdim=True))
        spread = -(rows[:, :, None] * entropy_gradient[:, None, :]).view(S, S * A)  # grad H(s)
        for t in range(mask.shape[1]):
            at, done = state[:, t], action[:, t]
            trace = gamma * trace + eye[at * A + done] - means[at]
            total = total + (weighed[:, t] * reward[at, done]) @ trace
            total = total + self.problem.entropy * before[:, t] @ spread[at]
        return total / len(batch)

    def gradient(self, theta: Tensor) -> Tensor:
        """An estimate of d value / d theta, from fresh episodes."""
        batch = self._episodes(theta)
        to_go = torch.where(batch.mask, batch.reward, 0).flip(1).cumsum(1).flip(1)
        theta = theta.detach().requires_grad_()
        log = theta.view(self.primary.shape).log_softmax(-1)[batch.extras["state"], batch.extras["action"]]
        loss = torch.where(batch.mask, log * to_go, 0).sum() / len(batch)
        return torch.autograd.grad(loss, theta)[0]
