"""A clip of one episode: small frames of an environment that renders, as one animated picture."""

from __future__ import annotations

import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv

from polopt.errors import PoloptWarning
from polopt.policies.network import NetworkPolicy
from polopt.sampling import PolicyInput
from polopt.step_source import observed, within

# Bounds of a clip: its longer side in pixels, its pictures, and the steps of the episode.
SIDE, PICTURES, STEPS = 160, 100, 1000
Frame = np.ndarray


def rendered_episode(
    make: Callable[..., gymnasium.Env[Any, Any]],
    policy: NetworkPolicy,
    *,
    seed: int,
    greedy: bool,
    policy_input: PolicyInput | None = None,
) -> tuple[list[Frame], float] | None:
    """Plays one episode of an environment that `make` makes.

    Returns its frames, [H, W, 3] uint8, at most `PICTURES` of them, and the seconds of each; None if the environment
    does not render to arrays, or fails to, as where a library or a display is missing, of which it warns.
    """
    try:
        plain = make()
    except gymnasium.error.Error:  # there are copies that are stepped together alone
        return None
    plain.close()
    if "rgb_array" not in plain.metadata.get("render_modes", ()):
        return None
    try:
        environments = SyncVectorEnv([lambda: make(render_mode="rgb_array")])
        frames = _played(environments, policy, seed, greedy, policy_input)
    except Exception as error:  # of any kind: renderers have errors of their own, and the policy is trained
        reason = " ".join(str(error).split())[:200]
        warnings.warn(f"the report has no clip of an episode, which could not be rendered: {reason}", PoloptWarning, 2)
        return None
    if not frames:
        return None
    stride = -(-len(frames) // PICTURES)
    fps = float(environments.metadata.get("render_fps") or 30)
    return frames[::stride], stride / fps


def _played(
    environments: SyncVectorEnv, policy: NetworkPolicy, seed: int, greedy: bool, policy_input: PolicyInput | None
) -> list[Frame]:
    generator, frames = torch.Generator().manual_seed(seed), list[Frame]()
    try:
        found, _ = environments.reset(seed=seed % 2**31)
        given: torch.Tensor | None = None
        if policy_input is not None:
            given = policy_input.draw(1, policy_input.width(policy.space), generator).to(policy.device)
        for _ in range(STEPS):
            frames.append(_small(environments.render()))
            shown = observed(found)
            legal = None if shown.legal is None else shown.legal.to(policy.device)
            seen = read = shown.state.to(policy.device)
            if policy_input is not None and given is not None:
                given = policy_input.most_likely(given) if greedy else given
                read = policy.state_of(seen, {policy_input.name: given})
            action = policy.act(read, generator, greedy=greedy, legal=legal).action
            if policy_input is not None and given is not None:
                given = policy_input.after(given, seen, action, generator, policy)
            found, _, terminated, truncated, _ = environments.step(within(environments, action, native=False))
            if terminated[0] or truncated[0]:
                break
    finally:
        environments.close()
    return frames


def _small(rendered: Any) -> Frame:
    frame = np.asarray(rendered[0])
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"a frame of shape {frame.shape} is no picture")
    stride = -(-max(frame.shape[:2]) // SIDE)
    return np.ascontiguousarray(frame[::stride, ::stride], np.uint8)


def animated_png(frames: Sequence[Frame], seconds: float) -> bytes:
    """Returns frames of one shape, [H, W, 3] uint8, each shown for some seconds, as an animated PNG that repeats.

    Source: the specification of PNG, third edition, chunks acTL, fcTL and fdAT.
    """
    height, width = frames[0].shape[:2]
    parts = [
        b"\x89PNG\r\n\x1a\n",
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        _chunk(b"acTL", struct.pack(">II", len(frames), 0)),
    ]
    number = 0
    for i, frame in enumerate(frames):
        delay = struct.pack(">HH", max(1, round(1000 * seconds)), 1000)
        parts.append(_chunk(b"fcTL", struct.pack(">IIIII", number, width, height, 0, 0) + delay + b"\0\0"))
        lines = np.concatenate([np.zeros((height, 1), np.uint8), frame.reshape(height, -1)], 1)  # filter 0
        data = zlib.compress(lines.tobytes(), 9)
        parts.append(_chunk(b"fdAT", struct.pack(">I", number + 1) + data) if i else _chunk(b"IDAT", data))
        number += 2 if i else 1
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
