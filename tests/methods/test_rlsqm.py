"""RLSQM: what is read off a unit test, case by case; the small reward model against numpy; the world that asks."""

from __future__ import annotations

import builtins
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import polopt as po
from polopt.claims.problems.unit_tests import Grammar, written
from polopt.experience import Experience
from polopt.fields import ExperienceError
from polopt.methods.rlsqm import LinearTokenReward, UnitTest
from polopt.rewards import KLPenalty, OutcomeReward
from polopt.rewards.unit_tests import METRICS, SMELLS, metrics
from polopt.worlds import Task, UnitTests
from polopt.worlds.recipe import parse_world
from polopt.worlds.unit_tests import FORMS

GOOD = "def test_add_pair():\n    assert add(1, 2) == 3"


def faults(text: str, focal: str = "add") -> set[str]:
    return {name for name, value in metrics(text, focal).items() if not value}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (GOOD, set()),
        ("def test_add_pair(:", set(METRICS)),
        ("", {"assertion", "focal", "name", "filled"}),
        (GOOD.replace("test_add_pair", "test_add"), {"name"}),
        (GOOD.replace("test_add_pair", "test_add_"), {"name"}),
        (GOOD.replace("add(1, 2)", "sub(1, 2)"), {"focal"}),
        (GOOD.replace("add(1", "math.add(1"), set()),
        ("def test_add_pair():\n    add(1, 2)", {"assertion"}),
        ("def test_add_pair():\n    pass", {"assertion", "focal", "filled"}),
        ('def test_add_pair():\n    """Adds."""\n    ...', {"assertion", "focal", "filled"}),
        (GOOD + "\n    assert add(1, 2) == 3", {"unique"}),
        (GOOD + "\n    assert  add( 1,2 )==3", {"unique"}),
        (GOOD + "\n    assert add(1, 2) == 4", set()),
        (GOOD + "\n    if add(1, 1): pass", {"straight"}),
        (GOOD + "\n    for i in []: pass", {"straight"}),
        (GOOD + "\n    x = [i for i in y]", {"straight"}),
        (GOOD + "\n    x = 1 if y else 2", {"straight"}),
        (GOOD + "\n    try: f()\n    except ValueError: pass", {"unguarded"}),
        (GOOD + "\n    raise ValueError", {"unguarded"}),
        (GOOD + "\n    print(1)", {"silent"}),
        (GOOD + "\n    time.sleep(1)", {"awake"}),
        (GOOD + "  # sum", {"uncommented"}),
        (GOOD.replace("3", "'#'"), set()),
        ("class T:\n    def test_add_x(self):\n        self.assertEqual(add(1, 2), 3)", set()),
        ("def test_add_x():\n    x = '\\d'\n    assert add(x)", set()),
    ],
)
def test_metrics(text: str, missing: set[str]) -> None:
    assert faults(text) == missing


def test_nothing_is_run_and_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a model's text was executed")

    monkeypatch.setattr(builtins, "exec", refused)
    monkeypatch.setattr(builtins, "eval", refused)
    assert faults("raise SystemExit\nimport os\nos._exit(1)") >= {"unguarded"}
    for text in ("(" * 5000, "-" * 9000 + "1", "\0", "x" * 30_000, "é = 1\n" * 10, "\\"):
        assert set(metrics(text, "add").values()) <= {0.0, 1.0}
    deep = ["assert a" + ".a" * 1000, "assert " + "lambda: " * 1000 + "1", "assert 0x" + "f" * 3580]
    for text in (*deep, "assert a" + ".a" * 120):
        assert not any(metrics(text, "add").values())
    assert metrics("assert a" + ".a" * 80, "add")["assertion"] == 1


def rows(*answers: str, focal: str = "add") -> Experience:
    return Experience(
        mask=torch.ones(len(answers), 1, dtype=torch.bool),
        extras={"answer": list(answers), "task": [Task("t", "k", "?", None, {"focal": focal})] * len(answers)},
    )


def test_the_reward_is_a_mean_and_minus_one_for_no_python() -> None:
    batch = rows(GOOD, GOOD + "  # x", "def (")
    assert UnitTest()(batch).tolist() == pytest.approx([1.0, 10 / 11, -1.0])
    assert UnitTest(metrics=["uncommented", "focal"])(batch).tolist() == [1.0, 0.5, -1.0]
    # A test of nothing has every smell's absence but one.
    assert UnitTest(metrics=SMELLS)(rows("def t():\n    pass")).item() == pytest.approx(6 / 7)
    for wrong in ([], ["focus"]):
        with pytest.raises(ValueError, match="metrics are some of syntax"):
            UnitTest(metrics=wrong)


def worded(seed: int, B: int = 30, T: int = 6) -> Experience:
    g = torch.Generator().manual_seed(seed)
    mask = torch.rand(B, T, generator=g) < 0.7
    tokens = torch.where(mask, torch.randint(5, (B, T), generator=g), -7)
    return Experience(
        mask=mask,
        outcome=torch.randn(B, generator=g, dtype=torch.double),
        rollout_logp=torch.zeros(B, T),
        ref_logp=torch.zeros(B, T),
        extras={"tokens": tokens},
    )


