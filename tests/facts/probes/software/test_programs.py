"""The probe of programs, over a tree as dpkg and rpm describe it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from gpuprov.facts.probes.software.programs import PROGRAMS, Program, Programs
from tests.facts.probes import run_script
from tests.rows import run_each

CTK, RUNTIME, UNIT = (
    "usr/bin/nvidia-ctk",
    "usr/bin/nvidia-container-runtime",
    "lib/systemd/system/nvidia-cdi-refresh.path",
)
PACKAGE = "nvidia-container-toolkit-base"


def host(root: Path, release: str) -> None:
    """A tree with three files of a package, as both package managers note them."""
    for path in (CTK, RUNTIME, UNIT, "usr/share/doc/x"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path, encoding="utf-8")
        (root / path).chmod(0o755)
    (root / "etc").mkdir()
    (root / "etc/os-release").write_text(f"ID={release}\n", encoding="utf-8")
    info = root / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    files = (CTK, RUNTIME, UNIT, "usr/share/doc/x")
    sums = "".join(f"{hashlib.md5(path.encode()).hexdigest()}  {path}\n" for path in files)
    (info / f"{PACKAGE}.md5sums").write_text(sums, encoding="utf-8")
    (info / "coreutils.md5sums").write_text(f"{'0' * 32}  usr/bin/true\n", encoding="utf-8")
    (root / "usr/local/bin").mkdir(parents=True)


def read(root: Path, programs: dict[str, str]) -> Programs:
    script = PROGRAMS.script.replace("cd / ||", f"cd {root} ||").replace('"/$p"', f'"{root}/$p"')
    script = script.replace("/usr/local/sbin /usr/local/bin", f"{root}/usr/local/bin")
    script = script.replace("/var/lib/dpkg", f"{root}/var/lib/dpkg").replace(
        "/etc/os-release", f"{root}/etc/os-release"
    )
    output = run_script(script, root, {"pidof": "exit 1", **programs})
    assert output.status == 0, output
    return PROGRAMS.parse(output)


def rpm(root: Path) -> str:
    rows = "".join(
        f"{PACKAGE}|8|{flags}|{hashlib.sha256(path.encode()).hexdigest()}|/{path}\\n"
        for path, flags in ((CTK, ""), (RUNTIME, ""), (UNIT, ""), ("usr/bin/ghost", "g"), ("usr/share/doc/x", ""))
    )
    return f"case $1 in -qa) echo {PACKAGE}; echo bash ;; *) printf '{rows}' ;; esac"


@run_each("release", ["ubuntu", "rocky", "sles"])
def test_what_is_not_as_its_package_brought_it(tmp_path: Path, release: str) -> None:
    host(tmp_path, release)
    programs = {"rpm": rpm(tmp_path)}
    assert read(tmp_path, programs) == Programs(count=3)
    (tmp_path / RUNTIME).unlink()
    (tmp_path / RUNTIME).symlink_to("/bin/true")
    (tmp_path / UNIT).unlink()
    assert read(tmp_path, programs).changed == (Program(f"/{RUNTIME}", PACKAGE), Program(f"/{UNIT}", PACKAGE))


def test_another_program_before_it_on_the_path(tmp_path: Path) -> None:
    host(tmp_path, "ubuntu")
    (tmp_path / "usr/local/bin/nvidia-ctk").symlink_to(tmp_path / CTK)
    assert not read(tmp_path, {}).shadows, "a link to the package's own hides nothing"
    (tmp_path / "usr/local/bin/nvidia-ctk").unlink()
    (tmp_path / "usr/local/bin/nvidia-ctk").symlink_to("/bin/true")
    assert read(tmp_path, {}).shadows == {f"/{CTK}": f"{tmp_path}/usr/local/bin/nvidia-ctk"}


def test_another_nvidia_smi_before_the_one_of_debians_driver(tmp_path: Path) -> None:
    """Its package has it in a folder of its own; the one in /usr/bin is a link of update-alternatives."""
    host(tmp_path, "debian")
    own, link = tmp_path / "usr/lib/nvidia/current/nvidia-smi", tmp_path / "usr/bin/nvidia-smi"
    own.parent.mkdir(parents=True)
    own.write_text("smi", encoding="utf-8")
    rows = f"{hashlib.md5(b'smi').hexdigest()}  usr/lib/nvidia/current/nvidia-smi\n"
    (tmp_path / "var/lib/dpkg/info/nvidia-smi.md5sums").write_text(rows, encoding="utf-8")
    (tmp_path / "usr/local/bin/nvidia-smi").symlink_to("/bin/true")
    assert read(tmp_path, {}) == Programs(count=4), "no link leads to it"
    link.symlink_to(own)
    assert read(tmp_path, {}).shadows == {"/usr/bin/nvidia-smi": f"{tmp_path}/usr/local/bin/nvidia-smi"}
    own.write_text("another", encoding="utf-8")
    assert read(tmp_path, {}).changed == (Program("/usr/lib/nvidia/current/nvidia-smi", "nvidia-smi"),)


def test_what_another_package_diverts_is_not_compared_and_what_the_site_diverts_is(tmp_path: Path) -> None:
    host(tmp_path, "debian")
    (tmp_path / CTK).write_text("other", encoding="utf-8")
    (tmp_path / RUNTIME).write_text("other", encoding="utf-8")
    diverted = f"/{CTK}\n/{CTK}.distrib\nother-package\n/{RUNTIME}\n/{RUNTIME}.distrib\n:\n"
    (tmp_path / "var/lib/dpkg/diversions").write_text(diverted, encoding="utf-8")
    found = read(tmp_path, {})
    assert (found.count, found.changed) == (2, (Program(f"/{RUNTIME}", PACKAGE),))


def test_a_host_without_such_packages(tmp_path: Path) -> None:
    host(tmp_path, "debian")
    os.unlink(tmp_path / f"var/lib/dpkg/info/{PACKAGE}.md5sums")
    assert read(tmp_path, {}) == Programs()
