"""fabric_manager: what the role brings about, and what is refused before it."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.desired import DESIRED, NODES_HEADER, reads
from gpuprov.capabilities.fabric_manager.desired import daemon as configured_daemon
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.play.preflight.judging import judge
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment
from gpuprov.spec.repository import Repository
from tests.capabilities import contexts, imex_host
from tests.capabilities.asking import CHECKS, FABRIC_MANAGER, daemon, older, packages, units
from tests.capabilities.test_fabric_manager import B200, SUBNET
from tests.capabilities.test_fabric_manager_spec import NAME, VERSION, offered

OWN, CONFIG = f"{NAME}={VERSION}-1", "/usr/share/nvidia/nvswitch/fabricmanager.cfg"
LINES = [{"path": CONFIG, "keys": {"FABRIC_MODE": "0"}, "made": False}]
DRIVER, OTHER = NvidiaDriver(version="535"), NvidiaDriver(version="580")
LIVES = units(fabric=("active", "enabled"))
INDEX = offered(nvidia_fabricmanager_535="535.309.01-1 535.261.03-1", libnvidia_nscq_535="535.261.03-1")
MISSING: dict[str, str] = {
    "fabric_packages": "",
    "packages": packages().replace(FABRIC_MANAGER, ""),
    "package_index": INDEX,
    "fabric_manager": daemon("", "", settings={}),
}
SHARED = FabricManager(fabric_mode="shared-nvswitch")
TRAY = FabricManager(imex=Imex(nodes=(imex_host.HERE, imex_host.THERE)))
TRAY_PROBES = {
    "nvidia_functions": imex_host.TRAY,
    "packages": "",
    "fabric_packages": imex_host.PACKAGE,
    "loaded_driver": f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {imex_host.VERSION}  Release Build\n",
    "imex": imex_host.tray(),
}
OLD = older("nvidia-fabricmanager.service", CONFIG)
MIG = "gpu0/mig/gi1/access|1|292||444|root:root\n"


def context(
    block: FabricManager | None = None,
    driver: NvidiaDriver | None = DRIVER,
    run: frozenset[str] | None = None,
    beside: dict[str, Fragment] | None = None,
    **changed: Output | str,
) -> Context[FabricManager]:
    host = contexts.spec(beside, nvidia_driver=driver, fabric_manager=block or FabricManager())
    return contexts.context("fabric_manager", host, {"units": LIVES, "container": "none\n", **changed}, run)


def made(*asked: Any, **changed: Any) -> dict[str, Any]:
    """Return the role's values, with what its tasks do in short."""
    ctx = context(*asked, **changed)
    values: dict[str, Any] = dict(DESIRED.make(ctx))
    tasks, own = values["tasks"], configured_daemon(ctx)
    runtime = {
        "disabled": values["runtime"]["off"],
        "enabled": values["runtime"]["on"],
        "starts": "unit" in tasks,
        "told": tasks.get("waits", {}).get("msg", ""),
        "stop": "stop" in tasks,
        **{key: tasks.get(key, {}).get("argv", []) for key in ("reset_before", "reset_after")},
    }
    daemon_ = {"unit": own.unit, "process": own.process, "read": reads(ctx.host, ctx.fragment)[own.unit]}
    return {**values, **daemon_, "stop": "replace" in tasks, "runtime": runtime}


def test_a_host_that_has_it_keeps_it() -> None:
    found = made()
    assert (found["install"], found["remove"], found["stop"], found["later"]) == ([], [], False, {})
    assert (found["hold"], found["release"]) == ([NAME], [])
    assert found["lines"] == LINES
    runtime = found["runtime"]
    assert (runtime["enabled"], runtime["starts"], runtime["stop"], runtime["told"]) == (
        [found["unit"]],
        True,
        False,
        "",
    )
    freed = made(None, NvidiaDriver(version="535", hold=False))
    assert (freed["hold"], freed["release"]) == ([], [NAME])


