"""The role of the acceptance tools, played on this machine below another folder: an archive is taken, compared and
built."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities.acceptance.desired import DESIRED
from gpuprov.capabilities.acceptance.fragment import Acceptance, Nccl, Source
from gpuprov.capabilities.base import Context
from gpuprov.spec.model import HostSpec
from tests.accept.test_build import archive
from tests.capabilities.acceptance_host import tools
from tests.capabilities.asking import facts, good
from tests.here import play

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(not shutil.which("make") or os.geteuid() != 0, reason="needs make, and root to write its files"),
]
NEEDED = "native|amd64\nii |build-essential|12.9|build-essential|amd64\nii |libnccl-dev|2.18|nccl|amd64\n"


def desired(folder: Path, sha256: str) -> dict[str, Any]:
    """What the role is told of a host that has the packages, with its folders below this one."""
    block = Acceptance(nccl=Nccl(source=Source(file=str(folder / "nccl.tar.gz"), sha256=sha256)))
    told = {**good(), "acceptance_packages": NEEDED, "acceptance_tools": tools(), "rdma_devices": ""}
    known = facts(**{probe.name: told[probe.name] for probe in DESIRED.probes})
    made = json.dumps(DESIRED.make(Context(HostSpec(name="gpu1", capabilities={"acceptance": block}), block, known)))
    made = made.replace('"/opt/gpuprov', f'"{folder}/opt').replace('"/usr/local/lib', f'"{folder}/lib')
    return dict(json.loads(made))


def played(folder: Path, sha256: str, *, check: bool = False) -> subprocess.CompletedProcess[str]:
    roles = [
        {"ansible.builtin.include_role": {"name": "acceptance", "tasks_from": stage}} for stage in ("assert", "install")
    ]
    variables = {"gpuprov_judged": {"desired": {"acceptance": desired(folder, sha256)}}}
    return play(folder, {"vars": variables, "tasks": roles}, check=check)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with an archive, and with a compiler in its PATH."""
    archive(tmp_path / "nccl.tar.gz")
    (tmp_path / "opt").mkdir()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").write_text("#!/bin/sh\n")
    (tmp_path / "bin/nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def test_an_archive_becomes_a_program(place: Path) -> None:
    sha256 = hashlib.sha256((place / "nccl.tar.gz").read_bytes()).hexdigest()
    planned = played(place, sha256, check=True)
    assert planned.returncode == 0, planned.stdout
    assert list((place / "opt").rglob("built")) == [], "check mode"
    done = played(place, sha256)
    assert done.returncode == 0, done.stdout
    folder = next((place / "opt").rglob("built")).parent
    assert folder.name == f"nccl-{sha256[:12]}"
    program = folder / (folder / "built").read_text().strip()
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "busbw MPI=\n"


def test_another_archive_is_refused_before_anything_is_installed(place: Path) -> None:
    done = played(place, "0" * 64)
    assert done.returncode != 0
    found = hashlib.sha256((place / "nccl.tar.gz").read_bytes()).hexdigest()
    assert (
        f"acceptance.nccl.source: {place}/nccl.tar.gz: its SHA-256 is {found}, and the spec says {'0' * 64}; "
        "nothing was changed. Fix: the right file, or the sha256"
    ) in done.stdout
    assert list((place / "opt").iterdir()) == []
    assert not (place / "lib").exists()
