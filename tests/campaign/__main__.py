"""`python -m tests.campaign [--runs N] [--seed S]`: the campaign; `--only S:NUMBER` does one run again."""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.campaign import classes, sabotage, table
from tests.campaign.classes import Fault
from tests.campaign.group import Run, Stage, disturbed, staged

KEPT = Path("build/faults")
SPECS = ("small", "upgrade")
RUNS = "runs.jsonl"
"""The runs that have ended, a line each."""
MOST = 7
"""Hosts of one apply."""
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
TAKEN = 8
"""inotify instances that a host takes: its systemd's, udev's, and what the systemd of a login takes."""


Group = tuple[list[Run], str]
"""The runs of one apply, each a host with its fault; or one run, and what is done to the apply itself."""


def planned(runs: int, seed: str, seconds: dict[str, float], just: str = "") -> Iterator[Group]:
    """Groups of so many runs altogether: two of hosts, then one of the apply itself. A run is drawn by its number."""
    number, made, ways = 0, itertools.cycle(classes.HOSTS), itertools.cycle((*classes.CONTROLLERS, classes.OPERATORS))
    for turn in itertools.count():
        if number >= runs:
            return
        # Two groups of hosts have each class once: of those with the first seven, and of those with the others, some
        # are upgrades.
        spec = just or ("upgrade" if turn % 24 in (1, 5, 12) else "small")
        if turn % 3 < 2:
            group = []
            for place in range(min(MOST, runs - number)):
                fault = classes.drawn(next(made), f"{seed}:{number + place}", seconds[spec])
                group.append(Run(number + place, spec, fault))
            number += len(group)
            yield group, ""
        else:
            way = next(ways)
            kind = way if way == classes.OPERATORS else f"apply {way}"
            yield [Run(number, spec, Fault(kind, way, lambda target: None))], way
            number += 1


def left(groups: Iterable[Group], seed: str, rows: Iterable[dict[str, Any]], only: int | None = None) -> list[Group]:
    """Groups without the runs that have ended; with the one alone, if it is asked for."""
    ended = {(row["number"], row["kind"], row["spec"]) for row in rows if row["seed"] == seed}
    found = []
    for group, way in groups:
        runs = [
            run
            for run in group
            if only in (None, run.number) and (only is not None or (run.number, run.fault.kind, run.spec) not in ended)
        ]
        found += [(runs, way)] if runs else []
    return found


def kept(run: Run, seed: str, place: Path, product: str) -> None:
    """One line for each run; of a failure also what was said."""
    row = {"seed": seed, "number": run.number, "spec": run.spec, "kind": run.fault.kind, "what": run.fault.what,
           "broken": run.broken, "notes": run.notes, "seconds": round(run.seconds), "named": run.named,
           "steps": run.steps, "product": product}  # fmt: skip
    with (place / RUNS).open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")
    if run.broken or run.named is False:
        (place / f"{seed}-{run.number}.log").write_text(
            "\n".join([run.fault.what, *run.broken, *run.notes, run.told]), encoding="utf-8"
        )
    print(
        f"{seed}:{run.number} {run.spec}: {run.fault.kind}: {run.fault.what}: {'; '.join(run.broken) or 'holds'}"
        f"{'' if run.named is not False else ' (cause not named)'}",
        flush=True,
    )


def campaign(
    runs: int,
    seed: str,
    workers: int,
    until: float,
    only: int | None,
    place: Path,
    *,
    just: str = "",
    on_kept: Callable[[Path], None] = lambda rows: None,
) -> int:
    """How many runs broke an invariant. What is in the place's file has ended, and is not done again; on_kept: told of
    it after each group. SIGTERM: the groups that have begun come to their end, and no other begins."""
    place.mkdir(parents=True, exist_ok=True)
    alone = threading.Lock()
    broken: list[Run] = []
    unjudged: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="fc", ignore_cleanup_errors=True) as folder,
        staged(Path(folder), (just,) if just else SPECS) as stage,
    ):
        seconds = {name: known.seconds for name, known in stage.references.items()}
        told = ", ".join(
            f"{spec} {known.seconds:.0f} s (exit code {known.code})" for spec, known in stage.references.items()
        )
        print(f"seed {seed}; an undisturbed apply takes: {told}", flush=True)

        asked: list[int] = []
        signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))

        def do(group: list[Run], way: str, stage: Stage = stage) -> None:
            if asked or time.time() > until:
                return
            done = disturbed(stage, group, seed, way=way)
            with alone:
                for run in done:
                    kept(run, seed, place, stage.tag.rpartition(":")[2])
                    broken.extend([run] if run.broken else [])
                on_kept(place / RUNS)
                print(f"  {done[0].steps}", flush=True)

        groups = left(planned(runs, seed, seconds, just), seed, table.read(place / RUNS), only)
        with ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(do, group, way) for group, way in groups]:
                try:
                    future.result()
                # A fault of the campaign's own, not of what it tries: said, and the rest goes on.
                except Exception as error:
                    print(f"a group was not judged: {type(error).__name__}: {error}", flush=True)
                    unjudged.append(str(error))
    return len(broken) + len(unjudged)


def caught() -> bool:
    """Whether the judge finds each thing that a broken copy of the product does."""
    well = True
    with (
        tempfile.TemporaryDirectory(prefix="fc", ignore_cleanup_errors=True) as folder,
        staged(Path(folder), ()) as stage,
    ):
        for what, found in sabotage.sabotage(stage):
            broken = {one.partition(":")[0] for one in found}
            well = well and set(sabotage.BREAKS[what][1]) <= broken
            print(f"an apply that {what}: {'; '.join(found) or 'NOT CAUGHT'}", flush=True)
    return well


def crowded(workers: int, instances: int) -> str:
    """Why so many groups do not fit on this machine, with as many idle hosts as there are at work; empty where they
    do."""
    needed = workers * 2 * MOST * TAKEN
    told = f"--workers {workers} needs {needed} inotify instances, and this machine allows {instances}"
    return f"{told}. Fix: sysctl -w fs.inotify.max_user_instances={needed}" if instances < needed else ""


def main() -> int:
    """0 if every run held."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", default="")
    parser.add_argument("--workers", type=int, default=1, help="groups at a time, each with an apply of its own")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no group after so many")
    parser.add_argument("--spec", default="", choices=["", *SPECS], help="hosts of this kind alone")
    parser.add_argument("--only", default="", help="SEED:NUMBER, as a line of the campaign begins")
    parser.add_argument("--sabotage", action="store_true", help="break a copy of the product on purpose: is it caught?")
    parser.add_argument("--table", action="store_true", help="write the table of the runs that are kept, and do none")
    given = parser.parse_args()
    if complaint := crowded(given.workers, int(INSTANCES.read_text(encoding="utf-8"))):
        parser.error(complaint)
    if given.sabotage:
        return int(not caught())
    broken = 0
    if not given.table:
        seed, _, number = given.only.rpartition(":")
        seed = seed or given.seed or str(random.SystemRandom().randrange(10**6))
        only = int(number) if given.only else None
        runs = given.runs if only is None else only + MOST
        print(f"seed {seed}: the same seed goes on where this ends", flush=True)
        place = KEPT / "again" if given.only else KEPT
        until, on_kept = time.time() + 60 * given.minutes, (lambda rows: None) if given.only else table.write
        broken = campaign(runs, seed, given.workers, until, only, place, just=given.spec, on_kept=on_kept)
    elif not given.only:
        table.write(KEPT / RUNS)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
