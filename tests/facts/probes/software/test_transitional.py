"""Ubuntu's packages of a branch that has ended, which bring another branch's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software import excluded, packages
from tests.rows import run_each

LAST, EMPTY, OLD = "535.309.01-0ubuntu0.24.04.1", "535.309.01-0ubuntu0.24.04.2", "535.161.08-0ubuntu2"
SHOW = f"""Package: nvidia-dkms-535-server
Version: {EMPTY}
Depends: nvidia-dkms-580-server
Description-en: NVIDIA DKMS package (transitional package)

Package: nvidia-dkms-535-server
Version: {OLD}
Depends: dkms, nvidia-kernel-common-535-server (>= 535.161.08), nvidia-kernel-source-535-server |
  nvidia-kernel-source-535-server-open
Description-en: NVIDIA DKMS package

Package: nvidia-imex-590
Version: 590.48.01-0ubuntu0.24.04.2
Depends: nvidia-imex-595
Description-en: IMEX Manager for NVIDIA based systems.

"""


def test_what_apt_says_of_them(tmp_path: Path) -> None:
    apt = tmp_path / "apt-cache"
    asked = tmp_path / "asked"
    apt.write_text(f"#!/bin/sh\necho \"$@\" > {asked}\ncat <<'END'\n{SHOW}\nEND\n", encoding="utf-8")
    apt.chmod(0o755)
    names = "nvidia-dkms-535-server\nnvidia-utils-535-server\nnvidia-imex-590\nnvidia-kernel-dkms\nlibnvidia-nscq-535"
    shell = f"printf '{names}\\n' | {excluded.OFFERED}"
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", shell], env=path, capture_output=True, text=True, check=True)
    assert asked.read_text().split() == ["show", "nvidia-dkms-535-server", "nvidia-imex-590", "libnvidia-nscq-535"]
    rows = Output(done.stdout).rows()["depends"]
    assert excluded.find_transitional(rows) == {
        ("nvidia-dkms-535-server", EMPTY): "nvidia-dkms-580-server",
        ("nvidia-imex-590", "590.48.01-0ubuntu0.24.04.2"): "nvidia-imex-595",
    }


@run_each(
    ("name", "depends", "moved"),
    [
        ("nvidia-dkms-615-server", "nvidia-dkms-615-server-open", True),
        ("nvidia-kernel-source-610-server", "nvidia-kernel-source-615-server", True),
        ("nvidia-dkms-590", "nvidia-dkms (>= 590)", True),
        ("nvidia-dkms-615-server-open", "dkms, nvidia-kernel-common-615-server (<= 615.71.09-1)", False),
        ("nvidia-fabricmanager-615", "nvidia-kernel-common-615-server-615.71.09", False),
        ("nvidia-kernel-common-615", "libc6 (>= 2.38), libpciaccess0, nvidia-firmware-615-615.71.09", False),
        ("nvidia-kernel-source-580-server", "", False),
    ],
)
def test_what_it_depends_on_tells(name: str, depends: str, moved: bool) -> None:
    """As https://packages.ubuntu.com shows them."""
    assert [*excluded.find_transitional([f"{name}|1|{depends}"])] == [(name, "1")] * moved


def test_they_are_not_offered_and_installed_in_no_drivers_version() -> None:
    lines = [
        f" nvidia-dkms-535-server | {v} | http://mirror.example noble/restricted amd64 Packages" for v in (EMPTY, OLD)
    ]
    lines += [f" nvidia-utils-535-server | {EMPTY} | http://mirror.example noble/restricted amd64 Packages"]
    lines += [f"depends|nvidia-dkms-535-server|{EMPTY}|nvidia-dkms-580-server"]
    index = packages.parse_index(Output("\n".join(lines)))
    assert index == {"nvidia-dkms-535-server": [OLD], "nvidia-utils-535-server": [EMPTY]}
    only = packages.parse_index(Output("\n".join([lines[0], *lines[2:]])))
    assert only == {"nvidia-utils-535-server": [EMPTY]}
    assert only.moved == {"nvidia-dkms-535-server": "nvidia-dkms-580-server"}
    row = "ii |nvidia-dkms-535-server|{}|nvidia-graphics-drivers-535-server|amd64\n"
    for version, told in ((EMPTY, excluded.VERSION), (LAST, LAST)):
        there = packages.parse_packages(Output(f"native|amd64\n{row.format(version)}{lines[-1]}\n"))
        assert there["nvidia-dkms-535-server"].version == told
