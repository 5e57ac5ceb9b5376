"""The clip of one episode: its pictures, decoded by Pillow, and where it is shown."""

from __future__ import annotations

import base64
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from test_control_runs import recipe

from polopt.errors import PoloptWarning
from polopt.policies.network import NetworkPolicy
from polopt.report.write import write_report
from polopt.training.control.clip import PICTURES, SIDE, animated_png, rendered_episode
from polopt.training.launch import train

HEIGHT, WIDTH = 40, 400


class Drawn(CartPoleEnv):
    """CartPole, drawn without pygame: a line as high as the episode is long; or not drawn at all."""

    metadata: ClassVar[Any] = {"render_modes": ["rgb_array"], "render_fps": 50}
    fails = False

    def reset(self, **settings: Any) -> Any:
        self.count = 0
        return super().reset(**settings)

    def step(self, action: Any) -> Any:
        self.count += 1
        return super().step(action)

    def render(self) -> Any:
        if self.fails:
            raise gymnasium.error.DependencyNotInstalled("pygame is not installed")
        frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        frame[:, : self.count, 1] = 200
        return frame


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Drawn, "fails", False)
    gymnasium.register("Drawn-v0", entry_point=Drawn, max_episode_steps=230)
    yield
    del gymnasium.registry["Drawn-v0"]


def steady() -> NetworkPolicy:
    """Pushes towards the side that the pole falls to, which keeps it up for long."""
    import torch

    policy = NetworkPolicy(observations=4, actions=2, hidden=(), seed=0)
    with torch.no_grad():
        policy.actor[0].weight.copy_(torch.tensor([[0.0, 0.0, -1.0, -1.0], [0.0, 0.0, 1.0, 1.0]]))
        policy.actor[0].bias.zero_()
    return policy


@pytest.mark.usefixtures("drawn")
def test_pictures_of_an_episode() -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    found = rendered_episode(functools.partial(gymnasium.make, "Drawn-v0"), steady(), seed=1, greedy=True)
    assert found is not None
    frames, seconds = found
    stride = 3  # 230 pictures, of which at most 100 are kept
    assert len(frames) == 77 <= PICTURES
    assert seconds == pytest.approx(stride / 50)
    assert frames[0].shape == (14, 134, 3)
    assert max(frames[0].shape) <= SIDE
    for i, frame in enumerate(frames):
        assert (frame[0, :, 1] > 0).sum() == -(-(i * stride) // 3)  # the line, at every third pixel
    picture: Any = Image.open(io.BytesIO(animated_png(frames, seconds)))
    assert picture.n_frames == len(frames)
    assert picture.info["loop"] == 0
    for i, frame in enumerate(frames):
        picture.seek(i)
        assert picture.info["duration"] == 60
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), frame)


@pytest.mark.usefixtures("drawn")
def test_the_report_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"environment": {"id": "Drawn-v0"}, "stages.rl.steps": 2, "evaluation.every": 0}
    run = train(recipe(**settings), tmp_path / "run").folder
    page = write_report(run).read_text()
    (shown,) = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    assert base64.b64decode(shown) == (run / "clip.png").read_bytes()
    assert "One episode" in page
    monkeypatch.setattr(Drawn, "fails", True)  # what it draws with is missing
    with pytest.warns(
        PoloptWarning, match="no clip of an episode, which could not be rendered: pygame is not installed"
    ):
        other = train(recipe(**settings), tmp_path / "other").folder
    assert not (other / "clip.png").exists()
    assert "One episode" not in write_report(other).read_text()
    assert (other / "policy" / "model.safetensors").read_bytes() == (run / "policy" / "model.safetensors").read_bytes()
