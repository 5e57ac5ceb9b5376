"""One of two processes: learns from one generation, and writes the rows that it saw and the gradients that it took."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import torch
import trl_world
from trl_world import Gradients, Seen, trainer

torch.set_num_threads(1)
path, base = Path(sys.argv[1]), Path(sys.argv[2])
trl_world.folder = lambda: base
for asked in sys.argv[3:]:
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
