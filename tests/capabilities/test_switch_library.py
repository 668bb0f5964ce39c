"""The library by which DCGM reads NVSwitches: missing, of another version, before another's; and what DCGM itself
sees."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.fragment import FabricManager
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.dcgm import parse_libraries
from tests.capabilities import contexts, dcgm_host
from tests.capabilities.asking import B200, FABRIC_MANAGER, H100, NVSWITCH, good
from tests.rows import run_each

NAME, VERSION = "libnvidia-nscq-535", "535.261.03"
PLACE = "/usr/lib/x86_64-linux-gnu"
FOUND = f"library|{PLACE}/libnvidia-nscq.so.2|{PLACE}/libnvidia-nscq.so.{VERSION}\n"
SWITCHES = "1 GPU found (Active).\n{} NvSwitches found."


def installed(version: str = VERSION, name: str = NAME, state: str = "hi ") -> str:
    return FABRIC_MANAGER + f"{state}|{name}|{version}-1|{name}\n"


def ask(check_id: str, block: FabricManager | None = None, *, with_dcgm: bool = True, **changed: Any) -> Outcome:
    host = contexts.spec(fabric_manager=block or FabricManager(), dcgm=Dcgm() if with_dcgm else None)
    return contexts.answer(check_id, host, {"switch_libraries": FOUND, "fabric_packages": installed(), **changed})


LIBRARY = "fabric_manager.query_library"


def test_it_is_there_in_the_drivers_version() -> None:
    outcome = ask(LIBRARY)
    assert outcome.status == "pass", outcome
    assert f"{NAME} {VERSION}-1" in outcome.found


@run_each(
    ("changed", "found", "change"),
    [
        ({"fabric_packages": FABRIC_MANAGER}, "0 NvSwitches", f"package {NAME}:  -> {VERSION}"),
        ({"fabric_packages": installed("535.309.01")}, "535.309.01", f"package {NAME}: 535.309.01-1 -> {VERSION}"),
        ({"fabric_packages": installed(state="iU ")}, "incomplete", ""),
        ({"switch_libraries": ""}, "the dynamic linker finds no libnvidia-nscq.so", ""),
        ({"switch_libraries": FOUND.replace(VERSION, "525.85.12")}, "is of version 525.85.12", ""),
        ({"packages": "", "loaded_driver": ""}, "no driver", ""),
    ],
)
def test_what_is_wrong_is_told(changed: dict[str, Any], found: str, change: str) -> None:
    outcome = ask(LIBRARY, **changed)
    assert outcome.status == "fail", outcome
    assert found in outcome.found
    assert outcome.fix
    if change:
        assert change in [f"{c.kind} {c.name}: {c.before} -> {c.after}" for c in outcome.changes]


def test_blackwell_boards_have_another_library() -> None:
    outcome = ask(LIBRARY, nvidia_functions=B200, fabric_packages=installed(VERSION, "libnvidia-nscq-535"))
    assert outcome.status == "fail"
    assert "no libnvsdm" in outcome.found
    right = installed(VERSION, "libnvsdm")
    seen = f"library|{PLACE}/libnvsdm.so.1|{PLACE}/libnvsdm.so.1\n"
    outcome = ask(LIBRARY, nvidia_functions=B200, fabric_packages=right, switch_libraries=seen)
    assert outcome.status == "pass", "its file tells no version"


@run_each(
    ("block", "dcgm", "changed"),
    [
        (FabricManager(), False, {}),
        (FabricManager(query_library="never"), True, {}),
        (FabricManager(), True, {"nvidia_functions": "0000:19:00.0 0x10de 0x1db8 0x10de 0x0 0x030200 nvidia\n"}),
    ],
)
def test_nothing_is_asked_where_nobody_reads_it(block: FabricManager, dcgm: bool, changed: dict[str, Any]) -> None:
    assert ask(LIBRARY, block, with_dcgm=dcgm, **changed).status == "n/a"


def test_it_is_held_with_the_rest() -> None:
    assert ask("fabric_manager.held").found.startswith("2 packages")
    outcome = ask("fabric_manager.held", fabric_packages=installed(state="ii "))
    assert outcome.status == "fail"
    assert NAME in outcome.found


def test_the_drivers_set_has_it() -> None:
    outcome = ask("nvidia_driver.resolvable", package_index=str(good()["package_index"]))
    assert "libnvidia-nscq-535" in f"{outcome.found} {outcome.fix} {outcome.changes}", (
        "no repository of that index has it"
    )


@run_each(
    ("number", "bus", "status"),
    [
        ("1", H100 + NVSWITCH, "pass"),
        ("0", H100 + NVSWITCH, "fail"),
        ("1", H100 + NVSWITCH * 2, "fail"),
        ("0", H100, "skip"),
    ],
)
def test_what_dcgm_sees(number: str, bus: str, status: str) -> None:
    outcome = ask("dcgm.switches", dcgm=dcgm_host.said(discovery=SWITCHES.format(number)), nvidia_functions=bus)
    assert outcome.status == status, outcome
    if status == "fail":
        assert f"{number} NvSwitches" in outcome.found
        assert "fabric_manager.query_library" in outcome.fix


def test_dcgm_behind_bridges_sees_some() -> None:
    for number, status in (("2", "pass"), ("0", "fail")):
        said = dcgm_host.said(discovery=SWITCHES.format(number))
        outcome = ask("dcgm.switches", dcgm=said, nvidia_functions=B200, fabric_bridges="0000:05:00.0\n")
        assert outcome.status == status


def test_dcgm_is_not_asked_without_a_spec_of_it() -> None:
    assert ask("dcgm.switches", FabricManager(query_library="never")).status == "n/a"
    assert ask("dcgm.switches", nvidia_functions="").status == "skip"
    tray = ask("dcgm.switches", nvidia_functions="0008:01:00.0 0x10de 0x2941 0x10de 0x2046 0x030200 nvidia\n")
    assert (tray.status, tray.found) == ("n/a", "the NVSwitches are in the rack's switch trays")
    assert ask("dcgm.switches", dcgm=dcgm_host.said(engine="", discovery="Error: Unable to connect")).status == "fail"


def test_the_probe() -> None:
    (one,) = parse_libraries(Output(FOUND + "noise\n"))
    assert (one.name, one.version) == ("libnvidia-nscq", VERSION)
    (other,) = parse_libraries(Output("library|/usr/lib64/libnvsdm.so.1|/usr/lib64/libnvsdm.so.1\n"))
    assert (other.name, other.version) == ("libnvsdm", "")