def test_it_follows_the_installed_driver_and_no_newer_one() -> None:
    found = made(**MISSING)
    assert (found["install"], found["hold"], found["stop"]) == ([OWN], [NAME], False)
    older = FABRIC_MANAGER.replace("261.03", "183.06")
    replaced = {**MISSING, "fabric_packages": older, "packages": packages().replace(FABRIC_MANAGER, older)}
    moved = made(**{**replaced, "fabric_manager": daemon("535.183.06")})
    assert (moved["install"], moved["stop"]) == ([OWN], True), (
        "its daemon lives, and is stopped with whatever holds GPUs"
    )
    assert moved["runtime"]["told"].startswith("Fabric Manager 535.183.06 waits for a driver of its version: loaded is")
    assert not moved["runtime"]["starts"], "one of another version is never started beside the driver"
    assert not made(**{**replaced, "units": units(fabric=("failed", "enabled"))})["stop"]


def test_the_package_of_another_branch_leaves_in_the_same_transaction() -> None:
    other = "hi |nvidia-fabricmanager|580.95.05-1|fabricmanager\n"
    both = made(**{**MISSING, "fabric_packages": FABRIC_MANAGER + other})
    assert (both["install"], both["remove"]) == ([OWN], ["nvidia-fabricmanager"])


@pytest.mark.parametrize(
    ("driver", "changed"),
    [
        (OTHER, MISSING),
        (NvidiaDriver(version="535.309.01"), MISSING),
        (NvidiaDriver(version="any", cuda="13.0"), MISSING),
        (DRIVER, {**MISSING, "package_index": ""}),
        (DRIVER, {**MISSING, "packages": "", "loaded_driver": ""}),
    ],
    ids=["another branch", "another release", "a newer CUDA", "none for this one", "no driver yet"],
)
def test_with_a_driver_that_moves_it_comes_in_the_drivers_transaction(
    driver: NvidiaDriver, changed: dict[str, Any]
) -> None:
    found = made(None, driver, **changed)
    assert (found["install"], found["remove"], found["hold"], found["release"]) == ([], [], [], [])
    assert found["lines"] == LINES, "check mode says what will be written"


def test_in_a_run_without_the_driver_what_is_installed_is_followed() -> None:
    """As with `--only fabric_manager`: nobody brings another driver, whatever the spec says."""
    alone = frozenset({"fabric_manager"})
    assert made(None, OTHER, alone, **MISSING)["install"] == [OWN]
    with pytest.raises(ProbeFailed, match=rf"no {NAME} 535\.261\.03, the installed driver's version"):
        made(None, DRIVER, alone, **{**MISSING, "package_index": ""})
    ctx = context(None, DRIVER, None, {"kernel": Kernel()}, **{**MISSING, "package_index": ""})
    refused = judge(ctx.host, ctx.facts, ["fabric_manager"], preflight=False)
    assert "the installed driver's version. Fix: " in refused.refusals[0]
    together = judge(ctx.host, ctx.facts, ["fabric_manager"], preflight=False, run=["nvidia_driver", "fabric_manager"])
    assert together.refusals == ()


def test_the_library_for_dcgm_goes_along_and_is_held() -> None:
    found = made(beside={"dcgm": Dcgm()}, package_index=INDEX)
    assert found["install"] == ["libnvidia-nscq-535=535.261.03-1"]
    assert found["hold"] == [NAME, "libnvidia-nscq-535"]
    assert not found["stop"], "no daemon is replaced by it"


def resolvable(*asked: Any, **changed: Any) -> Outcome:
    ctx = context(*asked, **changed)
    return contexts.answer("fabric_manager.resolvable", ctx.host, ctx.facts.outputs())


def test_a_library_that_is_nowhere_is_refused_before_anything_changes() -> None:
    always = FabricManager(query_library="always")
    refused = resolvable(always, None, package_index=INDEX.replace("nscq", "other"))
    assert (refused.status, "no libnvidia-nscq-535 535.261.03" in refused.found) == ("fail", True)


