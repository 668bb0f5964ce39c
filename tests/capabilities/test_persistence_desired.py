"""persistence: which way a host gets, and what the role brings about for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.persistence.desired import drop_in, offered
from gpuprov.capabilities.persistence.desired import make as make_values
from gpuprov.capabilities.persistence.fragment import DAEMON, DROP_IN, IDLE, LEGACY, LEGACY_FILE, PROGRAM, Persistence
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.driver.persistence import PERSISTENCED, Persistenced, parse
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities import at_boot
from tests.capabilities.asking import H100, facts
from tests.rows import run_each

make: Callable[..., Any] = make_values


DEBIAN, UBUNTU = 'ID="debian"\nVERSION_ID="12"\n', 'ID="ubuntu"\nID_LIKE="debian"\nVERSION_ID="24.04"\n'
OFFER = (
    "offer|nvidia-persistenced | 535.171.04-1~deb12u1 | http://deb.debian.org/debian bookworm/contrib amd64 Packages\n"
)
# https://sources.debian.org/src/nvidia-persistenced/535.171.04-1~deb12u1/debian/
UNIT = (
    "unit|[Unit]\nunit|Description=NVIDIA Persistence Daemon\nunit|[Service]\n"
    "unit|ExecStart=/usr/bin/nvidia-persistenced --user nvpd\nunit|[Install]\n"
)
# Ubuntu's nvidia-compute-utils: started by udev, with the mode left off.
UBUNTUS = (
    "unit|[Service]\nunit|Type=forking\n"
    "unit|ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose\n"
)


def on(unit: str, other: str, state: str = "started") -> dict[str, Any]:
    """What the role gets of the units."""
    task: dict[str, Any] = {"name": unit, "state": "started", "fix": f"journalctl -u {unit}, on the host"}
    if unit == DAEMON:
        own = {"files": [PROGRAM, f"/etc/systemd/system/{unit}.d"], "process": "nvidia-persistenced"}
        task |= {"state": "alive", **own} | ({"differs": f"active with {IDLE}"} if state == "restarted" else {})
    return {"on": [unit], "off": [other], "unit": task if state else None}


def context(
    text: str, release: str = DEBIAN, mode: str = "auto", source: str = "", functions: str = H100
) -> Context[Persistence]:
    blocks: dict[str, Fragment] = {}
    if source:
        values: dict[str, object] = {"source": source}
        values |= (
            {"version": "580.95.05", "runfile": {"file": "a.run", "sha256": "0" * 64}} if source == "runfile" else {}
        )
        block, findings = convert(values, BY_NAME["nvidia_driver"].fragment)
        assert block, findings
        blocks["nvidia_driver"] = block
    fragment, _ = convert({"mode": mode}, Persistence)
    assert fragment
    told = facts(persistenced=text, os_release=release, nvidia_functions=functions, container="none\n")
    return Context(HostSpec(name="gpu1", capabilities=blocks), fragment, told)


ROWS: list[tuple[str, Context[Persistence], dict[str, Any]]] = [
    ("Debian's package is to come", context(f"{OFFER}gpus|8\n"),
        {**on(DAEMON, LEGACY), "install": ["nvidia-persistenced"]}),
    ("it is there", context(f"{UNIT}package|ii \ngpus|8\n"), {**on(DAEMON, LEGACY), "install": [], "files": {}}),
    ("no GPU to hold", context(f"{UNIT}package|ii \ngpus|0\n", functions=""), {**on(DAEMON, LEGACY, "")}),
    ("no repository has it", context("gpus|8\n"), {**on(LEGACY, DAEMON), "absent": [DROP_IN]}),
    ("the driver brings it", context("gpus|0\n", source="nvidia"), {**on(DAEMON, LEGACY, ""), "install": []}),
    ("a runfile brings no unit", context(f"{OFFER}gpus|8\n", source="runfile"), {**on(LEGACY, DAEMON), "install": []}),
    ("Ubuntu's driver brings it", context("gpus|0\n", UBUNTU, source="auto"),
        {**on(DAEMON, LEGACY, ""), "install": []}),
    ("Debian's driver does not", context(f"{OFFER}gpus|0\n", source="auto"),
        {**on(DAEMON, LEGACY, ""), "install": ["nvidia-persistenced"]}),
    ("the legacy mode as asked for", context(f"{UNIT}gpus|8\n", mode="legacy"), {**on(LEGACY, DAEMON), "install": []}),
    ("a daemon that leaves the mode off", context(f"{UBUNTUS}idle|77\ngpus|8\n", UBUNTU),
        {**on(DAEMON, LEGACY, "restarted"), "absent": [LEGACY_FILE]}),
]  # fmt: skip


@run_each(("name", "ctx", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_what_a_host_gets(name: str, ctx: Context[Persistence], wanted: dict[str, Any]) -> None:
    made = make(ctx)
    values = {**made, "unit": made["tasks"].get("unit")}
    assert {key: values[key] for key in wanted} == wanted, name
    assert set(made["files"]) | set(made["absent"]) == {LEGACY_FILE, DROP_IN}
    assert offered.run(ctx).status == "pass"


def test_what_ubuntus_unit_lacks() -> None:
    unit = parse(Output(f"{UBUNTUS}gpus|8\n")).unit
    told = drop_in(unit)
    assert "ExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose\n" in told
    assert told.endswith("[Install]\nWantedBy=multi-user.target\n")
    assert make(context(f"{UBUNTUS}gpus|8\n", UBUNTU))["files"] == {DROP_IN: told}
    assert drop_in(parse(Output(f"{UNIT}gpus|8\n")).unit) == ""
    assert drop_in(()) == ""


@run_each(
    ("ctx", "fix"),
    [
        (context("gpus|8\n", mode="daemon"), "enable contrib and non-free, or mode: auto"),
        (
            context(f"{OFFER}gpus|8\n", mode="daemon", source="runfile"),
            "a unit of your own for the nvidia-persistenced of the .run file",
        ),
        (context("gpus|8\n", UBUNTU, mode="daemon"), "apply nvidia_driver too, whose packages bring it"),
    ],
)
def test_a_daemon_that_nobody_has_is_refused_before_anything_is_changed(ctx: Context[Persistence], fix: str) -> None:
    outcome = offered.run(ctx)
    assert outcome.status == "fail"
    assert fix in outcome.fix


@run_each(("package", "offered_versions"), [("package|ii ", ()), ("package|un ", ("535.171.04-1~deb12u1",))])
def test_the_probe_reads_a_host(tmp_path: Path, package: str, offered_versions: tuple[str, ...]) -> None:
    """Its own script, on programs that print what a Debian host's did: an installed package is not looked for."""
    (tmp_path / "unit").write_text("[Service]\nExecStart=/usr/bin/nvidia-persistenced\n")
    programs = {
        "systemctl": f'case "$*" in *FragmentPath*) echo FragmentPath={tmp_path}/unit ;; *) echo MainPID=0 ;; esac',
        "apt-cache": f"printf '%s\\n' '{OFFER.removeprefix('offer|').strip()}'",
        "dpkg-query": f"echo '{package}'",
    }
    found = parse(Output(at_boot.shell(PERSISTENCED.script, at_boot.stand_in(tmp_path, programs))))
    assert found == Persistenced(
        unit=("[Service]", "ExecStart=/usr/bin/nvidia-persistenced"),
        offered=offered_versions,
        installed=not offered_versions,
        gpus=found.gpus,
    )
