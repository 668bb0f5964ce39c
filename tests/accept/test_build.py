"""Building a tool from the archive that a spec names: whole, or not at all."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "roles" / "acceptance" / "files" / "build.sh"
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


def build(folder: Path, *more: str, cuda: bool = True) -> subprocess.CompletedProcess[str]:
    tools = folder.parent / "cuda" / "bin"
    tools.mkdir(parents=True, exist_ok=True)
    if cuda:
        (tools / "nvcc").write_text("#!/bin/sh\n")
        (tools / "nvcc").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    program = tools / "build.sh"  # as the role writes it, executable
    program.write_text(SCRIPT.read_text(encoding="utf-8"))
    program.chmod(0o755)
    words = [str(program), "nccl", str(folder), "all_reduce_perf", *more]
    return subprocess.run(words, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("top", ["nccl-tests-2/", ""])
def test_it_is_built_into_a_folder_that_says_where_the_program_is(tmp_path: Path, top: str) -> None:
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive", top=top)
    ended = build(folder)
    assert ended.returncode == 0, ended.stderr
    program = folder / (folder / "built").read_text().strip()
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "busbw MPI=\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cuda",
        "nccl-0123",
        "nccl-0123.archive",
        "nccl-0123.log",
    ]


@pytest.mark.parametrize(
    ("makefile", "cuda", "told"),
    [
        ("all:\n\t@echo 'nccl.h: error: no such file'; exit 1\n", True, "make failed: nccl.h: error: no such file"),
        ("all:\n\ttrue\n", True, "the build made no all_reduce_perf"),
        (MAKEFILE, False, "no nvcc"),
    ],
)
def test_a_build_that_fails_leaves_nothing_and_says_why(tmp_path: Path, makefile: str, cuda: bool, told: str) -> None:
    if not cuda and shutil.which("nvcc"):
        pytest.skip("this machine has a CUDA compiler")
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive", makefile)
    ended = build(folder, cuda=cuda)
    assert ended.returncode != 0
    assert told in ended.stderr
    assert not folder.exists()
    assert not list(tmp_path.glob("nccl-0123.??????"))


def test_a_failed_build_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "nccl-0123"
    archive(tmp_path / "nccl-0123.archive")
    build(folder)
    (tmp_path / "nccl-0123.archive").write_bytes(b"cut")
    assert build(folder).returncode != 0
    assert (folder / "bin" / "all_reduce_perf").exists()
