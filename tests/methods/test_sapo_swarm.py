"""Pools, and learners that share through one: what is seen when, by whom, and what it does to a batch."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from sentences import same

import polopt as po
from polopt.backends import FolderPool, LocalPool, Pool, PublishedGroup
from polopt.claims.problems.swarm import knowing
from polopt.lab import TabularPolicy, TokenTree, TreeSource, training
from polopt.lab.problems import digits
from polopt.lab.shapes import coin
from polopt.methods.sapo_swarm import Swarm
from polopt.part_diff import diff
from polopt.sampling.parts import RolloutRequest

FORK = multiprocessing.get_context("fork")


def group_of(number: int, rows: int = 3) -> PublishedGroup:
    return PublishedGroup(
        task=number,
        name=str(number),
        answers=[[f"ä {number}", "\n"] for _ in range(rows)],
        outcomes=[1 / 3] * rows,
        about={"kind": "x"},
        ids=[[[1, 2], [3]]] * rows,
        logp=[[-0.1, -1 / 3, -2.0]] * rows,
        temperature=0.7,
    )


@pytest.fixture(params=["local", "folder"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    if request.param == "folder":
        yield FolderPool(path=str(tmp_path / "pool"))
    else:
        local = LocalPool(name=str(tmp_path))
        yield local
        local.clear()


def test_what_is_published_is_read(pool: Pool) -> None:
    assert pool.nodes() == []
    assert pool.read("a", 3) == {}
    for number in range(5):
        pool.publish("a", number, [group_of(number), group_of(number + 1)])
    pool.publish("b.1", 7, [])
    assert pool.nodes() == ["a", "b.1"]
    assert pool.read("a", 2) == {3: [group_of(3), group_of(4)], 4: [group_of(4), group_of(5)]}
    assert list(pool.read("a", 2, before=2)) == [0, 1]
    assert pool.read("b.1", 2) == {7: []}
    pool.publish("a", 4, [group_of(9)])  # again: it replaces what stood there
    assert pool.read("a", 1) == {4: [group_of(9)]}
    pool.discard("a", before=4)
    assert list(pool.read("a", 9)) == [4]
    assert list(pool.read("b.1", 9)) == [7]


def test_a_copy_of_a_pool_is_the_same_pool(pool: Pool) -> None:
    pool.publish("a", 0, [group_of(0)])
    assert po.from_yaml(pool.to_yaml()).read("a", 1) == {0: [group_of(0)]}


def test_half_a_file_is_never_seen(tmp_path: Path) -> None:
    pool = FolderPool(path=str(tmp_path))
    pool.publish("a", 0, [group_of(0)])
    (tmp_path / "a" / ".00000001.1.draft").write_text('[{"task": 3, "na')
    assert list(pool.read("a", 9)) == [0]
    (tmp_path / "a" / "00000002.json").write_text('[{"task": 3, "na')
    assert list(pool.read("a", 9)) == [0]
    assert pool.skipped == 1
    for name in ("", "../b", ".a", "a/b"):
        with pytest.raises(ValueError, match="must be a plain name"):
            pool.publish(name, 0, [])


def write(path: str, node: str, seconds: float, written: Any) -> None:
    """Writes batches of many sizes over and over, and deletes old ones; their numbers tell whether a file is whole."""
    pool, until, number = FolderPool(path=path), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        size = 1 + number * 37 % 400
        groups = [
            PublishedGroup(task=i, name=f"{number}", answers=[["x" * size]], outcomes=[size]) for i in range(size)
        ]
        pool.publish(node, number % 20, groups)
        if number % 20 == 19:
            pool.discard(node, before=10)
        number += 1
        written.value = number


def test_readers_and_writers_of_several_processes(tmp_path: Path) -> None:
    """Three processes write and delete all the time; every file that is read is one whole publication."""
    counts = [FORK.Value("i", 0) for _ in range(3)]
    writers = [FORK.Process(target=write, args=(str(tmp_path), f"w{i}", 1.5, n)) for i, n in enumerate(counts)]
    for writer in writers:
        writer.start()
    pool, seen = FolderPool(path=str(tmp_path)), 0
    while any(w.is_alive() for w in writers):
        for node in pool.nodes():
            for groups in pool.read(node, 20).values():
                sizes = {len(groups), *(len(g.answers[0][0]) for g in groups), *(int(g.outcomes[0]) for g in groups)}
                assert len(sizes) == 1
                assert len({g.name for g in groups}) == 1
                seen += 1
    assert [w.exitcode for w in writers] == [0, 0, 0]
    assert min(n.value for n in counts) > 3
    assert seen > 10
    assert not list(tmp_path.glob("*/.*"))


def test_a_killed_writer_leaves_nothing_half(tmp_path: Path) -> None:
    count = FORK.Value("i", 0)
    writer = FORK.Process(target=write, args=(str(tmp_path), "w", 60.0, count))
    writer.start()
    while count.value < 15:
        time.sleep(0.001)
    writer.kill()
    writer.join()
    pool = FolderPool(path=str(tmp_path))
    for groups in pool.read("w", 20).values():
        assert len(groups) == len(groups[0].answers[0][0])
    pool.publish("w", 3, [group_of(3)])
    assert pool.read("w", 20)[3] == [group_of(3)]


# Batches -----------------------------------------------------------------------------------------------------------


def node_of(
    name: str, tmp: Path, seed: int = 0, rows: int = 32, policy: TabularPolicy | None = None, **settings: object
):
    tree, made = digits()
    made = made if policy is None else policy
    needs = frozenset({"entropy", "value"})
    source = TreeSource(tree, made, rows=rows, seed=seed, needs=needs)
    return Swarm(group=4, node=name, pool=LocalPool(name=str(tmp)), **settings), source


def test_share_0_is_grpo_number_for_number(tmp_path: Path) -> None:
    found = []
    for name, sentence in (
        ("grpo", po.method("grpo", group=4, kl=0).but(**{"objective.trust.high": 0.28})),
        ("a", po.method("sapo-swarm", group=4, external=0.0, pool=str(tmp_path))),
        ("b", po.method("sapo-swarm", group=4, external=0.5, pool=str(tmp_path / "empty"))),  # alone
    ):
        tree, policy = digits()
        loop = training(sentence, tree, policy, rate=0.5, rows=8, seed=3)
        for _ in range(4):
            assert len(next(loop)[0]) == 32, name
        found.append(policy.logits.detach())
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert {p for p, *_ in diff(po.method("sapo-swarm"), po.method("grpo", group=8, kl=0))} == {
        "sampling",
        "objective.trust.high",
    }


def test_shares_ages_and_who_said_it(tmp_path: Path) -> None:
    (a, of_a), (b, of_b) = (node_of(name, tmp_path, seed=i) for i, name in enumerate("ab"))
    for round_ in range(5):
        one, two = a(of_a), b(of_b)
        for batch in (one, two):
            outside = batch.extras["external"]
            assert len(batch) == 32
            assert outside.sum() <= 16
            assert round_ < 3 or outside.sum() == 16
            assert (batch.extras["age"][~outside] == 0).all()
            groups = [batch[batch.group == g] for g in batch.group.unique()]
            assert [len(g) for g in groups] == [4] * 8
            for g in groups:
                assert len(set(g.extras["external"].tolist())) == 1
                assert len(set(g.extras["index"].tolist())) == 1
                if g.extras["external"][0]:
                    assert len(set(g.outcome.tolist())) > 1
            # As if it were its own.
            assert torch.equal(batch.rollout_logp, batch.old_logp)
            assert batch.extras["age"].max() <= 3
    assert of_a.drawn + of_b.drawn < 10 * 32 - 4 * 16
    pool = LocalPool(name=str(tmp_path))
    said = {tuple(map(tuple, row)) for n in pool.read("b", 9).values() for g in n for row in [g.answers]}
    outside = one[one.extras["external"]]
    for g in outside.group.unique():
        mine = outside[outside.group == g]
        assert tuple((text,) for text in mine.extras["answer"]) in said
    pool.clear()


def test_a_group_comes_at_most_once_and_unanimous_ones_never(tmp_path: Path) -> None:
    pool = LocalPool(name=str(tmp_path))
    good = PublishedGroup(task=0, name="0", answers=[["0 0"], ["0 1"], ["2"], ["0 0"]], outcomes=[0, 0, 0, 0])
    dull = PublishedGroup(task=0, name="0", answers=[["0 1"], ["0 1"]], outcomes=[1, 0])  # a publisher that errs
    foreign = PublishedGroup(task=0, name="another world's", answers=[["0 0"], ["0 1"]], outcomes=[1, 0])
    beyond = PublishedGroup(task=99, name="99", answers=[["0 0"], ["0 1"]], outcomes=[1, 0])
    pool.publish("other", 0, [dull, good, foreign, beyond, dull])
    part, source = node_of("me", tmp_path, share=1.0)
    batch = part(source)
    outside = batch[batch.extras["external"]]
    assert outside.extras["answer"] == ["0 0", "0 1", "2", "0 0"]
    assert outside.outcome.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert len(batch) == 32
    assert source.drawn == 28
    pool.clear()


def test_one_group_is_always_its_own(tmp_path: Path) -> None:
    (a, of_a), (b, of_b) = (node_of(name, tmp_path, seed=i, share=1.0) for i, name in enumerate("ab"))
    batches = [part(source) for _ in range(6) for part, source in ((a, of_a), (b, of_b))]
    own = [int((~batch.extras["external"]).sum()) for batch in batches]
    assert own[0] == 32
    assert min(own) == 4
    assert all(len(batch) == 32 for batch in batches)
    LocalPool(name=str(tmp_path)).clear()


def test_corrected_rows_have_the_writers_log_probabilities(tmp_path: Path) -> None:
    tree, mine = digits()
    writer = TabularPolicy(tree, spread=0.7, seed=5, critic=True)
    a, of_a = node_of("a", tmp_path, policy=writer, correct=True, share=0.0)
    b, of_b = node_of("b", tmp_path, seed=1, policy=mine, correct=True)
    a(of_a)
    batch = b(of_b)
    outside, own = batch[batch.extras["external"]], batch[~batch.extras["external"]]
    for rows, policy in ((outside, writer), (own, mine)):
        same(rows.rollout_logp[rows.mask], policy.evaluate(rows).logp[rows.mask].detach())
        same(rows.old_logp[rows.mask], mine.evaluate(rows).logp[rows.mask].detach())
    # Others at another temperature, or without tokens, are passed over.
    hot, of_hot = node_of("c", tmp_path, policy=mine, correct=True, support=po.Support(temperature=0.5))
    assert not hot(of_hot).extras["external"].any()
    plain, of_plain = node_of("d", tmp_path, seed=1, share=0.0)
    plain(of_plain)
    LocalPool(name=str(tmp_path)).discard("a", before=99)
    LocalPool(name=str(tmp_path)).discard("b", before=99)
    LocalPool(name=str(tmp_path)).discard("c", before=99)
    assert not b(of_b).extras["external"].any()
    LocalPool(name=str(tmp_path)).clear()


def test_of_equal_policies_others_text_is_on_policy(tmp_path: Path) -> None:
    """With or without correction the same gradient, and that of rows of its own."""
    found = []
    for correct in (False, True):
        (a, of_a), (b, of_b) = (
            node_of(name, tmp_path / str(correct), seed=i, correct=correct) for i, name in enumerate("ab")
        )
        a(of_a)
        batch = b(of_b)
        assert batch.extras["external"].any()
        torch.testing.assert_close(batch.rollout_logp, batch.old_logp, rtol=1e-12, atol=1e-14)
        sentence = po.method("sapo-swarm", group=4, correct=correct)
        policy = of_b.policy
        judged = sentence.compute_advantages(sentence.sampling.mark(batch))
        found.append(torch.autograd.grad(sentence.objective(judged, policy.evaluate(judged)).loss, policy.logits)[0])
        again = sentence.compute_advantages(sentence.sampling.mark(of_b.restore_rows(batch)))
        same(torch.autograd.grad(sentence.objective(again, policy.evaluate(again)).loss, policy.logits)[0], found[-1])
    same(*found)


def test_alone_with_its_own_past_it_is_replay(tmp_path: Path) -> None:
    part, source = node_of("me", tmp_path, own=True, share=0.5, newest=2)
    said: dict[int, list[list[int]]] = {}
    for step in range(6):
        batch = part(source)
        groups = [batch[batch.group == g] for g in batch.group.unique()]
        old = [g for g in groups if g.extras["external"][0]]
        said[step] = [g.extras["leaf"].tolist() for g in groups if not g.extras["external"][0]]
        assert (len(old) > 0) == (step > 0)
        for g in old:
            (age,) = set(g.extras["age"].tolist())
            assert age in (1, 2)
            assert g.extras["leaf"].tolist() in said[step - age]
    LocalPool(name=str(tmp_path)).clear()


@pytest.mark.parametrize("own", [False, True])
def test_a_node_that_is_killed_goes_on_as_it_would_have(own: bool, tmp_path: Path) -> None:
    """Alone but for a node that has published before: the same batches, and the same pool in the end."""
    settings = {"own": own, "share": 0.5, "newest": 2}
    for folder in ("through", "stopped"):
        other, of_other = node_of("other", tmp_path / folder, seed=9, share=0.0)
        other(of_other)
    one, through = node_of("me", tmp_path / "through", seed=4, **settings)
    expected = [one(through) for _ in range(7)]
    two, stopped = node_of("me", tmp_path / "stopped", seed=4, **settings)
    for _ in range(3):
        two(stopped)
    state = {name: value.clone() for name, value in two.state_dict().items()}
    drawn, queue = stopped.generator.get_state(), list(stopped._queue)
    for _ in range(2):  # what a killed process did after its last checkpoint
        two(stopped)
    resumed, source = node_of("me", tmp_path / "stopped", seed=8, **settings)
    resumed.load_state_dict(state)
    source.generator.set_state(drawn)
    source._queue = queue
    for batch in expected[3:]:
        again = resumed(source)
        assert torch.equal(again.extras["leaf"], batch.extras["leaf"])
        assert torch.equal(again.extras["age"], batch.extras["age"])
        assert torch.equal(again.extras["external"], batch.extras["external"])
    pools = [LocalPool(name=str(tmp_path / folder)) for folder in ("through", "stopped")]
    assert pools[0].read("me", 99) == pools[1].read("me", 99)
    for pool in pools:
        pool.clear()


def test_old_batches_are_discarded(tmp_path: Path) -> None:
    part, source = node_of("me", tmp_path, keep=3, newest=2)
    for _ in range(6):
        part(source)
    pool = LocalPool(name=str(tmp_path))
    assert list(pool.read("me", 99)) == [3, 4, 5]
    part.eval()(source)  # nothing is published outside training
    assert list(pool.read("me", 99)) == [3, 4, 5]
    pool.clear()


def test_its_own_world_pays(tmp_path: Path) -> None:
    """A reader whose world pays by chance pays others' answers so too."""
    tree = TokenTree.bandit([0.5, 0.5])
    source = TreeSource(tree, TabularPolicy(tree), rows=8, draw=coin)
    batch = source.import_answers(torch.tensor([0]), [[["0"], ["1"]] * 50], po.Support())
    assert {0.0, 1.0} == set(batch.outcome.tolist())
    assert 20 < batch.outcome.sum() < 80
    assert source.drawn == source.decided == 0
    with pytest.raises(ValueError, match="the tree has no answer"):
        source.import_answers(torch.tensor([0]), [[["7"]]], po.Support())


