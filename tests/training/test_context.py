"""Prompts, answers and episodes against the model's context: refused before a run, truncated within one."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import MODEL, lines, policy, recipe

from polopt.config import ConfigError
from polopt.errors import PoloptWarning, UserError
from polopt.policies.language import LanguagePolicy
from polopt.policies.rollout_record import Sampled
from polopt.sampling import Start
from polopt.support import Support
from polopt.training.episode_player import EpisodePlayer
from polopt.training.episode_record import to_experience
from polopt.training.estimate import estimate
from polopt.training.evaluate import evaluate
from polopt.training.language import LanguageDomain
from polopt.training.launch import train
from polopt.training.preflight_models import MEASURED, ContextError, fitted
from polopt.worlds import Step, Task, TaskList, WorldError, build_tasks, environment

CONTEXT = 64
# What the chat template puts around a prompt; the letters "x" are one token each.
AROUND = 2


@pytest.fixture(scope="module")
def tiny() -> LanguagePolicy:
    made = policy("float32")
    assert (
        made.tokenizer("xxx", add_special_tokens=False)["input_ids"] == [made.tokenizer.convert_tokens_to_ids("x")] * 3
    )
    return made


def listed(*lengths: int, solution: str | None = None) -> TaskList:
    """Tasks whose prompts are so many letters."""
    return TaskList([Task(f"t{i}", "x", "x" * n, solution, {}) for i, n in enumerate(lengths)], lambda *_: (0.0, {}))


LONGEST = CONTEXT - AROUND - 4  # letters, where answers have up to 4 tokens


def test_the_longest_prompt_that_fits_and_the_shortest_that_does_not(tiny: LanguagePolicy) -> None:
    tasks = listed(3, LONGEST, 5)
    assert fitted(tasks, tiny, 4, None, "tasks") is tasks
    sentence = r"of task t1, has 61 tokens and an answer up to limit = 4, .* context of 64; .*set max_prompt_length: 60"
    with pytest.raises(ConfigError, match=sentence):
        fitted(listed(3, LONGEST + 1, 5), tiny, 4, None, "tasks")
    with pytest.raises(ConfigError, match=r"up to limit = 200, .*; lower limit, or take a model"):
        fitted(tasks, tiny, 200, None, "tasks")


def test_messages_before_a_prompt_count(tiny: LanguagePolicy) -> None:
    """A system message is 4 letters behind the one token that the template puts in front."""
    before = ({"role": "system", "content": "xxxx"},)
    tasks = [dataclasses.replace(listed(n)[0], id=f"t{n}", history=before) for n in (LONGEST - 5, LONGEST - 4)]
    made = [TaskList([task], lambda *_: (0.0, {})) for task in tasks]
    assert fitted(made[0], tiny, 4, None, "tasks") is made[0]
    with pytest.raises(ConfigError, match="has 61 tokens and an answer up to limit = 4"):
        fitted(made[1], tiny, 4, None, "tasks")


def test_longer_prompts_are_left_out_and_counted(tiny: LanguagePolicy) -> None:
    tasks = listed(*range(1, 27), 200)
    sentence = "a: 19 of 27 prompts are longer than max_prompt_length = 10 tokens and are left out; the longest has 202"
    with pytest.warns(PoloptWarning, match=sentence):
        kept = fitted(tasks, tiny, 4, 10, "a")
    assert [kept[i].prompt for i in range(len(kept))] == ["x" * n for n in range(1, 9)]
    assert (kept.turns, kept.kinds) == (1, ["x"])
    assert fitted(listed(1, 8), tiny, 4, 10, "tasks").kinds == ["x"]


@pytest.mark.parametrize(
    ("lengths", "limit", "most", "sentence"),
    [
        ((20, 30), 4, 10, "all 2 prompts are longer than max_prompt_length = 10 tokens, the shortest has 22"),
        ((3,), 4, 61, "max_prompt_length = 61 and limit = 4 are more than the model's context of 64 tokens"),
    ],
)
def test_filters_that_cannot_be(
    tiny: LanguagePolicy, lengths: Sequence[int], limit: int, most: int, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        fitted(listed(*lengths), tiny, limit, most, "tasks")


class Generated:
    """Tasks made when they are asked for; the one at `long` has a prompt that does not fit."""

    kinds, turns = ("x",), 1

    def __init__(self, size: int, long: int) -> None:
        self.size, self.long, self.seen = size, long, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        self.seen = max(self.seen, index + 1)
        return Task(f"g{index}", "x", "x" * (100 if index == self.long else 3), None, {})

    def episode(self, task: Task) -> Any:
        return listed(1).episode(task)


def test_of_generated_tasks_the_first_are_measured_and_the_others_as_they_come(tiny: LanguagePolicy) -> None:
    with pytest.raises(ConfigError, match="of task g7"):
        fitted(Generated(10 * MEASURED, 7), tiny, 4, None, "tasks")
    tasks = Generated(10 * MEASURED, MEASURED + 1)
    assert fitted(tasks, tiny, 4, None, "tasks") is tasks
    assert tasks.seen == MEASURED
    player = EpisodePlayer(tiny, tasks, 4)
    for play in (
        lambda task: player.play([task], 1, Support(), torch.Generator()),
        lambda task: player.receive([task], [[["x"]]]),
    ):
        play(tasks[0])
        with pytest.raises(ContextError, match="the prompt of task g2001 has 102 tokens and an answer up to limit = 4"):
            play(tasks[MEASURED + 1])
    with pytest.warns(PoloptWarning, match="1 of 2100 prompts"):
        assert len(fitted(Generated(2100, 2050), tiny, 4, 10, "tasks")) == 2099  # a filter looks at all of them


BEGIN: dict[str, Any] = {"train": train, "dry run": lambda settings, folder: estimate(settings, seconds=0.1)}
ROTARY = {"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
ROTARY |= {"num_key_value_heads": 1, "intermediate_size": 16, "max_position_embeddings": 8}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"limit": 200}, "answer up to limit = 200, together more than the model's context of 64"),
        ({"policy": {"config": ROTARY}, "limit": 7}, "up to limit = 7, together more than the model's context of 8"),
        ({"max_prompt_length": 1}, "are longer than max_prompt_length = 1"),
    ],
    ids=["learned", "rotary", "filter"],
)  # fmt: skip
@pytest.mark.parametrize("begin", ["train", "dry run"])
def test_a_run_is_refused_before_its_folder_is_made(
    tmp_path: Path, changes: dict[str, Any], sentence: str, begin: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        BEGIN[begin](recipe(**changes), tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_run_without_its_long_prompts(tmp_path: Path) -> None:
    """Training and evaluation leave the same tasks out, and what is left is trained on."""
    (tmp_path / "own.py").write_text(LONG_AND_SHORT)
    tasks = {"kind": f"{tmp_path / 'own.py'}:made"}
    one = {"rl": {"method": "grpo", "steps": 1, "rows": 8, "group": 4}}
    settings = recipe(tasks=tasks, max_prompt_length=10, stages=one)
    with pytest.warns(PoloptWarning) as found:
        domain = LanguageDomain(settings)
    said = [str(w.message) for w in found if "max_prompt_length" in str(w.message)]
    assert [s.partition(":")[2].partition(" prompts")[0] for s in said] == [
        " training tasks: 4 of 12",
        " held-out tasks: 1 of 4",
    ]
    assert [len(part) for part in (domain.splits["rl"].train, domain.splits["rl"].heldout)] == [8, 3]
    with pytest.warns(PoloptWarning):
        train(settings, tmp_path / "run")
    assert [e["problems"] for e in lines(tmp_path / "run", "evaluations")] == [3, 3]
    with pytest.raises(ConfigError, match=r"stages.rl: training tasks: the longest prompt, of task train/0"):
        train(recipe(tasks=tasks, stages=one), tmp_path / "other")


LONG_AND_SHORT = """
from polopt.worlds import Step, environment