def test_the_plan_lists_it_beside_a_driver_that_stays() -> None:
    """It was left to the driver's own list, which has nothing to say of a driver that is there already."""
    alone = resolvable(**MISSING)
    assert [(one.name, one.before, one.after) for one in alone.changes] == [(NAME, "", f"{VERSION}-1")]
    assert alone.found == f"{NAME} {VERSION}-1"
    moves = resolvable(None, OTHER, **MISSING)
    assert (moves.changes, moves.found) == ((), "resolved with the driver, as one version: nvidia_driver.resolvable")


def madison(*names: str) -> str:
    return "".join(f" {name} | 1-1 | https://mirror.example/nvidia  Packages\n" for name in names)


SUBNET_NAMES = ("nvlsm", "libibumad3", "infiniband-diags")


def test_generation_4_gets_its_subnet_manager_and_holds_it() -> None:
    board = {**B200, "fabric_subnet_index": madison(*SUBNET_NAMES)}
    assert made(**board)["install"] == list(SUBNET_NAMES)
    assert made(**board)["hold"] == [NAME, "nvlsm"]
    assert made(**board, fabric_packages=FABRIC_MANAGER + SUBNET)["install"] == []
    assert made()["install"] == [], "boards of generation 3 need none of it"
    assert {change.name for change in resolvable(**board).changes} == set(SUBNET_NAMES)


def test_a_subnet_manager_that_nobody_offers_is_refused_or_waited_for() -> None:
    board = {**B200, "fabric_subnet_index": madison("libibumad3")}
    refused = resolvable(**board)
    assert refused.status == "fail"
    assert refused.found == (
        "NVSwitches of generation 4 need nvlsm, libibumad3, infiniband-diags, and the host's repositories have no "
        "nvlsm, infiniband-diags"
    )
    with pytest.raises(ProbeFailed, match="have no nvlsm, infiniband-diags"):
        made(**board)
    key = Repository(url="https://mirror.example/cuda", key_file="/key.asc")
    mirror = NvidiaDriver(version="535", source="mirror", repository=key)
    waits = made(None, mirror, **board)["later"]
    assert waits["told"] == "what Fabric Manager needs is resolved when apply has added https://mirror.example/cuda"
    assert "NVIDIA's repository, or a mirror of it" in waits["problem"]
    assert resolvable(None, mirror, **board).status == "skip"
    with pytest.raises(ProbeFailed, match="have no nvlsm"):
        made(None, mirror, frozenset({"fabric_manager"}), **board)
    nothing = {**board, "fabric_subnet_index": "", "package_index": ""}
    assert resolvable(**nothing).status == "pass", "apply fetches the lists, and asks again"


def test_ib_umad_has_to_be_loaded_at_boot_by_the_spec() -> None:
    check = CHECKS["fabric_manager.subnet_modules"]
    for beside, status in (({}, "fail"), ({"kernel": Kernel(modules_load=("ib-umad",))}, "pass")):
        assert check.run(context(None, DRIVER, None, dict(beside), **B200)).status == status
    assert check.run(context()).status == "n/a"


def test_a_package_without_its_configuration_is_refused() -> None:
    bare = daemon(settings={})
    with pytest.raises(ProbeFailed, match=r"fabricmanager\.cfg does not exist, although nvidia-fabricmanager-535") as e:
        made(fabric_manager=bare)
    assert e.value.hint.startswith(f"apt-get install --reinstall {NAME} with -o Dpkg::Options::=--force-confmiss")
    assert made(**MISSING)["lines"], "what is not installed yet has none"


def test_a_daemon_with_an_older_configuration_is_restarted_with_gpus_reset() -> None:
    old = made(unit_reads=OLD)["runtime"]
    assert (old["stop"], old["reset_before"], old["reset_after"]) == (True, ["nvidia-smi", "-r"], [])
    parted = made(unit_reads=OLD, mig_capabilities=MIG)["runtime"]
    assert (parted["stop"], parted["reset_before"]) == (True, [])
    assert "they have MIG instances, which a reset would lose" in parted["told"]
    program = made(unit_reads=older("nvidia-fabricmanager.service", "/usr/bin/nv-fabricmanager"))["runtime"]
    assert program["reset_before"] == ["nvidia-smi", "-r"]
    inside = made(unit_reads=OLD, container="podman\n")["runtime"]
    assert (inside["stop"], inside["reset_before"]) == (True, []), "the GPUs are the machine's"
    a100 = "0000:07:00.0 0x10de 0x1af1 0x10de 0x1463 0x068000 \n"
    assert made(unit_reads=OLD, nvidia_functions=a100)["runtime"]["reset_before"] == []
    waits = made(fabric_manager=daemon("535.183.06"), unit_reads=OLD)["runtime"]
    assert (waits["starts"], waits["stop"], waits["reset_before"]) == (False, False, [])


