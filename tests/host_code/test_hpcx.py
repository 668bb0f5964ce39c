"""HPC-X on a host: the stand-in's archive is unpacked, found by the probe, and left alone where it is somebody
else's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software.hpc import HPC, Hpc
from gpuprov.host_code.hpcx import MARK, explain_installation, read_mark
from gpuprov.simulate.standins import hpcx as standin
from tests.host_code.modules import on_host, step
from tests.rows import run_each

hpcx = on_host("hpcx")
FOLDER = standin.FOLDER


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    file, digest = standin.write(tmp_path_factory.mktemp("archive"))
    return str(file), digest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(hpcx, "HOME", str(tmp_path))
    return tmp_path


def test_it_is_unpacked_once_and_the_link_leads_to_it(home: Path, archive: tuple[str, str]) -> None:
    hpcx.install(*archive, FOLDER)
    assert os.readlink(home / "hpcx") == FOLDER
    assert read_mark((home / "hpcx" / MARK).read_text()) == archive[1]
    before = (home / FOLDER).stat().st_ino
    hpcx.install("/nowhere", archive[1], FOLDER)
    assert (home / FOLDER).stat().st_ino == before, "what is there is not unpacked again"
    assert sorted(path.name for path in home.iterdir()) == ["hpcx", FOLDER]


def test_another_archive_of_the_same_name_takes_its_place(home: Path, archive: tuple[str, str]) -> None:
    hpcx.install(*archive, FOLDER)
    (home / FOLDER / MARK).write_text('{"sha256": "00"}')
    (home / FOLDER / "old").touch()
    hpcx.install(*archive, FOLDER)
    assert not (home / FOLDER / "old").exists()
    assert sorted(path.name for path in home.iterdir()) == ["hpcx", FOLDER]


def test_a_link_to_another_release_is_set_anew(home: Path, archive: tuple[str, str]) -> None:
    (home / "other").mkdir()
    (home / "hpcx").symlink_to("other")
    hpcx.install(*archive, FOLDER)
    assert os.readlink(home / "hpcx") == FOLDER
    assert (home / "other").is_dir(), "other releases stay"


@pytest.mark.parametrize("place", ["hpcx", FOLDER])
def test_what_somebody_else_put_there_stays(home: Path, archive: tuple[str, str], place: str) -> None:
    (home / place).mkdir()
    (home / place / "theirs").touch()
    with pytest.raises(hpcx.Failed, match="move it away"):
        hpcx.install(*archive, FOLDER)
    assert [path.name for path in home.iterdir()] == [place]


def test_another_checksum_and_another_archive_are_refused(home: Path, archive: tuple[str, str]) -> None:
    with pytest.raises(hpcx.Failed, match="nothing was unpacked"):
        hpcx.install(archive[0], "0" * 64, FOLDER)
    with pytest.raises(hpcx.Failed, match="it is another archive than its name says"):
        hpcx.install(*archive, "hpcx-v1")
    assert list(home.iterdir()) == []


@run_each(
    ("link", "mark", "why"),
    [
        (f"/opt/{FOLDER}", '{"sha256": "ab"}', ""),
        ("", "", "/opt/hpcx leads to nothing"),
        ("/opt/other", "", "/opt/hpcx leads to /opt/other"),
        (f"/opt/{FOLDER}", "", "gpuprov did not unpack it"),
        (f"/opt/{FOLDER}", "[1", "gpuprov did not unpack it"),
        (f"/opt/{FOLDER}", '{"sha256": "cd"}', "it is of an archive with SHA-256 cd"),
    ],
)
def test_why_there_is_something_to_do(link: str, mark: str, why: str) -> None:
    assert explain_installation(link, mark, FOLDER, "ab") == why


def read_host(home: Path, mpi: str, ldconfig: str = "true") -> Hpc:
    """Run the probe's script on this folder in place of /opt."""
    programs = home / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "ldconfig").write_text(f"#!/bin/sh\n{ldconfig}\n")
    (programs / "ldconfig").chmod(0o755)
    script = f"mpi={mpi}\nrelease={FOLDER}\n" + HPC.script.replace("/opt", str(home)).replace("/usr/", f"{home}/usr/")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", script], env=environment, check=True, capture_output=True, text=True)
    return HPC.parse(Output(done.stdout))


def test_the_probe_reads_the_stand_in(home: Path, archive: tuple[str, str]) -> None:
    empty = read_host(home, "hpcx")
    assert (empty.link, empty.mpis, empty.ucx, empty.foreign) == ("", (), "", False)
    hpcx.install(*archive, FOLDER)
    library = home / "hpcx/nccl_rdma_sharp_plugin/lib/libnccl-net.so"
    (home / "conf").write_text(f"{library.parent}\n{home}/hpcx/sharp/lib\n")
    linker = f"{shutil.which('ldconfig', path='/usr/sbin:/sbin')} -C {home}/cache"
    subprocess.run(f"{linker} -f {home}/conf", shell=True, check=True)
    state = read_host(home, "hpcx", f'exec {linker} "$@"')
    assert (state.link, read_mark(state.mark)) == (str(home / FOLDER), archive[1])
    (mpi,) = state.mpis
    assert (mpi.works, mpi.ucx, mpi.cuda) == (True, True, True)
    assert "stand-in" in mpi.output
    assert "stand-in" in state.ucx
    assert state.ucx_path == "/opt/hpcx/ucx/lib/libucs.so.0"
    assert "cuda_copy" in state.transports
    assert state.plugins == (str(library),)
    assert state.lost == (standin.SHARP,), "this machine's linker knows no folder of HPC-X"


def test_the_probe_reads_real_programs(home: Path) -> None:
    """Outputs of Debian 12's own openmpi-bin 4.1.4 and ucx-utils 1.13.1, which name themselves in other ways."""
    folder = home / "usr/lib64/openmpi/bin"
    folder.mkdir(parents=True)
    ompi = 'mca:pml:ucx:version:"component:4.1.4"\nmca:mpi:base:param:mpi_built_with_cuda_support:value:false'
    ucx = "# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n#      Transport: tcp\n#         Device: eth0"
    texts = {folder / "mpirun": "mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs", folder / "ompi_info": ompi}
    (home / "bin").mkdir()
    for place, text in {**texts, home / "bin/ucx_info": ucx}.items():
        place.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
        place.chmod(0o755)
    state = read_host(home, "openmpi")
    (mpi,) = state.mpis
    assert (mpi.works, mpi.ucx, mpi.cuda, mpi.output) == (True, True, False, "mpirun.openmpi (OpenRTE) 4.1.4")
    assert (state.ucx, state.ucx_path, state.devices) == ("1.13.1", "", ("eth0",))


def test_the_step_says_why_and_changes_nothing_in_check_mode(
    home: Path, archive: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"archive": archive[0], "sha256": archive[1], "folder": FOLDER}
    assert "leads to nothing" in step(capsys, "hpcx", check=True, **given)["due"]
    assert not (home / FOLDER).exists()
    assert step(capsys, "hpcx", **given)["changed"]
    assert step(capsys, "hpcx", **given)["due"] == ""
    assert "the spec says" in step(capsys, "hpcx", **{**given, "sha256": "0" * 64})["msg"]
