"""How many messages of the corpus `gpuprov explain` answers rightly at first answer: python -m tests.explain.measure
[--lines | --summary]

Of each layer, of the half that the catalogue is written by and of the half set aside: right, silent, wrong. With
--lines also each line of the first half that is not answered rightly; those set aside are never shown. With --summary
only the sentence that docs/explanation/limits.md has: of all lines that nobody wrote rows by.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Literal

from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.core.errors import GpuprovError
from gpuprov.explain import Explanation, explain, in_text
from tests.explain.corpus import Line, lines

Verdict = Literal["right", "silent", "wrong"]


def keys_of(answer: Explanation) -> set[str]:
    """The keys of the symptoms that an answer may be of; none of an answer of another kind."""
    return _keys_by_name().get(answer.name, set()) if answer.kind == "symptom" else set()


@cache
def _keys_by_name() -> dict[str, set[str]]:
    keys: dict[str, set[str]] = {}
    for symptom in list_symptoms():
        keys.setdefault(" | ".join(symptom.signatures), set()).add(symptom.key)
    return keys


def judge(line: Line, *, piped: bool = False) -> tuple[Verdict, set[str]]:
    """What the first answer to a line is, and which symptom it names."""
    try:
        answers = in_text(line.line, "a log") if piped else explain(line.line)
    except GpuprovError:
        return "silent", set()
    first = keys_of(answers[0])
    return ("right" if first & set(line.answer) else "wrong"), first


def figures(those: Iterable[Line]) -> dict[str, Counter[str]]:
    """By layer, and of all of them under "all": how many lines are right, silent, wrong."""
    found: dict[str, Counter[str]] = {}
    for line in those:
        verdict, _ = judge(line)
        for name in (line.layer, "all"):
            found.setdefault(name, Counter())[verdict] += 1
    return found


def table(those: Iterable[Line]) -> str:
    """The figures of these lines, a layer a row."""
    found = figures(those)
    rows = [f"{'layer':18} {'lines':>6} {'right':>6} {'silent':>6} {'wrong':>6} {'right %':>8} {'wrong %':>8}"]
    for name in (*sorted(set(found) - {"all"}), "all"):
        of = found[name]
        total = of.total()
        shares = f"{of['right'] / total:8.1%} {of['wrong'] / total:8.1%}"
        rows.append(f"{name:18} {total:6} {of['right']:6} {of['silent']:6} {of['wrong']:6} {shares}")
    return "\n".join(rows)


THIN, ALL, KINDS, SOURCES, FIRST = (
    f"2026-11-29{more}" for more in ("", ", all layers", ", by kind", ", by source", ", measured first")
)
LATEST = "2026-11-30"
FAMILIES = f"{LATEST}, after families"
FORUMS = f"{LATEST}, of forums"
UNCOMMON = f"{LATEST}, of uncommon threads"
HOSTS = "2026-12-01, set aside"
BUILDS = "2026-12-01, of builds and runs"
PARTS = {
    "the half that the catalogue is written by": [line for line in lines() if not line.held_out],
    "the half set aside": [line for line in lines() if line.held_out and not line.fresh],
    "gathered after the catalogue had been written": [
        line
        for line in lines()
        if line.fresh
        and line.gathered not in (THIN, ALL, KINDS, SOURCES, FIRST, LATEST, FAMILIES, FORUMS, UNCOMMON, HOSTS, BUILDS)
    ],
    "gathered of layers that had few lines": [line for line in lines() if line.fresh and line.gathered == THIN],
    "gathered of all layers": [line for line in lines() if line.fresh and line.gathered == ALL],
    "gathered after rows for whole kinds": [line for line in lines() if line.fresh and line.gathered == KINDS],
    "gathered last, beside rows from programs' sources": [
        line for line in lines() if line.fresh and line.gathered == SOURCES
    ],
    "gathered newly, and measured before a row was written": [
        line for line in lines() if line.fresh and line.gathered == FIRST
    ],
    "gathered latest, and measured before a row was written": [
        line for line in lines() if line.fresh and line.gathered == LATEST
    ],
    "gathered after rows for families of messages": [
        line for line in lines() if line.fresh and line.gathered == FAMILIES
    ],
    "gathered of forums and pastebins": [line for line in lines() if line.fresh and line.gathered == FORUMS],
    "gathered of threads that are seldom found": [line for line in lines() if line.fresh and line.gathered == UNCOMMON],
    "gathered of hosts, containers and fabrics": [line for line in lines() if line.fresh and line.gathered == HOSTS],
    "gathered of builds and runs": [line for line in lines() if line.fresh and line.gathered == BUILDS],
}


NAMES = {
    "cgpu": "cGPU, gpushare and HAMi",
    "containers": "containers",
    "cuda_pytorch": "CUDA and PyTorch",
    "dcgm": "DCGM",
    "driver_kernel": "driver and kernel",
    "efa": "EFA",
    "erdma": "eRDMA",
    "kubernetes": "Kubernetes",
    "mig_mps": "MIG and MPS",
    "mnnvl_imex": "multi-node NVLink",
    "nccl_mpi": "NCCL, NVSHMEM, UCX and MPI",
    "packages_builds": "packages and builds",
    "rdma_fabric": "RDMA and fabric",
    "slurm": "Slurm",
    "vgpu": "vGPU",
}


def summarize(those: Iterable[Line]) -> str:
    """The figures of these lines as one sentence."""
    found = figures(those)
    every = found["all"]
    by_layer = ", ".join(f"{name} {found[key]['right']} of {found[key].total()}" for key, name in NAMES.items())
    counts = f"{every['right']} right, {every['silent']} without an answer, {every['wrong']} wrong"
    return f"Of {every.total()} set aside: {counts}. Right by layer: {by_layer}."


def main() -> None:
    if "--summary" in sys.argv[1:]:
        print(summarize(line for line in lines() if line.fresh))
        return
    for name, those in PARTS.items():
        print(f"{name}\n{table(those)}\n")
    if "--lines" in sys.argv[1:]:
        for line in lines():
            verdict, first = judge(line)
            if not line.held_out and verdict != "right":
                print(
                    f"{verdict:6} {line.layer}: wanted {', '.join(line.answer)}; was {', '.join(first) or '-'}: "
                    f"{line.line}"
                )


if __name__ == "__main__":
    main()
