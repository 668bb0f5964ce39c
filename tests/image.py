"""The container image of a release, from its wheel and the locked packages that it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ENGINES = ("podman", "docker")
ROW = re.compile(r"(?m)^\S.*\n(?: +.*\n)*")


def find_engine() -> str | None:
    """Return the first engine that answers, or None."""
    for engine in ENGINES:
        if shutil.which(engine) and not subprocess.run([engine, "info"], capture_output=True, check=False).returncode:
            return engine
    return None


def select_requirements(lock: str, sbom: Mapping[str, Any]) -> str:
    """Return the rows of requirements.lock, with their hashes, of what the SBOM says that gpuprov needs to run."""
    needed = {f"{row['name']}=={row['version']}" for row in sbom["components"] if row["scope"] == "required"}
    return "".join(row for row in ROW.findall(lock) if row.split(maxsplit=1)[0].lower() in needed)


def build_image(
    engine: Iterable[str], recipe: str, wheel: Path, requirements: str, labels: Mapping[str, str], *flags: str
) -> str:
    """Build the image, and return its name, gpuprov:VERSION.

    `engine`: its command, `recipe`: the text of Containerfile, `labels`: VERSION and REVISION, `flags`: of the engine's
    build, as a base image of your own (`--build-arg BASE=...`).
    """
    name = f"gpuprov:{labels['VERSION']}"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "Containerfile").write_text(recipe, encoding="utf-8")
        shutil.copy(wheel, folder)
        (Path(folder) / "requirements.txt").write_text(requirements, encoding="utf-8")
        arguments = [word for key, value in labels.items() for word in ("--build-arg", f"{key}={value}")]
        command = [*engine, "build", "--quiet", "--file", f"{folder}/Containerfile", *arguments, *flags]
        subprocess.run([*command, "--tag", name, folder], check=True, stdout=subprocess.DEVNULL)
    return name
