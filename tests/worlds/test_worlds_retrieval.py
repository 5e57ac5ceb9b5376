"""The world of search: ranks against the formula of BM25, demonstrations, answers of every form, judgements."""

from __future__ import annotations

import itertools
import math
import sys

import pytest

from polopt.config import ConfigError
from polopt.worlds import EpisodeError, Retrieval, SearchEngine, build_tasks, signals_of
from polopt.worlds.facts import RELATIONS, FactGraph
from polopt.worlds.retrieval import contains_answer, words_of

TASKS = Retrieval(size=40, hops=(1, 3), graphs=5, people=20, seed=3)
JUDGED = Retrieval(size=6, hops=(2, 2), graphs=2, people=20, judge=True, seed=1)


def ranked(documents: list[str], query: str, count: int) -> list[str]:
    """BM25 with Lucene's inverse document frequency, k1 1.5 and b 0.75, written out."""
    texts = [words_of(text) for text in documents]
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        score = 0.0
        for word in words_of(query):
            holding, n = sum(word in other for other in texts), text.count(word)
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            score += idf * n / (n + 1.5 * (1 - 0.75 + 0.75 * len(text) / mean))
        scores.append(score)
    order = sorted(range(len(texts)), key=lambda i: -round(scores[i], 6))
    return [documents[i] for i in order[:count] if scores[i] > 0]


@pytest.mark.parametrize(
    "query", ["Ada Borg", "Who is the mayor of Varn?", "region", "Tarmis Tarmis", "nothing known", ""]
)
def test_ranks_are_bm25(query: str) -> None:
    documents = FactGraph(5, people=30).documents
    found = SearchEngine(documents).search(query, 4)
    assert found == ranked(documents, query, 4)
    assert bool(found) == any(word in words_of(" ".join(documents)) for word in words_of(query))


@pytest.mark.parametrize("tasks", [TASKS, JUDGED], ids=["plain", "judged"])
def test_a_demonstration_finds_the_answer(tasks: Retrieval) -> None:
    for i in range(len(tasks)):
        task = tasks[i]
        episode = tasks.episode(task)
        assert episode.reset() == task.prompt == tasks[i].prompt
        observation, actions = "", []
        while True:
            action = episode.demonstrate()
            assert action is not None
            if "<answer>" in action:
                assert contains_answer([observation], task.row["chain"][-1])
            step = episode.step(action)
            observation, actions = step.observation, [*actions, action]
            if step.over:
                break
        hops = len(task.row["chain"]) - 1
        assert (step.reward, step.terminated, step.info["solved"]) == (1.0, True, True)
        assert task.kind == f"{hops}-hop"
        # One document may tell two steps of the way.
        assert 2 <= len(actions) <= hops + 1
        told = step.info["signals"]
        assert set(told) == set(signals_of(tasks))
        assert (told["calls"], told["first_call"], told["malformed"], told["found"]) == (
            len(actions) - 1,
            0.0,
            0.0,
            1.0,
        )
        assert episode.demonstrate() is None


def test_questions_follow_the_facts() -> None:
    for seed in range(20):
        graph = FactGraph(seed, people=20)
        for thing, name in graph.facts:
            assert RELATIONS[name].said.format(a=thing, b=graph.facts[thing, name]) in " ".join(graph.documents)
        assert len(graph.documents) == len(set(graph.documents)) == len(graph.subjects)
    for i in range(len(TASKS)):
        task = TASKS[i]
        chain, graph = task.row["chain"], FactGraph(task.row["graph"], 20)
        assert chain[0] in task.prompt
        assert not any(thing in task.prompt for thing in chain[1:])
        for a, b in itertools.pairwise(chain):
            assert b in [fact for (thing, _), fact in graph.facts.items() if thing == a]


def test_held_out_facts_are_others() -> None:
    split = build_tasks({"kind": "retrieval", "train": 60, "heldout": 60, "graphs": 30, "people": 15}, seed=2)
    graphs = [{part[i].row["graph"] for i in range(60)} for part in (split.train, split.heldout)]
    assert [len(found) for found in graphs] == [30, 30]
    assert not graphs[0] & graphs[1]
    mayors = [FactGraph(min(found), 15).facts for found in graphs]
    assert mayors[0] != mayors[1]
    assert split.texts[0] in FactGraph(2 * 2 * 30, 15).documents


def test_answers_of_every_form() -> None:
    task = TASKS[0]
    right, episode = task.row["chain"][-1], TASKS.episode(task)
    episode.reset()
    for lost in ("no tags", "<search>open", "<judge>yes</judge>", ""):
        step = episode.step(lost)
        assert step.observation == "write <search>words</search> or <answer>words</answer>"
        assert not step.over
    assert step.info["signals"] == {"calls": 0.0, "first_call": -1.0, "malformed": 4.0, "found": 0.0}
    assert episode.step("<search>zzz</search>").observation == "<information>nothing</information>"
    step = episode.step(f"I think. <answer> {right.upper()}. </answer>")
    assert (step.reward, step.info["answer"], step.info["signals"]["first_call"]) == (1.0, f"{right.upper()}.", 4.0)
    with pytest.raises(EpisodeError, match="is over"):
        episode.step("<search>more</search>")
    episode.reset()
    step = episode.step("<answer>it is unknown</answer>")
    assert (step.reward, step.terminated, step.info["solved"]) == (0.0, True, False)
    episode.reset()
    ends = [episode.step(f"<search>{right}</search>") for _ in range(TASKS.turns)]
    assert [step.truncated for step in ends] == [False] * (TASKS.turns - 1) + [True]
    assert ends[-1].observation == ""


def test_judgements() -> None:
    task = JUDGED[0]
    start, middle, right = task.row["chain"]
    episode = JUDGED.episode(task)

    def told() -> list[float]:
        return [episode.signals[name] for name in ("judged_right", "judged_yes", "judged_no", "malformed")]  # type: ignore[attr-defined]

    episode.reset()
    useful = contains_answer([episode.step(f"<search>{start}</search>").observation], right) == 1
    assert "write <judge>" in episode.step(f"<search>{middle}</search>").observation
    assert told() == [0, 0, 0, 1]
    assert episode.step(f"<judge>no</judge><answer>{right}</answer>").observation == "after no, search again"
    assert told() == [1.0 - useful, 0, float(useful), 2]
    found = episode.step(f"<search>{middle}</search>").observation  # what was judged once needs no second judgement
    assert contains_answer([found], right) == 1
    assert episode.step(f"<judge>YES</judge> so <answer>{right}</answer>").reward == 1
    assert told() == [2.0 - useful, 0, float(useful), 2]
    other = Retrieval(size=1, hops=(2, 2), people=20, judge=True, relevance=lambda results, answer: 0.6, seed=1)
    episode = other.episode(other[0])
    episode.reset()
    episode.step(f"<search>{other[0].row['chain'][1]}</search>")
    episode.step("<judge>yes</judge><answer>x</answer>")
    assert told() == [0, 1, 0, 0]


def test_settings_that_make_no_world() -> None:
    with pytest.raises(ConfigError, match=r"retrieval: need size.*more turns than hops, found 5, 2, 200, 1 to 4 and 4"):
        build_tasks({"kind": "retrieval", "hops": [1, 4], "turns": 4, "train": 5}, seed=0)
    with pytest.raises(ConfigError, match="people must be from 2 to 624, found 1"):
        build_tasks({"kind": "retrieval", "people": 1}, seed=0)


def test_without_the_search_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ConfigError, match=r"need bm25s; run pip install 'polopt\[agents\]'"):
        SearchEngine(["a b"])
