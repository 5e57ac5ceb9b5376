"""The language loop on batches that hold demonstrations and raw texts beside rollouts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import learner_of, slopes, stopping
from test_runs import Stop, StopAt
from tiny_runs import DIGITS, GUESS, Digits, lines, outcome, policy, recipe

import polopt as po
from polopt import Experience, Support
from polopt.config import ConfigError
from polopt.sampling import Rollouts, WithSolutions
from polopt.training.episode_player import EpisodePlayer
from polopt.training.language import LanguageDomain
from polopt.training.launch import resume, train
from polopt.training.measure import describe
from polopt.training.source import LanguageSource
from polopt.worlds import GuessNumber

TEXTS = ["even 1 2 3 4", "odd", "even even even even even even even even 5", "8"]


def source_of(world: Any = None, *, rows: int = 8, texts: Any = TEXTS, dtype: str = "float64") -> LanguageSource:
    player = EpisodePlayer(stopping(dtype) if world is None else policy(dtype, world=world), world or Digits(50), 5)
    return LanguageSource(player, rows=rows, seed=3, generator=torch.Generator().manual_seed(0), texts=texts)


# Rows ---------------------------------------------------------------------------------------------------------


def test_a_solution_belongs_to_the_task_of_its_group() -> None:
    """Of a world with turns: the demonstrated game is the one that the rollouts play."""
    source = source_of(GuessNumber(1, 5, turns=4, size=5), rows=12)
    batch = Rollouts(group=3, support=Support(temperature=1.5), mix=[WithSolutions(gate=1.0)])(source)
    shown = batch.is_demonstration
    assert shown.tolist() == [False] * 12 + [True] * 4
    assert batch.group[shown].tolist() == [0, 1, 2, 3]
    tokenizer = source.player.policy.tokenizer
    for row in range(12, 16):
        task = batch.extras["task"][row]
        assert {batch.extras["task"][i].id for i in range(12) if batch.group[i] == batch.group[row]} == {task.id}
        said = tokenizer.decode(batch.extras["tokens"][row][batch.mask[row]].tolist())
        assert said.split("<|end|>")[-2] == str(task.row["number"]) == batch.extras["answer"][row]
    assert (batch.outcome[shown] == 1).all()
    assert (batch.rollout_logp[shown] == 0).all()
    assert (batch.entropy[shown] == 0).all()
    assert batch.horizon == source.player.horizon
    # The policy says of it what transformers says of the ids alone, at the rollouts\' temperature.
    logp = source.player.policy.evaluate(batch).logp[12]
    ids = batch.extras["tokens"][12]
    ids = ids[ids >= 0]
    logits = source.player.policy.model(ids[None], use_cache=False).logits[0] / 1.5
    for t in batch.mask[12].nonzero().flatten().tolist():
        torch.testing.assert_close(logp[t], logits[t - 1].log_softmax(-1)[ids[t]], atol=1e-10, rtol=0)


def test_texts_are_read_whole_in_pieces() -> None:
    """Two tokens at a time, each shuffle the next piece; all of every text comes, in order, again and again."""
    source = source_of()
    dialogue = source.player.dialogue
    whole = [dialogue.answer(text) for text in TEXTS]
    read: dict[int, list[list[int]]] = {}
    first = []
    for shuffle in range(40):
        batch = source.texts(4, 2)
        first.append(batch.extras["tokens"][:, 1].tolist())
        assert (batch.extras["tokens"][:, 0] == dialogue.beginning).all()
        assert batch.mask[:, 1:].equal(batch.extras["tokens"][:, 1:] >= 0)
        assert not batch.mask[:, 0].any()
        assert batch.rollout_logp is None
        assert batch.group.tolist() == [0, 1, 2, 3]
        for row in batch.extras["tokens"]:
            ids = row[1:][row[1:] >= 0].tolist()
            (text,) = {i for i, w in enumerate(whole) if w[shuffle % -(-len(w) // 2) * 2 :][:2] == ids} or {-1}
            read.setdefault(text, []).append(ids)
    assert set(read) == {0, 1, 2, 3}
    for text, pieces in read.items():
        count = -(-len(whole[text]) // 2)
        assert list(itertools.chain(*pieces[:count])) == whole[text]
    assert len({tuple(order) for order in first}) > 1


def test_a_piece_never_exceeds_what_the_model_reads() -> None:
    source = source_of(texts=["7 " * 500])
    tokens = source.texts(1, 10_000).extras["tokens"]
    assert tokens.shape == (1, 64)  # n_positions
    source.player.policy.evaluate(source.texts(1, 10_000))
    with pytest.raises(ValueError, match=r"needs raw texts, and there are none; set tasks\.texts"):
        source_of(texts=()).texts(1, 5)


def test_positions_are_all_the_state() -> None:
    one, two = source_of(), source_of()
    one.texts(3, 5)
    one.demonstrate(5)
    two.load(one.state())
    assert one.state() == {"position": 5, "texts": 3}
    for ask in (lambda s: s.texts(7, 5), lambda s: s.demonstrate(60)):
        assert torch.equal(ask(one).extras["tokens"], ask(two).extras["tokens"])


# Learning -----------------------------------------------------------------------------------------------------


def mixed(algorithm: po.Algorithm, rows: int = 8, seed: int = 0) -> tuple[Any, Experience]:
    source = source_of(rows=rows)
    source.generator.manual_seed(seed)
    return source.player.policy, algorithm.compute_advantages(algorithm.sampling(source))


@pytest.mark.parametrize(
    ("slug", "settings"),
    [
        ("chord", {}),
        ("unified-hpt", {"gate": 0.015}),
        ("typhoon-s-ink-grpo", {"probability": 1.0, "texts": 3, "length": 4}),
    ],
)
def test_micro_batches_change_nothing(slug: str, settings: dict[str, Any]) -> None:
    algorithm = po.method(slug, group=4, **settings)
    made, batch = mixed(algorithm, rows=16)
    assert 0 < int(batch.is_demonstration.sum()) < len(batch)
    weights = {k: v.clone() for k, v in made.state_dict().items()}
    found = []
    for rows in (None, 1, 3, 100):
        made.load_state_dict(weights)
        record = learner_of(made, algorithm, micro_rows=rows).update(batch, 0)
        found.append((slopes(made), record))
    (first, whole), *others = found
    assert max(float(g.abs().max()) for g in first) > 1e-3
    for gradient, record in others:
        for ours, theirs in zip(gradient, first, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=1e-10)
        assert record == pytest.approx(whole, abs=1e-9)


def test_the_sampler_is_judged_by_its_own_rows() -> None:
    """Ratios and mismatch of a mixed batch are those of its rollouts; logp 0 of the others would be far off."""
    algorithm = po.method("chord", group=4, each=1.0)
    made, batch = mixed(algorithm)
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    weights = {k: v.clone() for k, v in made.state_dict().items()}
    records = []
    for rows in (batch, batch[~batch.is_demonstration]):
        made.load_state_dict(weights)
        records.append(learner_of(made, algorithm).update(rows, 0))
    together, alone = records
    names = [n for n in alone if n.startswith("mismatch/")] + ["ratio/max", "ratio/mean", "clip_fraction"]
    assert len(names) == 7
    for name in names:
        assert together[name] == pytest.approx(alone[name], rel=1e-9), name
    assert together["loss"] != pytest.approx(alone["loss"])


def test_nothing_was_sampled() -> None:
    """HPT where every prompt failed: no ratio to report, and it learns all the same."""
    algorithm = po.method("unified-hpt", group=4, gate=2.0)
    made, batch = mixed(algorithm)
    assert batch.is_demonstration.all()
    record = learner_of(made, algorithm).update(batch, 0)
    assert record["grad_norm"] > 0
    assert not [name for name in record if name.startswith("mismatch") or name == "ratio/max"]


@pytest.mark.parametrize(("rows", "minibatches", "shares"), [(16, 4, (1, 1)), (16, 2, (2, 2)), (8, 4, (1, 1))])
def test_each_minibatch_has_its_share(
    rows: int, minibatches: int, shares: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm = po.method("chord", group=4, each=0.25)
    made, batch = mixed(algorithm, rows=rows)
    learner = learner_of(made, algorithm, epochs=2, minibatches=minibatches)
    seen: list[Experience] = []
    monkeypatch.setattr(learner, "_minibatch", lambda b, *_: seen.append(b) or {})
    learner.update(batch, 0)
    assert len(seen) == 2 * min(minibatches, rows // 4)
    for part in seen:
        kinds = [len(part[m].group.unique()) for m in (~part.is_demonstration, part.is_demonstration)]
        assert tuple(kinds) == shares
    half = len(seen) // 2
    for epoch in (seen[:half], seen[half:]):
        assert sorted(len(p) for p in epoch) == [len(batch) // half] * half


def test_the_numbers_of_a_batch_are_the_rollouts() -> None:
    algorithm = po.method("chord", group=4, each=1.0)
    _, batch = mixed(algorithm)
    record = describe(batch)
    assert record.pop("demonstrated") == 0.5
    assert record == describe(batch[~batch.is_demonstration])
    own = batch[~batch.is_demonstration]
    nats = [
        x
        for row, m in zip(own.rollout_logp.tolist(), own.mask.tolist(), strict=True)
        for x, k in zip(row, m, strict=True)
        if k
    ]
    assert record["perplexity"] == pytest.approx(torch.tensor(nats).neg().mean().exp().item(), rel=1e-5)
    assert "reference_kl" not in record
    away = describe(
        batch.replace(ref_logp=torch.where(batch.is_demonstration[:, None], -50.0, batch.rollout_logp - 0.25))
    )
    assert away["reference_kl"] == pytest.approx(0.25)
    assert describe(batch[batch.is_demonstration]) == {"demonstrated": 1.0}


# Runs ---------------------------------------------------------------------------------------------------------

INK = {"name": "typhoon-s-ink-grpo", "probability": 0.5, "texts": 3, "length": 4}
MIXED: dict[str, Any] = {
    "stages": {
        "read": {
            "method": "sft",
            "but": {"sampling": {"part": "sampling.RawTexts", "length": 6}},
            "steps": 3,
            "rows": 5,
        },
        "chord": {
            "method": {"name": "chord", "each": 0.5},
            "but": {"objective.routes.1.weight": {"part": "schedules.Schedule", "knots": [[0, 0.9], [4, 0.1]]}},
            "steps": 3,
            "rows": 8,
            "group": 4,
        },
        "hpt": {"method": {"name": "unified-hpt", "gate": 0.3}, "steps": 3, "rows": 8, "group": 4, "minibatches": 2},
        "max": {"method": {"name": "secrets-rlhf-ppo-max", "ptx": 0.5}, "steps": 3, "rows": 4, "minibatches": 2},
        "otr": {"method": {"name": "otr", "draws": 4}, "steps": 3, "rows": 6, "micro_rows": 4},
        "ink": {"method": INK, "steps": 7, "rows": 8, "group": 4, "epochs": 2, "micro_rows": 3},
    },
    "evaluation": {"problems": 8, "quick": 4, "every": 0},
    "tasks": DIGITS,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("mixed") / "run"
    train(recipe(**MIXED), folder)
    return outcome(folder)


def test_what_the_stages_log(undisturbed: dict[str, Any]) -> None:
    by = {name: [m for m in undisturbed["metrics"] if m["stage"] == name] for name in MIXED["stages"]}
    assert all(m["rows"] == 12 and m["demonstrated"] == pytest.approx(1 / 3) for m in by["chord"])
    assert all(m["rows"] == 8 and m["demonstrated"] == 0.5 for m in by["max"])
    assert {m["rows"] for m in by["ink"]} == {8, 11}  # with and without texts
    assert [m.get("demonstrated", 0) > 0 for m in by["ink"]] == [m["rows"] == 11 for m in by["ink"]]
    assert all("reference_kl" in m for m in by["max"])
    assert all("outcome/mean" in m for m in by["hpt"])
    assert not any("outcome/mean" in m for m in by["read"] + by["otr"])


@pytest.mark.parametrize("at", [1, 4, 7, 10, 13, 16, 18, 20])
def test_resuming_is_an_equality(at: int, tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    with pytest.raises(Stop):
        train(recipe(**MIXED), tmp_path / "run", watchers=(StopAt(at),))
    resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == undisturbed


def test_greedy_answers_are_asked_of_rollouts_only(tmp_path: Path) -> None:
    stages = {
        "rl": {
            "method": {"name": "remax", "kl": 0.0},
            "but": {"sampling.mix": [{"part": "sampling.WithTexts", "rows": 2}]},
            "steps": 2,
            "rows": 4,
        }
    }
    train(recipe(stages=stages), tmp_path / "run")
    assert all(m["rows"] == 6 for m in lines(tmp_path / "run", "metrics"))


def domain_of(method: Any, tasks: Any) -> LanguageDomain:
    stages = {"rl": {"method": method, "steps": 1, "rows": 8, "group": 4}}
    return LanguageDomain(recipe(stages=stages, tasks=tasks))


def test_what_the_tasks_lack_is_said_at_the_door(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"stages\.rl: sampling\.WithTexts reads raw texts, and the tasks come without"
    ):
        domain_of("typhoon-s-ink-grpo", GUESS)
    own = tmp_path / "silent.py"
    own.write_text(SILENT)
    for method, part in (("chord", "WithDemonstrations"), ("unified-hpt", "WithSolutions"), ("sft", "Demonstrations")):
        with pytest.raises(ConfigError, match=rf"stages\.rl: sampling\.{part} imitates solutions, and the tasks come"):
            domain_of(method, {"kind": f"{own}:split"})
    assert domain_of("grpo", {"kind": f"{own}:split"}).splits["rl"].texts == ()


SILENT = """
from polopt.worlds import Task, TaskList, TaskSplit

def split(*, seed):
    tasks = TaskList([Task(f"t/{i}", "t", f"q {i}", None, {}) for i in range(3)], lambda text, task: (0.0, {}))
    return TaskSplit(tasks, tasks)
"""


def test_a_new_tokenizer_knows_the_texts(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("東京\n\nМосква")
    made = domain_of("grpo", {**GUESS, "texts": str(tmp_path / "notes.txt")})
    tokenizer = made.policy.tokenizer
    for text in made.splits["rl"].texts:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids) == text
