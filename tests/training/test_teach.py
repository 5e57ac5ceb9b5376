"""The language loop's teacher, row by row through transformers; across interruptions; and who pays for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from learners import batch_of, learner_of, stopping
from safetensors.torch import load_file
from test_runs import Stop, StopAt
from tiny_runs import GUESS, MODEL, Digits, outcome, policy, recipe, training_of
from torch import Tensor

import polopt as po
from polopt.config import ConfigError
from polopt.experience import Experience
from polopt.features import IsCorrect
from polopt.layers import Layer
from polopt.policies.average import Average
from polopt.policies.chat_format import Dialogue
from polopt.policies.language import LanguagePolicy
from polopt.sampling.parts import RolloutRequest
from polopt.support import Support
from polopt.teachers import TEACHER_FIELDS, Feedback, First, SelfTeacher, Sibling
from polopt.training.episode_player import EpisodePlayer
from polopt.training.launch import resume, train
from polopt.training.run import Run
from polopt.training.source import LanguageSource
from polopt.training.teacher_model import Teacher
from polopt.worlds import build_tasks

SHORT = Sibling(right=IsCorrect(threshold=0.5), wording=" as {answer}")


def moved(made: LanguagePolicy) -> LanguagePolicy:
    with torch.no_grad():
        for i, parameter in enumerate(made.parameters()):
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    return made


def by_hand(
    made: LanguagePolicy, batch: Experience, row: int, prompt: str, history: Sequence[dict[str, str]] = ()
) -> tuple[list[int], Tensor]:
    """The row's decisions, and all log-probabilities [decisions, V] of each behind another prompt."""
    tokens = [t for t in batch.extras["tokens"][row].tolist() if t >= 0]
    decided = batch.mask[row].tolist()
    first = decided.index(True)
    opening = Dialogue(made.tokenizer).opening(prompt, history)
    ids = opening + tokens[first:]
    logits = made.model(torch.tensor([ids]), use_cache=False).logits[0] / batch.support.temperature
    at = [t for t in range(first, len(tokens)) if decided[t]]
    places = [len(opening) + t - first - 1 for t in at]
    if batch.support.truncated:
        keep = torch.zeros(len(at), logits.shape[1], dtype=torch.bool)
        for i, t in enumerate(at):
            keep[i, [int(k) for k in batch.extras["kept"][row, t] if k >= 0]] = True
        return at, logits[places].masked_fill(~keep, -torch.inf).log_softmax(-1)
    return at, logits[places].log_softmax(-1)


def guesses(made: LanguagePolicy) -> Experience:
    """Episodes of several turns, the policy's own."""
    player = EpisodePlayer(made, build_tasks(GUESS, seed=0).train, 4)
    source = LanguageSource(player, rows=12, seed=0, generator=torch.Generator().manual_seed(0))
    return source.rollout(RolloutRequest(source.take(3), 4, Support()))


SUPPORTS = [Support(), Support(temperature=0.7, top_k=4)]


def test_the_teacher_reads_the_messages_before_a_prompt() -> None:
    made = stopping()
    batch = batch_of(made).replace(outcome=torch.tensor([1.0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 1, 0]))
    history = ({"role": "system", "content": "even 4"},)
    chats = [dataclasses.replace(task, history=history) for task in batch.extras["task"]]
    spec = SelfTeacher(hint=SHORT)
    found = Teacher(made, spec, rows=5).teach(batch.replace(extras={"task": chats}), TEACHER_FIELDS)
    rows = [(row, hint) for row, hint in enumerate(spec(batch)) if hint is not None]
    assert rows
    for row, hint in rows:
        at, law = by_hand(made, batch, row, chats[row].prompt + hint, history)
        expected = [q[int(batch.extras["tokens"][row, t])].item() for t, q in zip(at, law, strict=True)]
        assert found.extras["teacher_logp"][row, at].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("chosen_by", ["teacher", "policy"])
