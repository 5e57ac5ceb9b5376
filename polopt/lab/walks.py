"""Episodes sampled in a tabular Markov decision process."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polopt import ops
from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.problems.mdp import TabularMDP
from polopt.sampling.parts import RolloutRequest


class StatePolicy(nn.Module):
    """A softmax over free logits [S, A] in every state, with a table of values as critic, initially 0."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits.detach().clone())
        self.values = nn.Parameter(torch.zeros_like(logits[:, 0]))

    @property
    def probs(self) -> Tensor:
        return self.logits.softmax(-1)

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates the table on a batch with `extras["state"]` and `extras["action"]`, [B, T] numbers."""
        state, action = experience.extras["state"], experience.extras["action"]
        log_probs = self.logits.log_softmax(-1)
        return Evaluation(
            logp=log_probs[state, action],
            support=experience.support,
            entropy=ops.entropy_of(log_probs)[state] if "entropy" in needs else None,  # type: ignore[arg-type]
            value=self.values[state] if "value" in needs else None,  # type: ignore[arg-type]
        )


class WalkSource:
    """A source of episodes that stop with probability 1 - mdp.discount after each step, or after `horizon` steps.

    The visits are therefore distributed as the discounted occupancy, and sums need no discount. A decision's features
    are one-hot: its state and action.

    reward: [S, A].
    base: [S, A] probabilities of a reference, of which each row has a new episode (`extras["base_features"]`,
        `base_mask`).
    aux: [S, A] an auxiliary signal of a designer, in `extras["aux"]`.
    rows: rows of one optimiser batch.
    """

    size = 1

    def __init__(
        self,
        mdp: TabularMDP,
        policy: StatePolicy,
        reward: Tensor,
        *,
        rows: int,
        seed: int = 0,
        base: Tensor | None = None,
        aux: Tensor | None = None,
        horizon: int = 60,
    ) -> None:
        self.mdp, self.policy, self.reward, self.rows = mdp, policy, reward, rows
        self.base, self.aux, self.horizon = base, aux, horizon
        self.generator = torch.Generator().manual_seed(seed)

    def refresh(self) -> None:
        """Does nothing, since the source stores nothing of the policy."""

    def take(self, count: int) -> Tensor:
        """Returns zeros [count], the number of the only start."""
        return torch.zeros(count, dtype=torch.long)

    def _draw(self, probs: Tensor) -> Tensor:
        return torch.multinomial(probs, 1, generator=self.generator)[:, 0]

    @torch.no_grad()
    def walk(self, probs: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """Samples states, actions and mask, [rows, horizon], of episodes under a policy [S, A]."""
        state, alive = self._draw(self.mdp.start.expand(rows, -1)), torch.ones(rows, dtype=torch.bool)
        visited = []
        for _ in range(self.horizon):
            action = self._draw(probs[state])
            visited.append((state, action, alive))
            state = self._draw(self.mdp.transitions[state, action])
            alive = alive & (torch.rand(rows, generator=self.generator) < self.mdp.discount)
        states, actions, mask = (torch.stack(x, 1) for x in zip(*visited, strict=True))
        return states, actions, mask

    def _features(self, states: Tensor, actions: Tensor) -> Tensor:
        pairs = self.reward.numel()
        return nn.functional.one_hot(states * self.reward.shape[1] + actions, pairs).to(self.reward.dtype)

    def rollout(self, request: RolloutRequest) -> Experience:
        """Samples a group of episodes for each task, as `Source.rollout` specifies."""
        tasks, group = request.tasks, request.group
        states, actions, mask = self.walk(self.policy.probs.detach(), len(group))
        reward = torch.where(mask, self.reward[states, actions], 0)
        extras = {"state": states, "action": actions, "features": self._features(states, actions)}
        if self.aux is not None:
            extras["aux"] = self.aux[states, actions]
        if self.base is not None:
            at, done, known = self.walk(self.base, len(group))
            extras |= {"base_features": self._features(at, done), "base_mask": known}
        cut = mask[:, -1]
        batch = Experience(
            mask=mask,
            reward=reward,
            outcome=reward.sum(1),
            terminated=~cut,
            truncated=cut,
            group=group,
            horizon=self.horizon,
            support=request.support,
            extras=extras | {"index": tasks[group]},
        )
        with torch.no_grad():
            evaluation = self.policy.evaluate(batch, frozenset({"value"}))
        final = torch.zeros(len(batch), dtype=reward.dtype)
        return batch.replace(
            rollout_logp=evaluation.logp, old_logp=evaluation.logp, value=evaluation.value, final_value=final
        )
