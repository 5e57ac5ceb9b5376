"""The critics' world: what is planted, what is paid, what the second policy makes of a critique."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from polopt.worlds import Critic
from polopt.worlds.critic import Critique, read_critique, worked

LINE = re.compile(r"(\d) ([-+*])(\d)=(\d)")


def read(prompt: str) -> tuple[int, list[tuple[str, int, int]]]:
    first, *rest = prompt.splitlines()
    return int(first.split()[1]), [(m[2], int(m[3]), int(m[4])) for m in map(LINE.fullmatch, rest)]


@pytest.mark.parametrize("base", [10, 4])
def test_exactly_one_step_of_a_wrong_solution_is_wrong(base: int) -> None:
    world = Critic(size=300, base=base)
    count: Counter[int] = Counter()
    for i in range(300):
        task = world[i]
        value, lines = read(task.prompt)
        wrong = []
        for number, (op, n, said) in enumerate(lines, 1):
            if {"+": value + n, "-": value - n, "*": value * n}[op] % base != said:
                wrong.append(number)
            value = said
        assert wrong == ([task.row["wrong"]] if task.row["wrong"] else [])
        start, steps = read(task.prompt)
        assert task.row["answer"] == worked(start, [(op, n) for op, n, _ in steps], base)[-1]
        assert (task.row["answer"] != value) == bool(wrong)
        count[task.row["wrong"]] += 1
    assert 110 < count[0] < 190
    assert all(15 < count[k] < 65 for k in range(1, 5))


def test_tasks_are_the_same_everywhere_and_never_shared() -> None:
    assert [Critic(size=9, seed=3)[i] for i in range(9)] == [Critic(size=99, seed=3)[i] for i in range(9)]
    split = Critic.split(train=2000, heldout=60, seed=1, steps=1)
    kept = {split.heldout[i].prompt for i in range(60)}
    assert not kept & {split.train[i].prompt for i in range(2000)}
    share = sum(split.train[i].row["wrong"] > 0 for i in range(2000)) / 2000
    assert 0.45 < share < 0.55
    crowded = Critic.split(train=5, heldout=200, seed=1, steps=1, base=2)
    with pytest.raises(ValueError, match="leave too few of their kind to learn from"):
        [crowded.train[i] for i in range(5)]
    assert split.train.signals == ("index", "refined", "leaked")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("right", Critique(False)),
        (" wrong 3\n", Critique(True, 3)),
        ("wrong 3 so 7", Critique(True, 3, 7)),
        ("wrong", None),
        ("wrong 0", None),
        ("wrong 12", None),
        ("right so 7", None),
        ("it is wrong 3", None),
        ("", None),
    ],
)
def test_critiques_are_read_strictly(text: str, said: Critique | None) -> None:
    assert read_critique(text) == said


def play(world: Critic, index: int, answer: str) -> tuple[float, dict[str, float]]:
    task = world[index]
    episode = world.episode(task)
    episode.reset()
    step = episode.step(answer)
    return step.reward, step.info["signals"] | {"solved": step.info["solved"]}


def test_what_is_paid_and_noted() -> None:
    world = Critic(size=50, tries=1000)
    wrong = next(i for i in range(50) if world[i].row["wrong"] == 2)
    right = next(i for i in range(50) if not world[i].row["wrong"])
    assert play(world, right, "right") == (1.0, {"index": 1.0, "refined": 0.0, "leaked": 0.0, "solved": True})
    assert play(world, right, "wrong 2") == (0.0, {"index": 0.0, "refined": 0.0, "leaked": 0.0, "solved": False})
    assert play(world, wrong, "right") == (0.0, {"index": 0.0, "refined": 0.0, "leaked": 0.0, "solved": False})
    paid, signals = play(world, wrong, "wrong 2")
    assert (paid, signals["index"], signals["solved"]) == (1.0, 1.0, True)
    assert signals["refined"] == pytest.approx(0.9, abs=0.03)
    paid, signals = play(world, wrong, "wrong 1")
    assert (paid, signals["index"], signals["solved"]) == (1.0, 0.0, False)
    assert signals["refined"] == pytest.approx(0.2, abs=0.04)
    assert play(world, wrong, "gibberish") == (0.0, {"index": 0.0, "refined": 0.0, "leaked": 0.0, "solved": False})


def test_every_demonstration_is_solved() -> None:
    world = Critic(size=40)
    for i in range(40):
        assert play(world, i, world.episode(world[i]).demonstrate())[1]["solved"]


def test_critiques_of_one_solution_meet_the_same_mood() -> None:
    """Whatever the second policy solves alone it solves when told, and two equal critiques earn the same."""
    world = Critic(size=60, tries=1)
    pairs = []
    for i in range(60):
        if wrong := world[i].row["wrong"]:
            other = wrong % 4 + 1
            helped, alone = (play(world, i, f"wrong {k}")[1]["refined"] for k in (wrong, other))
            assert helped >= alone
            assert helped == play(world, i, f"wrong {wrong}")[1]["refined"]
            pairs.append((helped, alone))
    assert {(1.0, 0.0), (1.0, 1.0)} <= set(pairs)


def test_one_try_is_a_coin_of_the_same_mean() -> None:
    one, many = Critic(size=800, tries=1), Critic(size=800, tries=16)
    means = []
    for world in (one, many):
        found = [play(world, i, f"wrong {w}")[1]["refined"] for i in range(800) if (w := world[i].row["wrong"])]
        means.append(sum(found) / len(found))
    assert set(found) != {0.0, 1.0}
    assert means[0] == pytest.approx(means[1], abs=0.05) == pytest.approx(0.9, abs=0.05)


def test_an_answer_that_is_given_away_is_hidden_or_taken_over() -> None:
    masked, read_out = Critic(size=50), Critic(size=50, leaks="read")
    i = next(i for i in range(50) if masked[i].row["wrong"] == 1)
    leak = f"wrong 2 so {masked[i].row['answer']}"
    assert play(masked, i, leak)[1]["refined"] == play(masked, i, "wrong 2")[1]["refined"] < 1
    assert play(read_out, i, leak)[1]["refined"] == 1.0
    assert play(masked, i, leak)[1]["leaked"] == play(read_out, i, leak)[1]["leaked"] == 1.0
    false = f"wrong 1 so {(masked[i].row['answer'] + 1) % 10}"
    assert play(read_out, i, false)[1]["refined"] == play(read_out, i, false)[1]["leaked"] == 0.0


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"size": 0}, "need size >= 1"),
        ({"steps": 10}, "steps in 1..9"),
        ({"tries": 0}, "tries >= 1"),
        ({"operations": "+/"}, "operations must be some of"),
        ({"base": 1}, "base must be in 2..10"),
        ({"operations": ""}, "operations must be some of"),
        ({"told": 1.5}, "told and alone must be in"),
        ({"leaks": "shown"}, "leaks must be 'masked' or 'read'"),
    ],
)
def test_bad_settings(bad: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Critic(**{"size": 5, **bad})
