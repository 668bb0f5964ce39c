"""`python -m tests.fuzz`: the run, or one case of it again."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile

from tests.fuzz.guided import fuzz


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="targets whose name has this in it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--case", default="", help="TARGET:NUMBER as a finding names it: print it, and let it raise")
    parser.add_argument(
        "--guided", type=int, default=0, metavar="SECONDS", help="let atheris choose the cases, by what they reach"
    )
    given = parser.parse_args()
    if given.guided:
        fuzz(given.guided, given.only)
    # Afterwards: code that atheris is to watch has to be imported by it.
    from tests.fuzz.run import generator, kinds, one, run
    from tests.fuzz.targets import targets

    if given.case:
        name, _, number = given.case.rpartition(":")
        target = next(target for target in targets() if target.name == name)
        print(repr(target.make(generator(target, int(number)))))
        with tempfile.TemporaryDirectory(prefix="gpuprov-fuzz-") as folder, contextlib.chdir(folder):
            one(target, int(number))
        return 0
    report = run(given.cases, workers=given.workers, only=given.only)
    for found in (report.crashes, report.hangs):
        for text, places in kinds(found).items():
            print(f"{text}  [{' '.join(places)}]")
    print(report)
    return int(bool(report.crashes or report.hangs))


if __name__ == "__main__":
    sys.exit(main())
