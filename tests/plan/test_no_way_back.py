"""What rollback could not undo, named only where apply would do it."""

from __future__ import annotations

import json
from typing import Any

from gpuprov.capabilities.base import Change
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan.no_way_back import no_way_back
from gpuprov.spec.model import HostSpec
from tests.rows import run_each

MOVES = [Change(kind="package", name=name, before="535.1-1", after="550.1-1") for name in ("libcuda1", "nvidia-smi")]
LOCAL = "container=1\nmenu=0\nenvironment=0\nlayers={0}\nsystem=ext2\ncounted=\nstate=\nwatchdog={1}\n"
EFI = "container=1\nloader=systemd-boot\ninfo=systemd-boot 252\nprogram=0\nwritable=1\n"
RECEIPT = '{"applied_at": "2026-11-10T09:00:00Z", "capabilities": {}}'


def facts(
    *, files: tuple[str, ...] = (), spec: Any = None, receipt: str = RECEIPT, boot: str = LOCAL.format("", "1min")
) -> Facts:
    packages = {"libcuda1": "535.1-1", "nvidia-smi": "535.1-1"}
    made = {"run": "r", "at": "2026", "spec": spec, "packages": packages, "files": dict.fromkeys(files, "digest")}
    text = f"checkpoint {json.dumps(made)}\n" if spec is not None else ""
    return Facts({"checkpoints": Output(text), "receipt": Output(receipt), "first_boot": Output(boot)})


def told(
    found: Facts,
    *,
    run: tuple[str, ...] = ("nvidia_driver",),
    moves: list[Change] = MOVES,
    reboots: bool = True,
    sets: tuple[str, ...] = (),
) -> str:
    spec = HostSpec(name="gpu1", on_failure="rollback")
    return "\n".join(no_way_back(spec, found, run, moves, reboots=reboots, sets=sets))


def test_a_host_of_dnf_keeps_no_files() -> None:
    made = {"run": "r", "at": "2026", "spec": DRIVER, "packages": {}, "files": {}}
    outputs = {
        "checkpoints": f"checkpoint {json.dumps(made)}\n",
        "receipt": RECEIPT,
        "first_boot": LOCAL.format("", "1min"),
    }
    found = Facts({name: Output(text) for name, text in outputs.items()})
    assert told(found) == (
        "libcuda1, nvidia-smi: not kept as files, so rollback needs a repository that still has these versions"
    )


DRIVER = {"nvidia_driver": {"version": "535.1"}}
FILES = ("libcuda1_535.1-1_amd64.deb", "nvidia-smi_535.1-1_amd64.deb")


def test_nothing_is_told_where_all_comes_back() -> None:
    assert told(facts(files=FILES, spec=DRIVER)) == ""
    assert told(facts(), run=()) == "", "nothing is applied"


@run_each(
    ("found", "more", "said"),
    [
        (facts(spec=DRIVER), {}, "libcuda1, nvidia-smi: not kept as files, so rollback needs a repository"),
        (facts(files=FILES[:1], spec=DRIVER), {}, "nvidia-smi: not kept as files"),
        (facts(files=FILES, spec=DRIVER), {"moves": [Change(kind="package", name="docker.io", before="20.10")]},
         "docker.io: not in the checkpoint"),
        (facts(files=FILES, spec=DRIVER), {"run": ("mps", "dcgm")}, "dcgm: packages, and settings whose value before"),
        (facts(files=FILES, spec=DRIVER), {"sets": ("mps", "pcie")},
         "pcie: registers and interrupts that the checkpoint does not name, and whose value before is not known, "
         "stay as"),
        (facts(), {}, "there is no checkpoint"),
        (facts(receipt=""), {}, "there is no checkpoint"),
        (facts(files=FILES, spec=DRIVER, boot=LOCAL.format("lvm", "1min")), {},
         "a boot that fails: GRUB cannot write to /boot"),
        (facts(files=FILES, spec=DRIVER, boot=LOCAL.format("", "0")), {}, "no watchdog resets the host"),
        (facts(files=FILES, spec=DRIVER, boot=EFI), {},
         "a boot that fails: the firmware's variables cannot be written"),
        (facts(files=FILES, spec=DRIVER, boot=LOCAL.format("", "1min") + "pending=/etc/default/grub\n"), {},
         "/etc/default/grub: newer than GRUB's menu, which is made anew before the reboot"),
    ],
)  # fmt: skip
def test_what_does_not_come_back_is_named(found: Facts, more: dict[str, Any], said: str) -> None:
    lines = told(found, **more)
    assert said in lines
    assert len(lines.splitlines()) == 1


def test_a_fresh_host_has_nothing_to_go_back_to() -> None:
    fresh = [Change(kind="package", name="nvidia-smi", after="550.1-1")]
    assert told(facts(receipt=""), moves=fresh, reboots=False) == "", "nothing of the site is replaced"


def test_a_boot_that_does_not_come_is_not_told_of() -> None:
    assert told(facts(files=FILES, spec=DRIVER, boot=LOCAL.format("lvm", "0")), reboots=False) == ""
