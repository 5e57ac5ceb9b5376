"""The movement of agents in `polopt.worlds.control.Pathfinding` beside pogema's, cell by cell.

python -m benchmarks.pathfinding_pogema [FOLDER]

pogema pins versions of gymnasium and pydantic that polopt cannot share, so that it runs in an environment of its own,
which is made in FOLDER, a temporary one by default. Grids, starts and random actions are the same on both sides, goals
are out of reach, and the places of all agents must be equal after every step.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import torch

from polopt.worlds.control import Pathfinding

PACKAGES = ("pogema==1.3.1", "gymnasium==0.28.1", "pydantic==1.9.1", "numpy==1.23.5")
STEPS, SEEDS = 64, 8
# Reads a case from standard input, and prints the places of all agents after each step.
PROGRAM = """
import json, sys
from pogema import GridConfig, pogema_v0
case = json.load(sys.stdin)
config = GridConfig(map=case["map"], agents_xy=case["starts"], targets_xy=case["goals"], obs_radius=5,
    num_agents=len(case["starts"]), size=len(case["map"]), on_target="nothing", max_episode_steps=1000,
    collision_system=case["collisions"])
env = pogema_v0(config)
env.reset()
places = []
for actions in case["actions"]:
    env.step(actions)
    places.append([list(map(int, xy)) for xy in env.grid.get_agents_xy(ignore_borders=True)])
print(json.dumps(places))
"""


def pogema_python(folder: Path) -> Path:
    """Returns the interpreter of an environment with pogema, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.is_file():
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def differences(python: Path, collisions: str, seed: int) -> int:
    """Returns the number of places that differ, of STEPS x 16 agents."""
    world = Pathfinding(16, agents=16, size=12, density=0.25, collisions=collisions, horizon=1000)  # type: ignore[arg-type]
    world.reset(seed=seed)
    wall, starts = world.blocked[0].long().tolist(), world.place.tolist()
    actions = torch.randint(5, (STEPS, 16), generator=torch.Generator().manual_seed(seed)).tolist()
    own = []
    for action in actions:
        world.goal.fill_(-1)  # nobody is ever there
        world.step(torch.tensor(action))
        own.append(world.place.tolist())
    free = [[r, c] for r in range(12) for c in range(12) if not wall[r][c] and world.open[0, r, c]]
    goals = [cell for cell in free if cell not in starts][:16]
    goals += [cell for cell in free if cell not in goals][: 16 - len(goals)]
    case = {"map": wall, "starts": starts, "goals": goals, "actions": actions}
    name = {"block": "block_both", "priority": "priority"}[collisions]
    text = json.dumps(case | {"collisions": name})
    found = subprocess.run([python, "-c", PROGRAM], input=text, capture_output=True, text=True, check=True).stdout
    theirs = json.loads(found.splitlines()[-1])
    return sum(a != b for mine, other in zip(own, theirs, strict=True) for a, b in zip(mine, other, strict=True))


def main(folder: Path) -> None:
    """Prints how many places differ."""
    python = pogema_python(folder)
    for collisions in ("block", "priority"):
        found = [differences(python, collisions, seed) for seed in range(SEEDS)]
        print(f"{collisions}: {sum(found)} of {SEEDS * STEPS * 16} places differ from {PACKAGES[0]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
