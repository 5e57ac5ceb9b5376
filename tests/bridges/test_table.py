"""Which methods run where, on the page and in the command."""

from pathlib import Path

from typer.testing import CliRunner

import polopt as po
from polopt import catalogue
from polopt.bridges import table
from polopt.bridges.trl import trl_capabilities
from polopt.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "bridges.md"


def test_the_page_is_current() -> None:
    assert table.markdown() in PAGE.read_text(encoding="utf-8"), "put what `polopt bridges --markdown` prints there"


def test_the_command_says_why_not() -> None:
    found = CliRunner().invoke(app, ["bridges", "gspo", "hapo"])
    assert found.exit_code == 0
    lines = found.output.splitlines()
    assert lines[0].split() == ["method", "TRL", "verl", "SkyRL", "prime-rl", "slime"]
    assert lines[1].split() == ["gspo", "yes", "yes", "yes", "with", "typical", "yes"]
    assert lines[2].split() == ["hapo", *"–––––"]
    assert all(any(line.startswith(f"hapo, {host.name}: ") for line in lines) for host in table.HOSTS)
    assert "compares the rows of a group" not in str(table.reasons(po.method("grpo")))


def test_pairs_run_where_nobody_else_cuts_micro_batches() -> None:
    """The one reason in TRL, which has all that the loss reads; among others in each of the other trainers."""
    algorithm = po.Algorithm(objective=po.objectives.PairedObjective())
    why = "objectives.PairedObjective compares the rows of a group, which {}'s micro-batches may part"
    assert trl_capabilities.HOST.refusals(algorithm) == [why.format("TRL")]
    assert all(why.format(name) in found for name, found in table.reasons(algorithm).items())
    assert not any(
        "compares the rows of a group" in why for found in table.reasons(po.method("grpo")).values() for why in found
    )


def test_what_runs_is_what_is_not_refused() -> None:
    """A cell is empty exactly where the trainer's own door is closed."""
    for slug, row in table.cells(["grpo", "rloo", "chord"]).items():
        assert [cell == "" for cell in row] == [bool(why) for why in table.reasons(catalogue.method(slug)).values()]
