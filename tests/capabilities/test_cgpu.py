"""cgpu: the module is there, alone and with a driver it works with; the settings of each GPU, now and after the next
boot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities import cgpu
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.cgpu.desired import DESIRED, config
from gpuprov.capabilities.cgpu.fragment import Cgpu, lines
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import cgpu as catalogue
from gpuprov.catalog.drivers import end_of_life
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.play.preflight.judging import judge as decided
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import contexts
from tests.capabilities.asking import CHECKS, Row, facts, judge
from tests.capabilities.cgpu_host import ABSENT, said
from tests.capabilities.contents_host import Also, unit
from tests.rows import run_each

MODULE, ALONE, DRIVER, SETTINGS, FILES, ENABLED, ACTIVE, VERSION = (
    f"cgpu.{name}" for name in ("module", "alone", "driver", "settings", "files", "enabled", "active", "version")
)
UNIT = "gpuprov-cgpu.service"
RATIO = Cgpu(prio_ratio=80)
SINGLE = Cgpu(max_inst=20, gpus={"1": {"policy": 3, "max_inst": 5}})
TWO = ("20 1 80", "5 3 80")
COMPLAINT = (
    "cgpu: /proc/cgpu_km/0/max_inst stays 20, expected 5 (Device or resource busy), used by the containers 012b2edccd7a"
)

ROWS = [
    Row("loaded", MODULE, None, {}, "pass", "cGPU 1.5.20, GPUs 0"),
    Row("never installed", MODULE, None, {"cgpu": ABSENT}, "fail", "not installed", "ack.node.gpu.schedule=cgpu"),
    Row("installed and not loaded", MODULE, None, {"cgpu": said("- - -", version="", modules=("cgpu_km",))}, "fail",
        "not loaded, although cgpu_km is installed", "modprobe cgpu_km"),
    Row("loaded without GPUs", MODULE, None, {"cgpu": said("- - -")}, "fail", "has no GPU", "load the NVIDIA driver"),
    Row("a GPU that is not there", MODULE, SINGLE, {}, "fail", "no /proc/cgpu_km/1; GPUs: 0", "correct cgpu.gpus"),
    Row("an old cGPU has no priorities", MODULE, RATIO, {"cgpu": said("16 1 -", version="0.8.8")}, "fail",
        "no prio_ratio", "newer"),
    Row("and none are asked for", MODULE, None, {"cgpu": said("16 1 -", version="0.8.8")}, "pass", "cGPU 0.8.8"),
    Row("alone", ALONE, None, {}, "pass"),
    Row("a GPU in MIG mode", ALONE, None, {"cgpu": said(more="mig|00000000:19:00.0, Enabled")}, "fail",
        "MIG mode is on: 00000000:19:00.0", "nvidia-smi -mig 0; or cgpu: false"),
    Row("an MPS daemon", ALONE, None, {"cgpu": said(more="mps|")}, "fail", "an MPS daemon runs", "stop the MPS daemon"),
    Row("gpuprov's own", ALONE, None, {"cgpu": said(more="mps|gpuprov")}, "fail", "an MPS daemon",
        "mps: {scope: none}"),
    Row("no cGPU to be alone", ALONE, None, {"cgpu": ABSENT}, "skip", "not loaded"),
    Row("a driver of the table", DRIVER, None, {}, "pass", "cGPU 1.5.20; driver 535.261.03"),
    Row("an old cGPU with a new driver", DRIVER, None, {"cgpu": said(version="1.5.2")}, "fail", "not with 535.261.03",
        "newer cGPU"),
    Row("a cGPU newer than the table", DRIVER, None, {"cgpu": said(version="1.6.0")}, "pass", "table does not have"),
    Row("nothing to compare", DRIVER, None, {"cgpu": ABSENT}, "skip", "not loaded"),
    Row("as asked for", SETTINGS, None, {}, "pass", "policy=1, on 1 GPU"),
    Row("single GPUs as asked for", SETTINGS, SINGLE, {"cgpu": said(*TWO)}, "pass",
        "max_inst=20 policy=1; max_inst=5 policy=3"),
    Row("the module forgot", SETTINGS, Cgpu(policy=3), {}, "fail", "GPU 0 policy is 1",
        "systemctl restart gpuprov-cgpu.service", change="setting /proc/cgpu_km/0/policy: 1 -> 3"),
    Row("one GPU differs", SETTINGS, None, {"cgpu": said("20 1 80", "20 5 80")}, "fail", "GPU 1 policy is 5"),
    Row("a node is gone", SETTINGS, RATIO, {"cgpu": said("20 1 -")}, "fail", "prio_ratio is not there"),
    Row("the module is gone", SETTINGS, None, {"cgpu": ABSENT}, "fail", "not loaded", "see cgpu.module"),
    Row("set again at boot", ENABLED, None, {}, "pass", f"{UNIT} enabled"),
    Row("set at this boot", ACTIVE, None, {}, "pass", f"{UNIT} active"),
    Row("applied for something else", FILES, RATIO, {"contents": Also("sum|0  /etc/gpuprov/cgpu.conf\n")}, "fail",
        "/etc/gpuprov/cgpu.conf: another text"),
    Row("switched off", ENABLED, None, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled", "enable"),
    Row("failed at boot", ACTIVE, None, {"contents": unit(UNIT, "failed", "enabled", COMPLAINT)}, "fail",
        "resource busy", "stop the"),
    Row("the module came too late", ACTIVE, None, {"cgpu": ABSENT, "contents": unit(UNIT, "failed", "enabled")}, "fail",
        "service is failed", "load cGPU, or have Alibaba's installer load it at boot"),
    Row("a sound version", VERSION, None, {}, "pass", "cGPU 1.5.20"),
    Row("a known deadlock", VERSION, None, {"cgpu": said(version="1.5.7")}, "fail", "can lock up the kernel",
        "newer cGPU"),
    Row("a version with a word behind it", VERSION, None, {"cgpu": said(version="1.5.20-ack")}, "pass",
        "cGPU 1.5.20-ack"),
    Row("a version that is none", VERSION, None, {"cgpu": said(version="unknown")}, "pass", "cGPU unknown"),
    Row("no version", VERSION, None, {"cgpu": ABSENT}, "fail", "not loaded"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_cgpu(row: Row) -> None:
    judge(row)


@run_each(("count", "status"), [(None, "pass"), (2, "pass"), (3, "fail")])
def test_every_gpu_of_the_spec_has_a_folder(count: int | None, status: str) -> None:
    host = HostSpec(name="gpu1", gpu=GpuSpec(model="T4", count=count))
    outcome = CHECKS[MODULE].run(Context(host, Cgpu(), Facts({"cgpu": Output(said(*TWO))})))
    assert outcome.status == status
    assert status == "pass" or "has 2 of 3 GPUs: 0 1" in outcome.found


BOTH: dict[str, Fragment] = {"mig": Mig(mode="disabled"), "mps": Mps(scope="none")}
"""What role mig would switch off, and what mps would stop."""
ON = ("mps|gpuprov", "mig|00000000:3B:00.0, Enabled")
BESIDE: list[tuple[str, str, Mapping[str, Fragment], dict[str, str], frozenset[str] | None, str]] = [
    *((f"the driver is to be {version}, and none is loaded yet", DRIVER,
       {"nvidia_driver": NvidiaDriver(version=version)},
        {"cgpu": said(), "loaded_driver": ""}, None, status)
      for version, status in (("580", "fail"), ("550", "pass"), ("550.163.01", "pass"), ("auto", "pass"))),
    ("the same spec stops the daemon", ALONE, {"mps": Mps(scope="none")}, {"cgpu": said(more="mps|gpuprov")}, None,
     "pass"),
    ("and not another's", ALONE, {"mps": Mps(scope="none")}, {"cgpu": said(more="mps|gpuprov\nmps|")}, None, "fail"),
    *((f"{more}, which {which} run ends", ALONE, BOTH, {"cgpu": said(more=more)}, run, status) for more in ON
      for which, run, status in (("another", frozenset({"cgpu"}), "fail"), ("this", frozenset(BOTH), "pass"))),
]  # fmt: skip


@run_each(("check", "blocks", "texts", "run", "status"), [pytest.param(*row[1:], id=row[0]) for row in BESIDE])
def test_what_other_blocks_of_the_spec_do(
    check: str, blocks: Mapping[str, Fragment], texts: dict[str, str], run: frozenset[str] | None, status: str
) -> None:
    outcome = contexts.answer(check, contexts.spec(blocks), texts, run)
    assert outcome.status == status, outcome


@run_each(("run", "refused"), [(["cgpu"], True), (["cgpu", "mig"], False)])
def test_the_judge_tells_the_checks_what_the_run_applies(run: list[str], refused: bool) -> None:
    host = HostSpec(name="gpu1", capabilities={"cgpu": Cgpu(), "mig": Mig(mode="disabled")})
    facts = Facts({"cgpu": Output(said(more="mig|00000000:3B:00.0, Enabled"))})
    verdict = decided(host, facts, ["cgpu"], preflight=True, run=run)
    assert any(one.startswith("cgpu.alone: MIG mode is on") for one in verdict.refusals) is refused


def made(block: Cgpu, text: str, **site: object) -> dict[str, Any]:
    host = HostSpec(name="gpu1", capabilities={"cgpu": block}, site=site)
    values: dict[str, Any] = dict(DESIRED.make(Context(host, block, Facts({"cgpu": Output(text)}))))
    return {**values["tasks"]["unit"], **values}


def test_what_the_role_brings_about() -> None:
    found = made(SINGLE, said("20 5 80", "20 1 80"))
    assert found["differs"] == "GPU 0 policy: 5 -> 1, GPU 1 max_inst: 20 -> 5, GPU 1 policy: 1 -> 3"
    assert found["fix"] == "stop the containers that it names; then gpuprov apply"
    assert set(found["files"]) == {"/etc/gpuprov/cgpu.conf"}
    assert set(found["program"]) == {
        f"/usr/local/lib/gpuprov/cgpu/{name}.py" for name in ("__init__", "program", "cgpu")
    }
    start = (
        "Environment=PYTHONPATH=/usr/local/lib/gpuprov\nExecStart=@PYTHON@ -B -m cgpu.cgpu apply "
        "30\nTimeoutStartSec=120\n"
    )
    assert start in "".join(found["units"].values())
    assert found["absent"] == ["/usr/local/lib/gpuprov/cgpu/cgpu.sh"], "what an earlier gpuprov ran"
    assert made(SINGLE, said(*TWO))["differs"] == ""


def test_a_site_says_how_long_the_unit_waits() -> None:
    text = made(Cgpu(), said(), cgpu_module_timeout="300")["units"]["/etc/systemd/system/gpuprov-cgpu.service"]
    assert "apply 300\nTimeoutStartSec=390\n" in text


def test_a_host_that_has_lost_its_cgpu() -> None:
    """As after a reboot: the unit is started all the same, may load it, and says why not."""
    found = made(Cgpu(), ABSENT)
    assert found["differs"] == "cGPU is not loaded"
    assert "have Alibaba's installer load it at boot" in found["fix"]


EIGHT = GpuSpec(model="A100-SXM4-80GB", count=8)


def told(block: Cgpu, gpu: GpuSpec | None = None, **others: Fragment) -> list[str]:
    host = HostSpec(name="h", gpu=gpu, capabilities={"cgpu": block, **others})
    return [str(problem) for problem in cgpu.rules(host, block)]


@run_each(
    ("block", "others", "said_"),
    [
        (Cgpu(), {}, ""),
        (Cgpu(max_inst=25, prio_ratio=20, gpus={"7": {"max_inst": 1}}), {}, ""),
        (Cgpu(prio_ratio=19), {}, "cgpu.prio_ratio is 19; allowed: a whole number from 20 to 99, or 0, which leaves"),
        (Cgpu(gpus={"0": {"policy": 6}}), {}, "cgpu.gpus.0.policy is 6; allowed: a whole number from 0 to 5"),
        (Cgpu(gpus={"0": {"max_inst": 0}}), {}, "cgpu.gpus.0.max_inst is 0; allowed: a whole number from 1 to 25"),
        (Cgpu(gpus={"0": {"prio_ratio": 100}}), {}, "cgpu.gpus.0.prio_ratio is 100"),
        (Cgpu(gpus={"8": {"policy": 3}}), {}, 'cgpu.gpus names GPU "8", and the host has 8; allowed: 0 to 7'),
        (Cgpu(gpus={"0": {}}), {}, 'cgpu.gpus: "0" says nothing; allowed: max_inst, policy, prio_ratio'),
        (Cgpu(), {"mig": Mig()}, "cgpu contradicts mig: MIG cuts the GPUs up, too; cgpu: false, or mig: false"),
        (Cgpu(), {"mig": Mig(mode="disabled")}, ""),
        (Cgpu(), {"mps": Mps()}, "cgpu contradicts mps: MPS shares the GPUs, too"),
        (Cgpu(), {"mps": Mps(scope="none")}, ""),
        (Cgpu(), {"nvidia_driver": NvidiaDriver(version="580")},
         "warning: cgpu: nvidia_driver.version is 580, and cGPU 1.5.3"),
    ],
)  # fmt: skip
def test_rules(block: Cgpu, others: dict[str, Fragment], said_: str) -> None:
    found = told(block, EIGHT, **others)
    assert [one for one in found if said_ in one] == found
    assert len(found) == bool(said_)


@run_each(
    ("values", "place", "fix"),
    [
        ({"policy": 6}, "cgpu.policy is 6", "a whole number from 0 to 5"),
        ({"policy": "1"}, 'cgpu.policy is "1"', "write 1 without quotes"),
        ({"max_inst": 26}, "cgpu.max_inst is 26", "from 0 to 25"),
        ({"gpus": {0: {"policy": 1}}}, "cgpu.gpus: the key 0 is not text", 'quote it: "0"'),
        ({"gpus": {"GPU-1": {"policy": 1}}}, 'cgpu.gpus: the key is "GPU-1"', "a GPU's folder"),
        ({"gpus": {"0": {"polici": 1}}}, 'unknown key "polici" in cgpu.gpus.0', 'did you mean "policy"?'),
    ],
)
def test_values_that_no_model_takes(values: object, place: str, fix: str) -> None:
    _, findings = convert(values, Cgpu, ("cgpu",))
    ((_, message, way),) = findings
    assert place in message
    assert fix in way


@run_each(
    ("text", "block"),
    [
        (said("20 1 80", "20 1 80"), Cgpu(policy=1, max_inst=20, prio_ratio=80)),
        (said("20 1 80", "5 3 80", "20 1 80"), Cgpu(policy=1, max_inst=20, prio_ratio=80,
                                                    gpus={"1": {"max_inst": 5, "policy": 3}})),
        (said("16 0 -", version="0.8.8"), Cgpu(policy=0, max_inst=16)),
        (said("64 1 0"), Cgpu(policy=1)),
        (said("20 - 80"), None),
        (said("- - -"), None),
        (ABSENT, None),
    ],
)  # fmt: skip
def test_export(text: str, block: Cgpu | None) -> None:
    found = cgpu.export(facts(cgpu=text))
    assert found == block
    if block:
        assert convert(msgspec.to_builtins(found), Cgpu) == (block, [])


@run_each(
    "block",
    [
        Cgpu(),
        Cgpu(policy=0),
        Cgpu(policy=5, max_inst=25, prio_ratio=99, gpus={"1": {"prio_ratio": 20, "max_inst": 1}, "0": {"policy": 0}}),
    ],
)
def test_the_role_writes_the_lines_that_the_check_expects(block: Cgpu) -> None:
    assert tuple(line for line in config(block).splitlines() if not line.startswith("#")) == lines(block)


@pytest.mark.parametrize(
    ("version", "ended", "words"),
    [
        ("570", True, ["works with drivers of 460, ", "575, all out of support", "stay on 570, or ask Alibaba"]),
        ("570", False, []),
        ("580", True, ["not with 580", "a driver of 460, ", "575, all out of support; or ask Alibaba"]),
        ("580", False, ["not with 580", "575; or ask Alibaba"]),
    ],
)
def test_that_no_supported_driver_is_left_for_it_is_said(
    monkeypatch: pytest.MonkeyPatch, version: str, ended: bool, words: list[str]
) -> None:
    """A branch whose support was over sent people to the supported ones, of which cGPU takes none."""
    life = end_of_life("570")._replace(ended=ended)
    monkeypatch.setattr("gpuprov.capabilities.cgpu.end_of_life", lambda _branch: life)
    host = HostSpec(name="a", capabilities={"nvidia_driver": NvidiaDriver(version=version)})
    found = [f"{one.message}; {one.fix}" for one in cgpu.rules(host, Cgpu()) if one.severity == "warning"]
    assert len(found) == bool(words)
    assert all(word in found[0] for word in words)


@run_each(
    ("version", "driver", "said_"),
    [
        ("1.5.20", "575", ""),
        ("1.5.3", "545.23.08", "not with 545.23.08"),
        ("1.5.2", "470.161.03", ""),
        ("1.5.2", "470.199.02", "drivers of 470 up to 470.161.03, not with 470.199.02"),
        ("1.0.3", "510", "not with 510"),
        ("0.8.8", "580", ""),
        ("1.5.20", "", ""),
        ("1.5.2-ack", "550", "not with 550"),
        ("", "550", ""),
    ],
)
def test_the_table_of_drivers(version: str, driver: str, said_: str) -> None:
    why = catalogue.explain_unfit(version, driver)
    assert said_ in why
    assert bool(why) == bool(said_)


def test_the_model_and_the_table_of_nodes_have_the_same_bounds() -> None:
    for node in catalogue.read_cgpu_file().nodes:
        assert convert({node.key: node.most}, Cgpu)[1] == []
        assert convert({node.key: node.most + 1}, Cgpu)[1]
        assert convert({node.key: node.least}, Cgpu)[1] == []
    assert [one.value for one in catalogue.read_cgpu_file().policies] == [*range(6)]
