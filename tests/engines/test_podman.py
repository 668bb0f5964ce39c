"""The machine's own podman: whether it can read a CDI specification, and that asking it leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog import engines as known
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.containers import container_toolkit as probe
from gpuprov.rules.engines import number
from gpuprov.simulate.standins import toolkit as standins_toolkit
from tests.here import program
from tests.rows import run_each

pytestmark = pytest.mark.e2e  # root, podman

GROUPS = "    additionalGids: [44]\n"
FILE = """\
cdiVersion: VERSION
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes: [{path: /dev/null}]
- name: all
  containerEdits:
    deviceNodes: [{path: /dev/null}]
"""
IN_A_NAMESPACE = """mount -t tmpfs none "$1" && mkdir "$1/upper" "$1/work" &&
mount -t overlay -o "lowerdir=/etc,upperdir=$1/upper,workdir=$1/work" overlay /etc && mkdir -p /etc/cdi &&
cp "$2" /etc/cdi/nvidia.yaml || exit
traces() { find /run /dev/shm /sys/fs/cgroup -name '*libpod*' -o -name 'gpuprov-cdi*' | sort >&2; }
traces; sh -c "$3"; s=$?; echo later >&2; traces; exit $s"""


def asked(folder: Path, text: str, path: str = "", *, always: bool = False) -> tuple[dict[str, str], str]:
    """What podman says of a specification in /etc/cdi, and its release."""
    (folder / "mount").mkdir(exist_ok=True)
    script = re.sub(r"^grep -hsE .*\n +exit 0$", "", probe.CDI_ANSWERS.script, flags=re.MULTILINE)
    (folder / "nvidia.yaml").write_text(text)
    for _ in range(5):  # other containers of this machine may come or go meanwhile
        done = subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", IN_A_NAMESPACE, "sh", folder / "mount",
             folder / "nvidia.yaml", script if always else probe.CDI_ANSWERS.script],
            capture_output=True, text=True, check=True, env={**os.environ, "PATH": f"{path}{os.environ['PATH']}"},
        )  # fmt: skip
        before, _, after = done.stderr.partition("later\n")
        if after == before:
            break
    assert after == before, "podman, or the probe, left something behind"
    version = subprocess.run(["podman", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    return probe.parse_answers(Output(done.stdout)), version


@run_each("version", ["0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"])
def test_podman_reads_what_the_catalogue_says_that_it_reads(tmp_path: Path, version: str) -> None:
    answers, podman = asked(tmp_path, FILE.replace("VERSION", version))
    reads = number(known.find_newest_cdi("podman", podman)) >= number(version)
    assert list(answers) == ["podman"]
    assert (answers["podman"] == "") == reads, (podman, answers)


def test_what_nvidia_ctk_writes_and_what_it_writes_without_groups(tmp_path: Path) -> None:
    groups = FILE.replace("VERSION", "0.7.0").replace("/dev/null}]\n", f"/dev/null}}]\n{GROUPS}")
    answers, podman = asked(tmp_path, groups)
    if number(podman) < (5, 1):
        assert 'unknown field "additionalGids"' in answers["podman"]
        assert 'failed to parse CDI Spec "/etc/cdi/nvidia.yaml"' in answers["podman"]
    else:
        assert answers == {"podman": ""}


def test_what_nvidia_ctk_writes_without_the_groups_of_device_files(tmp_path: Path) -> None:
    """NVIDIA's own nvidia-ctk 1.20.1, which needs no GPU for a list of device files, over one of a group's."""
    device, made = tmp_path / "device", tmp_path / "made.yaml"
    subprocess.run(["mknod", "--mode=660", device, "c", "1", "3"], check=True)
    os.chown(device, 0, 44)
    (tmp_path / "list.csv").write_text(f"dev, {device}\n")
    ctk = [str(standins_toolkit.programs("1.20.1") / "nvidia-ctk"), "cdi", "generate", "--mode=csv"]
    for flags, version in (("", "0.7.0"), (f"disable-coherent-annotations,{catalogue.WITHOUT_GIDS}", "0.5.0")):
        environment = {**os.environ, **({catalogue.FLAGS_VARIABLE: flags} if flags else {})}
        command = [*ctk, f"--csv.file={tmp_path / 'list.csv'}", f"--output={made}"]
        subprocess.run(command, capture_output=True, check=True, env=environment)
        assert f"cdiVersion: {version}" in made.read_text()
        answers, podman = asked(tmp_path, made.read_text(), always=True)
        reads = number(known.find_newest_cdi("podman", podman)) >= number(version)
        assert (answers["podman"] == "") == reads, (podman, answers)


def test_podman_is_not_asked_where_all_that_know_cdi_can_read_the_file(tmp_path: Path) -> None:
    program(tmp_path, "podman", "echo it was asked >&2; exit 1")
    assert asked(tmp_path, FILE.replace("VERSION", "0.5.0"), f"{tmp_path}:")[0] == {}
