"""Text adventures: demonstrations finish them, other texts never reach the interpreter, games are kept and the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import textworld

from polopt.config import ConfigError
from polopt.worlds import EpisodeError, TextWorldGames, build_tasks, signals_of
from polopt.worlds.textworld_games import REFUSED, default_folder, made, told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("games"))


@pytest.fixture(scope="module")
def games(folder: str) -> TextWorldGames:
    return TextWorldGames(size=3, quest=(1, 3), seed=2, folder=folder)


def test_the_shortest_way_finishes_every_quest(games: TextWorldGames) -> None:
    assert (len(games), games.kinds, signals_of(games)) == (
        3,
        ["1 command", "2 commands", "3 commands"],
        ("malformed", "score"),
    )
    for i in range(3):
        task = games[i]
        episode = games.episode(task)
        with pytest.raises(EpisodeError, match="call reset"):
            episode.step("look")
        assert episode.reset() == task.prompt
        commands = []
        while True:
            command = episode.demonstrate()
            assert command is not None
            # What is demonstrated is possible, and told to be.
            assert command in (task.prompt if not commands else step.observation)
            step = episode.step(command)
            commands.append(command)
            if step.over:
                break
        assert commands == task.row["walkthrough"]
        assert task.kind == f"{len(commands)} command{'s' * (len(commands) > 1)}"
        assert (step.reward, step.terminated, step.truncated, step.observation) == (1.0, True, False, "")
        assert step.info == {"solved": True, "signals": {"malformed": 0.0, "score": 1.0}}
        assert episode.demonstrate() is None
        with pytest.raises(EpisodeError, match="is over"):
            episode.step("look")


@pytest.mark.parametrize("text", ["", "quit", "SAVE", "restart", "dance\nlook", "undo", "script", "look " * 500])
def test_what_is_not_possible_never_reaches_the_interpreter(games: TextWorldGames, text: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    episode = games.episode(games[2])
    episode.reset()
    state = episode.state
    step = episode.step(text)
    assert episode.state is state
    assert step.observation.startswith(REFUSED)
    assert (step.reward, step.over, step.info["signals"]) == (0.0, False, {"malformed": 1.0, "score": 0.0})
    assert list(tmp_path.iterdir()) == []
    # It goes on as if nothing had happened, and spelling does not matter.
    step = episode.step(f"  {games[2].row['walkthrough'][0].upper()} ")
    assert step.info["signals"] == {"malformed": 1.0, "score": 0.0}
    assert not step.observation.startswith(REFUSED)


def test_turns_run_out_and_episodes_of_one_game_do_not_touch(games: TextWorldGames, folder: str) -> None:
    short = TextWorldGames(size=3, quest=(1, 3), seed=2, folder=folder, turns=3, commands=False)
    assert "You can" not in short[2].prompt
    assert short[2].row == games[2].row
    one, other = short.episode(short[2]), short.episode(short[2])
    one.reset()
    other.reset()
    for _ in range(2):
        assert not one.step("look").over
    for command in short[2].row["walkthrough"]:
        last = other.step(command)
    assert last.reward == 1.0
    end = one.step("look")
    assert (end.truncated, end.terminated, end.reward, end.info["solved"]) == (True, False, 0.0, False)
    # The interpreter of a finished episode is used again, from the beginning.
    again = short.episode(short[2])
    assert again.reset() == short[2].prompt
    assert again.demonstrate() == short[2].row["walkthrough"][0]


def test_games_are_kept_and_the_same_for_a_seed(games: TextWorldGames, folder: str, tmp_path: Path) -> None:
    before = games[0]
    files = {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()}
    made.cache_clear()
    same = TextWorldGames(size=1, quest=(1, 3), seed=2, folder=folder)
    assert same[0] == before
    assert {path.name: path.stat().st_mtime_ns for path in Path(folder).iterdir()} == files
    elsewhere = TextWorldGames(size=1, quest=(1, 3), seed=2, folder=str(tmp_path))
    assert (elsewhere[0].prompt, elsewhere[0].row["walkthrough"]) == (before.prompt, before.row["walkthrough"])
    # A game whose making was killed is made again.
    (card,) = tmp_path.glob("*.about.json")
    card.unlink()
    made.cache_clear()
    assert elsewhere[0].prompt == before.prompt
    split = TextWorldGames.split(train=2, heldout=2, seed=2, folder=folder, quest=(1, 2))
    specs = {json.dumps(part._spec(i, 1)) for part in (split.train, split.heldout) for i in range(2)}  # type: ignore[attr-defined]
    assert len(specs) == 4


def test_bad_settings_are_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(options: object) -> None:
        raise ValueError("no room left")

    with pytest.raises(ConfigError, match="as many turns as the longest quest"):
        build_tasks({"kind": "textworld", "quest": [1, 4], "turns": 3}, seed=0)
    with pytest.raises(ConfigError, match="least <= most"):
        build_tasks({"kind": "textworld", "rooms": [3, 2]}, seed=0)
    with pytest.raises(IndexError):
        TextWorldGames(size=1, folder=folder)[1]
    crowded = TextWorldGames(size=1, quest=(9, 9), rooms=(1, 1), objects=(1, 1), folder=folder)
    monkeypatch.setattr(textworld.generator, "make_game", fails)
    with pytest.raises(ConfigError, match=r"no quest of 9 commands .* in 20 tries \(no room left\)"):
        crowded[0]
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(ConfigError, match=r"pip install 'polopt\[textworld\]'"):
        TextWorldGames(size=1)


def test_texts_lose_their_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "\n\nYou  eat.\n\n   *** The End ***\nmore\n>          -= Room =-0/1"
    assert told(said) == "You eat."
    monkeypatch.setenv("XDG_CACHE_HOME", "there")
    assert default_folder() == Path("there/polopt/textworld")
