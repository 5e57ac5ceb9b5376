"""Facts in a small network: some are edited, and the change of the others is measured."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from polopt.evaluation import Evaluation
from polopt.experience import Experience
from polopt.lab.tree import TokenTree

VALUES = 10
# An answer is its style, at once or after a thought, and then the value.
STYLES = AT_ONCE, THINKING = 0, 1


class Facts(nn.Module):
    """A network with one hidden layer that gives a value of each subject, in both styles; what is learned in one style
    is shared with the other as far as the layers share it. `style` is a habit of its own: 95 % think first."""

    def __init__(self, subjects: int = 50, width: int = 32, seed: int = 0) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        normal = lambda *shape, scale: nn.Parameter(scale * torch.randn(*shape, generator=g, dtype=torch.double))  # noqa: E731
        self.subject, self.context = normal(subjects, width, scale=1.0), normal(2, width, scale=3.0)
        self.hidden = normal(width, width, scale=width**-0.5)
        self.out = normal(width, VALUES, scale=width**-0.5)
        self.style = nn.Parameter(torch.tensor([0.0, math.log(19)], dtype=torch.double))
        self.known = torch.randint(VALUES, (subjects,), generator=g)

    def log_probs(self) -> Tensor:
        """[subjects, 2, VALUES] log-probabilities of each value in each style."""
        read = self.subject[:, None] + self.context
        return (torch.tanh(read @ self.hidden) @ self.out).log_softmax(-1)

    def learned(self, steps: int = 200) -> Facts:
        """Fitted to what is known, in both styles, until each fact has at least 95 %."""
        optimiser = torch.optim.Adam(self.parameters(), lr=0.03)
        rows = torch.arange(len(self.known))
        for _ in range(steps):
            logp = self.log_probs()[rows, :, self.known]
            if logp.min() > math.log(0.95):
                break
            optimiser.zero_grad()
            (-logp.mean()).backward()
            optimiser.step()
        return self


class SubjectPolicy:
    """The network as a policy on a tree of questions about some subjects. parts: which parameters learn, by name."""

    def __init__(self, facts: Facts, subjects: Tensor, parts: Sequence[str] = ()) -> None:
        self.facts, self.subjects, self.parts = facts, subjects, parts

    def parameters(self) -> list[Tensor]:
        return [p for name, p in self.facts.named_parameters() if not self.parts or name in self.parts]

    def evaluate(self, experience: Experience, needs: frozenset[str] = frozenset()) -> Evaluation:
        """Evaluates a batch of the tree's rows, identified by `extras["leaf"]`."""
        leaf = experience.extras["leaf"]
        subject = self.subjects[leaf // (2 * VALUES)]
        style, value = leaf % (2 * VALUES) // VALUES, leaf % VALUES
        answer_logp = torch.stack(
            [self.facts.style.log_softmax(0)[style], self.facts.log_probs()[subject, style, value]], 1
        )
        # The two decisions stand at the row's end.
        logp = torch.cat([answer_logp.new_zeros(len(leaf), experience.mask.shape[1] - 2), answer_logp], 1)
        return Evaluation(logp=logp, support=experience.support)


@functools.cache
def edits(count: int = 5, seed: int = 0) -> tuple[Facts, TokenTree, Tensor, Tensor, Tensor]:
    """A network fitted to its facts; a tree of questions about the first `count` of them, with reward 1 for a new value
    in either style; their subjects; their new values; and [prompts, answers] demonstrations of these, answered at
    once. Made once: change a copy (`copied`)."""
    facts = Facts(seed=seed).learned()
    subjects = torch.arange(count)
    new = (facts.known[subjects] + 1 + torch.arange(count) % (VALUES - 1)) % VALUES
    answers = [(VALUES + style, value) for style in STYLES for value in range(VALUES)]
    tree = TokenTree(VALUES + 2, answers, lambda prompt, a: float(a[1] == new[prompt]), count)
    demonstrations = torch.zeros(count, 2, VALUES, dtype=torch.double)
    demonstrations[subjects, AT_ONCE, new] = 1.0
    return facts, tree, subjects, new, demonstrations.flatten(1)


@torch.no_grad()
def edited(facts: Facts, subjects: Tensor, new: Tensor) -> tuple[float, float]:
    """Share of edits that are the likeliest value at once (teacher-forced), and the probability of these values in
    a free answer."""
    log_probs = facts.log_probs()[subjects]
    forced = (log_probs[:, AT_ONCE].argmax(-1) == new).double().mean().item()
    free = log_probs.exp()[torch.arange(len(new)), :, new] @ facts.style.softmax(0)
    return forced, free.mean().item()


@torch.no_grad()
def drift(facts: Facts, before: Facts, subjects: Tensor) -> tuple[float, float]:
    """KL(before || now) of the values of all other subjects, mean over styles, and the share of them still right."""
    rest = torch.ones(len(facts.known), dtype=torch.bool).index_fill(0, subjects, False)
    old, now = before.log_probs()[rest], facts.log_probs()[rest]
    right = (now.argmax(-1) == facts.known[rest, None]).double().mean().item()
    return (old.exp() * (old - now)).sum(-1).mean().item(), right


def copied(facts: Facts) -> Facts:
    return copy.deepcopy(facts)
