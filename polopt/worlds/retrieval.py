"""Questions on facts that nobody can know, answered with a search engine: the world of search agents."""

from __future__ import annotations

import functools
import importlib
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from polopt.config import ConfigError
from polopt.worlds.facts import FactGraph
from polopt.worlds.protocol import Episode, EpisodeError, Step, Task, TaskSplit

KIND = "retrieval"
# Training graphs whose documents are a split's raw texts.
GRAPHS_SHOWN = 10
TAG = re.compile(r"<(search|answer|judge)>(.*?)</\1>", re.DOTALL)
FORMAT = "write <search>words</search> or <answer>words</answer>"
JUDGED_FORMAT = "write <judge>yes</judge> or <judge>no</judge> first: whether the result has the answer"


class SearchEngine:
    """Documents ranked by BM25 for the words of a query, by `bm25s`. Equal scores: in the order of the documents.

    Raises:
        ConfigError: bm25s is not installed.
    """

    def __init__(self, documents: Sequence[str]) -> None:
        try:
            bm25s: Any = importlib.import_module("bm25s")
        except ImportError:
            raise ConfigError("worlds of kind retrieval need bm25s; run pip install 'polopt[agents]'") from None
        self.documents = list(documents)
        self._index = bm25s.BM25()
        self._index.index([words_of(text) for text in self.documents], show_progress=False)

    def search(self, query: str, count: int) -> list[str]:
        """Returns the best `count` documents, those alone that share a word with the query."""
        words = [word for word in words_of(query) if word in self._index.vocab_dict]
        if not words:
            return []
        scores = self._index.get_scores(words)
        order = (-scores).argsort(kind="stable")[:count]
        return [self.documents[i] for i in order if scores[i] > 0]


def words_of(text: str) -> list[str]:
    """Splits a text into lower-case words."""
    return re.findall(r"\w+", text.lower())


@functools.lru_cache(maxsize=512)
def graph_of(seed: int, people: int) -> tuple[FactGraph, SearchEngine]:
    """Returns the graph of this seed and the search engine over its documents."""
    graph = FactGraph(seed, people)
    return graph, SearchEngine(graph.documents)


def contains_answer(results: Sequence[str], answer: str) -> float:
    """Returns 1 if some result has the words of the answer, else 0."""
    wanted = words_of(answer)
    found = (words_of(text) for text in results)
    return float(any(words[i : i + len(wanted)] == wanted for words in found for i in range(len(words))))


class Retrieval:
    """Tasks of answering questions with searches, in at most `turns` turns.

    In each turn the policy writes `<search>words</search>`, and reads the best documents as
    `<information>...</information>`, or it ends the episode by `<answer>words</answer>`, which has reward 1 if its
    words are those of the right answer. What stands before, as thoughts, does not count; without either tag the turn is
    lost, and an instruction is read. Facts are fictional and drawn anew for each graph.

    size: number of tasks.
    hops: the least and the most facts between the thing that a question names and its answer.
    results: documents that a search shows.
    graphs: how many graphs the tasks are spread over.
    people: of a graph.
    judge: whether the turn after a result must begin with `<judge>yes</judge>` or `<judge>no</judge>`, whether the
        result has the answer. After no the policy must search again: another answer is lost.
    relevance: `relevance(results, answer) -> [0, 1]`: how well the results hold the answer, for the judgement that is
        right; by default 1 where they contain it. threshold: the least one at which yes is right.
    seed: task i is the same for the same seed, on every machine.

    Signals of an episode: `calls`, searches; `first_call`, the number of the first turn with one, -1 for none;
    `malformed`, lost turns; `found`, whether some result had the answer; with judge also `judged_right`, `judged_yes`
    and `judged_no`, the judgements that were right, a wrong yes, and a wrong no.

    Raises:
        ValueError: settings out of their range.
        ConfigError: bm25s is not installed.
    """

    def __init__(
        self,
        *,
        size: int,
        hops: tuple[int, int] = (1, 2),
        turns: int = 6,
        results: int = 2,
        graphs: int = 200,
        people: int = 40,
        judge: bool = False,
        relevance: Callable[[Sequence[str], str], float] = contains_answer,
        threshold: float = 0.7,
        seed: int = 0,
        heldout: bool = False,
    ) -> None:
        if size < 1 or not 1 <= hops[0] <= hops[1] <= 4 or turns < hops[1] + 1 or results < 1 or graphs < 1:
            raise ValueError(
                "retrieval: need size, results and graphs >= 1, 1 <= hops <= 4 and more turns than hops, found "
                f"{size}, {results}, {graphs}, {hops[0]} to {hops[1]} and {turns}"
            )
        self.size, self.hops, self.turns, self.results = size, hops, turns, results
        self.graphs, self.people, self.judge, self.seed, self.heldout = graphs, people, judge, seed, heldout
        self.relevance, self.threshold = relevance, threshold
        graph_of(self._graph_seed(0), people)

    @classmethod
    def split(cls, *, train: int, heldout: int, seed: int, **settings: Any) -> TaskSplit:
        """Returns training and held-out tasks, with no graph in common. Texts are documents of training graphs."""
        first, second = (
            cls(size=n, seed=seed, heldout=apart, **settings) for n, apart in ((train, False), (heldout, True))
        )
        shown = [graph_of(first._graph_seed(i), first.people)[0] for i in range(min(first.graphs, GRAPHS_SHOWN))]
        return TaskSplit(first, second, [document for graph in shown for document in graph.documents])

    @property
    def kinds(self) -> list[str]:
        return [f"{n}-hop" for n in range(self.hops[0], self.hops[1] + 1)]

    @property
    def signals(self) -> tuple[str, ...]:
        judged = ("judged_right", "judged_yes", "judged_no") if self.judge else ()
        return ("calls", "first_call", "malformed", "found", *judged)

    def __len__(self) -> int:
        return self.size

    def _graph_seed(self, number: int) -> int:
        # Held-out graphs are odd, so that no seed shares one between the two sets.
        return 2 * (self.seed * self.graphs + number) + int(self.heldout)

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        draw = random.Random(f"{self.seed}/{int(self.heldout)}/{index}")
        graph_seed = self._graph_seed(index % self.graphs)
        graph, _ = graph_of(graph_seed, self.people)
        question = graph.question(self.hops[0] + index % (self.hops[1] - self.hops[0] + 1), draw)
        judged = f" After a result {JUDGED_FORMAT}." if self.judge else ""
        read = "Results are read as <information>documents</information>."
        prompt = f"Answer the question. In each turn {FORMAT}. {read}{judged} {question.text}"
        row = {"graph": graph_seed, "chain": list(question.chain)}
        name = f"{KIND}/{self.seed}/{int(self.heldout)}/{index}"
        return Task(name, f"{question.hops}-hop", prompt, None, row, answer=question.chain[-1])

    def episode(self, task: Task) -> Episode:
        return RetrievalEpisode(task, self)


