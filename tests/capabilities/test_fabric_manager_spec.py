"""fabric_manager with the driver, in the spec, asked of the kernel, exported."""

from __future__ import annotations

from gpuprov.capabilities import HOUSE, fabric_manager
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.capabilities.host import House
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import (
    CHECKS,
    FABRIC_MANAGER,
    GOOD,
    H100,
    NVSWITCH,
    ask,
    daemon,
    facts,
    good,
    packages,
    units,
)
from tests.facts.probes import captured
from tests.rows import run_each

NAME, VERSION = "nvidia-fabricmanager-535", "535.261.03"
AMAZON = 'ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"\n'
DEBIAN = 'ID=debian\nVERSION_ID="12"\n'
SHARED = FabricManager(fabric_mode="shared-nvswitch", settings={"LOG_LEVEL": 3})


def installed(version: str = VERSION, name: str = NAME, state: str = "hi ") -> str:
    return f"{state}|{name}|{version}-1|fabricmanager\n"


def fm(check: str) -> str:
    return f"fabric_manager.{check}"


def offered(**versions: str) -> str:
    """apt-cache madison: versions of each package, by its name with underscores."""
    rows = [(name.replace("_", "-"), version) for name, listed in versions.items() for version in listed.split()]
    return "".join(f" {name} | {version} | https://mirror.example/nvidia  Packages\n" for name, version in rows)


def resolvable(**changed: str) -> tuple[str, str, str, list[str]]:
    if "fabric_packages" in changed:
        changed = {"packages": packages().replace(FABRIC_MANAGER, changed["fabric_packages"]), **changed}
    outcome = ask(fm("resolvable"), None, **changed)
    changes = [f"{change.name}: {change.before} -> {change.after}" for change in outcome.changes]
    return outcome.status, outcome.found, outcome.fix, changes


def test_it_follows_the_installed_driver() -> None:
    index = offered(nvidia_fabricmanager_535="535.309.01-1 535.261.03-1", nvidia_fabricmanager="580.95.05-1")
    assert resolvable()[:2] == ("pass", f"{NAME} {VERSION}-1")
    assert resolvable(fabric_packages="", package_index=index)[3] == [f"{NAME}:  -> {VERSION}-1"]
    other = installed("580.95.05", "nvidia-fabricmanager")
    assert resolvable(fabric_packages=other, package_index=index)[3] == [
        "nvidia-fabricmanager: 580.95.05-1 -> ",
        f"{NAME}:  -> {VERSION}-1",
    ]


def test_it_cannot_be_had_for_the_installed_driver() -> None:
    status, found, fix, _ = resolvable(
        fabric_packages="", package_index=offered(nvidia_fabricmanager_535="535.309.01-1")
    )
    assert (status, found) == (
        "fail",
        f"the host's repositories have no {NAME} {VERSION}, the installed driver's version",
    )
    assert "versions that are there: 535.309.01" in fix
    assert (
        "NVIDIA's repository has it: nvidia_driver: {source: nvidia}"
        in resolvable(fabric_packages="", package_index="")[2]
    )
    assert "add nvidia_driver" in resolvable(packages="", loaded_driver="")[2]


def test_with_the_driver_in_the_spec_both_are_resolved_as_one() -> None:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(version="535")})
    nothing = facts(**{**good(), "packages": "", "loaded_driver": "", "package_index": "", "fabric_packages": ""})
    outcome = CHECKS[fm("resolvable")].run(Context(host, FabricManager(), nothing))
    assert (outcome.status, "nvidia_driver.resolvable" in outcome.found) == ("pass", True)


def test_the_driver_is_resolved_to_a_version_that_has_fabric_manager() -> None:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(), "fabric_manager": FabricManager()})
    bookworm = str(captured("package_index", "bookworm").text)

    def resolved(wanted: str, index: str, packages: str = "") -> Outcome:
        check = CHECKS["nvidia_driver.resolvable"]
        given = {"os_release": GOOD["os_release"], "nvidia_functions": H100}
        given |= {probe.name: good()[probe.name] for probe in check.probes if probe.name not in given}
        told = facts(**{**given, "packages": packages, "package_index": bookworm + index})
        return check.run(Context(host, NvidiaDriver(version=wanted), told))

    whole = resolved("535", offered(nvidia_fabricmanager_535="535.309.01-1 535.261.03-1"))
    assert whole.found.startswith("535.309.01")
    assert f"{NAME} 535.309.01-1" in [f"{change.name} {change.after}" for change in whole.changes]
    behind = offered(nvidia_fabricmanager_535="535.261.03-1")
    assert resolved("535", behind).found.startswith("535.261.03")
    lacking = resolved("535.309.01", behind)
    assert (lacking.status, f"no {NAME} 535.309.01" in lacking.found) == ("fail", True)
    assert "the nearest version with the whole set is 535.261.03" in lacking.fix
    old = resolved("535", behind, installed("550.90.07", "nvidia-fabricmanager-550"))
    assert "nvidia-fabricmanager-550 removed" in [f"{change.name} {change.after}" for change in old.changes]


@run_each(("system", "driver", "status"), [
    (AMAZON, True, "pass"), (AMAZON, False, "fail"), (DEBIAN, True, "fail"),
])  # fmt: skip
def test_modules_that_come_with_the_driver_are_not_missed(system: str, driver: bool, status: str) -> None:
    """On Amazon Linux they are in kernel-modules-extra, which nvidia_driver installs beside the headers."""
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()} if driver else {})
    given = {**good(), "fabric_bridges": "0000:05:00.0\n", "nvidia_functions": H100, "os_release": system}
    check = CHECKS[fm("hardware")]
    told = {**{probe.name: given[probe.name] for probe in check.probes}, "fabric_kernel": "module|mlx5_core\n"}
    outcome = check.run(Context(host, FabricManager(), facts(**told)))
    assert (outcome.status, "kernel-modules-extra" in outcome.fix) == (status, status == "fail")


