"""Runs claims and mutations, each in a process of its own and on the seeds that are asked for; keeps what is done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from polopt.catalogue import claims_of, mutations_of, slug_of
from polopt.claim import Claim, ClaimKind, Cost, Finding, replace_for_good

HERE = Path(__file__).parent

# Seconds after which a claim is stopped, by its cost: one that waits for what does not come must fail, not hang.
LIMITS: dict[Cost, float] = {"fast": 300.0, "slow": 3600.0}


@dataclasses.dataclass(frozen=True)
class ClaimResult:
    """The result of one claim. `dataclasses.asdict` of it is plain JSON data.

    seed: 0 for the seeds that the claim was made with, n > 0 for fresh ones, see `lab.fresh_seeds`.
    mutation: the bug that was planted before; empty for none.
    """

    slug: str
    name: str
    kind: ClaimKind
    statement: str
    baseline: str
    criterion: str
    measured: dict[str, float]
    holds: bool
    seconds: float
    cost: str
    note: str
    controls: tuple[str, ...] = ()
    intervals: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    won: tuple[int, int] | None = None
    step_sizes: dict[str, float] = dataclasses.field(default_factory=dict)
    seed: int = 0
    mutation: str = ""

    @property
    def ended(self) -> bool:
        """Returns whether the claim measured; False where it raised, did not end, or its process died."""
        return bool(self.criterion)

    @property
    def noticed(self) -> bool:
        """Returns whether the claim measured, and does not hold: what a planted bug must lead to."""
        return self.ended and not self.holds


@dataclasses.dataclass(frozen=True)
class ClaimRun:
    """A claim that is to be run: on a seed, and with a planted bug if `mutation` names one."""

    slug: str
    claim: str
    seed: int = 0
    mutation: str = ""

    def found(self) -> Claim:
        """Returns the claim."""
        return next(claim for claim in claims_of(self.slug) if claim.name == self.claim)


def planned_claims(names: Iterable[str], cost: Cost | None = None) -> list[tuple[str, str]]:
    """Lists (method, claim) of these methods; cost selects the fast or the slow ones, None all.

    Raises:
        ValueError: there is no such method; the nearest name is given.
    """
    return [(slug, c.name) for slug in map(slug_of, names) for c in claims_of(slug) if cost in (None, c.cost)]


def planned_mutations(names: Iterable[str], cost: Cost | None = None) -> list[ClaimRun]:
    """Lists the bugs of these methods, each with the claim that must notice it; cost as in `planned_claims`.

    Raises:
        ValueError: as `planned_claims`.
    """
    return [
        ClaimRun(slug, m.kills.name, mutation=m.name)
        for slug in map(slug_of, names)
        for m in mutations_of(slug)
        if cost in (None, m.kills.cost)
    ]


def planned_runs(planned: Iterable[tuple[str, str]], seeds: Sequence[int]) -> list[ClaimRun]:
    """Lists the runs of claims on seeds. A claim that makes its comparison over seeds by itself runs once, on the first
    of them."""
    runs = []
    for slug, name in planned:
        run = ClaimRun(slug, name)
        within = bool(run.found().controls)
        runs += [dataclasses.replace(run, seed=seed) for seed in (seeds[:1] if within else seeds)]
    return runs


def run_claim(which: tuple[str, str]) -> ClaimResult:
    """Runs one claim of one method in this process, on the seeds that it was made with."""
    run = ClaimRun(slug_of(which[0]), which[1])
    return _result(run, *run.found().check())


def _result(run: ClaimRun, finding: Finding, seconds: float) -> ClaimResult:
    claim = run.found()
    return ClaimResult(
        slug=run.slug,
        name=claim.name,
        kind=claim.kind,
        statement=claim.statement,
        baseline=claim.baseline,
        criterion=finding.criterion,
        measured={k: float(v) for k, v in finding.measured.items()},
        holds=bool(finding.holds),
        seconds=seconds,
        cost=claim.cost,
        note=finding.note,
        controls=claim.controls,
        intervals={k: (float(low), float(high)) for k, (low, high) in finding.intervals.items()},
        won=finding.won,
        step_sizes=dict(finding.step_sizes),
        seed=run.seed,
        mutation=run.mutation,
    )


def run_alone(run: ClaimRun) -> ClaimResult:
    """Runs a claim in a process that ends with it. A claim that raises, does not end within `LIMITS` or whose process
    dies does not hold, and the note of its result has the reason."""
    from multiprocessing import get_context

    context = get_context("forkserver")
    context.set_forkserver_preload(["polopt.lab.effects", "polopt.lab.claims", "polopt.evidence"])
    limit = LIMITS[run.found().cost]
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(run, send), daemon=True)
    process.start()
    send.close()
    try:
        if not receive.poll(limit):
            return _failed(run, f"did not end within {limit:g} s", limit)
        return receive.recv()
    except EOFError:
        process.join()
        return _failed(run, f"its process ended with code {process.exitcode}", 0.0)
    finally:
        process.kill()
        process.join()
        receive.close()


def _failed(run: ClaimRun, note: str, seconds: float) -> ClaimResult:
    return _result(run, Finding(measured={}, criterion="", holds=False, note=note), seconds)


def _serve(run: ClaimRun, send: Any) -> None:
    import torch

    from polopt.lab.fresh_seeds import shift_seeds

    torch.set_num_threads(1)
    # Without a word: the process that was interrupted, too, says so itself.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    shift_seeds(run.seed)
    try:
        if run.mutation:
            planted = next(m for m in mutations_of(run.slug) if m.name == run.mutation)
            planted.plant(replace_for_good)
        found = _result(run, *run.found().check())
    except Exception as error:
        found = _failed(run, f"raised {type(error).__name__}: {error}", 0.0)
    send.send(found)


def run_spread(
    runs: Sequence[ClaimRun], cluster: str | None = None, kept: Path | None = None, processes: int | None = None
) -> Iterator[ClaimResult]:
    """Runs claims on the cores of this machine, or on those of a Ray cluster, and yields each result when it is there,
    those of an earlier run first.

    kept: a file of results, one a line, which a run that was stopped continues; only those of the same source files of
    polopt count. None keeps nothing.
    processes: at once; None takes one for each core.

    Raises:
        ConfigError: there is no cluster.
    """
    version = digest_of_sources()
    done = _stored(kept, version)
    yield from (done[run] for run in runs if run in done)
    # Long ones first: one that begins last would run alone.
    left = sorted((run for run in runs if run not in done), key=lambda run: run.found().cost != "slow")
    for result in _spread(left, cluster, processes or os.cpu_count() or 1):
        if kept is not None:
            _keep(kept, result, version)
        yield result


def _spread(runs: Sequence[ClaimRun], cluster: str | None, processes: int) -> Iterator[ClaimResult]:
    if cluster is not None:
        from polopt.training.spread import spread_over

        with spread_over(cluster) as spread:
            yield from spread(run_alone, runs)
        return
    with ThreadPoolExecutor(processes) as pool:
        pending = [pool.submit(run_alone, run) for run in runs]
        try:
            for future in as_completed(pending):
                yield future.result()
        finally:
            for future in pending:
                future.cancel()


def digest_of_sources() -> str:
    """Hashes polopt's source files: results of other sources are not continued."""
    found = hashlib.sha256()
    for file in sorted(HERE.rglob("*.py")):
        found.update(file.relative_to(HERE).as_posix().encode())
        found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _keep(kept: Path, result: ClaimResult, version: str) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("ab+") as file:
        if file.tell() and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":  # cut off in the middle of a line
            file.write(b"\n")
        line = json.dumps({"version": version, **dataclasses.asdict(result)}, ensure_ascii=False)
        file.write(f"{line}\n".encode())


