"""A paper is a leaf: its sentence and its claims are two files that nothing else knows."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import polopt
from polopt.catalogue import slugs

ROOT = Path(polopt.__file__).parent
# The papers on whose sentences other papers build, or against which they measure their claims. All others are leaves.
ANCESTORS = {
    *(
        "cfr",
        "cfr_plus",
        "dapo",
        "dcfr",
        "doubly_robust",
        "mis",
        "wis",
        "sac",
        "simpo",
        "rlpd",
        "bc",
        "diffusion_dpo",
        "diffusion_nft",
        "dpo",
        "dr_grpo",
        "gigpo",
        "grpo",
        "gspo",
        "ipo",
    ),
    *("pdcfr_plus", "pdis", "ppo", "psro"),
    *("online_dpo", "raft", "rebel", "reinforce", "rloo", "sdpo", "sft", "spo", "sppo", "td3", "trpo"),
    *("cql", "dqn", "iql", "sac", "td3_bc"),
}


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Full names of what a file imports, inside functions too: of `from a import b` both a and a.b."""
    text = path.read_text()
    if "methods" not in text and "claims" not in text:  # no need to parse it
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update([str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)])
    return frozenset(found)


def owners(path: Path, root: Path) -> set[str]:
    """The paper that a file belongs to; for a problem beside the claims, those whose claims read it."""
    if path.parent == root / "claims" / "problems":
        name = f"polopt.claims.problems.{path.stem}"
        readers = [p for folder in ("claims", "claims/problems") for p in (root / folder).glob("*.py")]
        found = [owners(p, root) for p in readers if p != path and name in imported(p)]
        return set().union(*found)
    return {path.stem} if path.parent in (root / "methods", root / "claims") else set()


def papers_of(path: Path, root: Path) -> set[tuple[str, str]]:
    """(folder, paper) of the papers' files that a file imports, its own left out."""
    own = owners(path, root)
    found = {
        tuple(name.split(".")[1:]) for name in imported(path) if name.startswith(("polopt.methods.", "polopt.claims."))
    }
    return {
        (f[0], f[1]) for f in found if len(f) == 2 and f[1] not in own and (root / "methods" / f"{f[1]}.py").is_file()
    }


def violations(root: Path = ROOT) -> list[str]:
    found = []
    for path in sorted(root.rglob("*.py")):
        of_a_paper = path.parent in (root / "methods", root / "claims")
        for folder, paper in sorted(papers_of(path, root)):
            if not (of_a_paper and folder == "methods" and paper in ANCESTORS):
                found.append(f"{path.relative_to(root)} imports {folder}/{paper}")
    return found


def test_a_paper_is_imported_by_its_descendants_alone() -> None:
    assert violations() == []


def test_every_ancestor_has_descendants() -> None:
    papers = [path for folder in ("methods", "claims") for path in (ROOT / folder).glob("*.py")]
    assert {paper for path in papers for _, paper in papers_of(path, ROOT)} == ANCESTORS


def test_an_import_of_a_leaf_is_seen(tmp_path: Path) -> None:
    """The test can fail: a loop that knows a method, a paper that builds on a leaf, claims that use another's."""
    for file, text in {
        "methods/grpo.py": "",
        "methods/bnpo.py": "def f():\n    from polopt.methods import grpo\n",
        "methods/canon.py": "from polopt.methods.bnpo import bnpo\n",
        "claims/bnpo.py": "from polopt.methods.bnpo import bnpo\n",
        "claims/canon.py": "from polopt.claims.bnpo import course\n",
        "claims/problems/shop.py": "from polopt.methods import bnpo, canon\n",
        "claims/rloo.py": "import polopt.claims.problems.shop\n",
        "methods/rloo.py": "",
        "training/language.py": "import polopt.methods.grpo\n",
    }.items():
        (tmp_path / file).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / file).write_text(text)
    assert violations(tmp_path) == [
        "claims/canon.py imports claims/bnpo",
        "claims/problems/shop.py imports methods/bnpo",
        "claims/problems/shop.py imports methods/canon",
        "methods/canon.py imports methods/bnpo",
        "training/language.py imports methods/grpo",
    ]


def test_every_paper_has_its_two_files() -> None:
    for folder in ("methods", "claims"):
        stems = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
        assert sorted(stem.replace("_", "-") for stem in stems) == slugs()


def test_a_problem_beside_the_claims_is_of_one_paper() -> None:
    """What two papers are measured on belongs to the lab."""
    problems = {path.stem: path for path in (ROOT / "claims" / "problems").glob("*.py") if path.stem != "__init__"}
    assert len(problems) > 10

    def reached(path: Path) -> set[str]:
        names = {name.rpartition(".")[2] for name in imported(path) if name.startswith("polopt.claims.problems.")}
        direct = names & set(problems)
        return direct.union(*(reached(problems[name]) for name in direct))

    users = {name: [p.stem for p in (ROOT / "claims").glob("*.py") if name in reached(p)] for name in problems}
    assert {name: found for name, found in users.items() if len(found) != 1} == {}
    for path in ROOT.rglob("*.py"):
        if path.parent not in (ROOT / "claims", ROOT / "claims" / "problems"):
            assert reached(path) == set(), path


def test_building_every_method_brings_neither_policies_nor_the_lab() -> None:
    code = (
        "import sys, polopt as po\n"
        "from polopt.catalogue import part\nfor slug in po.slugs(): part(slug)\n"
        "rooms = {'lab', 'policies', 'worlds', 'claims', 'checks', 'training'}\n"
        "print(sorted(name for name in sys.modules if name.startswith('polopt.') and name.split('.')[1] in rooms))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"
