"""A real machine with one H200 in pass-through, under load, without systemd: `tests/real/h200-vm-under-load`, blanked as
tests/real is.

Read by `gpuprov capture` beside a matrix product; sysctl is left out, and the command line shortened.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuprov.capabilities.health.fragment import Health
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.persistence.fragment import Persistence
from gpuprov.capabilities.topology.fragment import Topology
from gpuprov.explain.messages import symptoms_in
from gpuprov.facts.captures import RecordedFacts, read
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import system
from gpuprov.hardware.topology import read as wiring
from gpuprov.hardware.topology.judge import list_findings
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from gpuprov.verify.evaluate import Result, evaluate

FILE = Path(__file__).parents[2] / "real" / "h200-vm-under-load" / "host.capture.json"


@pytest.fixture(scope="module", name="facts")
def _facts() -> RecordedFacts:
    (record,) = read(FILE)
    return RecordedFacts(record)


def results(facts: RecordedFacts, *moments: str, **blocks: Fragment) -> dict[str, Result]:
    spec = HostSpec(name="h200vm", gpu=GpuSpec(model="H200-SXM", count=1), capabilities=blocks)
    return {one.check: one for one in evaluate(spec, facts, moments or ("now", "next-boot"))}  # type: ignore[arg-type]


def test_a_host_without_systemd_has_one_cause_and_no_riddles(facts: RecordedFacts) -> None:
    found = results(facts, kernel=Kernel(), persistence=Persistence(), topology=Topology(), health=Health())
    cause = found["host.systemd"]
    assert (cause.status, cause.found, cause.gate) == ("fail", "init is the first process", True)
    assert {one.follows for one in found.values() if one.status == "error"} == {"host.systemd"}
    assert [name for name, one in found.items() if one.status == "fail"] == ["host.systemd"]


def test_a_machine_made_of_a_containers_image_is_none(facts: RecordedFacts) -> None:
    assert facts.get(system.CONTAINER) == ""
    assert results(facts)["host.gpu"].found == "1 x H200-SXM"


def test_it_is_fit_for_work(facts: RecordedFacts) -> None:
    found = results(facts, health=Health())
    for check, probe in (
        ("open_files", "file_systems"),
        ("link_flaps", "link_flaps"),
        ("environment", "environment"),
        ("device_files", "device_files"),
    ):
        later = found.pop(f"health.{check}")
        assert (later.status, later.found) == ("skip", f"not in this capture: {probe}")
    told = {one.status for name, one in found.items() if name.startswith("health.")}
    assert told == {"pass", "n/a"}
    assert "links lead to none" in found["health.nvlink_errors"].found


def test_its_nvlinks_are_neither_missing_nor_proven(facts: RecordedFacts) -> None:
    assert results(facts, topology=Topology())["topology.nvlinks"].status == "skip"
    assert results(facts, topology=Topology(nvlinks="18"))["topology.nvlinks"].status == "fail"
    (finding,) = list_findings(wiring(facts))
    assert finding.note
    assert "NVLinks are not known" in finding.message


def test_a_job_is_named_though_the_package_lists_were_never_fetched(facts: RecordedFacts) -> None:
    assert [one.command for one in facts.get(nvidia.CLIENTS)] == ["python3"]
    for version, status in (("570.211.01", "fail"), ("570", "fail"), ("580", "pass"), ("580.159.04", "pass")):
        found = results(facts, "preflight", nvidia_driver=NvidiaDriver(version=version))
        assert found["nvidia_driver.clients"].status == status, version
    assert (
        "python3 pid 3748"
        in results(facts, "preflight", nvidia_driver=NvidiaDriver(version="570"))["nvidia_driver.clients"].found
    )


def test_explain_takes_no_row_for_what_it_denies() -> None:
    """Of `HW Power Brake Slowdown : Not Active` it once said that the machine asserts the power brake."""
    seen = symptoms_in(FILE.read_text(encoding="utf-8").replace("\\n", "\n"))
    assert [one.symptom.key for one in seen] == [], (
        "SW Power Cap : Active, of a GPU with full load, is not a fault either"
    )
