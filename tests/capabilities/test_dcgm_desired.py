"""dcgm: what the role brings about, and what is refused before it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.dcgm.desired import DESIRED, ENGINE, EXPORTER, settings
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.dcgm.preflight import counters, resolvable, together
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.dcgm import COUNTERS, parse_counters
from gpuprov.play.preflight.judging import script
from gpuprov.spec.model import HostSpec
from gpuprov.spec.repository import Repository
from tests.capabilities import at_boot, contexts
from tests.capabilities import dcgm_host as host
from tests.capabilities.asking import GOOD, facts
from tests.capabilities.dcgm_host import CORE, CUDA, SET, index, packages, units
from tests.capabilities.test_dcgm import DRIVER_580, THREE
from tests.rows import run_each

FIVE = "1:4.5.3-1"
NOTHING = {"dcgm_packages": "", "dcgm_units": units(("inactive", ""))}
BARE = {**NOTHING, "driver_libraries": "", "loaded_driver": ""}
UBUNTU = {"os_release": 'ID="ubuntu"\nID_LIKE="debian"\nVERSION_ID="24.04"\nVERSION_CODENAME="noble"\n'}
MIRROR = NvidiaDriver(
    version="580", source="mirror", repository=Repository(url="https://mirror.example/cuda", key_file="/key.asc")
)


def context(block: Dcgm | None = None, driver: NvidiaDriver | None = None, /, **changed: str) -> Context[Dcgm]:
    wanted = block or Dcgm()
    spec = HostSpec(name="gpu1", capabilities={"dcgm": wanted} | ({"nvidia_driver": driver} if driver else {}))
    return Context(spec, wanted, facts(**{**GOOD, **host.PROBES, **changed}))


def made(*asked: Any, **changed: str) -> dict[str, Any]:
    """What the role gets, worked out by the probes that are declared for it and no others."""
    ctx = context(*asked, **changed)
    return dict(DESIRED.make(contexts.context("dcgm", ctx.host, ctx.facts.outputs())))


ROWS: list[tuple[str, Dcgm, dict[str, str], dict[str, Any]]] = [
    ("it is there", Dcgm(), {},
     {"install": [], "remove": [], "files": {}, "later": {}, "hold": list(SET), "absent": [ENGINE], "off": []}),
    ("line 3 has a unit that conflicts", Dcgm(), THREE, {"off": ["dcgm.service"]}),
    ("all in one version", Dcgm(), NOTHING, {"install": [f"{name}={FIVE}" for name in SET], "hold": list(SET)}),
    ("without the closed parts", Dcgm(proprietary=False), NOTHING, {"install": [f"{CORE}={FIVE}", f"{CUDA}={FIVE}"]}),
    ("whole where one has moved", Dcgm(version="4.5.3"),
     {"dcgm_packages": packages(datacenter_gpu_manager_4_core=FIVE)},
     {"install": [f"{name}={FIVE}" for name in SET]}),
    ("the build of another driver goes, and is not held", Dcgm(), DRIVER_580,
     {"remove": sorted([CUDA, "datacenter-gpu-manager-4-proprietary-cuda12"]),
      "hold": [name.replace("12", "13") for name in SET]}),
    ("another line leaves in the same transaction", Dcgm(version="4"), THREE,
     {"remove": ["datacenter-gpu-manager"], "hold": list(SET)}),
    ("what came along is held", Dcgm(),
     {"dcgm_packages": packages(*SET, "datacenter-gpu-manager-4-dev")},
     {"hold": [*SET, "datacenter-gpu-manager-4-dev"]}),
    ("the exporter that goes with it", Dcgm(exporter=True), {},
     {"hold": [*SET, host.EXPORTER],
      "install": [*(f"{name}=1:4.4.2-1" for name in SET), f"{host.EXPORTER}=4.7.1-1"]}),
    ("released", Dcgm(hold=False), {}, {"hold": [], "release": list(SET), "install": []}),
    ("what the site has beside it is left alone", Dcgm(),
     {"dcgm_packages": packages() + packages(host.EXPORTER, version="4.7.1-1")}, {"hold": list(SET), "remove": []}),
]  # fmt: skip


@run_each(("name", "block", "changed", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_brought_about(name: str, block: Dcgm, changed: dict[str, str], wanted: dict[str, Any]) -> None:
    found = made(block, **changed)
    assert {key: found[key] for key in wanted} == wanted, name


def test_what_a_driver_of_this_run_decides_is_waited_for() -> None:
    """And known once the version is: the role has the judge asked again with the one that nvidia_driver decided on."""
    found = made(None, NvidiaDriver(), **BARE)
    assert found["later"]["told"] == "DCGM any is resolved with the driver that nvidia_driver installs"
    assert found["later"]["problem"].startswith("no driver says which CUDA build is needed. Fix: a driver of branch")
    assert (found["install"], found["remove"], found["hold"]) == ([], [], [])
    again = made(None, NvidiaDriver(version="580.95.05"), **BARE)
    assert again["later"] == {}
    assert f"{CUDA.replace('12', '13')}={FIVE}" in again["install"]


def test_what_a_package_source_of_this_run_has_is_waited_for() -> None:
    """The source is the driver's; without it in the spec nobody adds one, and the host is refused."""
    empty = {**BARE, **UBUNTU, "dcgm_index": ""}
    found = made(None, MIRROR, **empty)
    assert found["later"]["told"] == "DCGM any is resolved when apply has added https://mirror.example/cuda"
    assert "DCGM is in NVIDIA's CUDA repository" in found["later"]["problem"]
    assert resolvable.run(context(None, MIRROR, **empty)).status == "skip"
    refused = resolvable.run(context(Dcgm(cuda="12"), **empty))
    assert refused.status == "fail"
    assert "DCGM is in NVIDIA's CUDA repository" in refused.fix
    assert made(Dcgm(cuda="12"), **empty)["later"] == {}


