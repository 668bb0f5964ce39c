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
from tests.rows import run_each

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
        "stops": "stop" in tasks,
        **{key: tasks.get(key, {}).get("argv", []) for key in ("reset_before", "reset_after")},
    }
    daemon_ = {"unit": own.unit, "process": own.process, "read": reads(ctx.host, ctx.fragment)[own.unit]}
    return {**values, **daemon_, "replaces": "replace" in tasks, **runtime}


OLDER = FABRIC_MANAGER.replace("261.03", "183.06")
AHEAD = MISSING | {
    "fabric_packages": OLDER,
    "packages": packages().replace(FABRIC_MANAGER, OLDER),
    "fabric_manager": daemon("535.183.06"),
}
DEAD = units(fabric=("failed", "enabled"))
NVLINK_5: dict[str, Any] = {**B200, "units": DEAD, "fabric_packages": FABRIC_MANAGER + SUBNET}
RESET = ["nvidia-smi", "-r"]
WITHOUT = {**TRAY_PROBES, "imex": imex_host.tray(parameter="0")}
NO_CHANNEL = FabricManager(imex=Imex(nodes=(imex_host.HERE, imex_host.THERE), channel0=False))
OFF = FabricManager(imex=Imex(service="disabled"))
WAITS = (
    "Fabric Manager 535.183.06 waits for a driver of its version: loaded is 535.261.03. Reload the driver, or reboot"
)
PARTED = (
    "the GPUs are not reset, and keep their registration with the fabric: they have MIG instances, which a "
    "reset would lose"
)
LEFT: dict[str, list[str]] = {"install": [], "remove": [], "hold": [], "release": []}
UNIT, IMEX = "nvidia-fabricmanager.service", "nvidia-imex.service"
ROWS: list[tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]] = [
    ("it is there", (), {}, {"install": [], "remove": [], "replaces": False, "later": {}, "hold": [NAME], "release": [],
        "lines": LINES, "enabled": [UNIT], "starts": True, "stops": False, "told": "", "reboot": ""}),
    ("it is missing", (), MISSING, {"install": [OWN], "hold": [NAME], "replaces": False}),
    ("an older one lives, which is stopped with whatever holds GPUs, and is never started beside the driver", (), AHEAD,
        {"install": [OWN], "replaces": True, "starts": False, "told": WAITS}),
    ("an older one is dead", (), AHEAD | {"units": DEAD}, {"replaces": False}),
    ("one of another branch leaves in the same transaction", (),
        MISSING | {"fabric_packages": FABRIC_MANAGER + "hi |nvidia-fabricmanager|580.95.05-1|fabricmanager\n"},
        {"install": [OWN], "remove": ["nvidia-fabricmanager"]}),
    # With a driver that moves, it comes in the driver's transaction; check mode says what will be written.
    ("another branch", (None, OTHER), MISSING, {**LEFT, "lines": LINES}),
    ("DCGM's library goes along, and replaces no daemon", (None, DRIVER, None, {"dcgm": Dcgm()}),
     {"package_index": INDEX},
        {"install": ["libnvidia-nscq-535=535.261.03-1"], "hold": [NAME, "libnvidia-nscq-535"], "replaces": False}),
    ("an older configuration", (), {"unit_reads": OLD}, {"stops": True, "reset_before": RESET, "reset_after": []}),
    ("whose reset would lose MIG instances", (), {"unit_reads": OLD, "mig_capabilities": MIG},
        {"stops": True, "reset_before": [], "told": PARTED}),
    ("an older program", (), {"unit_reads": older(UNIT, "/usr/bin/nv-fabricmanager")}, {"reset_before": RESET}),
    ("in a container the GPUs are the machine's", (), {"unit_reads": OLD, "container": "podman\n"},
        {"stops": True, "reset_before": []}),
    ("an A100 board", (), {"unit_reads": OLD,
                           "nvidia_functions": "0000:07:00.0 0x10de 0x1af1 0x10de 0x1463 0x068000 \n"},
        {"reset_before": []}),
    ("while it waits for its driver", (), {"unit_reads": OLD, "fabric_manager": daemon("535.183.06")},
        {"starts": False, "stops": False, "reset_before": []}),
    ("NVLink 5 with shared switches", (SHARED,), NVLINK_5, {"reset_after": RESET, "stops": True}),
    ("NVLink 5 with switches of its own", (), NVLINK_5, {"reset_after": [], "stops": False}),
    ("NVLink 5, and it lives", (SHARED,), {**NVLINK_5, "units": LIVES}, {"reset_after": []}),
    ("NVLink 5 in a container", (SHARED,), {**NVLINK_5, "container": "podman\n"}, {"reset_after": []}),
    ("shared switches of generation 3", (SHARED,), {"units": DEAD}, {"starts": True, "reset_after": []}),
    ("a tray", (TRAY, None), TRAY_PROBES, {"of": "nvidia-imex", "unit": IMEX, "process": "nvidia-imex", "install": [],
        "hold": ["nvidia-imex"], "starts": True, "stops": False, "reboot": ""}),
    ("a tray whose domain is newer, and the rack's switches are not its business", (TRAY, None),
        {**TRAY_PROBES, "unit_reads": older(IMEX, "/etc/nvidia-imex/nodes_config.cfg")},
        {"stops": True, "reset_before": []}),
    ("loaded without channel 0", (TRAY, None), WITHOUT,
     {"reboot": "the driver was loaded without NVreg_CreateImexChannel0=1"}),
    ("which is its machine's in a container", (TRAY, None), {**WITHOUT, "container": "podman\n"}, {"reboot": ""}),
    ("channel 0 is not asked for", (NO_CHANNEL, None), WITHOUT, {"reboot": ""}),
    ("under Kubernetes the unit is off", (OFF, None), TRAY_PROBES, {"files": {}, "lines": [], "hold": ["nvidia-imex"],
        "disabled": [IMEX], "enabled": [], "starts": False, "stops": False}),
]  # fmt: skip


@run_each(("asked", "changed", "wanted"), [pytest.param(*row[1:], id=row[0]) for row in ROWS])
def test_what_is_brought_about(asked: tuple[Any, ...], changed: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = made(*asked, **changed)
    assert {key: found[key] for key in wanted} == wanted


def test_a_tray_has_the_files_of_its_domain() -> None:
    found = made(TRAY, None, **TRAY_PROBES)
    assert found["files"]["/etc/nvidia-imex/nodes_config.cfg"] == f"{NODES_HEADER}192.0.2.1\n192.0.2.2\n"
    drop_in = found["files"]["/etc/systemd/system/nvidia-imex.service.d/90-gpuprov.conf"]
    assert "\nAfter=network-online.target\n" in drop_in
    (lines,) = found["lines"]
    assert (lines["path"], lines["keys"]["IMEX_CMD_ENABLED"]) == ("/etc/nvidia-imex/config.cfg", "1")
    assert "/etc/nvidia-imex/nodes_config.cfg" in found["read"]


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
    assert e.value.fix.startswith(f"apt-get install --reinstall {NAME} with -o Dpkg::Options::=--force-confmiss")
    assert made(**MISSING)["lines"], "what is not installed yet has none"


def test_a_distribution_without_packages_is_refused() -> None:
    with pytest.raises(ProbeFailed, match="no Fabric Manager packages are known for slackware") as e:
        made(os_release='ID=slackware\nNAME=Slackware\nVERSION_ID="15.0"\n')
    assert "known for: debian12" in e.value.fix
