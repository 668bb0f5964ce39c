"""nvidia_driver.build_host: modules of another host are whole, recorded and for every kernel; and who can be a build
host."""

from __future__ import annotations

import textwrap
from pathlib import Path

from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.software.packages import PACKAGES
from gpuprov.fleet.specs import load_fleet
from gpuprov.spec.problem import SpecError
from tests import key_pairs
from tests.capabilities.asking import PROPRIETARY, VERSION, Row, ask, judge, packages
from tests.rows import run_each

SERVED = NvidiaDriver(build_host="builder")
ITSELF = NvidiaDriver(build_host="gpu1")
NAME = "nvidia-kernel-dkms-prebuilt"
KO = "lib/modules/6.1.0-47-amd64/updates/dkms/nvidia-current.ko"
ROCKY = 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n'


def brought(sums: str = "ab", recorded: str = "ab", **files: str) -> dict[str, Output | str]:
    """What is read of the package; `files`: state by path, the good module if none is given."""
    lines = [
        f"package|{NAME}|{sums}|{recorded}",
        *(f"file|{path}: {state}" for path, state in (files or {KO: "OK"}).items()),
    ]
    return {"prebuilt_modules": "".join(f"{line}\n" for line in lines)}


def held(state: str = "hi ") -> dict[str, Output | str]:
    return {"packages": f"{state}|linux-image-amd64|6.1.174-1|linux-signed-amd64\n"}