class RetrievalEpisode:
    """One question."""

    def __init__(self, task: Task, world: Retrieval) -> None:
        self.task, self.world = task, world
        self.engine = graph_of(task.row["graph"], world.people)[1]
        self.answer: str = task.row["chain"][-1]
        self._begin()
        self.over = True

    def _begin(self) -> None:
        self.done, self.over = 0, False
        # What the last result was judged by, None where none is to be judged.
        self.useful: bool | None = None
        self.seen: list[str] = []
        self.signals = dict.fromkeys(self.world.signals, 0.0) | {"first_call": -1.0}

    def reset(self) -> str:
        self._begin()
        return self.task.prompt

    def step(self, action: str) -> Step:
        if self.over:
            raise EpisodeError(f"task {self.task.id} is over or has not begun; call reset() first")
        self.done += 1
        tags = TAG.findall(action)
        refusal = self._judged(tags)
        kind, words = tags[-1] if tags else ("", "")
        if refusal is not None or kind not in ("search", "answer"):
            self.signals["malformed"] += 1
            return self._went_on(refusal or FORMAT)
        if kind == "search":
            return self._went_on(self._searched(words))
        self.over = True
        reward = float(words_of(words) == words_of(self.answer))
        info = {"solved": reward == 1, "answer": words.strip(), "signals": dict(self.signals)}
        return Step("", reward, terminated=True, truncated=False, info=info)

    def _went_on(self, observation: str) -> Step:
        self.over = self.done >= self.world.turns
        info = {"solved": False, "signals": dict(self.signals)}
        return Step("" if self.over else observation, 0.0, terminated=False, truncated=self.over, info=info)

    def _judged(self, tags: Sequence[tuple[str, str]]) -> str | None:
        """Counts the judgement of the result before, and returns an instruction if the answer is against the rules."""
        if not self.world.judge or self.useful is None:
            return None
        label = tags[0][1].strip().lower() if tags and tags[0][0] == "judge" else ""
        if label not in ("yes", "no"):
            return JUDGED_FORMAT
        yes, useful = label == "yes", self.useful
        self.signals["judged_right" if yes == useful else "judged_yes" if yes else "judged_no"] += 1
        self.useful = None
        return "after no, search again" if not yes and tags[-1][0] == "answer" else None

    def _searched(self, query: str) -> str:
        found = self.engine.search(query, self.world.results)
        self.signals["first_call"] = self.done - 1.0 if not self.signals["calls"] else self.signals["first_call"]
        self.signals["calls"] += 1
        self.signals["found"] = max(self.signals["found"], contains_answer(found, self.answer))
        self.useful = self.world.relevance(found, self.answer) >= self.world.threshold
        self.seen += found
        return f"<information>{' '.join(found) or 'nothing'}</information>"

    def demonstrate(self) -> str | None:
        """Returns a search for the next thing on the way to the answer, or the answer once it was read."""
        if self.over:
            return None
        chain: list[str] = self.task.row["chain"]
        reached = 0
        while reached < len(chain) - 1 and any(_tells(text, chain[reached], chain[reached + 1]) for text in self.seen):
            reached += 1
        judged = "" if not self.world.judge or self.useful is None else f"<judge>{_word(self.useful)}</judge>"
        if reached == len(chain) - 1 and not (judged and not self.useful):
            return f"{judged}<answer>{self.answer}</answer>"
        return f"{judged}<search>{chain[min(reached, len(chain) - 2)]}</search>"


def _tells(document: str, thing: str, other: str) -> bool:
    """Returns whether a document is about a thing and names the other."""
    return contains_answer([document], thing) == 1 == contains_answer([document], other)


def _word(yes: bool) -> str:
    return "yes" if yes else "no"