class Any:
    def __init__(self, task):
        self.task = task

    def reset(self):
        return self.task.prompt

    def step(self, action):
        return Step("", float(len(action) % 2), True, False, {})

def made(seed):
    long = {"prompt": "?" * 100}
    short = [{"prompt": f"say {i}"} for i in range(11)]
    return environment(Any, train=[long] * 4 + short[:8], heldout=[*short[8:], long])
"""


def test_a_demonstration_that_does_not_fit(tiny: LanguagePolicy, tmp_path: Path) -> None:
    player = EpisodePlayer(tiny, listed(3, solution="y" * 59), 4)
    with pytest.raises(ContextError, match=r"task t0: behind 5 tokens its demonstration of 60 does not fit"):
        player.demonstrate([player.tasks[0]])
    (row,) = EpisodePlayer(tiny, listed(3, solution="y" * 58), 4).demonstrate([Task("t0", "x", "xxx", "y" * 58, {})])
    assert len(row.ids) == CONTEXT
    (tmp_path / "own.py").write_text(
        "from polopt.worlds import Task, TaskList, TaskSplit\n"
        "def made(seed):\n"
        "    tasks = TaskList([Task('t', 'x', 'xxx', '?' * 90, {})], lambda *_: (0.0, {}))\n"
        "    return TaskSplit(tasks, tasks)\n"
    )
    world = {"kind": f"{tmp_path / 'own.py'}:made"}
    with pytest.raises(ConfigError, match=r"stages.s: task t has a prompt of \d+ tokens and an answer of \d+"):
        train(recipe(tasks=world, stages={"s": {"method": "sft", "steps": 1, "rows": 2}}), tmp_path / "run")


class Endless:
    """Never over; every observation is "yy"."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def reset(self) -> str:
        return self.task.prompt

    def step(self, action: str) -> Step:
        return Step("yy", 0.25, False, False, {})