def _stored(kept: Path | None, version: str) -> dict[ClaimRun, ClaimResult]:
    """Returns the results of a file by their runs. A last line that was cut off is no result."""
    if kept is None or not kept.is_file():
        return {}
    found = {}
    for line in kept.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row.pop("version", None) == version:
            result = restored(row)
            found[ClaimRun(result.slug, result.name, result.seed, result.mutation)] = result
    return found


def restored(row: dict[str, Any]) -> ClaimResult:
    """Returns the result from its JSON data."""
    intervals = {name: tuple(ends) for name, ends in row.get("intervals", {}).items()}
    won = row.get("won")
    return ClaimResult(
        **{
            **row,
            "intervals": intervals,
            "won": None if won is None else tuple(won),
            "controls": tuple(row.get("controls", ())),
        }
    )


@dataclasses.dataclass(frozen=True)
class SeededClaim:
    """A claim on several seeds. rows: the result of each.

    Raises:
        ValueError: no results.
    """

    rows: tuple[ClaimResult, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("SeededClaim: needs a result or more, found none")

    @property
    def held(self) -> int:
        """Returns the number of seeds on which the claim holds."""
        return sum(row.holds for row in self.rows)

    @property
    def measured(self) -> dict[str, float]:
        """Returns what was measured, as means over the seeds that did not fail before they measured it."""
        return {name: sum(values) / len(values) for name, values in self._values().items()}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Returns 95 % intervals of what was measured: those of the result or, of several, Student's over its seeds."""
        if len(self.rows) == 1:
            return self.rows[0].intervals
        from polopt.metrics.intervals import t_interval

        found = {name: t_interval(values) for name, values in self._values().items() if len(values) > 1}
        return {name: (interval.low, interval.high) for name, interval in found.items()}

    def summary(self) -> dict[str, Any]:
        """Returns plain JSON data: the fields of a result, with the numbers over the seeds, and on how many it
        holds."""
        first = {field.name: getattr(self.rows[0], field.name) for field in dataclasses.fields(ClaimResult)}
        del first["seed"], first["mutation"]
        return {
            **first,
            "measured": self.measured,
            "intervals": self.intervals,
            "seconds": sum(row.seconds for row in self.rows) / len(self.rows),
            "holds": self.held == len(self.rows),
            "held": self.held,
            "runs": len(self.rows),
            "seeds": [row.seed for row in self.rows],
            "note": " ".join(dict.fromkeys(row.note for row in self.rows if row.note)),
        }

    def _values(self) -> dict[str, list[float]]:
        names = dict.fromkeys(name for row in self.rows for name in row.measured)
        found = {name: [row.measured[name] for row in self.rows if name in row.measured] for name in names}
        return {name: values for name, values in found.items() if all(map(math.isfinite, values))}


def by_claim(results: Iterable[ClaimResult], planned: Sequence[tuple[str, str]]) -> list[SeededClaim]:
    """Groups results by claim, in the order of `planned`; claims without a result are left out."""
    found: dict[tuple[str, str], list[ClaimResult]] = {}
    for result in results:
        found.setdefault((result.slug, result.name), []).append(result)
    return [SeededClaim(tuple(sorted(found[which], key=lambda row: row.seed))) for which in planned if which in found]
