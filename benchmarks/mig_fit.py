"""`python -m benchmarks.mig_fit`: duration of the search for MIG placements, compared with the promised limits.

Every set of instances of every GPU with known placements is fitted, and so is every set with one instance too many, for
which a reason and an alternative are searched as well. The slowest counts. Exits with 1 if a promise is broken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

from gpuprov.catalog.gpus import list_gpus
from gpuprov.hardware.mig import Model, model_of
from gpuprov.host_code.mig.fit import fit, list_layouts
from gpuprov.host_code.mig.layout import Instance

FIT, LAYOUTS = 0.05, 1.0


def seconds(work: Callable[[], object], runs: int = 3) -> float:
    """Return CPU seconds, the best of a few runs."""
    best = float("inf")
    for _ in range(runs):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def slowest_fit(model: Model) -> float:
    """Return the slowest time over all maximal layouts, and over each with one more instance of each profile."""
    grid = model.grid or 0
    asked = []
    for layout in list_layouts(model.profiles, grid):
        wanted = [Instance(one.profile) for one in layout]
        asked += [wanted, *([*wanted, Instance(profile.name)] for profile in model.profiles)]
    return max(seconds(partial(fit, model.profiles, grid, wanted), 1) for wanted in asked)


def shape(model: Model) -> object:
    """Return the shape of a GPU: GPUs of one shape differ only in the names of their profiles."""
    return model.grid, tuple(profile[1:] for profile in model.profiles)


def main() -> int:
    """Print a row for each shape of GPU."""
    models = {one.mig.profile_class: model_of(one) for one in list_gpus() if one.mig.profile_class}
    shapes: dict[object, list[str]] = {}
    for name, model in models.items():
        if model.grid is not None:
            shapes.setdefault(shape(model), []).append(name)
    kept = True
    sys.stdout.write(f"  {'GPUs':<34} {'slices':>6} {'layouts':>8} {'all layouts':>12} {'slowest fit':>12}\n")
    for names in shapes.values():
        model = models[names[0]]
        grid, count = model.grid or 0, len(list_layouts(model.profiles, model.grid or 0))
        listing, one = seconds(partial(list_layouts, model.profiles, grid)), slowest_fit(model)
        told = names[0] + (f" and {len(names) - 1} more classes" if len(names) > 1 else "")
        sys.stdout.write(f"  {told:<34} {grid:>6} {count:>8} {listing * 1000:>9.1f} ms {one * 1000:>9.1f} ms\n")
        kept = kept and listing < LAYOUTS and one < FIT
    promise = f"any fit < {FIT * 1000:.0f} ms, all layouts < {LAYOUTS:.0f} s"
    sys.stdout.write(f"  promised: {promise}: {'kept' if kept else 'BROKEN'}\n")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
