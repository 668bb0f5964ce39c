"""No green over a hollowed host: each path that apply wrote, altered in each way, is red in verify, in plan and in
drift, and mended.

The paths are found from outside: files that are newer than the apply and that no package owns. On the small host some
paths are altered alone, then each in one way, all ways in turn; on the others each alone, then all paths in each way.
tests/contracts/test_fixpoint.py does so for every capability.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.standins import erdma
from tests.e2e import test_cgpu
from tests.e2e.lab import Lab, Ran, loaded
from tests.e2e.machine import FORGET_ARCHIVE, Machine

pytestmark = pytest.mark.e2e
NAME = "e2e-hollowed"
GPUS = {"model": "H100-SXM5-80GB", "count": 2}
WHOLE: dict[str, Any] = {
    "gpu": GPUS,
    "nouveau": {},
    "nvidia_driver": {"version": "535"},
    "persistence": {"mode": "legacy"},
    "kernel": {"limits": {"memlock": "unlimited"}, "command_line": {"iommu": "pt"}, "blacklist": ["nova_core"]},
    "rdma": {"fabric": "roce", "stack": "inbox", "count": 2, "roce": {"tos": 106, "mtu": 4200}},
    "pcie": {"acs": "disabled", "max_read_request": 4096, "affinity": "local"},
    "container_toolkit": {"runtimes": ["containerd"]},
    "mig": {"layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]},
    "gpu_settings": {"power_limit": 500},
    "mps": {"scope": "mig", "units": {"jobs.service": "gpu0-mig0"}},
    "kubernetes": {"plugin": "nvidia", "device_plugin": {"mig_strategy": "mixed"}},
    "readings": {},
}
OTHERS = {
    "/etc/containerd/": "nvidia-ctk's, which other tools change too: container_toolkit.registered reads what it says",
    "/etc/nvidia-container-runtime/": "the package's, in which nvidia-ctk sets the mode: container_toolkit.mode",
    "/etc/cdi/": "nvidia-ctk's, made anew at each boot: container_toolkit.cdi",
    "/var/run/cdi/": "nvidia-ctk's, made anew at each boot: container_toolkit.cdi",
    "/etc/modprobe.d/nvidia": "the driver's packages'",
    "/etc/alternatives/": "the driver's packages'",
    "/etc/ld.so.cache": "ldconfig's",
    ".wants/": "links that systemctl enable makes: the checks `enabled`",
    "/etc/nvidia/": "the driver's packages'",
    "/var/lib/gpuprov/": "receipts and marks: what has been done, not what should be",
    "/etc/mtab": "the kernel's",
    **dict.fromkeys(("/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow"), "users that packages' scripts add"),
    "/etc/rc": "links of System V, by packages' scripts",
    "/etc/apparmor.d/local/": "empty, by packages' scripts",
    **dict.fromkeys(("/etc/subgid", "/etc/subuid"), "the same"),
}
"""Written meanwhile, and nothing that gpuprov wrote whole: each with what reads it instead."""
FOUND = """
find /etc /usr/local /usr/lib/systemd /usr/lib/udev /usr/lib/modprobe.d /opt -xdev \\( -type f -o -type l \\) \\
  -newer /root/mark -print | sort | while read -r path; do dpkg -S "$path" >/dev/null 2>&1 || echo "$path"; done
