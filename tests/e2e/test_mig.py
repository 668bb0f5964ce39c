"""MIG on a simulated host with two A100: a layout is made, kept across a reboot, and changed where somebody
computes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import faults, hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, Ran, loaded
from tests.e2e.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
NAME = "e2e-mig"
HOST = Description(gpu=Gpus(model="A100-SXM4-80GB", count=2), container_toolkit=True)
HOLD = """
systemd-run --quiet --unit gpuprov-sim-client --slice user.slice \\
  sh -c 'exec 3</dev/nvidia1 4</dev/nvidia-uvm; exec sleep infinity'
"""
OF_A_USER = """
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends libpam-systemd dbus-user-session >/dev/null 2>&1
id alice >/dev/null 2>&1 || useradd --create-home --uid 4711 --groups video alice; systemctl start user@4711.service
su alice -s /bin/sh -c "XDG_RUNTIME_DIR=/run/user/4711 systemd-run --user --quiet --unit nvidia-dcgm.service \\
  sh -c 'exec 3</dev/nvidia1 4</dev/nvidia-uvm; exec sleep 86398'"
"""
WATCHER = """
[Service]
ExecStart=/bin/sh -c 'exec 3</dev/nvidia0 4</dev/nvidia1; exec sleep infinity'
"""
STARTED = "systemctl show --property ActiveEnterTimestampMonotonic --value {}"
HALVES, MIXED, WHOLE = {"3g.40gb": 2}, {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}, {"7g.80gb": 1}
HALF = {"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}  # has room for a 3g.40gb at either place


def layout(first: dict[str, int], second: dict[str, int] | None = MIXED) -> dict[str, Any]:
    """A spec with these instances on GPU 0, and those on GPU 1; None: no MIG there."""
    other = {"gpus": [1], "mode": "disabled"} if second is None else {"gpus": [1], "instances": second}
    return {
        "nvidia_driver": {"version": "535"},
        "container_toolkit": {"runtimes": ["containerd"]},
        "mig": {"layout": [{"gpus": [0], "instances": first}, other]},
    }


@pytest.fixture(scope="module")
def site(lab: Lab) -> Iterator[Machine]:
    """A host whose driver is loaded."""
    with loaded(NAME, HOST, "nvidia-modprobe", "containerd") as machine:
        yield machine


@pytest.fixture(scope="module")
def first(lab: Lab, site: Machine) -> Ran:
    """The first apply."""
    return lab.run("apply", lab.inventory(layout(HALVES), site), "--yes")


@pytest.fixture(autouse=True)
def made(first: Ran) -> Iterator[None]:
    """Without a first apply that worked, there is nothing to look at. No client outlives its test."""
    assert first.code == 0, first
    yield
    faults.heal(NAME, "mig-instance-client", hosts.run)


def devices(site: Machine, gpu: int) -> dict[str, str]:
    """The MIG devices of a GPU by UUID, with their profiles, as nvidia-smi lists them."""
    blocks = re.split(r"^GPU \d+: ", site.sh("nvidia-smi -L"), flags=re.MULTILINE)[1:]
    return {uuid: name for name, uuid in re.findall(r"MIG (\S+) +Device +\d+: \(UUID: (\S+)\)", blocks[gpu])}


def test_a_layout_is_made(lab: Lab, site: Machine) -> None:
    assert sorted(devices(site, 0).values()) == ["3g.40gb", "3g.40gb"]
    assert sorted(devices(site, 1).values()) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert not lab.run("verify", lab.inventory(layout(HALVES), site), "--json").failed("mig")


def test_nvidia_ctk_names_every_mig_device(site: Machine) -> None:
    named = set(re.findall(r"nvidia\.com/gpu=(\S+)", site.sh("nvidia-ctk cdi list 2>/dev/null")))
    assert {*devices(site, 0), *devices(site, 1)} <= named or {"0:0", "0:1", "1:0", "1:1", "1:2", "1:3"} <= named
    nodes = site.sh("cat /var/run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml 2>/dev/null || true")
    minors = site.sh("grep -h DeviceFileMinor -r /proc/driver/nvidia/capabilities/gpu*").split()[1::2]
    assert len(minors) == 12
    assert {f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors} <= set(
        re.findall(r"/dev/nvidia-caps/\S+", nodes)
    )


def test_it_is_there_again_after_a_reboot(lab: Lab, site: Machine) -> None:
    before = {**devices(site, 0), **devices(site, 1)}
    hosts.reboot(NAME)
    site.sh("systemctl is-system-running --wait >/dev/null || true")
    after = {**devices(site, 0), **devices(site, 1)}
    assert sorted(after.values()) == sorted(before.values())
    assert not set(after) & set(before)
    mig, engine = (int(site.sh(STARTED.format(unit))) for unit in ("gpuprov-mig.service", "containerd.service"))
    assert 0 < mig < engine
    assert not lab.run("verify", lab.inventory(layout(HALVES), site), "--json").failed("mig")


def test_an_instance_in_use_stays(lab: Lab, site: Machine) -> None:
    faults.plant(NAME, "mig-instance-client", hosts.run)
    before = {**devices(site, 0), **devices(site, 1)}
    refused = lab.run("apply", lab.inventory(layout(WHOLE), site), "--yes")
    assert refused.code == 3, refused
    assert "sleep" in refused.text
    assert {**devices(site, 0), **devices(site, 1)} == before
    other = lab.run("apply", lab.inventory(layout(HALF), site), "--yes")
    assert other.code == 0, other
    assert len(set(devices(site, 0)) & set(before)) == 1
    assert site.sh("systemctl is-active gpuprov-sim-mig-client").strip() == "active"
    assert devices(site, 1).items() <= before.items()
    faults.heal(NAME, "mig-instance-client", hosts.run)
    done = lab.run("apply", lab.inventory(layout(WHOLE), site), "--yes")
    assert done.code == 0, done
    assert list(devices(site, 0).values()) == ["7g.80gb"]


def test_a_users_own_unit_is_no_service_whatever_its_name(lab: Lab, site: Machine) -> None:
    site.sh(OF_A_USER)
    held = site.sh(
        "sleep 1; readlink /proc/$(pgrep -u alice -fx 'sleep 86398')/fd/* || ls -l /dev/nvidia*; journalctl -n 9 "
        "_UID=4711"
    )
    assert "/dev/nvidia1" in held, held
    try:
        refused = lab.run("apply", lab.inventory(layout(HALVES, None), site), "--yes")
        assert refused.code == 3, refused
        assert "user@4711.service/nvidia-dcgm.service" in refused.text
        assert site.sh("pgrep -u alice -fx 'sleep 86398'").strip(), "the job goes on"
    finally:
        site.sh("systemctl stop user@4711.service")


def test_a_process_that_refuses_to_go_keeps_its_instance(lab: Lab, site: Machine) -> None:
    faults.plant(NAME, "mig-client-stays", hosts.run)
    before = {**devices(site, 0), **devices(site, 1)}
    kept = site.sh("cat /etc/gpuprov/mig.json")
    drain = "systemctl kill --signal TERM gpuprov-sim-mig-client"
    refused = lab.run("apply", lab.inventory(layout(HALVES), site), "--yes", "--drain", drain)
    assert refused.code == 3, refused
    assert "sleep" in refused.text
    assert {**devices(site, 0), **devices(site, 1)} == before
    assert site.sh("cat /etc/gpuprov/mig.json") == kept
    faults.heal(NAME, "mig-client-stays", hosts.run)
    done = lab.run("apply", lab.inventory(layout(HALVES), site), "--yes")
    assert done.code == 0, done
    assert sorted(devices(site, 0).values()) == ["3g.40gb", "3g.40gb"]


def test_a_mode_that_waits_for_a_client(lab: Lab, site: Machine) -> None:
    """A service that watches the GPUs is stopped for the reset and started again; a user's process is not."""
    asked = lab.inventory(layout(HALVES, None), site)
    site.write("/etc/systemd/system/nvidia-dcgm.service", WATCHER)
    site.sh(f"systemctl daemon-reload; systemctl start nvidia-dcgm\n{HOLD}")
    watcher = site.sh("systemctl show --property MainPID --value nvidia-dcgm")
    refused = lab.run("apply", asked, "--yes")
    assert refused.code == 3, refused
    assert "sleep" in refused.text
    site.sh("nvidia-smi mig -i 1 -dci; nvidia-smi mig -i 1 -dgi; nvidia-smi -i 1 -mig 0")
    query = "nvidia-smi -i 1 --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader"
    assert site.sh(query) == "Enabled, Disabled\n"
    found = lab.run("verify", asked, "--json").failed("mig")
    assert "pending" in found["mig.mode"]["found"]
    site.sh("systemctl stop gpuprov-sim-client")
    done = lab.run("apply", asked, "--yes")
    assert done.code == 0, done
    assert site.sh(query) == "Disabled, Disabled\n"
    assert site.sh("systemctl is-active nvidia-dcgm").strip() == "active"
    assert site.sh("systemctl show --property MainPID --value nvidia-dcgm") != watcher