def test_what_a_tree_answers_can_be_received() -> None:
    tree, policy = digits()
    source = TreeSource(tree, policy, rows=24, needs=frozenset({"value"}))
    batch = source.rollout(RolloutRequest(source.take(4), 6, po.Support(temperature=0.7)))
    first = po.ops.group_first(batch.group)
    tasks = batch.extras["index"][first]
    assert source.task_ids(tasks) == [str(t) for t in tasks.tolist()]
    texts = source.answers(batch)
    said = [[texts[r] for r in range(24) if batch.group[r] == batch.group[f]] for f in first.tolist()]
    again = source.import_answers(tasks, said, batch.support)
    for name in ("mask", "rollout_logp", "outcome", "reward", "group", "terminated", "value"):
        assert torch.equal(getattr(again, name), getattr(batch, name)), name
    for name in ("leaf", "index", "answer_reward", "tokens"):
        assert torch.equal(again.extras[name], batch.extras[name]), name


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], found 1.5"):
        Swarm(share=1.5)
    with pytest.raises(ValueError, match="1 <= newest <= keep, found 5 and 4"):
        Swarm(newest=5, keep=4)
    with pytest.raises(ValueError, match="may have no probability under top-k"):
        Swarm(support=po.Support(top_k=3))
    with pytest.raises(ValueError, match="begin with what others cannot see; leave guide None"):
        Swarm(guide=po.methods.econprover.TaggedPrompts())