class Fixed:
    """An engine whose answers all are "7" and the stop token."""

    version = 0

    def __init__(self, policy: LanguagePolicy) -> None:
        self.ids = [policy.tokenizer.convert_tokens_to_ids("7"), policy.tokenizer.eos_token_id]

    def sample(self, contexts: Sequence[Sequence[int]], *, group: Any, **_: Any) -> list[Sampled]:
        return [Sampled(list(self.ids), [0.0, 0.0], [0.0, 0.0], True, None) for _ in range(sum(group))]

    def sync_weights(self, version: int) -> None: ...


def test_an_episode_is_cut_after_the_turns_that_its_world_declares(tiny: LanguagePolicy) -> None:
    tasks = environment(Endless, train=["x", "xx"], heldout=["z"], turns=3).train
    player = EpisodePlayer(tiny, tasks, 4, Fixed(tiny))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        rows = player.play([tasks[0], tasks[1]], 2, Support(), torch.Generator())
        player.play([tasks[0]], 1, Support(), torch.Generator())
    assert [(r.turns, r.terminated, r.truncated, r.reward) for r in rows] == [(3, False, True, 0.75)] * 4
    assert {name: count for name, count in player.executor.counts.items() if count} == {"cut": 5}
    (said,) = [str(w.message) for w in found if w.category is PoloptWarning]
    assert said.startswith("task train/0: its episode was not over after the 3 turns that the world declares")
    assert all(row.decided[-1] for row in rows)  # nothing is read that nobody answers
    assert evaluate(player, [tasks[0]], samples=2).record()["episodes/cut"] == 2


def test_an_episode_that_fills_the_context_is_truncated_there(tiny: LanguagePolicy) -> None:
    """Turn k ends at 3 + 2 k + 4 (k - 1) tokens, and another one needs 4 of the world and one of the policy."""
    tasks = environment(Endless, train=["x"], heldout=["z"], turns=1000).train
    player = EpisodePlayer(tiny, tasks, 4, Fixed(tiny))
    with pytest.warns(PoloptWarning, match="task train/0: its episode filled the model's context of 64 tokens"):
        (row,) = player.play([tasks[0]], 1, Support(), torch.Generator())
    ends = [3 + 2 * k + 4 * (k - 1) for k in range(1, 30)]
    turns = next(k for k, end in enumerate(ends, start=1) if end + 4 + 1 > CONTEXT)
    assert (row.turns, len(row.ids), row.truncated, row.terminated) == (turns, ends[turns - 1], True, False)
    assert player.executor.counts["full"] == 1


def test_answers_of_others_end_with_the_context_too(tiny: LanguagePolicy) -> None:
    """3 tokens of the prompt, 2 of the first answer, 4 of the world, and of the second answer what is left."""
    tasks = environment(Endless, train=["x"], heldout=["z"], turns=9).train
    player = EpisodePlayer(tiny, tasks, 58)
    with pytest.warns(PoloptWarning, match="filled the model's context"):
        (row,) = player.receive([tasks[0]], [[["7", "y" * 60]]])
    assert (len(row.ids), row.turns, row.truncated) == (CONTEXT, 2, True)
    assert (row.ids[9:] == [tiny.tokenizer.convert_tokens_to_ids("y")] * 55, player.executor.counts["full"]) == (
        True,
        1,
    )