@pytest.mark.parametrize("world", ["digits", "digits, truncated", "guess"])
def test_what_the_teacher_says(world: str, chosen_by: Any) -> None:
    """Of every decision, its log-probability, entropy and candidates; nothing of rows that are told nothing."""
    if world == "guess":
        config = MODEL | {"n_positions": 256, "n_layer": 2}
        made = policy(world=build_tasks(GUESS, seed=0).train, config=config)
        batch = guesses(made)
        batch = batch.replace(outcome=torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0]))
    else:
        made = stopping()
        batch = batch_of(made, support=SUPPORTS["truncated" in world])
        batch = batch.replace(outcome=torch.tensor([1.0, 0, 0, 0.5, 0, 0, 0, 0, 0, 0, 1, 0]))
    spec = SelfTeacher(hint=SHORT, top=5, rate=0.25, chosen_by=chosen_by)
    teacher = Teacher(made, spec, rows=5)
    before = [p.detach().clone() for p in made.parameters()]
    moved(made)
    teacher.follow()
    old = stopping() if world != "guess" else policy(world=build_tasks(GUESS, seed=0).train, config=config)
    with torch.no_grad():
        for p, start, now in zip(old.parameters(), before, made.parameters(), strict=True):
            p.copy_(0.75 * start + 0.25 * now)
    found = teacher.teach(batch, TEACHER_FIELDS)
    hints = spec(batch)
    assert 0 < sum(h is not None for h in hints) < len(batch)
    assert found.extras["has_teacher_signal"].tolist() == [h is not None for h in hints]
    for row, hint in enumerate(hints):
        said = {n: found.extras[n][row] for n in ("teacher_logp", "teacher_entropy", "candidates")}
        scores = found.extras["teacher_candidate_logp"][row]
        if hint is None:
            assert not said["teacher_logp"].any()
            assert (said["candidates"] == -1).all()
            continue
        at, law = by_hand(old, batch, row, batch.extras["task"][row].prompt + hint)
        _, own = by_hand(made, batch, row, batch.extras["task"][row].prompt)
        for t, q, p in zip(at, law, own, strict=True):
            token = int(batch.extras["tokens"][row, t])
            assert said["teacher_logp"][t].item() == pytest.approx(q[token].item(), abs=1e-9)
            real = q[q > -torch.inf]
            assert said["teacher_entropy"][t].item() == pytest.approx(-(real.exp() * real).sum().item(), abs=1e-9)
            best = (q if chosen_by == "teacher" else p).argsort(descending=True)[:5].tolist()
            expected = [i if q[i] > -torch.inf else -1 for i in best]
            assert said["candidates"][t].tolist() == expected
            logp = [q[i].item() if q[i] > -torch.inf else -1e4 for i in best]
            assert scores[t].tolist() == pytest.approx(logp, abs=1e-9)
        off = [t for t in range(batch.mask.shape[1]) if t not in at]
        assert (said["candidates"][off] == -1).all()
        assert not said["teacher_logp"][off].any()


def test_rows_that_would_not_fit_are_not_taught() -> None:
    """The tiny GPT-2 has 64 positions."""
    made = stopping()
    batch = batch_of(made)
    assert made.context_length == 64
    batch = batch.replace(outcome=torch.arange(12) % 3 / 2.0)
    fits = []
    for row, hint in enumerate(SHORT(batch)):
        opening = Dialogue(made.tokenizer).opening(batch.extras["task"][row].prompt + str(hint))
        fits += [64 - len(opening) - int(batch.mask[row].sum())] if hint is not None else []
    long = SHORT.but(wording=" as {answer}" + "-" * (min(fits) + 1))
    teacher = Teacher(made, SelfTeacher(hint=long), rows=None)
    found = teacher.teach(batch, TEACHER_FIELDS)
    told = [h is not None for h in SHORT(batch)]
    left = found.extras["has_teacher_signal"].tolist()
    assert 0 < sum(left) < sum(told)
    shares = {"teacher/taught": sum(left) / len(batch), "teacher/too_long": (sum(told) - sum(left)) / len(batch)}
    assert teacher.record == pytest.approx(shares)
    for row in range(len(batch)):
        if told[row]:
            hint = long(batch)[row]
            opening = Dialogue(made.tokenizer).opening(batch.extras["task"][row].prompt + str(hint))
            assert left[row] == (len(opening) + int(batch.mask[row].sum()) <= 64)
    nobody = Teacher(made, SelfTeacher(hint=SHORT.but(right=IsCorrect(threshold=9.0))), rows=None)
    blank = nobody.teach(batch, TEACHER_FIELDS)
    assert not blank.extras["has_teacher_signal"].any()
    assert blank.extras["teacher_logp"].dtype == torch.float64
    assert nobody.record == {"teacher/taught": 0, "teacher/too_long": 0}