def test_the_units_have_what_the_spec_says() -> None:
    assert settings(Dcgm()) == {}
    assert settings(Dcgm(listen="ALL:5556"))[ENGINE].endswith(
        "[Service]\nExecStart=\n"
        "ExecStart=/usr/bin/nv-hostengine -n --service-account nvidia-dcgm --bind-interface ALL --port 5556\n"
    )
    found = settings(Dcgm(exporter=True, exporter_port=9500, listen="0.0.0.0:5556"))[EXPORTER]
    assert "\nPartOf=nvidia-dcgm.service\n" in found
    assert "\nEnvironment=DCGM_EXPORTER_LISTEN=:9500\n" in found
    assert "\nEnvironment=DCGM_REMOTE_HOSTENGINE_INFO=localhost:5556\n" in found
    assert "ExecStart" not in found
    own = settings(Dcgm(exporter=True, exporter_counters="/etc/c.csv"))[EXPORTER]
    assert "\nExecStart=\nExecStart=/usr/bin/dcgm-exporter -f /etc/c.csv\n# The host engine may not" in own
    assert own.endswith("Restart=on-failure\nRestartSec=5\n")


def test_the_host_engine_answers_before_the_exporter_is_started() -> None:
    (alone,) = made()["tasks"]["unit"]
    engine, sender = made(Dcgm(exporter=True, listen="ALL:5556"), **NOTHING)["tasks"]["unit"]
    assert alone["name"] == engine["name"] == "nvidia-dcgm.service"
    assert engine["ask"] == ["dcgmi", "discovery", "--host", "localhost:5556", "-l"]
    assert {"/usr/bin/nv-hostengine", "/etc/systemd/system/nvidia-dcgm.service.d"} < set(engine["files"])
    assert any("libnvidia-nscq" in path for path in engine["files"]), "it is started again for the switches' library"
    assert (sender["name"], sender["ask"]) == ("nvidia-dcgm-exporter.service", [])


@run_each(
    ("block", "found", "fix"),
    [
        (Dcgm(version="3.3.9", exporter=True), "dcgm.exporter: there is none for DCGM 3",
         'version: "4", or exporter: false'),
        (Dcgm(version="3", multinode=True), "dcgm.multinode: there is none for DCGM 3", "or multinode: false"),
        (Dcgm(exporter=True, listen="/run/dcgm"), "reaches the host engine by TCP only", "or exporter: false"),
    ],
)  # fmt: skip
def test_a_play_whose_variables_do_not_go_together_is_refused(block: Dcgm, found: str, fix: str) -> None:
    outcome = together.run(context(block))
    assert (outcome.status, found in outcome.found, fix in outcome.fix) == ("fail", True, True), outcome
    assert together.run(context()).status == "pass"


def of_counters(block: Dcgm, text: str = "") -> Outcome:
    return counters.run(context(block, dcgm_counters=text))


def test_an_exporter_without_its_counters_is_refused() -> None:
    own = Dcgm(exporter=True, exporter_counters="/etc/c.csv")
    outcome = of_counters(own, "missing|/etc/c.csv\n")
    assert outcome.status == "fail"
    assert outcome.found == "dcgm.exporter_counters: /etc/c.csv does not exist on gpu1"
    assert outcome.fix == "put it there first, or leave it out and take /etc/dcgm-exporter/default-counters.csv"
    assert of_counters(own, "there|/etc/c.csv\n").status == "pass"
    assert of_counters(own).status == "skip", "as in a record of the host"
    assert of_counters(Dcgm(exporter=True)).status == "n/a"
    assert of_counters(Dcgm()).status == "n/a"


def test_the_file_that_the_spec_names_is_looked_for(tmp_path: Path) -> None:
    """Its path is not a shell: a play's variables are not judged as an inventory is."""
    for name, there in (("a file $(touch made).csv", True), ("none.csv", False)):
        path = tmp_path / name
        if there:
            path.touch()
        spec = HostSpec(name="gpu1", capabilities={"dcgm": Dcgm(exporter=True, exporter_counters=str(path))})
        done = subprocess.run(
            ["sh", "-c", COUNTERS.of(spec).script], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert parse_counters(Output(done.stdout)) == {str(path): there}
        assert str(path) in script(spec, ["dcgm"], preflight=True)
    assert not (tmp_path / "made").exists()
    assert at_boot.shell(COUNTERS.script) == "", "nothing is asked where there is no spec"


def test_the_exporters_message_says_what_the_repositories_lack() -> None:
    outcome = resolvable.run(context(Dcgm(exporter=True), dcgm_index=index(exporters=("4.8.2-1",))))
    assert outcome.found == (
        "no datacenter-gpu-manager-exporter 4.7.1 or older: the repositories have none for DCGM 4.4.2"
    )
