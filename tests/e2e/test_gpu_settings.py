"""GPU settings on a simulated host with two H100: applied, kept across a reboot, refused where a GPU does not take
them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import faults, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, Ran, loaded
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-gpu-settings"
HOST = Description(gpu=Gpus(model="H100-SXM5-80GB", count=2))
ASKED: dict[str, Any] = {
    "ecc": "disabled",
    "power_limit": 500,
    "locked_clocks": {"graphics": [1200, 1755]},
    "compute_mode": "exclusive_process",
    "confidential_computing": "disabled",
    "per_gpu": [{"gpus": [1], "power_limit": 400, "compute_mode": "default"}],
}
QUERY = (
    "nvidia-smi --query-gpu=power.limit,clocks.gr,compute_mode,ecc.mode.current,ecc.mode.pending --format=csv,noheader"
)
SET = "500.00 W, 1200 MHz, Exclusive_Process, {0}, Disabled\n400.00 W, 1200 MHz, Default, {0}, Disabled\n"
OWN = "700.00 W, 345 MHz, Default, Enabled, Enabled\n" * 2
HOLD = """
systemd-run --quiet --unit gpuprov-sim-client --slice user.slice \\
  sh -c 'exec 3</dev/nvidia0 4</dev/nvidia-uvm; exec sleep infinity'
"""


def spec(settings: dict[str, Any], reboot: str = "never") -> dict[str, Any]:
    return {"gpu": {"model": "H100-SXM5-80GB", "count": 2}, "gpu_settings": settings, "reboot": reboot}


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Machine]:
    """A host whose driver is loaded."""
    with loaded(NAME, HOST, "nvidia-modprobe") as machine:
        yield machine


@pytest.fixture(scope="module")
def first(lab: Lab, site: Machine) -> Ran:
    """The first apply, which may not reboot: one is still required, and the exit code says so."""
    assert site.sh(QUERY) == OWN
    return lab.run("apply", lab.inventory(spec(ASKED), site), "--yes")


@pytest.fixture(autouse=True)
def made(first: Ran) -> None:
    assert first.code == 1, first


def test_all_is_set_and_ecc_waits_for_the_reboot(lab: Lab, site: Machine, first: Ran) -> None:
    assert site.sh(QUERY) == SET.format("Enabled")
    assert "reboot required: gpu_settings: the ECC mode of GPU 0" in first.text
    found = lab.run("verify", lab.inventory(spec(ASKED), site), "--json").failed("gpu_settings")
    assert list(found) == ["gpu_settings.ecc"]
    assert "enabled, disabled is pending" in found["gpu_settings.ecc"]["found"]


def test_the_plan_says_what_would_change(lab: Lab, site: Machine) -> None:
    other = lab.run("plan", lab.inventory(spec({**ASKED, "power_limit": 520}), site))
    assert "power limit: 500 W -> 520 W" in other.text
    assert site.sh(QUERY) == SET.format("Enabled")


def test_a_reboot_keeps_it_all_and_brings_ecc(lab: Lab, site: Machine) -> None:
    hosts.reboot(NAME)
    site.sh("systemctl is-system-running --wait >/dev/null || true")
    assert site.sh(QUERY) == SET.format("Disabled")
    assert "power limit: 700 W -> 500 W" in site.sh("journalctl -b -u gpuprov-gpu-settings -o cat --no-pager")
    assert not lab.run("verify", lab.inventory(spec(ASKED), site), "--json").failed("gpu_settings")
    again = lab.run("apply", lab.inventory(spec(ASKED), site), "--yes", "--full")
    assert again.code == 0, again
    assert site.sh(QUERY) == SET.format("Disabled")


def test_what_a_gpu_does_not_take_changes_nothing(lab: Lab, site: Machine) -> None:
    """Refused without a look at the host where the spec names its GPUs, and by what NVML says where it does not."""
    asked = spec({**ASKED, "ecc": "enabled", "power_limit": 50})
    refused = lab.run("apply", lab.inventory(asked, site), "--yes")
    assert refused.code == 2, refused
    assert "is 50 W, which a H100-SXM5-80GB does not take; allowed: 200 to 700 W" in refused.text
    del asked["gpu"]
    refused = lab.run("apply", lab.inventory(asked, site), "--yes")
    assert refused.code == 3, refused
    assert "power_limit is 50 W; allowed: 200 to 700 W" in refused.text
    assert site.sh(QUERY) == SET.format("Disabled")


def test_a_running_job_is_not_shut_out(lab: Lab, site: Machine) -> None:
    site.sh("nvidia-smi -c DEFAULT >/dev/null")
    site.sh(HOLD)
    refused = lab.run("apply", lab.inventory(spec(ASKED), site), "--yes")
    assert refused.code == 3, refused
    assert "sleep (pid" in refused.text
    site.sh("systemctl stop gpuprov-sim-client")
    done = lab.run("apply", lab.inventory(spec(ASKED), site), "--yes")
    assert done.code == 0, done
    assert site.sh(QUERY) == SET.format("Disabled")


@pytest.mark.parametrize(
    "name",
    ["gpu-settings-forgotten", "gpu-power-limit-changed", "gpu-settings-unit-disabled", "confidential-computing"],
)
def test_faults_are_found_and_mended(lab: Lab, site: Machine, name: str) -> None:
    asked = lab.inventory(spec(ASKED), site)
    faults.plant(NAME, name, hosts.run)
    found = lab.run("verify", asked, "--json").failed("gpu_settings")
    assert faults.find(name).caught_by in found
    if name != "confidential-computing":
        assert lab.run("apply", asked, "--yes").code == 0
    faults.heal(NAME, name, hosts.run)
    assert not lab.run("verify", asked, "--json").failed("gpu_settings")


def test_what_is_there_can_be_exported_and_asked_for_again(lab: Lab, site: Machine) -> None:
    exported = lab.run("export", lab.inventory(None, site), "--json")
    assert exported.code == 0, exported
    assert '"power_limit": 500' in exported.out or "power_limit: 500" in exported.out


def test_an_allowed_reboot_brings_the_ecc_mode_at_once(lab: Lab, site: Machine) -> None:
    asked = lab.inventory(spec({**ASKED, "ecc": "enabled"}, "if-needed"), site)
    done = lab.run("apply", asked, "--yes")
    assert done.code == 0, done
    assert site.sh(QUERY) == SET.replace("Disabled\n", "Enabled\n").format("Enabled")
    assert not lab.run("verify", asked, "--json").failed("gpu_settings")