def test_the_world_may_give_feedback() -> None:
    """What `Step.info` says stands in the batch, and the teacher reads it where no sibling is right."""

    class Stern(Digits):
        def score(self, text: str, task: Any) -> tuple[float, dict[str, Any]]:
            reward, info = super().score(text, task)
            return reward, info | ({} if reward == 1 else {"feedback": f"not {text[:2]}"})

    made = stopping()
    player = EpisodePlayer(made, Stern(50), 5)
    source = LanguageSource(player, rows=12, seed=0, generator=torch.Generator().manual_seed(0))
    batch = source.rollout(RolloutRequest(source.take(3), 4, Support()))
    said = batch.extras["feedback"]
    assert said == [
        f"not {a[:2]}" if stopped and r < 1 else None
        for a, r, stopped in zip(batch.extras["answer"], batch.outcome.tolist(), batch.terminated.tolist(), strict=True)
    ]
    hint = First(hints=[SHORT, Feedback(wording=" {feedback}")])
    found = Teacher(made, SelfTeacher(hint=hint), rows=None).teach(batch, TEACHER_FIELDS)
    row = next(i for i, (h, s) in enumerate(zip(hint(batch), SHORT(batch), strict=True)) if h is not None and s is None)
    at, law = by_hand(made, batch, row, batch.extras["task"][row].prompt + f" {said[row]}")
    logp = [law[i, batch.extras["tokens"][row, t]].item() for i, t in enumerate(at)]
    assert found.extras["teacher_logp"][row, at].tolist() == pytest.approx(logp, abs=1e-9)


@pytest.mark.parametrize("rows", [None, 5])
def test_what_the_policy_said_before_its_update(rows: int | None) -> None:
    made = stopping()
    batch = batch_of(made)
    layer = Layer(1, normed=True)
    names = {"extras.old_mean_logp", f"extras.old_{layer.name('logp')}"}
    filled = learner_of(made, po.method("grpo", kl=0), micro_rows=rows).assess(batch, frozenset(names), {})
    everything = made.evaluate(batch, {"logits"}).logits.log_softmax(-1)
    expected = torch.where(batch.mask, everything.mean(-1), 0).detach()
    torch.testing.assert_close(filled.extras["old_mean_logp"], expected, atol=1e-12, rtol=0)
    # The model has one layer: normed, it is the policy itself.
    old = filled.extras["old_" + layer.name("logp")]
    torch.testing.assert_close(old, made.evaluate(batch).logp.detach(), atol=1e-12, rtol=0)
    assert not any(v.requires_grad for v in filled.extras.values() if isinstance(v, Tensor))


def self_taught(slug: str, **settings: Any) -> dict[str, Any]:
    """Two stages of it, so that a teacher begins anew; hints that fit into 64 positions."""
    stage = {"rows": 8, "group": 4, "minibatches": 2, "micro_rows": 3, "optimiser": {"lr": 0.01}}
    short = {"teacher.hint.wording": " as {answer}", "teacher.hint.right.threshold": 0.5, "teacher.rate": 0.3}
    method = {"name": slug, **settings}
    warmup = {"method": "sft", "steps": 5, "rows": 8, "optimiser": {"lr": 0.03}}
    both = {name: stage | {"method": method, "but": short, "steps": 5} for name in ("first", "second")}
    return {"stages": {"warmup": warmup, **both}, "checkpoint": 2, "evaluation": {"problems": 4}}


BUPO = {
    "stages": {
        "warmup": {"method": "sft", "steps": 5, "rows": 8, "optimiser": {"lr": 0.03}},
        "rl": {"method": {"name": "bupo", "layer": 1, "among": None, "batches": 4}, "steps": 7, "rows": 8, "group": 4},
    },
    "checkpoint": 2,
    "evaluation": {"problems": 4},
}


