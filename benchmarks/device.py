"""What the device reaches: run as a program, with its order in a file."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import torch

from benchmarks.floors import measure_device

if __name__ == "__main__":
    order = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(order["threads"])
    found = measure_device(order["device"], order["dtype"], order["products"], order["copied"])
    on_gpu = order["device"] != "cpu"
    about = {"name": torch.cuda.get_device_name() if on_gpu else "cpu", "cuda": torch.version.cuda if on_gpu else None}
    Path(sys.argv[2]).write_text(json.dumps({**dataclasses.asdict(found), **about}))
