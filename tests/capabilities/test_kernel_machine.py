"""kernel: hugepages, CPU governor, NUMA balancing: checks, what they imply, the program of the unit, the probes' own
scripts."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities import kernel
from gpuprov.capabilities.kernel.desired import MODULES, UNIT, UNIT_FILE
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import hardware
from gpuprov.spec.across import report_conflict
from gpuprov.spec.kernel import Conflict, Contribution, Kernel, merge
from gpuprov.spec.model import HostSpec
from tests.capabilities import at_boot
from tests.capabilities.asking import BARE, Row, facts, judge
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.kernel_host import frequency
from tests.rows import run_each

HUGE, GOVERNOR, NUMA, FILES, ENABLED, ACTIVE = (
    f"kernel.{name}" for name in ("hugepages", "governor", "numa_balancing", "files", "enabled", "active")
)
PAGES, GIANT, FAST = Kernel(hugepages={"2M": 64}), Kernel(hugepages={"1G": 2}), Kernel(cpu_governor="performance")
METAL, GUEST, PODMAN = {"machine": "kind|none\n"}, {"machine": "kind|kvm\n"}, {"container": "podman\n"}
ON = ("loaded", "active", "enabled")


def rates(*names: str, **more: object) -> dict[str, str]:
    return METAL | {"cpu_frequency": frequency(*names, **more)}  # type: ignore[arg-type]


ROWS = [
    Row("nothing asked", HUGE, None, {}, "n/a", "not in the spec"),
    Row("as many as asked", HUGE, PAGES, {"hugepages": "2048 64\n"}, "pass", "64 x 2M"),
    Row("more than asked", HUGE, PAGES, {"hugepages": "2048 128\n"}, "pass", "128 x 2M"),
    Row("memory in pieces", HUGE, PAGES, {"hugepages": "2048 40\n"}, "fail", "40 x 2M", "reboot",
        reboot="memory for 64 x 2M", change="setting hugepages 2M: 40 -> 64"),
    Row("started without", HUGE, GIANT, {}, "fail", "0 x 1G", "reboot", reboot="memory for 2 x 1G"),
    Row("memory too small, and pages of 2M are few as well", HUGE, Kernel(hugepages={"1G": 2, "2M": 64}),
        {"hugepages": "2048 8\n1048576 1\n", "command_line": "quiet hugepagesz=1G hugepages=2"}, "fail",
        "8 x 2M; 1 x 1G, although the kernel was started with 2 x 1G", change="setting hugepages 2M: 8 -> 64",
        reboot="memory for 2 x 1G, 64 x 2M"),
    Row("memory too small", HUGE, GIANT,
        {"hugepages": "2048 0\n1048576 1\n", "command_line": "quiet hugepagesz=1G hugepages=2"}, "fail",
        "1 x 1G, although the kernel was started with 2 x 1G"),
    Row("a processor without", HUGE, GIANT, {"hugepages": "2048 0\n"}, "fail", "no pages of 1G; there are: 2048 KiB"),
    Row("a kernel without", HUGE, PAGES, {"hugepages": ""}, "fail", "there are: none"),
    Row("a container", HUGE, PAGES, PODMAN, "skip", "the machine's"),
    Row("nothing asked", GOVERNOR, None, {}, "n/a", "not in the spec"),
    Row("fast", GOVERNOR, FAST, METAL, "pass", "performance in 2 policies"),
    Row("one is slow", GOVERNOR, FAST, rates("performance", "powersave", rival="tuned.service"), "fail",
        "powersave in 1 of 2", "tuned.service may set another",
        change="setting governor: powersave in 1 of 2 -> performance"),
    Row("two wrong", GOVERNOR, FAST, rates("performance", "powersave", "schedutil"), "fail",
        "powersave, schedutil in 2 of 3"),
    Row("a governor that is not there", GOVERNOR, Kernel(cpu_governor="ondemand"), METAL, "fail",
        "performance, powersave"),
    Row("bare metal without", GOVERNOR, FAST, rates(), "fail", "no CPU has a governor", "intel_pstate"),
    Row("a virtual machine without", GOVERNOR, FAST, {**rates(), **GUEST}, "skip", "cannot set CPU frequencies"),
    Row("a container", GOVERNOR, FAST, {**METAL, **PODMAN}, "skip", "the machine's"),
    Row("nothing asked", ENABLED, None, METAL, "n/a", "no unit"),
    Row("not asked any more", ENABLED, None, METAL | {"contents": unit(UNIT, "active", "enabled")}, "fail",
        "is enabled"),
    Row("not asked, and there", FILES, None, METAL | {"contents": Also(f"entry|f|644|0|0|{UNIT_FILE}\n")}, "fail",
        "service: there"),
    Row("set at boot", ENABLED, FAST, METAL, "pass", f"{UNIT} enabled"),
    Row("never applied", ENABLED, FAST, METAL | {"contents": unit(UNIT, "inactive", "")}, "fail", "is not-found",
        "gpuprov apply"),
    Row("another one", FILES, FAST, METAL | {"contents": Also(f"sum|0  {UNIT_FILE}\n")}, "fail",
        f"{UNIT_FILE}: another text"),
    Row("failed", ACTIVE, FAST, METAL | {"contents": unit(UNIT, "failed", "enabled", "governor: expected performance")},
        "fail",
        'failed ("governor: expected performance")', "cpu_governor: keep"),
    Row("switched off", ENABLED, FAST, METAL | {"contents": unit(UNIT, "inactive", "disabled")}, "fail", "is disabled"),
    Row("bare metal without", ENABLED, FAST, {**rates(), "contents": unit(UNIT, "inactive", "")}, "skip",
        "no CPU has a governor"),
    Row("a virtual machine", ENABLED, FAST, {**rates(), **GUEST, "contents": unit(UNIT, "inactive", "")}, "skip",
        "cannot set CPU"),
    Row("a virtual machine", ACTIVE, FAST, {**rates(), **GUEST, "contents": unit(UNIT, "active", "enabled")}, "fail",
        "is active"),
    Row("nothing asked", NUMA, None, {}, "n/a", "not in the spec"),
    Row("off", NUMA, Kernel(numa_balancing="disabled"), {"sysctl": "kernel.numa_balancing = 0\n"}, "pass", "=0"),
    Row("on", NUMA, Kernel(numa_balancing="enabled"), {"sysctl": "kernel.numa_balancing = 1\n"}, "pass", "=1"),
    Row("still on", NUMA, Kernel(numa_balancing="disabled"), {"sysctl": "kernel.numa_balancing = 1\n"}, "fail",
        "kernel.numa_balancing=1", change="setting kernel.numa_balancing: 1 -> 0"),
    Row("a kernel without", NUMA, Kernel(numa_balancing="disabled"), {"sysctl": BARE["sysctl"]}, "fail",
        "this kernel has no"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=f"{row.check}: {row.name}") for row in ROWS])
def test_machine(row: Row) -> None:
    judge(row)


def merged(**kernels: Kernel) -> tuple[Kernel, list[Conflict]]:
    return merge(Contribution(source, one) for source, one in kernels.items())


def test_what_they_imply() -> None:
    found, conflicts = merged(
        kernel=Kernel(hugepages={"2M": 64, "1G": 2}, numa_balancing="disabled"),
        rdma=Kernel(hugepages={"2M": 512}, cpu_governor="performance"),
    )
    assert not conflicts
    assert found.sysctl == {"vm.nr_hugepages": 512, "kernel.numa_balancing": 0}
    assert found.command_line == {"hugepagesz": "1G", "hugepages": "2"}
    assert list(found.command_line) == ["hugepagesz", "hugepages"], "the kernel reads a number after its size"
    twice, _ = merged(kernel=Kernel(hugepages={"1G": 2}, command_line={"hugepages": "2", "quiet": ""}))
    assert list(twice.command_line) == ["quiet", "hugepagesz", "hugepages"]
    assert (found.hugepages, found.cpu_governor) == ({"2M": 512, "1G": 2}, "performance")
    assert merged(kernel=found) == (found, []), "merging what is merged changes nothing"


@run_each(
    ("first", "second", "told"),
    [
        (FAST, Kernel(cpu_governor="powersave"), 'kernel.cpu_governor is "performance" by kernel and "powersave" by x'),
        (Kernel(numa_balancing="enabled"), Kernel(numa_balancing="disabled"), "kernel.numa_balancing is"),
        (Kernel(sysctl={"kernel.numa_balancing": 1}), Kernel(numa_balancing="disabled"),
            "is 1 by kernel and 0 by kernel's"),
        (GIANT, Kernel(command_line={"hugepages": "7"}), 'kernel.command_line.hugepages is "7" by x and "2" by kernel'),
    ],
)  # fmt: skip
def test_what_must_agree(first: Kernel, second: Kernel, told: str) -> None:
    _, (conflict,) = merged(kernel=first, x=second)
    problem = report_conflict(conflict)
    assert told in problem.message
    assert "" not in problem.path


def test_rules() -> None:
    block = Kernel(hugepages={"2M": 8}, command_line={"default_hugepagesz": "1G"})
    (problem,) = kernel.rules(HostSpec(name="h"), block)
    assert "default_hugepagesz is 1G" in problem.message
    assert not list(
        kernel.rules(HostSpec(name="h"), Kernel(hugepages={"2M": 8}, command_line={"default_hugepagesz": "2M"}))
    )


@run_each(
    ("text", "governor"),
    [
        (frequency("performance", asked="performance", unit=ON), "performance"),
        (frequency("performance", "powersave", asked="performance", unit=ON), None),
        (frequency("performance"), None),
    ],
)
def test_export(text: str, governor: str | None) -> None:
    found = kernel.export(facts(sysctl_files="", login_limits="", default_limits="", cpu_frequency=text))
    assert found == (Kernel(cpu_governor=governor) if governor else None)  # type: ignore[arg-type]


def policies(root: Path, *governors: str) -> Path:
    for number, name in enumerate(governors):
        folder = root / f"sys/devices/system/cpu/cpufreq/policy{number}"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{name}\n")
        (folder / "scaling_available_governors").write_text("performance powersave \n")
    return root


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return at_boot.run(
        root, "kernel", MODULES, lambda text: re.sub("/(sys|lib)/", f"{root}/\\1/", text), *words, env=os.environ
    )


def test_the_program_sets_every_policy_and_reads_it_back(tmp_path: Path) -> None:
    policies(tmp_path, "powersave", "performance")
    done = run(tmp_path, "set", "performance")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert governors(tmp_path) == ["performance", "performance"]


def governors(root: Path) -> list[str]:
    found = sorted((root / "sys/devices/system/cpu/cpufreq").glob("policy*/scaling_governor"))
    return [file.read_text().strip() for file in found if file.is_file()]


def loadable(root: Path, *governors: str) -> None:
    folder = root / "lib/modules" / os.uname().release / "kernel/drivers/cpufreq"
    folder.mkdir(parents=True)
    for name in governors:
        (folder / f"cpufreq_{name}.ko.xz").touch()


def test_a_policy_whose_cpus_are_offline_is_left_out(tmp_path: Path) -> None:
    """Reading its governor is refused with EBUSY; here, a folder refuses it."""
    policies(tmp_path, "powersave", "powersave")
    file = tmp_path / "sys/devices/system/cpu/cpufreq/policy1/scaling_governor"
    file.unlink()
    file.mkdir()
    done = run(tmp_path, "set", "performance")
    assert (done.returncode, done.stderr) == (0, "")
    assert governors(tmp_path) == ["performance"]


@pytest.mark.install
def test_what_the_program_refuses(tmp_path: Path) -> None:
    done = run(tmp_path, "set", "performance")
    assert (done.returncode, done.stderr) == (1, "governor: no CPU has a governor\n")
    policies(tmp_path, "powersave")
    assert run(tmp_path, "other").stderr == run(tmp_path, "set").stderr == "governor: usage: governor set GOVERNOR\n"
    file = tmp_path / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
    file.unlink()
    file.symlink_to("/proc/version")  # which takes no other word
    done = run(tmp_path, "set", "performance")
    assert done.returncode == 1
    assert done.stderr.startswith("governor: expected performance, and policy0 stays")


def test_the_probes_read_a_tree(tmp_path: Path) -> None:
    """A governor that is a module still to be loaded counts, but for a driver with policies of its own: intel_pstate,
    active."""
    loadable(policies(tmp_path, "powersave", "powersave"), "schedutil")
    (tmp_path / "sys/devices/system/cpu/cpufreq/policy1/scaling_driver").write_text("intel_pstate\n")
    pages = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB"
    pages.mkdir(parents=True)
    (pages / "nr_hugepages").write_text("12\n")
    unit = tmp_path / "etc/systemd/system/gpuprov-cpu-governor.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/usr/bin/python3 -B -m kernel.governor set powersave\n")
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin/systemctl"
    shown = "printf 'LoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n'"
    active = "for u; do case $u in tuned.service) echo active ;; is-*) ;; *) echo inactive ;; esac; done; exit 3"
    fake.write_text(f"#!/bin/sh\ncase $1 in show) {shown} ;; *) {active} ;; esac\n")
    fake.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    texts = [
        subprocess.run(
            ["sh", "-c", re.sub("/(sys|etc|lib)/", f"{tmp_path}/\\1/", probe.script)],
            capture_output=True, text=True, check=True, timeout=20, env=env,
        ).stdout
        for probe in (hardware.FREQUENCY, hardware.HUGEPAGES)
    ]  # fmt: skip
    state = hardware.FREQUENCY.parse(Output(texts[0]))
    assert [(one.governor, one.available) for one in state.policies] == [
        ("powersave", ("performance", "powersave", "schedutil")),
        ("powersave", ("performance", "powersave")),
    ]
    assert (state.governor, state.file, state.rivals) == ("powersave", "enabled", ("tuned.service",))
    assert hardware.HUGEPAGES.parse(Output(texts[1])) == {2048: 12}