def test_the_reward_model_is_ridge_regression_on_tokens_and_pairs() -> None:
    part = LinearTokenReward(reward=OutcomeReward(), batches=2, features=4096, ridge=0.5)
    seen = [worded(0), worded(1)]
    for batch in seen:
        torch.testing.assert_close(part(batch), batch.outcome, rtol=0, atol=0)
        part.on_step()
    # With so many features hardly any two share one: indicators by name.
    names: dict[object, int] = {}

    def features(batch: Experience) -> list[set[int]]:
        found = []
        for row in range(len(batch)):
            said = batch.extras["tokens"][row][batch.mask[row]].tolist()
            keys = [*said, *itertools.pairwise(said)]
            found.append({names.setdefault(key, len(names)) for key in keys})
        return found

    read = [f for batch in seen for f in features(batch)]
    new = worded(2)
    fresh = features(new)
    matrix = lambda found: np.array([[1.0 * (i in f) for i in range(len(names))] + [1.0] for f in found])  # noqa: E731
    x, y = matrix(read), torch.cat([b.outcome for b in seen]).numpy()
    penalty = 0.5 * np.eye(x.shape[1])
    penalty[-1, -1] = 1e-9
    weights = np.linalg.solve(x.T @ x + penalty, x.T @ y)
    expected = torch.tensor(matrix(fresh) @ weights)
    torch.testing.assert_close(part(new).double(), expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(part(new).double(), new.outcome, atol=0.1)


def test_the_reward_model_stays_once_it_is_fitted_and_resumes() -> None:
    part = LinearTokenReward(reward=OutcomeReward(), batches=1, features=64)
    part(worded(0))
    part.on_step()
    weights = part.get_buffer("weights").clone()
    before = part(worded(1))
    assert torch.equal(part.get_buffer("weights"), weights)
    other = LinearTokenReward(reward=OutcomeReward(), batches=1, features=64)
    other.load_state_dict(part.state_dict())
    assert torch.equal(other(worded(1)), before)
    still = LinearTokenReward(reward=OutcomeReward(), features=64).eval()
    still(worded(0))
    assert (still.get_buffer("weights") == 0).all()
    with pytest.raises(ExperienceError, match="one reward for each row"):
        LinearTokenReward(reward=KLPenalty())(worded(0))
    with pytest.raises(ValueError, match="batches >= 1"):
        LinearTokenReward(reward=OutcomeReward(), batches=0)


def test_the_reward_model_looks_at_nothing_but_decisions() -> None:
    part = LinearTokenReward(reward=OutcomeReward(), features=64)
    batch = worded(3)
    other = batch.replace(extras={"tokens": torch.where(batch.mask, batch.extras["tokens"], 99)})
    assert torch.equal(part.read(batch), part.read(other))
    # What stands between two decisions does not part them.
    mask, tokens = torch.tensor([[True, False, True, False]]), torch.tensor([[1, 8, 2, 8]])
    gap = Experience(mask=mask, extras={"tokens": tokens})
    tight = Experience(mask=mask[:, [0, 2]], extras={"tokens": tokens[:, [0, 2]]})
    assert torch.equal(part.read(gap), part.read(tight))


def test_the_grammar_is_listed_and_its_quality_is_that_of_its_texts() -> None:
    tree = Grammar()
    assert len(tree.answers) == 480
    assert written((0, 0, 1, 0)) == "def test_add_small():\n    assert add(1, 2) == 3"
    texts = tree.leaves().extras["answer"]
    assert texts[0] == "def test_add_small():\n    pass"
    assert all(float(tree.measured["syntax"][i]) == metrics(t, "add")["syntax"] for i, t in enumerate(texts))
    good = [t for t, q in zip(texts, tree.measured["quality"].tolist(), strict=True) if q]
    assert good
    assert all(not faults(t) - {"name"} for t in good)


def test_the_world_asks_for_tests_and_reads_them() -> None:
    split = parse_world({"kind": "unit-tests", "train": 300, "heldout": 50}).build(0)
    assert isinstance(split.train, UnitTests)
    tasks = [split.train[i] for i in range(300)]
    assert {t.prompt for t in tasks}.isdisjoint(split.heldout[i].prompt for i in range(50))
    clean = 0
    for task in tasks:
        assert task.solution is not None
        episode = split.train.episode(task)
        assert episode.reset() == task.prompt
        step = episode.step(task.solution)
        assert step.info["signals"].keys() == set(split.train.signals)
        assert step.info["solved"] == (step.reward == 1)
        clean += step.info["solved"]
        space: dict[str, Any] = {"add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "low": min, "top": max}
        exec(task.solution, space)  # ours, not a model's: what the tasks show is right
        for name in [n for n in space if n.startswith("test_")]:
            space[name]()
    assert 0.15 < clean / 300 < 0.45
    assert {f.format(f="add", a=1, b=2, v=3) for f in FORMS if not faults(f.format(f="add", a=1, b=2, v=3))} == {
        "def test_add_pair():\n    assert add(1, 2) == 3"
    }
    assert split.train.score("def (", tasks[0])[0] == 0
    with pytest.raises(ValueError, match="unit-tests: need smelly"):
        UnitTests(size=0)


def test_it_is_ppo_paid_otherwise() -> None:
    assert {path.split(".")[0] for path, *_ in po.diff(po.method("ppo"), po.method("rlsqm"))} == {"reward"}
    changed = {path for path, *_ in po.diff(po.method("rlsqm"), po.method("rlsqm", metrics=["focal"]))}
    assert changed == {"reward.terms.0.metrics"}
    alone = po.method("rlsqm", model=True, kl=0.0).reward
    assert isinstance(alone, LinearTokenReward)