@pytest.mark.parametrize(
    ("settings", "at"),
    [(self_taught("sdpo"), (6, 8, 12)), (self_taught("srpo-routing", top=3), (7, 11)), (BUPO, (7, 8, 9, 10))],
    ids=["sdpo", "srpo-routing", "bupo"],
)
def test_resuming_is_an_equality(settings: dict[str, Any], at: tuple[int, ...], tmp_path: Path) -> None:
    """Between checkpoints, at a stage's end, on either side of a change of phase."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train(recipe(**settings), tmp_path / "whole")
    whole = outcome(tmp_path / "whole")
    later = [m for m in whole["metrics"] if m["stage"] != "warmup"]
    assert sum(m.get("grad_norm", 0) > 0 for m in later) > 3
    assert sum(m.get("teacher/taught", 0) > 0 for m in later) > 3 or settings is BUPO
    for step in at:
        with pytest.raises(Stop):
            train(recipe(**settings), tmp_path / f"run-{step}", watchers=(StopAt(step),))
        resume(tmp_path / f"run-{step}")
        assert outcome(tmp_path / f"run-{step}") == whole
    torch.set_num_threads(threads)


def test_a_teacher_costs_those_who_have_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GRPO asks its policy for nothing more, copies nothing, and its checkpoints hold no teacher."""
    asked: list[tuple[frozenset[str], int]] = []
    plain = LanguagePolicy.evaluate

    def heard(self: LanguagePolicy, experience: Experience, needs: Any = (), *, top: int = 0) -> Any:
        asked.append((frozenset(needs), top))
        return plain(self, experience, needs, top=top)

    monkeypatch.setattr(LanguagePolicy, "evaluate", heard)
    copies: list[int] = []
    monkeypatch.setattr(LanguagePolicy, "frozen", lambda self: copies.append(1))
    monkeypatch.setattr(Average, "__init__", lambda *_: copies.append(1))
    stage = {"method": {"name": "grpo", "kl": 0.0}, "steps": 3, "rows": 8, "group": 4}
    train(recipe(stages={"rl": stage}), tmp_path)
    assert set(asked) <= {(frozenset(), 0)}
    assert len(asked) <= 3
    assert not copies
    last = max(p for p in (tmp_path / "checkpoints").iterdir())
    assert not [name for name in load_file(last / "state.safetensors") if name.startswith("teacher")]


def test_phases_ask_for_what_is_theirs_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[frozenset[str]] = []
    plain = LanguagePolicy.evaluate

    def heard(self: LanguagePolicy, experience: Experience, needs: Any = (), *, top: int = 0) -> Any:
        asked.append(frozenset(needs))
        return plain(self, experience, needs, top=top)

    settings = recipe(**BUPO)
    training = training_of(settings, Run.create(tmp_path, settings.to_yaml(), {}))
    training.domain.policy.evaluate = heard.__get__(training.domain.policy)  # type: ignore[method-assign]
    training.run()
    inner = {"extras.logp_of_layer_1", "extras.entropy_of_layer_1"}
    seen = [bool(names & inner) for names in asked]
    assert True in seen
    last = len(seen) - seen[::-1].index(True)
    assert all(not names for names in asked[last:])
    assert len(asked) > last
    metrics = outcome(tmp_path)["metrics"]
    assert ["LayerEntropy" in m for m in metrics if m["stage"] == "rl" and "loss" in m][-1] is False
    assert any("LayerEntropy" in m for m in metrics)


def stage_of(method: Any, but: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"stages": {"rl": {"method": method, "but": but or {}, "steps": 1, "rows": 8, "group": 4}}}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            stage_of("sdpo", {"teacher": None}),
            r"stages\.rl: objectives\.Distillation needs extras\.candidates, .*; give the algorithm a teacher",
        ),
        (
            stage_of({"name": "bupo", "among": None}),
            r"stages\.rl: methods\.bupo\.LayerRatio: layer 6 was asked for, and the policy has layers 1 to 1$",
        ),
        (
            stage_of("rover", {"objective.ratio": {"part": f"{__file__}:Odd"}}),
            r"Odd needs extras\.nothing, extras\.old_nothing, which language training cannot provide; take",
        ),
    ],
)
def test_what_cannot_be_provided_is_refused_before_anything_runs(
    settings: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        train(recipe(**settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Odd(po.objectives.Ratio):
    reads = frozenset({"extras.old_nothing"})
    policy_outputs = frozenset({"extras.nothing"})
