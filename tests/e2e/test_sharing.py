"""MPS on a simulated host with two L40S: a daemon for each GPU, NVIDIA's own program, kept across ends, reboots and
other hands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import faults, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, Ran, loaded
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-sharing"
HOST = Description(gpu=Gpus(model="L40S", count=2))
MPS: dict[str, Any] = {"scope": "gpu", "active_thread_percentage": 50, "pinned_memory_limit": {"all": "8G"}}
MODES = "nvidia-smi --query-gpu=compute_mode --format=csv,noheader"
ASK = "echo {} | CUDA_MPS_PIPE_DIRECTORY={} nvidia-cuda-mps-control"
PERCENTAGE, MEMORY = "get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0"


def spec(mps: dict[str, Any]) -> dict[str, Any]:
    return {"nvidia_driver": {"version": "535"}, "mps": mps}


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Machine]:
    """A host whose driver is loaded."""
    with loaded(NAME, HOST, "nvidia-cuda-mps") as machine:
        yield machine


@pytest.fixture(scope="module")
def first(lab: Lab, site: Machine) -> Ran:
    """The first apply."""
    return lab.run("apply", lab.inventory(spec(MPS), site), "--yes")


@pytest.fixture(autouse=True)
def made(first: Ran) -> None:
    """Without a first apply that worked, there is nothing to look at."""
    assert first.code == 0, first


def daemon(site: Machine, name: str) -> dict[str, str]:
    """The environment of a daemon's process, and its pid."""
    pid = site.sh(f"systemctl show --property MainPID --value gpuprov-mps@{name}").strip()
    lines = site.sh(f"tr '\\0' '\\n' < /proc/{pid}/environ").splitlines()
    return {"pid": pid, **dict(line.split("=", 1) for line in lines)}


def limits(site: Machine, name: str) -> tuple[str, str]:
    """What a daemon says: the share of threads, and the memory limit of its device."""
    pipe = daemon(site, name)["CUDA_MPS_PIPE_DIRECTORY"]
    return site.sh(ASK.format(PERCENTAGE, pipe)).strip(), site.sh(ASK.format(f"'{MEMORY}'", pipe)).strip()


def right(lab: Lab, site: Machine) -> None:
    """Both daemons run with their limits, both GPUs are in their compute mode, and verify says so."""
    assert limits(site, "gpu0") == limits(site, "gpu1") == ("50.0", "8G")
    assert site.sh(MODES) == "Exclusive_Process\nExclusive_Process\n"
    assert not lab.run("verify", lab.inventory(spec(MPS), site), "--json").failed("mps")


def test_each_gpu_has_a_daemon_of_its_own(lab: Lab, site: Machine) -> None:
    one, other = daemon(site, "gpu0"), daemon(site, "gpu1")
    assert one["CUDA_MPS_PIPE_DIRECTORY"] != other["CUDA_MPS_PIPE_DIRECTORY"]
    assert one["CUDA_MPS_LOG_DIRECTORY"] != other["CUDA_MPS_LOG_DIRECTORY"]
    uuids = site.sh("nvidia-smi --query-gpu=uuid --format=csv,noheader").split()
    assert [one["CUDA_VISIBLE_DEVICES"], other["CUDA_VISIBLE_DEVICES"]] == uuids
    right(lab, site)


def test_a_daemon_that_is_killed_comes_back_with_its_limits(lab: Lab, site: Machine) -> None:
    before = daemon(site, "gpu0")["pid"]
    site.sh(f"kill -KILL {before}")
    site.wait_for(
        f"test $(systemctl show --property MainPID --value gpuprov-mps@gpu0) -ne {before} "
        "&& systemctl is-active --quiet gpuprov-mps@gpu0",
        60,
    )
    right(lab, site)


def test_all_is_there_again_after_a_reboot(lab: Lab, site: Machine) -> None:
    hosts.reboot(NAME)
    site.sh("systemctl is-system-running --wait >/dev/null || true")
    right(lab, site)


def test_another_hand_is_found_and_put_right_without_a_restart(lab: Lab, site: Machine) -> None:
    before = daemon(site, "gpu0")["pid"]
    faults.plant(NAME, "mps-limit-changed=20", hosts.run)
    faults.plant(NAME, "exclusive-mode-lost", hosts.run)
    found = lab.run("verify", lab.inventory(spec(MPS), site), "--json").failed("mps")
    assert set(found) == {"mps.limits", "mps.compute_mode"}
    site.sh("rm /var/lib/gpuprov-sim/faults/*")
    done = lab.run("apply", lab.inventory(spec(MPS), site), "--yes")
    assert done.code == 0, done
    assert daemon(site, "gpu0")["pid"] == before
    right(lab, site)


def test_one_daemon_for_all_takes_the_place_of_both(lab: Lab, site: Machine) -> None:
    done = lab.run("apply", lab.inventory(spec({"scope": "host"}), site), "--yes")
    assert done.code == 0, done
    assert site.sh("pidof nvidia-cuda-mps-control").split() == [daemon(site, "host")["pid"]]
    gone = lab.run("apply", lab.inventory(spec({"scope": "none"}), site), "--yes")
    assert gone.code == 0, gone
    assert site.sh("pidof nvidia-cuda-mps-control || true") == ""
    assert site.sh(MODES) == "Default\nDefault\n"