def test_a_board_that_nobody_manages() -> None:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver()})
    check = CHECKS["host.fabric"]
    given = {"nvidia_functions": H100 + NVSWITCH, "fabric_bridges": ""}

    def asked(container: str = "none\n", unit: tuple[str, str] = ("inactive", "")) -> Outcome:
        return check.run(Context(host, House(), facts(**given, units=units(fabric=unit), container=container)))

    assert (asked().status, "error 802" in asked().fix) == ("fail", True)
    assert "is inactive" in asked(unit=("inactive", "disabled")).found
    assert asked(unit=("active", "enabled")).status == "pass"
    assert asked("podman\n").status == "skip"


@run_each(
    ("gpu", "blocks", "warned"),
    [
        (GpuSpec(model="H100-SXM5-80GB", count=8), {"nvidia_driver": NvidiaDriver()}, True),
        (GpuSpec(model="H100-SXM5-80GB", count=4), {"nvidia_driver": NvidiaDriver()}, False),
        (GpuSpec(model="H100-SXM5-80GB", count=8), {}, False),
        (GpuSpec(model="H100-PCIE", count=8), {"nvidia_driver": NvidiaDriver()}, False),
        (GpuSpec(model="A100-SXM4-80GB", count=16), {"fabric_manager": FabricManager()}, False),
    ],
)
def test_a_spec_that_forgets_it_is_warned_of(gpu: GpuSpec, blocks: dict[str, Fragment], warned: bool) -> None:
    told = list(HOUSE.rules(HostSpec(name="gpu1", gpu=gpu, capabilities=blocks), House(gpu=gpu)))
    assert [problem.severity for problem in told] == ["warning"] * warned
    assert all("has no fabric_manager" in problem.message for problem in told)


def test_warnings_of_the_block_itself() -> None:
    def told(**fields: object) -> list[str]:
        block, _ = convert(fields, FabricManager)
        found = list(fabric_manager.CAPABILITY.rules(HostSpec(name="gpu1"), block))
        assert {problem.severity for problem in found} == {"warning"}
        return [problem.message for problem in found]

    assert told() == ["fabric_manager follows the driver, and nvidia_driver is not in the spec"]
    assert "has no effect in fabric_mode bare-metal" in told(settings={"FABRIC_MODE_RESTART": True})[1]
    assert len(told(settings={"FABRIC_MODE_RESTART": 1}, fabric_mode="vgpu")) == 1


def test_hold_follows_the_drivers() -> None:
    host = HostSpec(name="gpu1", capabilities={"nvidia_driver": NvidiaDriver(hold=False)})
    told = facts(os_release=GOOD["os_release"], fabric_packages=installed(), package_locking="")
    outcome = CHECKS[fm("held")].run(Context(host, FabricManager(), told))
    assert (outcome.status, outcome.fix) == ("fail", f"apt-mark unhold {NAME}")


def test_ib_umad_is_asked_of_the_kernel_where_the_spec_names_such_gpus() -> None:
    def contributed(model: str) -> Kernel | None:
        return fabric_manager.contribute(HostSpec(name="gpu1", gpu=GpuSpec(model=model)), FabricManager())

    assert contributed("B300") == Kernel(modules_load=("ib_umad",))
    assert contributed("H100-SXM5-80GB") is None
    assert fabric_manager.contribute(HostSpec(name="gpu1"), FabricManager()) is None


@run_each(
    ("unit", "settings", "block"),
    [
        (("active", "enabled"), {"FABRIC_MODE": 0, "LOG_LEVEL": 4}, FabricManager()),
        (("failed", "enabled"), {"FABRIC_MODE": 1, "LOG_LEVEL": 3, "DAEMONIZE": 1}, SHARED),
        (("active", "enabled"), {"FABRIC_MODE": 2, "NEW_KEY": 1}, FabricManager(fabric_mode="vgpu")),
        (("active", "disabled"), {"FABRIC_MODE": 0}, None),
    ],
)
def test_export(unit: tuple[str, str], settings: dict[str, object], block: FabricManager | None) -> None:
    told = facts(units=units(fabric=unit), fabric_manager=daemon(settings=settings), imex="", **PLAIN)
    assert fabric_manager.export(told) == block


PLAIN = {"dcgm_packages": "native|amd64\n", "fabric_packages": "native|amd64\n"}


@run_each(("library", "asked"), [("", "never"), ("hi |libnvidia-nscq|580.178.04-1|x|amd64\n", "auto")])
def test_dcgm_without_the_library_is_exported_as_it_is(library: str, asked: str) -> None:
    there = {
        "dcgm_packages": "native|amd64\nii |datacenter-gpu-manager-4-core|1:4.4.1-1|x|amd64\n",
        "fabric_packages": f"native|amd64\n{library}",
    }
    block = fabric_manager.export(
        facts(units=units(fabric=("active", "enabled")), fabric_manager=daemon(), imex="", **there)
    )
    assert isinstance(block, FabricManager)
    assert block.query_library == asked


def test_what_was_exported_holds() -> None:
    text = daemon(settings={"FABRIC_MODE": 1, "LOG_LEVEL": 3, "UNIX_SOCKET_PATH": "/run/fm.sock"})
    block = fabric_manager.export(
        facts(units=units(fabric=("active", "enabled")), fabric_manager=text, imex="", **PLAIN)
    )
    assert ask(fm("settings"), block, fabric_manager=text).status == "pass"
