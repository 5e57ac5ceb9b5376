"""Monte-Carlo tree search over the steps of answers, and the rows that are learned from its trees."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from polopt.experience import Experience
from polopt.part_names import name_of
from polopt.sampling.parts import RolloutRequest, Sampling, TaskSampler, UniformTasks
from polopt.support import Support


@dataclasses.dataclass(eq=False)
class SearchNode:
    """A state of a search: a place between two steps of some rows.

    row: a row of the search that passes through. column: that of the row's next step's first decision, -1 at the end of
    an episode. begin: the column of the first decision of the step that leads here. visits, value: of the rows that
    pass through, their number and mean outcome. children: by the decided tokens of the next step. expanded: whether
    steps were sampled from here. drawn: the mean outcome of the rollouts that were sampled from here, NaN for none;
    unlike `value` it does not depend on where the search went on. closed: whether nothing is left to expand from here
    on.
    """

    row: int
    column: int
    begin: int = 0
    visits: int = 0
    value: float = 0.0
    children: dict[tuple[int, ...], SearchNode] = dataclasses.field(default_factory=dict)
    expanded: bool = False
    drawn: float = math.nan

    @property
    def closed(self) -> bool:
        if self.column < 0:
            return True
        return self.expanded and all(child.closed for child in self.children.values())

    def add(self, outcome: float) -> None:
        """Counts a row that passes through."""
        self.visits += 1
        self.value += (outcome - self.value) / self.visits

    def walk(self) -> Iterator[SearchNode]:
        """Yields this node and all below it, without recursion: answers may have thousands of steps."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children.values())

    def leaves(self) -> Iterator[list[SearchNode]]:
        """Yields the ways from here to the ends of episodes, as nodes after this one."""
        waiting: list[tuple[SearchNode, list[SearchNode]]] = [(self, [])]
        while waiting:
            node, way = waiting.pop()
            if way and node.column < 0:
                yield way
            waiting += [(child, [*way, child]) for child in reversed(node.children.values())]


