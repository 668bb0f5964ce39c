"""What the page shows of a host beside its results, and where it is from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuprov.capabilities.base import Change
from gpuprov.cli import cli
from gpuprov.cli.about import about
from gpuprov.cli.options import InventoryOptions
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.gpus import mig
from gpuprov.facts.probes.host import house, system
from gpuprov.facts.probes.software import packages
from gpuprov.inventory import load
from gpuprov.report.fleet import Known, causes, data, group
from gpuprov.report.fold import findings
from gpuprov.report.known import known, mig_picture
from gpuprov.report.page import State
from gpuprov.report.states import headline, state
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import Result
from gpuprov.verify.verify import NextBoot, verdict
from tests.hardware.topology.machines import hgx_h100
from tests.rows import run_each

RECEIPT = {
    "applied_at": "2026-01-31T12:00:00Z",
    "gpuprov_version": "0.1.0",
    "capabilities": {"nvidia_driver": {"digest": "d", "applied_at": "2026-01-30T08:00:00Z"}},
}


def gpu(index: int, *instances: mig.GpuInstance, current: bool = True) -> mig.MigGpu:
    return mig.MigGpu(
        index=index, number=index, minor=index, address="0000:1b:00.0", uuid="GPU-1", name="NVIDIA H100 80GB HBM3",
        pci="2330",
        subsystem="", capable=True, current=current, instances=instances,
        profiles=(mig.Profile(name="1g.10gb", id=19, slices=1, count=7, size=1, starts=(0, 1, 2, 3, 4, 5, 6)),),
    )  # fmt: skip


def one(host: str = "gpu1", check: str = "mps.alive", **more: Any) -> Result:
    return Result(host=host, capability=check.partition(".")[0], check=check, **more)


def test_pictures_and_receipt_of_what_was_read() -> None:
    outputs = dict(hgx_h100().texts)
    outputs[house.RECEIPT.name] = Output(json.dumps(RECEIPT))
    found = {
        "gpu1": known(RawHost(name="gpu1", groups=("all", "train")), Facts(outputs)),
        "gpu2": known(RawHost(name="gpu2")),
    }
    assert [title for title, _ in found["gpu1"].pictures] == ["Topology"]
    assert ElementTree.fromstring(found["gpu1"].pictures[0][1]).tag.endswith("svg")
    assert "gpu1" not in found["gpu1"].pictures[0][1], "equal hosts have equal pictures"
    assert found["gpu1"].receipt == (
        ("gpuprov", "0.1.0, 2026-01-31T12:00:00Z"),
        ("nvidia_driver", "2026-01-30T08:00:00Z"),
    )
    assert found["gpu2"] == Known()


def test_versions_are_those_of_the_host() -> None:
    outputs = {
        system.OS_RELEASE.name: Output('ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'),
        system.PLATFORM.name: Output("Linux 6.1.0-56-amd64 x86_64\n"),
        packages.PACKAGES.name: Output(
            "native|amd64\nhi |libcuda1|535.1-1|libcuda1|amd64\nhi |nvidia-smi|535.1-1|nvidia-smi|amd64\n"
            "ii |nvidia-modprobe|530.2-1|nvidia-modprobe|amd64\n"
        ),
    }
    assert known(RawHost(name="gpu1"), Facts(outputs)).versions == (
        ("distribution", "Debian GNU/Linux 12 (bookworm)"),
        ("running kernel", "6.1.0-56-amd64"),
        ("535.1-1", "libcuda1, nvidia-smi"),
        ("530.2-1", "nvidia-modprobe"),
    )
    assert known(RawHost(name="gpu1"), Facts({"receipt": Output("{")})).receipt[0][0] == "receipt"


def test_mig_is_drawn_by_memory_slices_and_gpus_that_are_alike_once() -> None:
    parts = (
        mig.GpuInstance(id=1, profile="3g.40gb", start=0, size=4),
        mig.GpuInstance(id=2, profile="<b>", start=4, size=1),
    )
    picture = mig_picture([gpu(0, *parts), gpu(1, *parts), gpu(2), gpu(3, current=False)])
    words = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("}text")]
    assert words.count("GPU 0, 1") == 1
    assert {"3g.40gb", "slices 0 to 3", "<b>", "slice 4", "GPU 2", "no instance"} <= set(words)
    assert "GPU 3" not in words
    assert mig_picture([gpu(0, current=False)]) == ""


def test_a_host_stands_under_its_rack_or_its_innermost_group() -> None:
    assert group(("all", "rack07", "training")) == "rack07"
    assert group(("all", "training", "canary")) == "canary"
    assert group(("all", "ungrouped")) == ""
    assert group(("all", "rack07"), "B12") == "B12", "what the inventory says of the host wins"


def test_the_rack_is_a_variable_of_the_host(tmp_path: Path) -> None:
    inventory = tmp_path / "site.yaml"
    inventory.write_text(
        "all:\n  vars: {gpuprov: {nouveau: {}}, gpuprov_rack: '{{ place | default(omit) }}'}\n"
        "  hosts: {gpu1: {place: B12}, gpu2: {gpuprov_rack: 7}}\n"
    )
    hosts = {one.name: one for one in load([str(inventory)], cache=False).hosts}
    assert known(hosts["gpu1"]).rack == "B12"
    assert known(hosts["gpu2"]).rack == "7"


def test_what_would_change_is_what_failing_checks_say() -> None:
    change = Change(kind="package", name="libnvidia", before="1", after="2")
    rows = {"gpu1": [one(status="fail", changes=(change,)), one(check="a.b", status="pass", changes=(change,))]}
    told = data(rows, {"gpu1": "fail"}, {"gpu1": NextBoot("right")}, {})
    assert [told["texts"][row[-1]] for row in told["results"]] == ["package libnvidia: 1 -> 2", ""]


@run_each(
    ("rows", "expected"),
    [
        ([one(status="unreachable")], "gone"),
        ([one(status="fail"), one(status="error")], "fail"),
        ([one(status="error"), one(status="pass")], "error"),
        ([one(status="pass"), one(check="kernel.command_line", status="fail", moment="next-boot")], "boot"),
        ([one(status="skip")], "unproven"),
        ([one(status="pass"), one(check="mps.shm", status="skip")], "part"),
        ([one(status="pass")], "right"),
    ],
)
def test_state_of_a_host(rows: list[Result], expected: str) -> None:
    assert state(rows) == expected


def test_the_sentence_counts_hosts() -> None:
    boots = [NextBoot("right"), NextBoot("wrong", ("x",))]
    told = headline("differs", {"a": "fail", "b": "right"}, boots, 0)
    assert (told.state, told.sentence) == ("fail", "1 of 2 hosts differs from its spec")
    assert told.more == "1 failed; 1 matches the spec. After the next boot: 1 right, 1 NOT right."
    assert headline("matches", {"gpu1": "right"}, boots[:1], 0).sentence == "gpu1 matches its spec"
    assert headline(verdict([]), {}, [], 0).sentence == "Nothing was proven."
    bad: dict[str, State] = {"a": "fail", "b": "gone"}
    assert headline("differs", bad, [], 0).sentence == "Both hosts differ from their specs"
    assert headline("differs", bad | {"c": "fail"}, [], 0).sentence == "All 3 hosts differ from their specs"
    assert headline("matches", {"a": "right", "b": "right"}, [], 0).sentence == "Both hosts match their specs"


def test_one_check_is_one_cause_whatever_was_found_on_each_host() -> None:
    rows = [one(f"gpu{n}", status="fail", found=f"{n} degrees") for n in range(5)]
    found = causes(findings([one("x", "kernel.sysctl", status="fail"), *rows]))
    told = [(cause.first.check, len(cause.hosts), len(cause.findings)) for cause in found]
    assert told == [("mps.alive", 5, 5), ("kernel.sysctl", 1, 1)]


def test_pictures_of_many_different_hosts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprov.report.fleet.PICTURES", 100)
    rows = {f"gpu{n}": [one(f"gpu{n}", status="pass")] for n in range(4)}
    drawn = {host: Known(pictures=(("Topology", "x" * 60 + host * (host != "gpu3")),)) for host in rows}
    drawn["gpu3"] = drawn["gpu0"]
    told = data(rows, dict.fromkeys(rows, "right"), dict.fromkeys(rows, NextBoot("right")), drawn)
    assert [len(host[6]) for host in told["hosts"]] == [1, 0, 0, 1]


def test_the_command_in_a_page_has_no_secret() -> None:
    inventory = InventoryOptions(("site.yaml",), limit="gpu[1:3]", extra_vars=("password=hunter2",), user="root")
    origin = about(
        "verify",
        inventory,
        {"mig"},
        {"html": Path("a b.html"), "junit": None, "from": (Path("r"), Path("s"))},
    )
    options = "--limit 'gpu[1:3]' --only mig --html 'a b.html' --from r --from s"
    assert origin.command == f"gpuprov verify site.yaml {options}"
    assert origin.inventory == "site.yaml"


def test_verify_reads_the_receipt_for_a_page_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []

    def each(hosts: Any, on_done: Any, **_given: Any) -> None:
        asked.append({probe.name for _, probes in hosts for probe in probes})
        for raw, _ in hosts:
            on_done(raw.name, UnreachableError("refused"))

    monkeypatch.setattr(sys.modules["gpuprov.verify.verify"], "gather_each", each)
    file, page = tmp_path / "inventory.yaml", tmp_path / "page.html"
    file.write_text("all: {children: {rack1: {hosts: {gpu1: {gpuprov: {acceptance: {}}}}}}}\n")
    assert cli.main(["verify", str(file), "--no-cache"], standalone_mode=False) == 4
    assert cli.main(["verify", str(file), "--no-cache", "--html", str(page)], standalone_mode=False) == 4
    assert asked[1] - asked[0] == {"receipt", "platform"}, "the distribution is read anyway"
    text = page.read_text()
    assert f'gpuprov verify {file} <span class="one">--html</span> {page}' in text
    assert "gpu1 differs from its spec" in text
    assert '"rack1"' in text
