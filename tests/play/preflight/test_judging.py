"""The judge inside a play: what stops a host, what each role brings about, and what the host's answer must be."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, ProbeFailed
from gpuprov.play.preflight.judging import driver, facts_of, judge, script
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.evaluate import evaluate, probes_of
from tests.capabilities import mig_host
from tests.capabilities.asking import facts, good

LINE = Kernel(command_line={"iommu": "pt"})


def host(**blocks: Fragment) -> HostSpec:
    return HostSpec(name="gpu1", capabilities=blocks)


def read(**changed: str) -> Facts:
    return facts(**{**good(), "login": "", **changed})


def test_a_host_that_is_right_gets_what_its_roles_bring_about() -> None:
    verdict = judge(host(kernel=LINE), facts(**good()), ["kernel"], preflight=False)
    assert verdict.refusals == ()
    assert verdict.desired["kernel"]["tasks"]["boot"]["command_line"] == ["iommu=pt"]
    assert "file /etc/default/grub.d/90-gpuprov.cfg" in verdict.resources["kernel"]


def test_a_list_that_cannot_be_made_stops_no_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[str]:
        raise ProbeFailed("repositories was not read on the host")

    monkeypatch.setattr("gpuprov.capabilities.receipts.entries", fails)
    verdict = judge(host(kernel=LINE), facts(**good()), ["kernel"], preflight=False)
    assert (verdict.refusals, verdict.resources) == ((), {})


def test_what_stops_a_host_is_said_with_its_way_out_and_nothing_is_worked_out() -> None:
    late = str(int(time.time()) - 4000)
    verdict = judge(
        host(kernel=LINE),
        facts(**{**good(), "clock": late, "bootloader": "absent|/boot/grub/grub.cfg\n"}),
        ["kernel"],
        preflight=True,
    )
    told = [line for line in verdict.refusals if line.startswith(("host.clock", "kernel.bootloader"))]
    assert len(told) == 2, verdict.refusals
    assert all(". Fix: " in line for line in told)
    assert "no /boot/grub/grub.cfg (expected: GRUB, for iommu=pt). Fix: take command_line out of the spec" in told[1]
    assert verdict.desired == {}


def test_capabilities_that_are_not_selected_are_not_judged() -> None:
    spec = host(kernel=LINE, persistence=BY_NAME["persistence"].fragment())
    verdict = judge(
        spec, facts(**{**good(), "bootloader": "absent|/boot/grub/grub.cfg\n"}), ["persistence"], preflight=True
    )
    assert not [line for line in verdict.refusals if line.startswith("kernel.")]
    assert "kernel" not in verdict.desired
    assert "probe bootloader" not in script(spec, ["persistence"], preflight=True)


def test_a_host_that_says_nothing_of_what_a_role_needs_is_refused() -> None:
    verdict = judge(host(kernel=LINE), facts(**{**good(), "command_line": ""}), ["kernel"], preflight=False)
    assert "kernel: command_line printed nothing on the host" in verdict.refusals[0]


def test_the_checks_that_stop_are_the_ones_that_plan_names_as_blocking() -> None:
    spec = host(kernel=LINE, mig=BY_NAME["mig"].fragment())
    everything = evaluate(spec, facts(**good()), ("preflight", "now", "next-boot"))
    asked = evaluate(spec, facts(**good()), stops=True)
    assert [result.check for result in asked] == [result.check for result in everything if result.stops]
    assert set(probes_of(spec, stops=True)) <= set(probes_of(spec, ("preflight", "now", "next-boot")))


def test_a_drain_command_takes_care_of_who_uses_the_gpus() -> None:
    """And of nothing else: `apply --drain` would never come to its command."""
    spec = host(mig=BY_NAME["mig"].fragment())
    busy = mig_host.gpu(on=False, processes=[{"pid": 701, "instance": None, "part": None}])
    known = facts(**{**good(), "mig": mig_host.state(busy), "clock": str(int(time.time()) - 4000)})
    checks = [
        {line.partition(":")[0] for line in judge(spec, known, ["mig"], preflight=True, drains=drains).refusals}
        for drains in (False, True)
    ]
    assert checks[0] - checks[1] == {"mig.clients"}
    assert "host.clock" in checks[1]


def test_the_script_is_read_as_ansible_hands_its_streams_over() -> None:
    done = subprocess.run(
        ["/bin/sh", "-s"],
        input=script(host(kernel=LINE), ["kernel"], preflight=False).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    found = facts_of(done.stdout + b"\n" + done.stderr)
    assert found.get(BY_NAME["kernel"].desired.probes[0])  # type: ignore[union-attr]


def test_an_answer_that_was_cut_off_is_none() -> None:
    with pytest.raises(GpuprovError, match="was cut off"):
        facts_of(b"gpuprov-begin x\nhalf of it")


@pytest.mark.parametrize("drains", [False, True])
def test_a_drain_command_takes_care_of_processes_that_hold_gpus(*, drains: bool) -> None:
    spec = host(nvidia_driver=BY_NAME["nvidia_driver"].fragment(version="535.309.01"))
    held = read(gpu_clients="812|python3|\nlooked\n", driver_building="there|dkms\n")
    refused = judge(spec, held, ["nvidia_driver"], preflight=True, drains=drains).refusals
    assert bool([line for line in refused if line.startswith("nvidia_driver.clients")]) != drains


def test_packages_are_judged_by_the_driver_that_the_run_brings() -> None:
    """What gpuprov_packages tells packages of another driver by."""
    bare, runfile = driver({}), driver({"nvidia_driver": {"version": "580.95.05", "runfile": {"of": "x.run"}}})
    assert bare["coming"]["version"] == ""
    assert re.fullmatch(bare["names"]["debian"]["driver"], "nvidia-installer-cleanup")
    assert (runfile["coming"]["version"], runfile["coming"]["runfile"]) == ("580.95.05", True)