def row_steps(rows: Experience, row: int, length: int | None) -> list[tuple[int, tuple[int, ...]]]:
    """Returns the column of each step's first decision, and its decided tokens, of a row. length: decisions of a step;
    None for a turn."""
    columns = rows.mask[row].nonzero().flatten()
    tokens = rows.extras["tokens"][row, columns].tolist()
    key = rows.turn[row, columns].tolist() if length is None else [i // length for i in range(len(tokens))]
    found: list[tuple[int, tuple[int, ...]]] = []
    for i, column in enumerate(columns.tolist()):
        if i == 0 or key[i] != key[i - 1]:
            found.append((column, ()))
        found[-1] = (found[-1][0], (*found[-1][1], tokens[i]))
    return found


class TreeSearch(Sampling):
    """Base of sampling by search: one tree for each task, grown by rollouts.

    Each of `expansions` times a node is expanded once: `width` rollouts go on from it to the end of the episode. Every
    node on a rollout's way, below the expanded one too, counts its outcome. The next one is found from the root, at
    each expanded node by the highest

        Q(child) + exploration sqrt(ln N(node) / N(child)),

    Q the mean outcome of the child's rows and N their number, until a node that is not expanded; ways that have nothing
    left to expand are passed over. Steps with equal tokens are one child. All tasks of a batch are searched side by
    side, as many as rows of expansions x width fit into the batch, and at least one.

    step_length: decisions of a step; None for a turn. A world must answer equal actions equally.
    choice: selects the tasks.
    """

    tags = frozenset({"data_source=self"})

    expansions: int = 8
    width: int = 4
    exploration: float = 1.0
    step_length: int | None = None
    choice: TaskSampler = UniformTasks()
    support: Support = Support()

    source_capabilities = frozenset({"continuations"})

    def setup(self) -> None:
        if (
            self.expansions < 1
            or self.width < 1
            or self.exploration < 0
            or (self.step_length is not None and self.step_length < 1)
        ):
            raise ValueError(
                f"{name_of(type(self))}: need expansions, width and step_length >= 1 and exploration >= 0, found "
                f"{self.expansions}, {self.width}, {self.step_length} and {self.exploration}"
            )

    @property
    def reads(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({"turn"} if self.step_length is None else ())

    @property
    def rollout_support(self) -> Support:
        return self.support

    def forward(self, source: Any) -> Experience:
        tasks = self.choice(source, max(1, source.rows // (self.expansions * self.width)))
        rows, trees = self.search(source, tasks)
        self.choice.observe(rows)
        return self.learned(source, rows, trees)

    def learned(self, source: Any, rows: Experience, trees: Sequence[SearchNode]) -> Experience:
        """Returns the rows that are learned from, given all rollouts and the trees of the tasks."""
        raise NotImplementedError

    def search(self, source: Any, tasks: Tensor) -> tuple[Experience, list[SearchNode]]:
        """Returns all rollouts of a search, and the root of each task's tree."""
        rows = source.rollout(RolloutRequest(tasks, self.width, self.support))
        trees = [SearchNode(i * self.width, 0, expanded=True) for i in range(len(tasks))]
        place = torch.arange(len(tasks)).repeat_interleave(self.width).tolist()
        self._count(rows, range(len(rows)), [trees[i] for i in place])
        self._note(rows, 0, trees)
        for _ in range(self.expansions - 1):
            chosen = [(tree, node) for tree in trees if (node := self.selected(tree)) is not None]
            if not chosen:
                break
            for _, node in chosen:
                node.expanded = True
            at = torch.tensor([node.column for _, node in chosen], device=rows.device)
            more = source.extend(rows[torch.tensor([node.row for _, node in chosen])], self.width, at=at)
            first = len(rows)
            rows = Experience.join([rows, more])
            roots = [tree for tree, _ in chosen for _ in range(self.width)]
            self._count(rows, range(first, len(rows)), roots)
            self._note(rows, first, [node for _, node in chosen])
        return rows, trees

    def selected(self, root: SearchNode) -> SearchNode | None:
        """Returns the node of a tree to expand next, None where nothing is left."""
        node = root
        while not node.closed:
            if not node.expanded:
                return node
            total = math.log(node.visits)
            node = max(
                (child for child in node.children.values() if not child.closed),
                key=lambda child: child.value + self.exploration * math.sqrt(total / child.visits),
            )
        return None

    def steps(self, rows: Experience, row: int) -> list[tuple[int, tuple[int, ...]]]:
        """Returns what `row_steps` does, of steps of this length."""
        return row_steps(rows, row, self.step_length)

    def _note(self, rows: Experience, first: int, nodes: Sequence[SearchNode]) -> None:
        """Notes the mean outcome of the rollouts that were drawn from these nodes, which begin with row `first`."""
        drawn = rows.outcome[first:].view(len(nodes), self.width).double().mean(1)
        for node, mean in zip(nodes, drawn.tolist(), strict=True):
            node.drawn = mean

    def _count(self, rows: Experience, numbers: Sequence[int], roots: Sequence[SearchNode]) -> None:
        """Adds rows to the trees of these roots."""
        outcome = rows.outcome.tolist()
        for row, root in zip(numbers, roots, strict=True):
            steps = self.steps(rows, row)
            node = root
            node.add(outcome[row])
            for i, (begin, tokens) in enumerate(steps):
                after = steps[i + 1][0] if i + 1 < len(steps) else -1
                node = node.children.setdefault(tokens, SearchNode(row, after, begin))
                node.add(outcome[row])


class StepPairs(TreeSearch):
    """Pairs of a better and a worse step after the same beginning, from search trees.

    Each pair is two rows of one `group`, the better first; `mask` is True at the step's own decisions alone, and
    `outcome` is its Q. A task without a pair has none.

    among: "nodes": at every expanded node its children of the highest and of the lowest Q. "path": along the way to the
        best end of an episode, its step and the sibling of the lowest Q.
    margin: the least difference of Q.
    """

    among: Literal["nodes", "path"] = "nodes"
    margin: float = 0.0

    def setup(self) -> None:
        super().setup()
        if self.margin < 0:
            raise ValueError(f"sampling.StepPairs: margin must be >= 0, found {self.margin}")

    @property
    def group_size(self) -> int:
        return 2

    def learned(self, source: Any, rows: Experience, trees: Sequence[SearchNode]) -> Experience:
        pairs = [pair for tree in trees for pair in self.pairs(tree)]
        nodes = [node for pair in pairs for node in pair]
        index = torch.tensor([node.row for node in nodes], dtype=torch.long, device=rows.device)
        found = rows[index]
        columns = torch.arange(found.mask.shape[1], device=rows.device)
        begin = torch.tensor([node.begin for node in nodes], dtype=torch.long, device=rows.device)[:, None]
        end = torch.tensor([len(columns) if n.column < 0 else n.column for n in nodes], device=rows.device)[:, None]
        value = torch.tensor([node.value for node in nodes], dtype=rows.outcome.dtype, device=rows.device)
        group = torch.arange(len(pairs), device=rows.device).repeat_interleave(2)
        mask = found.mask & (columns >= begin) & (columns < end)
        return found.replace(mask=mask, outcome=value, reward=value, group=group)

    def pairs(self, tree: SearchNode) -> Iterator[tuple[SearchNode, SearchNode]]:
        """Yields the better and the worse step of each pair of a tree."""
        if self.among == "nodes":
            nodes = [node for node in tree.walk() if node.expanded]
            chosen = [max(node.children.values(), key=lambda child: child.value) for node in nodes]
        else:
            chosen = max(tree.leaves(), key=lambda way: way[-1].value)
            nodes = [tree, *chosen[:-1]]
        for node, better in zip(nodes, chosen, strict=True):
            worse = min(node.children.values(), key=lambda child: child.value)
            if better.value - worse.value > self.margin:
                yield better, worse
