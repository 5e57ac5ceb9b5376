"""Episodes recorded in others' formats, read as transitions, against the same episodes by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from polopt.config import ConfigError
from polopt.training.control.logged import load_transitions


def loaded(path: Path | str, observations: int = 2, action: tuple[int, ...] = (1,)) -> dict[str, np.ndarray]:
    found = load_transitions(path, "transitions", observations=observations, action=action)
    return {name: column.numpy() for name, column in found.items()}


def minari_set(folder: Path, episodes: list[dict[str, Any]], **about: Any) -> Path:
    h5py = pytest.importorskip("h5py")
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "metadata.json").write_text(json.dumps({"data_format": "hdf5"} | about))
    with h5py.File(folder / "data" / "main_data.hdf5", "w") as file:
        for number, episode in enumerate(episodes):
            group = file.create_group(f"episode_{number}")
            for name, values in episode.items():
                if isinstance(values, dict):
                    for key, part in values.items():
                        group.create_dataset(f"{name}/{key}", data=part)
                elif values is not None:
                    group.create_dataset(name, data=values)
    return folder


def episode(steps: int, first: float = 0.0, *, ends: str = "truncations", **changes: Any) -> dict[str, Any]:
    """Observations first, first + 1, ..., of width 2, and rewards that number the steps."""
    seen = first + np.arange(steps + 1, dtype=np.float64)
    last = np.arange(steps) == steps - 1
    plain: dict[str, Any] = {"observations": np.stack([seen, -seen], 1), "actions": seen[:-1, None] / 8}
    plain |= {"rewards": np.arange(steps) + first, "terminations": last & (ends == "terminations")}
    return plain | {"truncations": last & (ends == "truncations")} | changes


def test_episodes_of_minari_are_transitions(tmp_path: Path) -> None:
    found = loaded(minari_set(tmp_path, [episode(3), episode(2, 10.0, ends="terminations")]))
    assert found["observation"][:, 0].tolist() == [0, 1, 2, 10, 11]
    assert found["next_observation"].tolist() == [[1, -1], [2, -2], [3, -3], [11, -11], [12, -12]]
    assert found["terminated"].tolist() == [False, False, False, False, True]
    assert found["truncated"].tolist() == [False, False, True, False, False]
    assert found["reward"].tolist() == [0, 1, 2, 10, 11]


def test_more_than_ten_episodes_are_in_their_order(tmp_path: Path) -> None:
    found = loaded(minari_set(tmp_path, [episode(1, float(i)) for i in range(12)]))
    assert found["reward"].tolist() == [*range(12)]


def test_choices_are_counted_from_0_and_entries_of_a_dictionary_follow_each_other(tmp_path: Path) -> None:
    parts = {"desired_goal": [[5.0]] * 3, "observation": [[1.0, 2.0]] * 3, "achieved_goal": [[3.0], [4.0], [5.0]]}
    one = episode(2, observations={k: np.array(v) for k, v in parts.items()}, actions=np.array([3, 4]))
    found = loaded(minari_set(tmp_path, [one], action_space=json.dumps({"type": "Discrete", "start": 3})), 4, ())
    assert found["action"].tolist() == [0, 1]
    assert found["observation"].tolist() == [[1, 2, 3, 5], [1, 2, 4, 5]]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"truncations": None}, r"episode_1 of .*main_data.hdf5 has no truncations"),
        ({"observations": np.zeros((3, 2))}, r"observations of episode_1 of .* has 3 rows, and 3 rewards need 4"),
        (
            {"observations": np.zeros((4, 5))},
            r"observation of episode_1 of .* has rows of shape \[5\], and of episode_0",
        ),
        ({"rewards": np.array([0.0, np.inf, 0.0])}, r"reward of row 1 of episode_1 of .* is inf, which is no finite"),
        (
            {"actions": np.array([b"a", b"b", b"c"])},
            r"actions of episode_1 of .* must be arrays of numbers, found \|S1",
        ),
    ],
)
def test_a_bad_set_of_minari_is_refused_by_episode_column_and_row(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        loaded(minari_set(tmp_path, [episode(2), episode(3, **changes)]))


def test_what_minari_needs_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    about = tmp_path / "data" / "metadata.json"
    about.write_text('{"data_format": "arrow"}')
    with pytest.raises(ConfigError, match="is of Minari's format 'arrow', and the one that is read is 'hdf5'"):
        loaded(tmp_path)
    about.write_text('{"data_format": ')
    with pytest.raises(ConfigError, match=r"metadata.json cannot be read"):
        loaded(tmp_path)
    about.write_text("{}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"which h5py reads: pip install 'polopt\[minari\]'"):
        loaded(tmp_path)
    with pytest.raises(ConfigError, match=r"sets by name need Minari: pip install 'polopt\[minari\]'"):
        loaded("minari:pendulum/expert-v0")


def lerobot_set(folder: Path, files: dict[str, dict[str, Any]], version: str = "v2.1", episodes: int = 2) -> Path:
    (folder / "meta").mkdir(parents=True)
    about = {"codebase_version": version, "total_episodes": episodes}
    (folder / "meta" / "info.json").write_text(json.dumps(about))
    for name, columns in files.items():
        path = folder / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = pandas.DataFrame({k: list(v) for k, v in columns.items() if v is not None})
        frame.to_parquet(path)
    return folder


def frames(steps: int, number: int, first: float = 0.0, done: bool = True, **changes: Any) -> dict[str, Any]:
    seen = first + np.arange(steps, dtype=np.float32)
    plain: dict[str, Any] = {"observation.state": np.stack([seen, -seen], 1), "action": seen[:, None] / 8}
    plain |= {"episode_index": [number] * steps, "frame_index": range(steps), "next.reward": seen}
    return plain | {"next.done": [done and i == steps - 1 for i in range(steps)]} | changes


TWO = {
    "chunk-000/episode_000000.parquet": frames(3, 0),
    "chunk-001/episode_000001.parquet": frames(3, 1, 10.0, done=False),
}


def test_frames_of_lerobot_are_transitions(tmp_path: Path) -> None:
    """The first episode is done at its end; the second is cut, and what follows its last frame is not recorded."""
    found = loaded(lerobot_set(tmp_path, TWO))
    assert found["observation"][:, 0].tolist() == [0, 1, 2, 10, 11]
    assert found["next_observation"][:, 0].tolist() == [1, 2, 2, 11, 12]
    assert found["terminated"].tolist() == [False, False, True, False, False]
    assert found["truncated"].tolist() == [False, False, False, False, True]
    assert found["reward"].tolist() == [0, 1, 2, 10, 11]
    np.testing.assert_allclose(found["action"][:, 0], np.array([0, 1, 2, 10, 11]) / 8)


def test_files_of_several_episodes_are_the_same_transitions(tmp_path: Path) -> None:
    """As version 3 writes them."""
    parts = [*TWO.values()]
    both = {name: [*parts[0][name], *parts[1][name]] for name in parts[0]}
    one = loaded(lerobot_set(tmp_path / "one", {"chunk-000/file-000.parquet": both}, "v3.0"))
    other = loaded(lerobot_set(tmp_path / "other", TWO))
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_without_rewards_success_is_the_reward(tmp_path: Path) -> None:
    changed = {"next.reward": None, "next.success": [False, False, True]}
    one = {"chunk-000/episode_000000.parquet": frames(3, 0, **changed)}
    assert loaded(lerobot_set(tmp_path / "success", one, episodes=1))["reward"].tolist() == [0, 0, 1]
    none = {"chunk-000/episode_000000.parquet": frames(3, 0, **{"next.reward": None})}
    assert loaded(lerobot_set(tmp_path / "none", none, episodes=1))["reward"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"action": None}, r"episode_000001.parquet has no column action, and has episode_index"),
        ({"frame_index": [0, 2, 1]}, r"episode_000001.parquet are out of order: .* of row 1"),
        (
            {"action": [[0.0], [0.0, 1.0], [0.0]]},
            r"action of row 1 of .*01.parquet has shape \[2\], and row 0 has \[1\]",
        ),
        ({"next.reward": [0.0, 0.0, np.nan]}, r"reward of row 2 of .*episode_000001.parquet is nan"),
        ({"episode_index": [0, 0, 0]}, r"hold 1 episodes, meta/info.json says 2"),
    ],
)
def test_a_bad_set_of_lerobot_is_refused_by_file_column_and_row(
    changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    bad = {"chunk-000/episode_000001.parquet": frames(3, 1, **changes)}
    with pytest.raises(ConfigError, match=sentence):
        loaded(lerobot_set(tmp_path, {"chunk-000/episode_000000.parquet": frames(2, 0)} | bad))


def test_rows_after_a_cut_episode_of_the_same_file_keep_their_numbers(tmp_path: Path) -> None:
    first, second = frames(3, 0, done=False), frames(2, 1, **{"next.reward": [0.0, np.inf]})
    both = {name: [*first[name], *second[name]] for name in first}
    with pytest.raises(ConfigError, match=r"reward of row 4 of .*file-000.parquet is inf"):
        loaded(lerobot_set(tmp_path, {"chunk-000/file-000.parquet": both}, "v3.0"))


def test_other_versions_of_lerobot_and_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has codebase_version = 'v1.6', and versions v2 and v3 are read"):
        loaded(lerobot_set(tmp_path / "old", TWO, "v1.6"))
    empty = lerobot_set(tmp_path / "empty", {})
    with pytest.raises(ConfigError, match=r"has no data/chunk-\*/\*.parquet"):
        loaded(empty)
    (empty / "data" / "chunk-000").mkdir(parents=True)
    (empty / "data" / "chunk-000" / "episode_000000.parquet").write_text("no")
    with pytest.raises(ConfigError, match=r"episode_000000.parquet is no Parquet file"):
        loaded(empty)
