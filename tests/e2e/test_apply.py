"""The main job: plan and apply a fresh host, then find nothing left to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.lab import SPEC, First, Lab, Ran

pytestmark = pytest.mark.e2e


def outcome(ran: Ran) -> dict[str, object]:
    """The one host of `apply --json`."""
    (host,) = ran.json["hosts"]
    assert isinstance(host, dict)
    return host


def test_plan_changes_nothing_and_names_exact_versions(first: First, versions: tuple[str, str]) -> None:
    assert first.plan.code == 1, first.plan  # the host differs
    assert first.between == first.before
    (one_set,) = (line for line in first.plan.out.splitlines() if line.strip().startswith(f"+ {versions[0]}-"))
    packages = set(one_set.partition(": ")[2].split(", "))
    assert packages >= {"nvidia-kernel-dkms", "nvidia-smi", "libcuda1", "nvidia-alternative", "firmware-nvidia-gsp"}
    assert "blacklist nouveau" in first.plan.out
    assert "reboot: no" in first.plan.out


def test_first_apply_changes_the_host_and_verify_is_green(first: First, lab: Lab, versions: tuple[str, str]) -> None:
    assert first.apply.code == 0, first.apply
    assert "verify found nothing wrong, but" in first.apply.text  # a container cannot prove that the driver is loaded
    first.machine.has_driver(versions[0])
    assert set(first.machine.receipt()["capabilities"]) == {"kernel", "nouveau", "nvidia_driver", "persistence"}
    assert first.machine.sh("systemctl is-enabled nvidia-persistenced").strip() == "enabled"
    assert first.machine.sh("ls -A /run/gpuprov | grep -v guard || true").strip() == ""
    told = lab.run("verify", first.inventory, "-v")
    assert told.code == 0, told


def test_what_a_container_cannot_prove_is_skipped_with_the_reason(first: First, lab: Lab) -> None:
    results = lab.run("verify", first.inventory, "--json").json
    skipped = {result["check"]: result["found"] for result in results if result["status"] == "skip"}
    assert {result["status"] for result in results} == {"pass", "skip"}
    assert {"nvidia_driver.loaded", "nouveau.running", "persistence.active"} <= set(skipped)
    assert all("no NVIDIA GPU" in why or "container" in why for why in skipped.values()), skipped
    proved = {result["check"] for result in results if result["status"] == "pass"}
    assert {
        "nvidia_driver.packages",
        "nvidia_driver.held",
        "nvidia_driver.modules_built",
        "nouveau.initramfs",
    } <= proved


def test_reports_are_written(first: First, lab: Lab, tmp_path: Path) -> None:
    ran = lab.run("verify", first.inventory, "--junit", tmp_path / "junit.xml", "--html", tmp_path / "report.html")
    assert ran.code == 0, ran
    assert 'name="nvidia_driver.held"' in (tmp_path / "junit.xml").read_text()
    assert "nvidia_driver.held" in (tmp_path / "report.html").read_text()


def test_second_apply_does_not_enter_ansible(first: First, lab: Lab) -> None:
    before = first.machine.state()
    ran = lab.run("apply", first.inventory, "--yes", "--json")
    assert ran.code == 0, ran
    assert outcome(ran)["state"] == "unchanged"
    assert outcome(ran)["ran"] == {}
    assert ran.json["log"] == ""  # Ansible did not run, so there is nothing to log
    assert first.machine.state() == before
    assert ran.seconds < 30  # 2 s on an idle machine


def test_full_apply_runs_every_role_and_changes_nothing(first: First, lab: Lab) -> None:
    before = first.machine.state()
    ran = lab.run("apply", first.inventory, "--yes", "--full", "--json")
    assert ran.code == 0, ran
    assert set(outcome(ran)["ran"]) == {"kernel", "nouveau", "nvidia_driver", "persistence"}  # type: ignore[call-overload]
    assert outcome(ran)["changed"] == []
    assert outcome(ran)["state"] == "unchanged"
    assert first.machine.state() == before


def test_plan_after_apply_has_nothing_to_do(first: First, lab: Lab) -> None:
    ran = lab.run("plan", first.inventory)
    assert ran.code == 0, ran
    assert "nothing to do" in ran.text


def test_one_more_field_runs_its_role_only(newest: str, lab: Lab) -> None:
    machine = lab.simulated("field", newest)
    folder = lab.inventory({**SPEC, "kernel": {"limits": {"memlock": "unlimited"}}}, machine)
    ran = lab.run("apply", folder, "--yes", "--json")
    assert ran.code == 0, ran
    assert set(outcome(ran)["ran"]) == {"kernel"}, json.dumps(outcome(ran), indent=1)  # type: ignore[call-overload]
    assert "memlock" in machine.sh("cat /etc/security/limits.d/90-gpuprov.conf")