def test_gpus_of_nvlink_5_are_reset_after_the_start_where_switches_are_shared() -> None:
    dead = {**B200, "units": units(fabric=("failed", "enabled")), "fabric_packages": FABRIC_MANAGER + SUBNET}
    assert made(SHARED, **dead)["runtime"]["reset_after"] == ["nvidia-smi", "-r"]
    assert made(SHARED, **dead)["runtime"]["stop"]
    assert not made(None, **dead)["runtime"]["stop"]
    assert made(None, **dead)["runtime"]["reset_after"] == []
    assert made(SHARED, **{**dead, "units": LIVES})["runtime"]["reset_after"] == []
    three = made(SHARED, units=units(fabric=("failed", "enabled")))["runtime"]
    assert (three["starts"], three["reset_after"]) == (True, [])
    assert made(SHARED, **dead, container="podman\n")["runtime"]["reset_after"] == []


def test_a_tray_gets_imex_with_its_domain() -> None:
    found = made(TRAY, None, **TRAY_PROBES)
    assert (found["of"], found["unit"], found["process"]) == ("nvidia-imex", "nvidia-imex.service", "nvidia-imex")
    assert (found["install"], found["hold"]) == ([], ["nvidia-imex"])
    assert found["files"]["/etc/nvidia-imex/nodes_config.cfg"] == f"{NODES_HEADER}192.0.2.1\n192.0.2.2\n"
    drop_in = found["files"]["/etc/systemd/system/nvidia-imex.service.d/90-gpuprov.conf"]
    assert "\nAfter=network-online.target\n" in drop_in
    (lines,) = found["lines"]
    assert (lines["path"], lines["keys"]["IMEX_CMD_ENABLED"]) == ("/etc/nvidia-imex/config.cfg", "1")
    assert "/etc/nvidia-imex/nodes_config.cfg" in found["read"]
    assert (found["runtime"]["starts"], found["runtime"]["stop"], found["reboot"]) == (True, False, "")
    old = made(TRAY, None, **TRAY_PROBES, unit_reads=older("nvidia-imex.service", "/etc/nvidia-imex/nodes_config.cfg"))[
        "runtime"
    ]
    assert (old["stop"], old["reset_before"]) == (True, []), "the rack's switches are not its business"


def test_channel_0_needs_a_reboot_where_the_driver_was_loaded_without() -> None:
    without = {**TRAY_PROBES, "imex": imex_host.tray(parameter="0")}
    assert made(TRAY, None, **without)["reboot"] == "the driver was loaded without NVreg_CreateImexChannel0=1"
    assert made(TRAY, None, **without, container="podman\n")["reboot"] == ""
    none = FabricManager(imex=Imex(nodes=TRAY.imex.nodes, channel0=False))
    assert made(none, None, **without)["reboot"] == ""
    assert made()["reboot"] == ""


def test_under_kubernetes_the_unit_is_off() -> None:
    found = made(FabricManager(imex=Imex(service="disabled")), None, **TRAY_PROBES)
    assert (found["files"], found["lines"], found["hold"]) == ({}, [], ["nvidia-imex"])
    runtime = found["runtime"]
    assert (runtime["disabled"], runtime["enabled"], runtime["starts"], runtime["stop"]) == (
        [found["unit"]],
        [],
        False,
        False,
    )


def test_a_distribution_without_packages_is_refused() -> None:
    with pytest.raises(ProbeFailed, match="no Fabric Manager packages are known for slackware") as e:
        made(os_release='ID=slackware\nNAME=Slackware\nVERSION_ID="15.0"\n')
    assert "known for: debian12" in e.value.hint