"""
WAYS: dict[str, str] = {
    "another program": "cat /bin/true > {path}",
    "empty": ": > {path}",
    "a link": "cp -a {path} /root/elsewhere; rm {path}; ln -s /root/elsewhere {path}",
    "writable": "chmod o+w {path}",
    "gone": "rm {path}",
}
RESET = "sed -E 's/^([A-Za-z]+)=.*/\\1=/' {path} > {drop_in}"
"""What a site writes behind a drop-in: all that it sets, anew. What else the site says of a unit that is not gpuprov's
is its own."""
SHADOW = """
mkdir -p {folder}
printf '[Service]\\nExecStart=\\nExecStart=/bin/true\\nLimitMEMLOCK=1\\n[Unit]\\nConditionPathExists=/nowhere\\n' > {drop_in}
"""


def cloud(folder: Path) -> tuple[Description, dict[str, Any], tuple[str, ...]]:
    file, digest = erdma.write(folder)
    rdma = {"fabric": "erdma", "erdma": {"file": str(file), "sha256": digest, "compat_mode": True, "mtu": "jumbo"}}
    host = Description(gpu=Gpus(model="T4", count=2), cgpu=True, erdma=True)
    return host, {"rdma": rdma, **test_cgpu.SPEC, "persistence": {"mode": "legacy"}}, ()


def whole(_folder: Path) -> tuple[Description, dict[str, Any], tuple[str, ...]]:
    host = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2), hcas=2, fabric="roce", container_toolkit=True)
    return host, WHOLE, ("nvidia-modprobe", "containerd", "nvidia-cuda-mps", "irqbalance")


def small(_folder: Path) -> tuple[Description, dict[str, Any], tuple[str, ...]]:
    spec = {key: WHOLE[key] for key in ("persistence", "readings", "gpu_settings", "kernel")}
    return Description(gpu=Gpus(model="H100-SXM5-80GB", count=2)), {"gpu": GPUS, **spec}, ("nvidia-modprobe",)


class Hollow:
    """A host that was applied, and what is asked of it."""

    def __init__(self, lab: Lab, machine: Machine, inventory: Path) -> None:
        self.lab, self.machine, self.inventory = lab, machine, inventory
        self.written = self.paths()

    def paths(self) -> list[str]:
        found = self.machine.sh(FOUND).splitlines()
        return [path for path in found if not any(one in path for one in OTHERS) and "gpuprov-sim" not in path]

    def ask(self, verb: str, *words: str) -> Ran:
        return self.lab.run(verb, self.inventory, *words)

    def named(self, ran: Ran) -> set[str]:
        """The paths that failing checks name."""
        told = "\n".join(row["found"] for row in ran.json if row["status"] == "fail")
        for folder, names in re.findall(r"(\S+/)\{([^}]*)\}", told):
            told += "".join(f"\n{folder}{name}:" for name in names.split(","))
        return {path for path in self.written if f"{path}:" in told}

    @contextmanager
    def altered(self, script: str, *paths: str) -> Iterator[None]:
        keep = "\n".join(f"mkdir -p /root/kept$(dirname {path}); cp -a {path} /root/kept{path}" for path in paths)
        back = "\n".join(f"rm -rf {path} {path}.d; cp -a /root/kept{path} {path}" for path in paths)
        alter = "\n".join(script.format(path=shlex.quote(path)) for path in paths)
        self.machine.sh(f"set -e\n{keep}\n{alter}\nsystemctl daemon-reload")
        yield
        self.machine.sh(f"set -e\n{back}\nsystemctl daemon-reload")


@pytest.mark.parametrize("case", [small, *(pytest.param(case, marks=pytest.mark.slow) for case in (whole, cloud))])
def test_no_green_over_a_hollowed_host(case: Callable[[Path], Any], lab: Lab, tmp_path: Path) -> None:
    described, spec, packages = case(tmp_path)
    with loaded(NAME, described, *packages) as machine:
        if case is small:
            machine.sh(FORGET_ARCHIVE)
        machine.sh("touch /root/mark; sleep 1.1")
        folder = lab.inventory(spec, machine)
        applied = lab.run("apply", folder, "--yes")
        assert applied.code == 0, applied
        host = Hollow(lab, machine, folder)
        assert len(host.written) > 10, host.written
        clean = host.ask("verify", "--json")
        assert clean.code == 0, clean
        missed = []
        alone = host.written[::8] if case is small else host.written
        for path in alone:
            with host.altered(WAYS["another program"], path):
                ran = host.ask("verify", "--json")
                if ran.code != 1 or path not in host.named(ran):
                    missed.append(path)
        assert not missed, "\n".join(missed)
        print(f"{len(alone)} of {len(host.written)} paths, each altered alone and red")
        for ways in [[*WAYS]] if case is small else [[way] for way in WAYS]:
            scripts = [WAYS[ways[n % len(ways)]].format(path=path) for n, path in enumerate(host.written)]
            machine.sh("\n".join(["set -e", *scripts, "systemctl daemon-reload"]))
            mended(host, ", ".join(ways))
        units = [path for path in host.written if "/systemd/system/" in path and path.endswith((".service", ".conf"))]
        # systemd has no drop-ins of a unit that is not there.
        units = [path for path in units if not path.startswith("/etc/systemd/system/jobs.service.d/")]
        shadows = {}
        for path in units:
            where = path.rpartition("/")[0] if path.endswith(".conf") else f"{path}.d"
            shadows[path] = f"{where}/zz-shadow.conf"
            script = RESET if path.endswith(".conf") else SHADOW
            machine.sh(script.format(folder=where, path=path, drop_in=shadows[path]))
        machine.sh("systemctl daemon-reload")
        ran = host.ask("verify", "--json", "-v")
        told = "\n".join(row["found"] for row in ran.json)
        assert ran.code == 1
        assert not {path for path in shadows.values() if f"{path}: sets" not in told}, told
        again = host.ask("apply", "--yes")
        assert again.code == 0, again
        assert host.ask("verify").code == 0
        assert machine.sh(f"ls {' '.join(f'{path}.set-aside' for path in set(shadows.values()))}")


def mended(host: Hollow, way: str) -> None:
    """Verify, plan and drift name every path; apply mends all of them, and then nothing is left to do."""
    ran = host.ask("verify", "--json")
    assert (ran.code, host.named(ran)) == (1, set(host.written)), (way, set(host.written) - host.named(ran))
    plan = host.ask("plan", "--json")
    assert not [path for path in host.written if path not in plan.out], (way, plan)
    drift = host.ask("drift", "--json")
    assert (drift.code, drift.json["hosts"][0]["state"]) == (1, "drifted"), (way, drift)
    applied = host.ask("apply", "--yes")
    assert applied.code == 0, (way, applied)
    after = host.ask("verify", "--json")
    assert after.code == 0, (way, after)
    again = host.ask("apply", "--yes")
    assert (again.code, "unchanged" in again.text) == (0, True), (way, again)
