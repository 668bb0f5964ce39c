"""nvidia_driver.source: runfile: one file of one checksum and version, no package beside it, the same checks of the
driver."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from gpuprov.capabilities import nvidia_driver
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, Runfile
from gpuprov.capabilities.nvidia_driver.runfile import ANSWERS
from gpuprov.catalog.drivers.any import build_patterns
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.runfile import RUNFILE
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import B200, CHECKS, H100, NO_GPU, PODMAN, Row, ask, facts, judge, packages
from tests.facts.probes import captured
from tests.rows import run_each

SHA = "ab" * 32
FILE = Runfile(url="https://mirror.example/NVIDIA-Linux-x86_64-535.261.03.run", sha256=SHA)
MINE = NvidiaDriver(version="535.261.03", source="runfile", runfile=FILE)
OPEN = NvidiaDriver(version="535.261.03", source="runfile", runfile=FILE, kernel_modules="open")
K = "6.1.0-47-amd64"
NONE: dict[str, Output | str] = {"packages": ""}


def installed(version: str = "535.261.03", license_: str = "NVIDIA", sha256: str = SHA) -> dict[str, Output | str]:
    """What is read of a .run file's driver."""
    lines = [
        "program|/usr/bin/nvidia-uninstall",
        "program|/usr/bin/nvidia-installer",
        f"record|1.0-{version.replace('.', '')} ({version})",
        f"module|{K}|{license_}",
    ]
    ours = f'ours|{{"version": "{version}", "url": "{FILE.url}", "file": "", "sha256": "{sha256}"}}'
    return {"runfile": "\n".join([*lines, *([ours] if sha256 else [])]) + "\n"}


def at(check: str) -> str:
    return f"nvidia_driver.{check}"


