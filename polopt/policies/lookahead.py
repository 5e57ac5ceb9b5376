"""Branching rollouts: several continuations of one context are sampled and compared before they are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from polopt import ops
from polopt.policies.rollout_record import Sampled, inverted
from polopt.policies.sampler import uniform_noise
from polopt.policies.sampler_steps import Steps
from polopt.sampling.lookahead import Lookahead
from polopt.support import Support

# ends(token [rows]) -> [rows] bool: True where this token ends the row.
Ends = Callable[[Tensor], Tensor]


@dataclasses.dataclass
class _Branch:
    """One growing answer.

    slot: the column of random numbers that it uses.
    born: the number of tokens after which it left its parent.
    tree: whether it still branches.
    """

    root: int
    slot: int
    tree: bool
    parent: _Branch | None = None
    born: int = 0
    tokens: list[int] = dataclasses.field(default_factory=list)
    logp: list[float] = dataclasses.field(default_factory=list)
    entropy: list[float] = dataclasses.field(default_factory=list)
    over: bool = False

    def copy(self, slot: int, *, tree: bool, born: int) -> _Branch:
        tokens_and_statistics = (list(self.tokens), list(self.logp), list(self.entropy))
        return _Branch(self.root, slot, tree, self, born, *tokens_and_statistics, over=self.over)

    def append(self, token: int, logp: float, entropy: float) -> None:
        self.tokens.append(token)
        self.logp.append(logp)
        self.entropy.append(entropy)


@torch.inference_mode()
def explore(
    steps: Steps,
    contexts: Sequence[Sequence[int]],
    *,
    copies: Sequence[int],
    branches: Sequence[int],
    rule: Lookahead,
    support: Support,
    limit: int,
    ends: Ends,
    generator: torch.Generator,
) -> list[Sampled]:
    """Samples copies[i] continuations of context i, at most `limit` tokens long, context by context.

    The first branches[i] of them are the leaves of one tree that grows by `rule`, the others are sampled as in
    `sample`. Where a tree stops branching with rows left, copies of its running branches, in turn, or of all if none is
    running, fill them; from then on its rows are sampled independently. Without branches the result equals that of
    `sample`, token for token.

    `logp` is the policy's own over the support. Rows of a tree are not samples of that distribution.
    """
    noise = uniform_noise(limit, sum(copies), generator)
    grown = _Grown(copies, branches, rule)
    logits = steps.begin(contexts, [1 + n - b if b else n for n, b in zip(copies, branches, strict=True)], limit)
    noise = noise.to(logits.device)
    for step in range(limit):
        logp, p = _law(logits, support)
        columns = torch.tensor([b.slot for b in grown.running], device=logits.device)
        token = inverted(p, noise[step, columns])
        token, parents = grown.choose(token, ops.wide(logits).softmax(-1), step)
        rows = torch.tensor([*range(len(logits)), *parents], device=logits.device)
        if parents:
            steps.fork(rows[len(logits) :])
        _append_tokens(grown.running, token, logp[rows], p[rows], ends(token))
        grown.prune(step + 1)
        copied = grown.settle(step + 1, limit)
        if copied:
            steps.fork(torch.tensor(copied, device=logits.device))
        left = grown.drop_finished()
        if step + 1 == limit or not left:
            break
        if left != list(range(len(rows) + len(copied))):
            steps.keep(torch.tensor(left, device=logits.device))
        logits = steps.step(torch.tensor([b.tokens[-1] for b in grown.running], device=logits.device))
    return grown.sampled()


def _law(logits: Tensor, support: Support) -> tuple[Tensor, Tensor]:
    logp = ops.heated(ops.wide(logits), support.temperature).log_softmax(-1)
    return logp, logp.exp()


def _append_tokens(running: Sequence[_Branch], token: Tensor, logp: Tensor, p: Tensor, over: Tensor) -> None:
    chosen_logp = logp.gather(1, token[:, None])[:, 0]
    if not chosen_logp.isfinite().all():
        raise FloatingPointError("explore: the model's logits are not finite; its weights, or training, diverged")
    lists = (token.tolist(), chosen_logp.tolist(), ops.entropy_of(logp).tolist(), over.tolist())
    for branch, t, lp, h, end in zip(running, *lists, strict=True):
        branch.append(t, lp, h)
        branch.over = end


class _Grown:
    """The answers so far.

    running: answers that are not over, in the order of the sampler's rows.
    members: the remaining branches of each tree, ended or not, in the order of their creation.
    """

    def __init__(self, copies: Sequence[int], branches: Sequence[int], rule: Lookahead) -> None:
        self.capacity, self.rule = branches, rule
        self.members: list[list[_Branch]] = []
        self.plain: list[list[_Branch]] = []
        self.running: list[_Branch] = []
        self.first = [sum(copies[:root]) for root in range(len(copies))]  # slots
        for root, (count, capacity, slot) in enumerate(zip(copies, branches, self.first, strict=True)):
            self.members.append([_Branch(root, slot, tree=True)] if capacity else [])
            self.plain.append([_Branch(root, slot + i, tree=False) for i in range(capacity, count)])
            self.running += [*self.members[root], *self.plain[root]]

    def choose(self, sampled: Tensor, p: Tensor, step: int) -> tuple[Tensor, list[int]]:
        """Returns each row's token followed by those of new branches, and the rows that new branches copy."""
        ids, opens = self.rule.opens(p)
        token = torch.where(torch.tensor([b.tree for b in self.running], device=p.device), ids[:, 0], sampled)
        parents: list[int] = []
        born: list[int] = []
        where = [i for i, b in enumerate(self.running) if b.tree]
        openings = opens[:, 1:].nonzero().tolist() if where else []
        trees = set(where)
        candidates: dict[int, list[tuple[int, int]]] = {}
        for row, rank in openings:
            if row in trees:
                candidates.setdefault(self.running[row].root, []).append((rank + 1, row))
        full = {root: len(self.members[root]) >= self.capacity[root] for root in {self.running[i].root for i in where}}
        for root, found in sorted(candidates.items()):
            for rank, row in sorted(found)[: self.capacity[root] - len(self.members[root])]:
                branch = self.running[row].copy(self._slot(root), tree=True, born=step)
                self.members[root].append(branch)
                self.running.append(branch)
                parents.append(row)
                born.append(int(ids[row, rank]))
        branching = set(parents)
        for row in where:
            if row not in branching and self.rule.samples(full[self.running[row].root]):
                token[row] = sampled[row]
        return torch.cat([token, token.new_tensor(born)]), parents

    def _slot(self, root: int) -> int:
        taken = {b.slot for b in self.members[root]}
        first = self.first[root]
        return next(slot for slot in range(first, first + self.capacity[root]) if slot not in taken)

    def prune(self, length: int) -> None:
        """Drops branches that repeat their parent's tokens, and their descendants."""
        for root, members in enumerate(self.members):
            dropped = {id(b) for b in members if self._repeats(b, length)}
            if dropped:
                for branch in members:  # parents come before their branches
                    if branch.parent is not None and id(branch.parent) in dropped:
                        dropped.add(id(branch))
                self.members[root] = [b for b in members if id(b) not in dropped]

    def _repeats(self, branch: _Branch, length: int) -> bool:
        parent, age = branch.parent, length - branch.born
        if parent is None or not branch.tree or age not in self.rule.windows or branch.over or parent.over:
            return False
        return self.rule.same(branch.tokens[-age:], parent.tokens[-age:])

    def settle(self, step: int, limit: int) -> list[int]:
        """Fills the trees that no longer branch; returns the rows that are copied for it."""
        place = {id(b): row for row, b in enumerate(self.running)}
        copied: list[int] = []
        for root, members in enumerate(self.members):
            if not any(b.tree for b in members):
                continue
            youngest = step - max(b.born for b in members)
            over = all(b.over for b in members)
            if step < limit and not self.rule.ends(
                step=step, limit=limit, branches=len(members), room=self.capacity[root], youngest=youngest, over=over
            ):
                continue
            for branch in members:
                branch.tree = False
            models = [b for b in members if not b.over] or list(members)
            for i in range(self.capacity[root] - len(members)):
                model = models[i % len(models)]
                branch = model.copy(self._slot(root), tree=False, born=step)
                members.append(branch)
                if not model.over:
                    copied.append(place[id(model)])
                    self.running.append(branch)
        return copied

    def drop_finished(self) -> list[int]:
        """Keeps the rows that are neither over nor dropped, and returns them."""
        kept = {id(b) for b in _all(self.members)} | {id(b) for b in _all(self.plain)}
        left = [row for row, b in enumerate(self.running) if not b.over and id(b) in kept]
        self.running = [self.running[row] for row in left]
        return left

    def sampled(self) -> list[Sampled]:
        return [
            Sampled(tokens=b.tokens, logp=b.logp, entropy=b.entropy, stopped=b.over, kept=None)
            for tree, plain in zip(self.members, self.plain, strict=True)
            for b in [*tree, *plain]
        ]


def _all(groups: Iterable[Sequence[_Branch]]) -> Iterable[_Branch]:
    return (branch for group in groups for branch in group)