ONCE, FAMILY = "nvidia_driver.built_once", "nvidia_driver.build_family"
ROWS = [
    Row("nothing is asked", ONCE, None, {}, "n/a", "itself"),
    Row("the build host itself", ONCE, ITSELF, {}, "n/a", "itself"),
    Row("a package is left", ONCE, None, brought(), "fail", f"{NAME} is installed", "gpuprov apply"),
    Row("on the build host too", ONCE, ITSELF, brought(), "fail", f"{NAME} is installed", "gpuprov apply"),
    Row("whole and held", ONCE, SERVED, {**brought(), **held()}, "pass", f"{NAME}: 1 file for 6.1.0-47-amd64"),
    Row("no package", ONCE, SERVED, {}, "fail", "no package", "gpuprov apply"),
    Row("two packages", ONCE, SERVED, {"prebuilt_modules": "package|a|b|b\npackage|c|d|d\n"}, "fail", "a, c"),
    Row("nothing was recorded", ONCE, SERVED, brought(recorded=""), "fail", "not the recorded one", "gpuprov apply"),
    Row("another list", ONCE, SERVED, brought(sums="cd"), "fail", "not the recorded one", "gpuprov apply"),
    Row("no list", ONCE, SERVED, brought(sums="", recorded=""), "fail", "not the recorded one"),
    Row("a damaged module", ONCE, SERVED, brought(**{KO: "FAILED"}), "fail", f"not as packed: {KO}", "gpuprov apply"),
    Row("a module is gone", ONCE, SERVED, brought(**{KO: "FAILED open or read"}), "fail", f"not as packed: {KO}"),
    Row("a kernel without modules", ONCE, SERVED,
        {**brought(), "kernels": "6.1.0-47-amd64|1|0|535.261.03|1\n6.1.0-48-amd64|1|0||1\n"}, "fail",
        "none for 6.1.0-48-amd64", "on builder, apply it, then this host"),
    Row("the kernel can move", ONCE, SERVED, {**brought(), **held("ii ")}, "fail", "linux-image-amd64",
        "apt-mark hold"),
    Row("nothing asked of a family", FAMILY, None, {"os_release": ROCKY}, "n/a"),
    Row("Debian packs", FAMILY, SERVED, {}, "n/a", "builder"),
    Row("EL does not", FAMILY, SERVED, {"os_release": ROCKY}, "fail", "rpmbuild", "no build_host"),
    Row("no headers needed", "nvidia_driver.headers", SERVED, {"kernels": "6.1.0-47-amd64|1|0||1\n"}, "n/a", "builder"),
    Row("DKMS is not there", "nvidia_driver.autobuild", SERVED, {"dkms_no_autoinstall": "1\n"}, "pass", "builder"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check.partition('.')[2]}: {row.name}")
def test_the_answer(row: Row) -> None:
    judge(row)


def test_held_kernels_are_not_asked_for_without_hold() -> None:
    free = NvidiaDriver(build_host="builder", hold=False)
    assert ask(ONCE, free, **brought(), **held("ii ")).status == "pass"


def test_the_package_stands_for_the_dkms_package() -> None:
    names = [NAME if name == "nvidia-kernel-dkms" else name for name in PROPRIETARY]
    text = packages(names)
    found = PACKAGES.parse(Output(text))
    assert found["nvidia-kernel-dkms"].version == VERSION
    for check in ("packages", "flavour", "held", "modules_built", "loaded", "user_space"):
        assert ask(f"nvidia_driver.{check}", SERVED, packages=text).status == "pass", check


def test_a_name_of_somebody_elses_stands_for_nothing() -> None:
    assert list(PACKAGES.parse(Output("ii |linux-image-prebuilt|1|linux\n"))) == ["linux-image-prebuilt"]


def test_signed_elsewhere(tmp_path: Path) -> None:
    driver = NvidiaDriver(build_host="builder", signing=key_pairs.site(tmp_path))
    module = f"module|6.1.0-47-amd64|nvidia-current|test modules|{key_pairs.SERIAL:x}\n"
    assert ask("nvidia_driver.signed", driver, module_signing=module).status == "pass"
    assert ask("nvidia_driver.signed", driver, module_signing=module + "key|root 600\n").status == "fail"
    assert ask("nvidia_driver.signed", driver, module_signing="").status == "fail"
    assert ask("nvidia_driver.signing_tool", driver, packages="ii |dkms|2.8.7-2|dkms\n").status == "n/a"


def problems(tmp_path: Path, builder: str, gpu1: str = "{build_host: builder}", limit: str | None = None) -> list[str]:
    file = tmp_path / "hosts.yaml"
    file.write_text(
        textwrap.dedent(f"""\
        all:
          hosts:
            builder: {builder}
            gpu1: {{gpuprov: {{nvidia_driver: {gpu1}}}}}
        """)
    )
    try:
        load_fleet([str(file)], limit, cache=False)
    except SpecError as error:
        return [str(problem) for problem in error.problems]
    return []


GOOD = "{gpuprov: {nvidia_driver: {build_host: builder}}}"
BAD = {
    "unmanaged": ("{}", "builder has no nvidia_driver of its own"),
    "without a driver": ("{gpuprov: {nouveau: {}}}", "builder has no nvidia_driver of its own"),
    "for itself": ("{gpuprov: {nvidia_driver: {}}}", "its own build_host is not set"),
    "another version": (
        '{gpuprov: {nvidia_driver: {build_host: builder, version: "535"}}}',
        "another driver: version 535, here any",
    ),
    "another flavour": (
        "{gpuprov: {nvidia_driver: {build_host: builder, kernel_modules: open}}}",
        "kernel_modules open, here auto",
    ),
}


def test_a_build_host_that_can_be_one(tmp_path: Path) -> None:
    assert not problems(tmp_path, GOOD)


@run_each("name", BAD)
def test_a_build_host_that_cannot(tmp_path: Path, name: str) -> None:
    builder, reason = BAD[name]
    told = problems(tmp_path, builder)
    assert len(told) == 1, told
    assert reason in told[0]
    assert ";" in told[0], "no way out"


def test_a_build_host_that_is_not_there(tmp_path: Path) -> None:
    told = problems(tmp_path, GOOD, "{build_host: nobody}")
    assert len(told) == 1
    assert "nobody is not a host of the inventory" in told[0]


def test_a_build_host_outside_the_limit_is_not_judged(tmp_path: Path) -> None:
    assert not problems(tmp_path, "{}", limit="gpu1")


def test_a_build_host_that_points_elsewhere(tmp_path: Path) -> None:
    told = problems(tmp_path, "{gpuprov: {nvidia_driver: {build_host: gpu1}}}")
    assert any("its own build_host is gpu1" in line for line in told)
