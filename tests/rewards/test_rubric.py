"""Rubrics: what they pay, who rewrites them, and what a checkpoint holds of it."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from chat_server import ChatServer, judge_reply, served

import polopt as po
from polopt.backends import Chat
from polopt.methods.mpo_meta import SEEN, AuditedRubric, ProgramGrader, agreement
from polopt.rewards import HTTPGrader, HTTPMeta, Item, RubricReward
from polopt.rewards.rewritten import parsed, read_marks
from polopt.rewards.texts import TextBuffers
from polopt.worlds import Task


def batch(answers: list[str], outcome: list[float], **extras: object) -> po.Experience:
    tasks = [Task(f"t/{i}", "k", f"ask {i}", None, {}) for i in range(len(answers))]
    given = {"task": tasks, "answer": answers, **extras}
    mask = torch.ones(len(answers), 2, dtype=torch.bool)
    return po.Experience(mask=mask, outcome=torch.tensor(outcome).double(), extras=given)


def rubric(**changes: object) -> RubricReward:
    items = [Item(name="outcome", weight=3.0), Item(name="words", most=4)]
    return RubricReward(**{"items": items, "grader": ProgramGrader(), "meta": AuditedRubric(), "every": 1, **changes})


class TestTexts:
    def test_they_are_bytes_in_a_checkpoint_and_any_number_loads(self):
        texts = TextBuffers(["a", "ßé\n", ""])
        assert texts.all() == ["a", "ßé\n", ""]
        assert all(v.dtype == torch.uint8 for v in texts.state_dict().values())
        for other in (TextBuffers(), TextBuffers(["x"] * 12)):
            other.load_state_dict(texts.state_dict())
            assert other.all() == texts.all()
        many = TextBuffers(map(str, range(11)))
        again = TextBuffers()
        again.load_state_dict(many.state_dict())
        assert again.all() == [str(i) for i in range(11)]


class TestReward:
    def test_it_is_the_weighted_mean_of_shares(self):
        b = batch(["one two", "a b c d e f", ""], [1.0, 0.0, 1.0])
        marks = [[1.0, 0.5], [0.0, 1.0], [1.0, 0.0]]
        wanted = torch.tensor([(3 * x + y) / 4 for x, y in marks]).double()
        torch.testing.assert_close(rubric()(b), wanted, rtol=1e-6, atol=0)
        half = rubric(items=[Item(name="outcome", weight=3.0), Item(name="words", most=4, trust=0.5)])
        wanted = torch.tensor([(3 * x + 0.5 * y) / 3.5 for x, y in marks]).double()
        torch.testing.assert_close(half(b), wanted, rtol=1e-6, atol=0)
        assert rubric(items=[Item(name="outcome", trust=0.0)])(b).tolist() == [0, 0, 0]

    def test_one_item_is_that_item(self):
        b = batch(["x", "y"], [0.25, 1.0])
        torch.testing.assert_close(rubric(items=[Item(name="outcome")])(b), b.outcome, rtol=0, atol=0)

    @pytest.mark.parametrize("changes", [{"meta": None}, {"every": 10**9}])
    def test_never_rewritten_is_a_fixed_judge(self, changes):
        part, fixed = rubric(**changes), rubric(meta=None)
        for answers in (["a b", "c"], ["a", "b c d"], ["a b c", ""]):
            b = batch(answers, [1.0, 0.0])
            assert torch.equal(part(b), fixed(b))
            part.step()
        assert len(part.rubrics) == 1

    def test_what_is_seen_of_a_text(self):
        text = "two 2 two\nlines"
        assert {name: see(text) for name, see in SEEN.items()} == {
            "characters": 15.0,
            "words": 4.0,
            "lines": 2.0,
            "digits": 1.0,
            "repeated words": 0.25,
        }
        assert SEEN["repeated words"]("") == 0.0

    def test_it_needs_what_its_items_need(self):
        assert rubric().reads == {"outcome", "extras.answer"}
        items = [Item(name="extras.signal_true")]
        assert rubric(items=items).required_fields == {"extras.signal_true", "outcome"}

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"items": []}, "needs at least one item"),
            ({"items": [Item(name="wrods")]}, "no item is called 'wrods'; did you mean 'words'?"),
            ({"every": 0}, "need every >= 1"),
            ({"samples": 1}, "samples >= 2"),
            (
                {"meta": HTTPMeta(chat=Chat(url="http://x/v1", model="m"))},
                "invents items, and methods.mpo_meta.ProgramGrader() identifies",
            ),
        ],
    )
    def test_bad_settings(self, changes, sentence):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            rubric(**changes)

    @pytest.mark.parametrize("bad", [{"name": ""}, {"most": 0.0}, {"weight": -1.0}, {"trust": 1.5}])
    def test_bad_items(self, bad):
        with pytest.raises(ValueError, match="need a name, most > 0, weight >= 0 and trust in"):
            Item(**{"name": "x", **bad})


class TestAudit:
    def test_covariance_against_a_loop(self):
        g = torch.Generator().manual_seed(0)
        marks, truth = torch.rand(7, 3, generator=g).double(), torch.rand(7, generator=g).double()
        marks[:, 1] = 0.4
        means = marks.mean(0)
        wanted = [sum((marks[i, k] - means[k]) * (truth[i] - truth.mean()) for i in range(7)) / 7 for k in range(3)]
        found = agreement(marks, truth)
        assert found[1] is None
        assert found[0] == pytest.approx(wanted[0].item(), rel=1e-10)
        assert found[2] == pytest.approx(wanted[2].item(), rel=1e-10)
        assert agreement(marks, torch.ones(7).double()) == [None] * 3

    def test_trust_falls_rises_and_stays(self):
        part = rubric(items=[Item(name="outcome"), Item(name="words", most=9), Item(name="digits")], samples=9)
        against = batch(["a b c", "a"], [0.0, 1.0])
        for trust in (0.5, 0.25):
            part(against)
            part.step()
            assert [item.trust for item in part.rubric] == [1.0, trust, 1.0]
        together = batch(["a b c", "a"], [1.0, 0.0])
        for trust in (0.5, 1.0, 1.0):
            part(together)
            part.step()
            assert part.rubric[1].trust == trust
        assert len(part.rubrics) == 6
        sudden = rubric(meta=AuditedRubric(factor=0.0))
        for b, trust in ((against, 0.0), (together, 1.0)):
            sudden(b)
            sudden.step()
            assert sudden.rubric[1].trust == trust

    def test_only_so_many_rows_are_looked_at(self):
        class Counting(AuditedRubric):
            def forward(self, items, experience, marks):
                assert len(experience) == len(marks) == 3
                return super().forward(items, experience, marks)

        part = rubric(meta=Counting(), samples=3)
        part(batch(list("abcdefgh"), [1.0] * 8))
        part.step()
        assert len(part.rubrics) == 2

    @pytest.mark.parametrize(
        ("changes", "sentence"), [({"factor": 1.0}, "factor must be in"), ({"truth": "x"}, "truth")]
    )
    def test_bad_settings(self, changes, sentence):
        with pytest.raises(ValueError, match=sentence):
            AuditedRubric(**changes)


def test_the_rubric_changes_after_every_so_many_batches_and_holds_from_the_next():
    part = rubric(every=3)
    against = batch(["a b c", "a"], [0.0, 1.0])
    seen = []
    for _ in range(7):
        first = part(against)
        assert torch.equal(part(against), first)  # asked twice, it says the same
        seen.append(part.rubric[1].trust)
        part.step()
    assert seen == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25]
    part.eval()
    for _ in range(3):
        part(against)
        part.step()
    assert part.rubric[1].trust == 0.25


def test_it_resumes_bit_for_bit_with_its_history():
    g = torch.Generator().manual_seed(1)
    batches = [
        batch(["w " * int(n) for n in torch.randint(1, 9, (8,), generator=g)], torch.rand(8, generator=g).tolist())
        for _ in range(8)
    ]
    through = rubric(every=2, samples=4)
    wanted, saved = [], None
    for i, b in enumerate(batches):
        if i == 5:
            saved = copy.deepcopy(through.state_dict())
        wanted.append(through(b))
        through.step()
    resumed = po.from_yaml(rubric(every=2, samples=4).to_yaml())
    resumed.load_state_dict(saved)
    for b, reward in zip(batches[5:], wanted[5:], strict=True):
        assert torch.equal(resumed(b), reward)
        resumed.step()
    assert (
        po.diff(
            po.rewards.RubricReward(items=resumed.rubric, grader=ProgramGrader()),
            po.rewards.RubricReward(items=through.rubric, grader=ProgramGrader()),
        )
        == []
    )
    assert resumed.history.all() == through.history.all()
    assert len(set(through.history.all())) > 1


@pytest.fixture
def server():
    with served(judge_reply) as server:
        yield server


def chat(server: ChatServer, **changes: object) -> Chat:
    return Chat(**{"url": server.url, "model": "tiny", "backoff": 0.01, **changes})


class TestInWords:
    ITEMS = (Item(name="right", text="per step", most=3), Item(name="kind", most=2))

    def test_marks_are_lines_of_their_own(self):
        assert read_marks("so\nITEM 1: 2\n ITEM 2: 2 \n", self.ITEMS) == [pytest.approx(2 / 3), 1.0]
        assert read_marks("ITEM 1: 4\nItem 2: 1", self.ITEMS) == [None, None]
        assert read_marks("ITEM 1: 2\nITEM 1: 3\nITEM 2: 1 of 2", self.ITEMS) == [None, None]
        assert read_marks("ITEM 1: 2\nITEM 1: 2\nITEM 9: 1", self.ITEMS) == [pytest.approx(2 / 3), None]
        assert read_marks("ITEM 1: exec('2')", self.ITEMS) == [None, None]

    def test_a_rubric_is_lines_of_items(self):
        found = parsed("Now:\nITEM | a | 3 | one point each\nITEM|b|1|x\n", most=2)
        assert [(item.name, item.most, item.text) for item in found] == [("a", 3.0, "one point each"), ("b", 1.0, "x")]
        for wrong in ("", "ITEM | a | 0 | x", "ITEM | a | three | x", "ITEM | a | 1 | x\nITEM | a | 2 | y"):
            assert parsed(wrong, most=2) is None
        assert parsed("ITEM | a | 1 | x\nITEM | b | 1 | x\nITEM | c | 1 | x", most=2) is None

    def test_the_grader_shows_the_rubric_and_counts_what_it_cannot_read(self, server):
        server.say = lambda question: "ITEM 1: 3" if "alpha" in question else "ITEM 1: 1\nITEM 2: 1"
        grader = HTTPGrader(chat=chat(server))
        marks = grader(batch(["alpha", "beta"], [0.0, 0.0]), self.ITEMS)
        torch.testing.assert_close(marks, torch.tensor([[1.0, 0.0], [1 / 3, 0.5]]).double())
        assert (int(grader.marked), int(grader.unread)) == (4, 1)
        asked = server.seen[0]["messages"][0]["content"]
        assert "1. right (0 to 3 points): per step\n2. kind (0 to 2 points): " in asked
        assert "ask 0" in asked or "ask 1" in asked

    def test_the_meta_analyses_refines_and_merges(self, server):
        meta = HTTPMeta(chat=chat(server), most=4)
        new = meta(list(self.ITEMS), batch(["x", "y"], [0.0, 1.0]), torch.tensor([[1.0, 0.0], [0.5, 0.5]]))
        assert [item.name for item in new] == [f"careful {len(server.seen[-1]['messages'][0]['content']) % 5}", "short"]
        kinds = [len(seen["messages"]) for seen in server.seen]
        assert sorted(kinds[:2]) == [1, 1]
        assert sorted(kinds[2:4]) == [3, 3]
        assert kinds[4:] == [1]
        assert "kind (0 to 2 points, got 50%)" in "".join(seen["messages"][0]["content"] for seen in server.seen[:2])

    def test_what_cannot_be_read_leaves_the_rubric_alone(self, server):
        server.say = lambda question: "I would rather not."
        meta = HTTPMeta(chat=chat(server))
        items = list(self.ITEMS)
        assert (
            po.diff(
                *(
                    RubricReward(items=i, grader=HTTPGrader(chat=chat(server)))
                    for i in (meta(items, batch(["x", "y"], [0.0, 1.0]), torch.rand(2, 2)), items)
                )
            )
            == []
        )
        assert (int(meta.rewritten), int(meta.unread)) == (0, 1)

    def test_a_resumed_run_pays_nothing_twice_and_ends_the_same(self, server, tmp_path):
        def part() -> RubricReward:
            asks = chat(server, cache=str(tmp_path / "replies"))
            return RubricReward(
                items=self.ITEMS, grader=HTTPGrader(chat=asks), meta=HTTPMeta(chat=asks), every=2, samples=2
            )

        batches = [batch([f"{i} {j}" for j in range(3)], [0.0, 1.0, 1.0]) for i in range(5)]
        through, wanted, saved = part(), [], None
        for i, b in enumerate(batches):
            if i == 1:
                saved = copy.deepcopy(through.state_dict())
            wanted.append(through(b))
            through.step()
        asked, resumed = len(server.seen), part()
        resumed.load_state_dict(saved)
        for b, reward in zip(batches[1:], wanted[1:], strict=True):
            assert torch.equal(resumed(b), reward)
            resumed.step()
        assert len(server.seen) == asked
        assert resumed.history.all() == through.history.all()
        assert len(through.rubrics) == 3
        for name, value in through.state_dict().items():
            assert torch.equal(resumed.state_dict()[name], value), name
