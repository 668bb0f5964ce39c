"""Building a tool from the archive that a spec names: whole, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from gpuprov.host_code.failed import Failed
from gpuprov.host_code.steps import tool_build

MAKEFILE = """all:
\tmkdir -p $(BUILDDIR)
\ttest -x $(CUDA_HOME)/bin/nvcc
\tprintf '#!/bin/sh\\necho busbw MPI=$(MPI)\\n' >$(BUILDDIR)/all_reduce_perf
\tchmod 755 $(BUILDDIR)/all_reduce_perf
"""
pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


def archive(path: Path, makefile: str = MAKEFILE, top: str = "nccl-tests-2/") -> None:
    with tarfile.open(path, "w:gz") as packed:
        entry = tarfile.TarInfo(f"{top}Makefile")
        entry.size = len(makefile.encode())
        packed.addfile(entry, io.BytesIO(makefile.encode()))


@pytest.fixture
def cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler first in the PATH."""
    tools = tmp_path / "cuda" / "bin"
    tools.mkdir(parents=True)
    (tools / "nvcc").write_text("#!/bin/sh\n")
    (tools / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    return tools


def build(folder: Path, *, mpi: bool = False) -> None:
    tool_build.build("nccl", f"{folder}.archive", str(folder), "all_reduce_perf", mpi=mpi)


@pytest.mark.parametrize("top", ["nccl-tests-2/", ""])
@pytest.mark.usefixtures("cuda")
def test_it_is_built_into_a_folder_that_says_where_the_program_is(tmp_path: Path, top: str) -> None:
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive", top=top)
    build(folder)
    program = folder / (folder / "built").read_text().strip()
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "busbw MPI=\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cuda",
        "nccl-0123",
        "nccl-0123.archive",
        "nccl-0123.log",
    ]


@pytest.mark.parametrize(
    ("makefile", "told"),
    [
        ("all:\n\t@echo 'nccl.h: error: no such file'; exit 1\n", "make failed: nccl.h: error: no such file"),
        ("all:\n\ttrue\n", "the build made no all_reduce_perf"),
        (MAKEFILE, "no nvcc"),
    ],
)
def test_a_build_that_fails_leaves_nothing_and_says_why(
    tmp_path: Path, cuda: Path, monkeypatch: pytest.MonkeyPatch, makefile: str, told: str
) -> None:
    if told == "no nvcc":
        (cuda / "nvcc").unlink()
        monkeypatch.setattr(tool_build, "CUDA", str(tmp_path))
        if shutil.which("nvcc"):
            pytest.skip("this machine has a CUDA compiler")
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive", makefile)
    with pytest.raises(Failed, match=told):
        build(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"cuda", "nccl-0123.archive", "nccl-0123.log"}


@pytest.mark.usefixtures("cuda")
def test_a_failed_build_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive")
    build(folder)
    (tmp_path / "nccl-0123.archive").write_bytes(b"cut")
    with pytest.raises(Failed, match="cannot be unpacked"):
        build(folder)
    assert (folder / "bin" / "all_reduce_perf").exists()


def test_with_mpi_it_is_told_where_the_headers_are(tmp_path: Path, cuda: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive")
    monkeypatch.setattr(tool_build, "MPI", (f"{tmp_path}/lib*/openmpi",))
    (cuda / "mpicc").write_text("#!/bin/sh\n")
    (cuda / "mpicc").chmod(0o755)
    with pytest.raises(Failed, match=r"no mpi\.h beside mpicc"):
        build(folder, mpi=True)
    (tmp_path / "lib64/openmpi/include").mkdir(parents=True)
    (tmp_path / "lib64/openmpi/include/mpi.h").touch()
    build(folder, mpi=True)
    assert "MPI=1" in (folder / "bin/all_reduce_perf").read_text()


@pytest.mark.usefixtures("cuda")
def test_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nccl-0123"
    flushed: list[tuple[bool, bool]] = []

    def settle(paths: list[str]) -> None:
        flushed.extend((Path(path, "built").exists(), folder.exists()) for path in paths)

    monkeypatch.setattr(tool_build, "settle", settle)
    archive(tmp_path / "nccl-0123.archive")
    build(folder)
    assert flushed == [(True, False)]


@pytest.mark.usefixtures("cuda")
def test_what_a_run_that_was_killed_has_left_goes(tmp_path: Path) -> None:
    for name in ("nccl-0123", "nvbandwidth-4567"):
        (tmp_path / f"{name}{tool_build.WORK}" / "source").mkdir(parents=True)
    (tmp_path / "nccl-0123.another-host.work").mkdir()
    archive(tmp_path / "nccl-0123.archive")
    build(tmp_path / "nccl-0123")
    left = {path.name for path in tmp_path.iterdir()}
    other = "nccl-0123.another-host.work"
    assert left == {"cuda", "nccl-0123", "nccl-0123.archive", "nccl-0123.log", other}, "another builds on a shared /opt"