def never_stopping() -> LanguagePolicy:
    made = policy("float32")
    head = made.model.lm_head
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]))
    head.bias.data[made.tokenizer.eos_token_id] = -1e9
    return made


def test_answers_end_with_the_context_and_others_go_on() -> None:
    """The model has positions for 64 tokens alone; behind a long hint answers are shorter than beside it."""
    made = never_stopping()
    player = EpisodePlayer(made, listed(5, 6, 7), 30)
    tasks = [player.tasks[i] for i in range(3)]
    starts = [Start(), Start(hint="x" * 40), Start(hint="x" * 35, hidden=True)]
    with pytest.warns(PoloptWarning, match="filled the model's context"):
        rows = player.play(tasks, 2, Support(), torch.Generator().manual_seed(0), starts=starts)
    room = [30, CONTEXT - AROUND - 46, CONTEXT - AROUND - 42]
    assert [sum(row.decided) for row in rows] == [n for n in room for _ in range(2)]
    assert all(row.truncated and not row.terminated for row in rows)
    assert player.executor.counts["full"] == 4
    experience = to_experience(rows, Support(), horizon=None, policy=made)
    said = made.evaluate(experience[~experience.extras["hinted"]]).logp
    assert torch.allclose(said, experience.rollout_logp[~experience.extras["hinted"]][:, : said.shape[1]], atol=1e-4)
    with pytest.raises(ContextError, match="task t0 has 67 tokens"):
        player.play(tasks[:1], 1, Support(), torch.Generator(), starts=[Start(hint="x" * 60)])


def test_windows_end_with_the_context() -> None:
    made = never_stopping()
    player = EpisodePlayer(made, listed(5), 57)
    (row,) = player.play([player.tasks[0]], 1, Support(), torch.Generator().manual_seed(0), window=20)
    assert (sum(row.decided), row.over) == (20, False)
    player.go_on([row], [1], Support(), torch.Generator().manual_seed(0))
    assert (len(row.ids), row.truncated) == (CONTEXT, True)


NAN = """
from polopt.worlds import Step, environment

class Maze:
    def __init__(self, task):
        self.task = task

    def reset(self):
        return self.task.prompt

    def step(self, action):
        return Step("", {pays}, True, False, {{}})

def made(seed):
    return environment(Maze, train=["a", "b"], heldout=["c"])
"""


@pytest.mark.parametrize("begin", ["train", "dry run"])
@pytest.mark.parametrize("pays", ["float('nan')", "1e308"])
def test_a_broken_world_is_refused_before_its_run(tmp_path: Path, begin: str, pays: str) -> None:
    (tmp_path / "own.py").write_text(NAN.format(pays=pays))
    settings = recipe(tasks={"kind": f"{tmp_path / 'own.py'}:made"})
    with pytest.raises(WorldError, match=r"task train/0, step 1: Maze.step returned the reward"):
        BEGIN[begin](settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_world_that_breaks_later_names_its_task(tmp_path: Path, tiny: LanguagePolicy) -> None:
    (tmp_path / "own.py").write_text(NAN.format(pays="0.0 if self.task.prompt == 'a' else float('nan')"))
    tasks = build_tasks({"kind": f"{tmp_path / 'own.py'}:made"}, seed=0).train
    player = EpisodePlayer(tiny, tasks, 4, Fixed(tiny))
    player.play([tasks[0]], 1, Support(), torch.Generator())
    with pytest.raises(UserError, match=r"task train/1, step 1: Maze.step returned the reward nan"):
        player.play([tasks[1]], 1, Support(), torch.Generator())


def test_the_model_is_judged_from_its_config_too(tmp_path: Path) -> None:
    bert = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    mamba = {"model_type": "mamba", "hidden_size": 16, "num_hidden_layers": 1, "state_size": 4}
    for config, sentence in ((bert, "BertLMHeadModel is no causal"), (mamba, "MambaForCausalLM has recurrent layers")):
        with pytest.raises(ConfigError, match=sentence):
            train(recipe(policy={"config": config}), tmp_path / "run")
    assert MODEL["n_positions"] == CONTEXT
    assert not (tmp_path / "run").exists()
