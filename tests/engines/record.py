"""Plays all cases with real engines and the real nvidia-ctk, and keeps what they said: as root, `python -m
tests.engines.record`.

containerd 1.7 and 2.x and nvidia-ctk are built from their Go modules (gpuprov.simulate does, and keeps them),
containerd 1.6 is Debian's. docker and cri-o are a program that tells a release: nvidia-ctk changes their files, and
asks them nothing.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.simulate import engines_built
from gpuprov.simulate.standins import toolkit as standins_toolkit
from tests.engines.cases import Case, every

TAPES = Path(__file__).parent / "data" / "tapes.json.xz"
CHECKOUT = Path(__file__).parents[2]


def played(cases: list[Case]) -> list[dict[str, Any]]:
    """What became of the cases: `end`, and the `tape` of it."""
    new, old = (str(standins_toolkit.programs(version) / "nvidia-ctk") for version in ("1.20.1", "1.17.8"))
    containerd = {
        case.version: str(engines_built.containerd(case.version)) for case in cases if case.engine == "containerd"
    }
    asked = []
    for case in cases:
        programs = {"nvidia-ctk": new if case.drop_ins else old}
        if case.engine == "containerd":
            programs["containerd"] = containerd[case.version]
        files = {
            path: _defaults(text, case.version) if text.startswith("DEFAULTS") else text
            for path, text in case.files.items()
        }
        asked.append({"engine": case.engine, "version": case.version, "default": case.default,
                      "drop_ins": case.drop_ins,
                      "files": files, "programs": programs})  # fmt: skip
    done = subprocess.run(
        ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.engines.real"],
        input=json.dumps({"script": ENGINES.script, "cases": asked}), stdout=subprocess.PIPE, text=True, check=True,
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
    )  # fmt: skip
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


def _defaults(text: str, version: str) -> str:
    program = engines_built.containerd(text.partition(" ")[2] or version)
    return subprocess.run([program, "config", "default"], capture_output=True, text=True, check=True).stdout


def keep(tapes: dict[str, Any]) -> None:
    """Write the tapes, each text once: the dumps are long, and most of them are the same."""
    texts: list[str] = []
    place: dict[str, int] = {}

    def short(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: short(one) for key, one in value.items()}
        if isinstance(value, list):
            return [short(one) for one in value]
        if isinstance(value, str) and len(value) > 200:
            if value not in place:
                place[value] = len(texts)
                texts.append(value)
            return {"text": place[value]}
        return value

    short_tapes = short(tapes)
    data = json.dumps({"texts": texts, "tapes": short_tapes}, separators=(",", ":")).encode()
    TAPES.write_bytes(lzma.compress(data, preset=9))
    print(f"{len(tapes)} cases, {len(texts)} texts, {TAPES.stat().st_size} bytes")


def main() -> None:
    cases = every()
    keep({case.name: told for case, told in zip(cases, played(cases), strict=True)})


if __name__ == "__main__":
    main()