ROWS = [
    Row("installed", at("packages"), MINE, {**NONE, **installed()}, "pass", "535.261.03 of a runfile"),
    Row("not there", at("packages"), MINE, NONE, "fail", "no runfile installation", "gpuprov apply"),
    Row("another version", at("packages"), MINE, {**NONE, **installed("550.163.01")}, "fail", "550.163.01",
        "gpuprov apply"),
    Row("the record may not be read", at("packages"), MINE, {**NONE, "runfile": "unreadable|\n"}, "fail",
        "may not be read", "root"),
    Row("of the file", at("runfile"), MINE, installed(), "pass", SHA),
    Row("of another file", at("runfile"), MINE, installed(sha256="cd" * 32), "fail", "cd" * 32, "gpuprov apply"),
    Row("of nobody knows which", at("runfile"), MINE, installed(sha256=""), "fail", "gpuprov did not install it",
        "gpuprov apply"),
    Row("not asked for", at("runfile"), None, {}, "n/a", "not in the spec"),
    Row("alone", at("runfile_alone"), MINE, NONE, "pass", "no package"),
    Row("an upgrade brought a library", at("runfile_alone"), MINE,
        {"packages": "ii |libnvidia-ml1|535.309.01-0+deb12u1|nvidia-graphics-drivers\n"}, "fail",
        "libnvidia-ml1=535.309.01-0+deb12u1", "apt-get purge libnvidia-ml1"),
    Row("packages are asked for", at("runfile_alone"), None, {}, "n/a", "from packages"),
    Row("packages are in the way", at("leftovers"), MINE, {}, "fail", "nvidia-kernel-dkms=535.261.03-1",
        "apt-get purge"),
    Row("nothing interferes", at("leftovers"), MINE, {**NONE, **installed("550.163.01")}, "pass"),
    Row("a fresh host", at("resolvable"), MINE, NONE, "pass", "535.261.03 (proprietary",
        change="package NVIDIA's runfile:  -> 535.261.03"),
    Row("another version leaves", at("resolvable"), MINE, {**NONE, **installed("550.163.01")}, "pass", "535.261.03",
        change="package NVIDIA's runfile: 550.163.01 -> 535.261.03"),
    Row("nouveau has the GPU, and the installer would try its modules", at("resolvable"), MINE,
        {**NONE, "nvidia_functions": H100.replace(" nvidia\n", " nouveau\n")}, "fail", "bound to nouveau",
        "--only kernel,nouveau, reboot"),
    Row("nouveau has the GPU, and the installer tries nothing", at("resolvable"),
        NvidiaDriver(version="580.95.05", source="runfile", runfile=FILE),
        {**NONE, "nvidia_functions": H100.replace(" nvidia\n", " nouveau\n")}, "pass", "580.95.05"),
    Row("Secure Boot, and DKMS's own key enrolled", at("secure_boot"), MINE,
        {"secure_boot": captured("secure_boot", "on"), "dkms_key_enrolled": "enrolled|/var/lib/dkms/mok.pub\n"}, "fail",
        "does not sign its modules with DKMS's key", "nvidia_driver.signing"),
    Row("the GPU wants another flavour", at("resolvable"), NvidiaDriver(version="580.95.05", source="runfile",
                                                                        runfile=FILE,
        kernel_modules="proprietary"), {**NONE, "nvidia_functions": B200}, "fail", "open modules only",
        "kernel_modules at auto"),
    Row("the GPU is too new", at("resolvable"), OPEN, {**NONE, "nvidia_functions": B200}, "fail", "needs 570 or newer",
        "gpuprov catalog"),
    Row("the flavour", at("flavour"), MINE, {**NONE, **installed()}, "pass", "proprietary"),
    Row("the other flavour is built", at("flavour"), OPEN, {**NONE, **installed()}, "fail", f"proprietary for {K}",
        "gpuprov apply"),
    Row("the other flavour is loaded", at("flavour"), OPEN, {**NONE, **installed(license_="Dual MIT/GPL")}, "fail",
        "loaded: proprietary", "reload", reboot="the other flavour is loaded"),
    Row("no module at all", at("flavour"), MINE, {**NONE, "runfile": ""}, "fail", "no kernel has an NVIDIA module"),
    Row("nothing to hold", at("held"), MINE, NONE, "pass", "no upgrade moves what no package owns"),
    Row("built", at("modules_built"), MINE, NONE, "pass", "535.261.03"),
    Row("not built", at("modules_built"), MINE, {**NONE, "kernels": f"{K}|1|1||1\n"}, "fail", f"{K}: none",
        "dkms status"),
    Row("no headers", at("headers"), MINE, {**NONE, "kernels": f"{K}|1|0|535.261.03|1\n"}, "fail", f"none for {K}",
        "gpuprov apply"),
    Row("loaded", at("loaded"), MINE, NONE, "pass", "535.261.03"),
    Row("an older one is loaded", at("loaded"), NvidiaDriver(version="580.95.05", source="runfile", runfile=FILE), NONE,
        "fail",
        "535.261.03", "reload", reboot="the loaded module is 535.261.03, its package is 580.95.05"),
    Row("no GPU", at("loaded"), MINE, {**NONE, **NO_GPU}, "skip", "no NVIDIA GPU"),
    Row("in a container", at("loaded"), MINE, {**NONE, **PODMAN}, "skip", "podman"),
    Row("libraries", at("user_space"), MINE, NONE, "pass", "libcuda 535.261.03"),
    Row("libraries of others", at("user_space"), NvidiaDriver(version="580.95.05", source="runfile", runfile=FILE),
        NONE, "fail",
        "libcuda 535.261.03", "libraries win"),
    Row("its source", at("source"), MINE, {**NONE, **installed()}, "pass", "/usr/bin/nvidia-uninstall"),
    Row("another source", at("source"), MINE, {}, "fail", "no runfile installation"),
    Row("where it comes from", at("source_offered"), MINE, {}, "pass", "mirror.example"),
    Row("no repository", at("repository"), MINE, {}, "n/a"),
    Row("CUDA", at("cuda"), NvidiaDriver(version="535.261.03", source="runfile", runfile=FILE, cuda="12.2"), NONE,
        "pass",
        "535.261.03"),
    Row("parameters of the module nvidia", at("module_parameters"),
        NvidiaDriver(version="535.261.03", source="runfile", runfile=FILE, module_parameters={"NVreg_EnableMSI": 1}),
        {**NONE, "modprobe_config": "options nvidia-current NVreg_EnableMSI=1\n"}, "fail", "NVreg_EnableMSI=missing"),
    Row("packages are refused beside it", at("leftovers"), None, {"runfile_leftovers": "/usr/bin/nvidia-uninstall\n"},
        "fail",
        "a runfile installation"),
    Row("built, so no space is needed", at("space"), MINE, {**NONE, "space": "512000 /boot\n10 /var\n"}, "skip",
        "nothing to install"),
    Row("DKMS builds", at("precompiled"), MINE, NONE, "n/a", "DKMS"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check.partition('.')[2]}: {row.name}")
def test_the_answer(row: Row) -> None:
    judge(row)


def test_every_other_question_stands_for_a_check() -> None:
    assert set(ANSWERS) <= set(CHECKS)


def rules(driver: NvidiaDriver, **beside: object) -> list[str]:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": driver, **beside})  # type: ignore[dict-item]
    return [
        f"{problem.message} -> {problem.fix}"
        for problem in nvidia_driver.rules(host, driver)
        if problem.severity == "error"
    ]


def test_one_change_is_told_once() -> None:
    """Another version comes with another file: nvidia_driver.resolvable tells of it."""
    assert [c.before for c in ask(at("runfile"), MINE, **installed(sha256="cd" * 32)).changes] == ["cdcdcdcdcdcd"]
    assert ask(at("runfile"), MINE, **installed("550.163.01", sha256="cd" * 32)).changes == ()


def test_a_good_spec() -> None:
    assert rules(MINE) == []


@run_each(
    ("changed", "told"),
    [
        ({"version": "535"}, "a runfile has exactly one"),
        ({"version": "any"}, "a runfile has exactly one"),
        ({"runfile": Runfile(url=FILE.url)}, "no sha256: root would run whatever is in the file"),
        ({"runfile": Runfile(sha256=SHA)}, "neither a url nor a file"),
        ({"runfile": Runfile(url=FILE.url, file="/x", sha256=SHA)}, "both a url and a file"),
        ({"runfile": Runfile(file="/not/there.run", sha256=SHA)}, "/not/there.run is not there"),
        ({"version": "580.95.05"}, "is named NVIDIA-Linux-x86_64-535.261.03.run, and version is 580.95.05"),
        ({"build_host": "gpu2"}, "built on each host"),
        ({"build": "precompiled"}, "has its modules built by DKMS"),
    ],
)
def test_what_is_refused(changed: dict[str, object], told: str) -> None:
    given = {"version": "535.261.03", "source": "runfile", "runfile": FILE, **changed}
    found = rules(NvidiaDriver(**given))  # type: ignore[arg-type]
    assert [line for line in found if told in line], found
    assert all(line.partition(" -> ")[2] for line in found)


def test_fabric_manager_is_refused_with_the_way_out() -> None:
    found = rules(MINE, fabric_manager=None)
    assert len(found) == 1
    assert "fabric_manager follows the driver's packages" in found[0]
    assert "source: nvidia" in found[0]


def test_a_file_beside_the_inventory(tmp_path: Path) -> None:
    (tmp_path / "driver.run").write_bytes(b"#!/bin/sh\n")
    given = Runfile(file=str(tmp_path / "driver.run"), sha256=sha256(b"#!/bin/sh\n").hexdigest())
    assert rules(NvidiaDriver(version="535.261.03", source="runfile", runfile=given)) == []


def test_what_counts_as_a_drivers_package() -> None:
    for os_id, version in (("debian", "12"), ("ubuntu", "24.04"), ("rocky", "9.6"), ("rhel", "10.0")):
        release = f'ID={os_id}\nVERSION_ID="{version}"\n'
        assert build_patterns(os_id, version)[0] != "(?!)"
        others = (
            "nvidia-container-toolkit libnvidia-container1 cuda-toolkit-12-8 datacenter-gpu-manager-4-core libnccl2"
        )
        lines = "".join(f"ii |{name}|1|{name}\n" for name in others.split())
        assert ask(at("runfile_alone"), MINE, os_release=release, packages=lines).status == "pass", os_id
    bad = {
        "debian": "libcuda1 nvidia-open cuda-drivers-580",
        "ubuntu": "libnvidia-compute-580 nvidia-utils-580-server linux-modules-nvidia-580-generic",
    }
    for os_id, names in bad.items():
        release = 'ID=ubuntu\nVERSION_ID="24.04"\n' if os_id == "ubuntu" else 'ID=debian\nVERSION_ID="12"\n'
        for name in names.split():
            assert (
                ask(at("runfile_alone"), MINE, os_release=release, packages=f"ii |{name}|580.95.05-1|x\n").status
                == "fail"
            ), name


def test_export() -> None:
    given: dict[str, Output | str] = {
        "os_release": 'ID=debian\nVERSION_ID="12"\n',
        "nvidia_functions": H100,
        "packages": "",
    }
    told = facts(**given, modprobe_config="options nvidia NVreg_EnableMSI=1\n", **installed())
    exported = nvidia_driver.CAPABILITY.export(told)
    assert exported == NvidiaDriver(
        version="535.261.03",
        source="runfile",
        kernel_modules="proprietary",
        runfile=FILE,
        module_parameters={"NVreg_EnableMSI": "1"},
    )
    without = facts(**given, modprobe_config="", runfile=str(installed()["runfile"]).replace("module|", "none|"))
    assert getattr(nvidia_driver.CAPABILITY.export(without), "kernel_modules", "") == "proprietary", (
        "no module is not an open one"
    )
    by_hand = nvidia_driver.CAPABILITY.export(facts(**given, modprobe_config="", **installed(sha256="")))
    assert isinstance(by_hand, NvidiaDriver)
    assert by_hand.runfile == Runfile()
    assert any("sha256" in line for line in rules(by_hand)), "its file is not known: the rules ask for it"


def test_what_is_read() -> None:
    found = RUNFILE.parse(Output(str(installed(license_="Dual MIT/GPL")["runfile"])))
    assert (found.version, found.open, found.ours["sha256"]) == ("535.261.03", {K: True}, SHA)
    assert RUNFILE.parse(Output("")).version == ""
    assert RUNFILE.parse(Output("record|\nours|{broken\nmodule|x\n")).ours == {}
    assert RUNFILE.parse(Output('ours|["a"]\n')).ours == {}
    assert packages()  # the good host has packages: see the rows
