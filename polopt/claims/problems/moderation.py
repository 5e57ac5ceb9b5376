"""Classification under a written rule: reason over attributes, or map contents to labels directly."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from polopt.algorithm import Algorithm
from polopt.lab.measure import train
from polopt.lab.policy import TabularPolicy
from polopt.lab.tree import TokenTree

ATTRIBUTES, WORDINGS = 6, 16
# Whether each wording affirms its attribute: the first half deny it.
MEANING = (torch.arange(WORDINGS) >= WORDINGS // 2).long()
COMBINATIONS = torch.cartesian_prod(*[torch.arange(2)] * ATTRIBUTES)


def violates(attributes: Tensor) -> Tensor:
    """[...] bool of [..., 6]: the policy's rule, (a and b) or (c and not d and e) or (f and not a)."""
    a, b, c, d, e, f = attributes.bool().unbind(-1)
    return (a & b) | (c & ~d & e) | (f & ~a)


def contents(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """[count, 6] the wording of each attribute, and [count] whether the rule is violated."""
    wordings = torch.randint(WORDINGS, (count, ATTRIBUTES), generator=torch.Generator().manual_seed(seed))
    return wordings, violates(MEANING[wordings])


def labelled(longest: int = 12) -> tuple[TokenTree, TabularPolicy]:
    """Returns 4 contents whose answers are a label, 0 or 1, and tokens until token 2 ends the answer, and a policy that
    labels at random and ends with probability 1/20 after each token."""
    answers = [(label, *[0] * k, *([2] if k < longest else [])) for label in (0, 1) for k in range(longest + 1)]
    tree = TokenTree(3, answers, lambda prompt, answer: float(answer[0] == prompt % 2), prompts=4)
    policy = TabularPolicy(tree)
    with torch.no_grad():
        policy.logits[tree.choices[:, 2], 0] += math.log(19)
    return tree, policy


class Reasoner:
    """A policy that answers, for each attribute, whether the content has it, and then the label.

    Its answer on an attribute depends on the wording alone, and is right with probability `skill` before training;
    its label depends on these answers, and is uniform before training.
    """

    def __init__(self, wordings: Tensor, label: Tensor, skill: float = 0.9) -> None:
        right = lambda prompt, answer: float(answer[-1] == int(label[prompt]))  # noqa: E731
        self.tree = TokenTree.full(2, ATTRIBUTES + 1, right, prompts=len(wordings))
        rows = ATTRIBUTES * WORDINGS
        leaves, nodes = self.tree.leaves(), self.tree.nodes
        tied = torch.zeros(len(self.tree.choices), dtype=torch.long)
        tokens = leaves.extras["tokens"][:, self.tree.start :]
        prompt = torch.arange(len(leaves)) // len(self.tree.answers)
        for j in range(ATTRIBUTES):
            tied[nodes[:, self.tree.start + j]] = j * WORDINGS + wordings[prompt, j]
        combination = (tokens[:, :ATTRIBUTES] * 2 ** torch.arange(ATTRIBUTES).flip(0)).sum(1)
        tied[nodes[:, -1]] = rows + combination
        self.policy = TabularPolicy(self.tree, tied=tied)
        sure = torch.tensor(skill, dtype=torch.double).logit() / 2
        with torch.no_grad():
            self.policy.logits[:rows, 1] = sure * (2 * MEANING.repeat(ATTRIBUTES) - 1)
            self.policy.logits[:rows, 0] = -self.policy.logits[:rows, 1]

    @torch.no_grad()
    def accuracy(self, wordings: Tensor, label: Tensor) -> float:
        """Expected share of right labels, of any contents."""
        table = self.policy.logits.softmax(-1)
        reads, labels = table[: ATTRIBUTES * WORDINGS].view(ATTRIBUTES, WORDINGS, 2), table[ATTRIBUTES * WORDINGS :]
        place = torch.arange(ATTRIBUTES)
        attribute_probs = reads[place, wordings]  # [contents, attributes, 2]
        probs = attribute_probs[:, place, COMBINATIONS].prod(-1)
        return float((probs @ labels).gather(1, label.long()[:, None]).mean())


def reasoned(algorithm: Algorithm, labels: int, *, steps: int, rate: float, seed: int) -> float:
    """Accuracy on 2,000 fresh contents of a reasoner that was trained on so many labelled ones, all of them in every
    batch."""
    reasoner = Reasoner(*contents(labels, seed))
    train(algorithm, reasoner.tree, reasoner.policy, steps=steps, rate=rate, rows=labels, seed=seed)
    return reasoner.accuracy(*contents(2000, seed=-1 - seed))


def imitated(labels: int, *, seed: int, rate: float = 20.0, steps: int = 200) -> float:
    """The same of a classifier from contents to labels, fitted to the likelihood of the labels alone: a network of 64
    hidden units, with the best of three weight decays, chosen on a fifth of the labels.

    rate: in units of 1/2000 for Adam, so that both learners take numbers of one size.
    """
    wordings, label = contents(labels, seed)
    test_contents, truth = contents(2000, seed=-1 - seed)
    kept, found = labels - labels // 5, []
    for decay in (1e-3, 1e-1, 1.0):
        classifier = _fitted(wordings[:kept], label[:kept], decay, seed, steps, rate / 2000)
        found.append((_right(classifier, wordings[kept:], label[kept:]), decay))
    chosen = max(found)[1]
    return _right(_fitted(wordings, label, chosen, seed, steps, rate / 2000), test_contents, truth)


def _seen(wordings: Tensor) -> Tensor:
    return nn.functional.one_hot(wordings, WORDINGS).flatten(1).double()


def _fitted(wordings: Tensor, label: Tensor, decay: float, seed: int, steps: int, rate: float) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(ATTRIBUTES * WORDINGS, 64), nn.GELU(), nn.Linear(64, 2)).double()
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=decay)
    seen = _seen(wordings)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(seen), label.long()).backward()
        optimiser.step()
    return network


@torch.no_grad()
def _right(network: nn.Module, wordings: Tensor, label: Tensor) -> float:
    return float((network(_seen(wordings)).argmax(1) == label).double().mean())
