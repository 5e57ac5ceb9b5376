"""Two processes, each of which learns from one generation and writes the rows that it saw and the gradients that it
took.

    trl_two.py FOLDER BASE METHOD:STEPS...
"""

from __future__ import annotations

import functools
import os
import pickle
import sys
from pathlib import Path

import forked
import torch
import trl_world
from trl_world import Gradients, Seen, trainer

from polopt.bridges.trl import PoloptTrainer  # noqa: F401  # imports TRL, once for both processes


def work(path: Path, base: Path, methods: list[str]) -> None:
    trl_world.folder = lambda: base
    for asked in methods:
        method, _, steps = asked.partition(":")
        seen, gradients = Seen(), Gradients()
        made = trainer(
            path,
            method,
            reward_funcs=seen,
            callbacks=[gradients.callback],
            max_grad_norm=0.0,
            per_device_train_batch_size=2,
            steps_per_generation=4,
            gradient_accumulation_steps=4 // int(steps),
            max_steps=int(steps),
            learning_rate=0.0,
        )
        made.train()
        found = {"rows": seen.rows, "gradients": gradients.found, "log": made.state.log_history[0]}
        (path / f"{asked}-{os.environ['RANK']}.pickle").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder, saved, *every = sys.argv[1:]
    sys.exit(any(forked.run(2, functools.partial(work, Path(folder), Path(saved), every))))