# Two processes that learn ------------------------------------------------------------------------------------------


def learn(node: str, folder: str, task: int, steps: int, found: Any) -> None:
    torch.set_num_threads(1)
    policy = knowing(task, tasks=2)
    sentence = po.method("sapo-swarm", group=8, node=node, pool=folder)
    before, shared = policy.tree.value(policy).item(), 0
    loop = training(sentence, policy.tree, policy, rate=0.2, rows=4, seed=task)
    for batch, _ in itertools.islice(loop, steps):
        shared += int(batch.extras["external"].sum())
    found.put((node, before, policy.tree.value(policy).item(), shared))


def test_two_processes_learn_from_each_other(tmp_path: Path) -> None:
    pool, found = FolderPool(path=str(tmp_path)), FORK.Queue()
    first, second = (
        FORK.Process(target=learn, args=(node, str(tmp_path), task, 60, found))
        for task, node in enumerate(("first", "second"))
    )
    first.start()
    while not pool.read("first", 1):
        time.sleep(0.001)
    second.start()  # both run at once from here on, and this one surely finds something
    results = {name: numbers for name, *numbers in (found.get(timeout=120), found.get(timeout=120))}
    first.join()
    second.join()
    assert pool.nodes() == ["first", "second"]
    before, after, shared = results["second"]
    assert shared > 60
    assert after > before
