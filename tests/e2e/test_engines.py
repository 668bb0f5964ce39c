"""containerd of each generation, the real daemon, with NVIDIA's own nvidia-ctk: registered, in force, and nothing of
the site's lost.

Where `tests/engines` replays what programs said, here the role does it, and the daemon lives with the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
SPEC: dict[str, Any] = {"container_toolkit": {"runtimes": ["containerd"]}}
MAIN, SITE = "/etc/containerd/config.toml", "/etc/containerd/conf.d/10-site.toml"
OLD = """\
# written by the site's own tool
version = 2
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "nvidia" # of an older installation
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
    BinaryName = "/old/nvidia-container-runtime"
"""
NEW = OLD.replace("version = 2", "\tversion = 3").replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
OF_SITE = "# more of the site's\nversion = 2\noom_score = -998\n"
UVM = "/dev/nvidia-uvm"


def described(version: str) -> Description:
    """A GPU host with this containerd."""
    return Description(gpu=Gpus(model="L40S", count=2), container_toolkit=True, containerd=version)


def said(machine: Machine) -> str:
    """What the running daemon said of its CRI plugin when it started."""
    script = "journalctl --unit containerd --output cat _PID=$(systemctl show -p MainPID --value containerd)"
    return next(line for line in machine.sh(script).splitlines() if "cri plugin" in line.lower() and "untimes" in line)


def proven(lab: Lab, machine: Machine) -> None:
    """Registered, in force by the daemon's own word, verified, and a second apply has nothing to do."""
    applied = lab.run("apply", lab.inventory(SPEC, machine), "--yes")
    assert applied.code == 0, applied
    assert "/usr/bin/nvidia-container-runtime" in said(machine)
    verified = lab.run("verify", lab.inventory(SPEC, machine), "--json")
    assert not verified.failed("container_toolkit"), verified
    again = lab.run("apply", lab.inventory(SPEC, machine), "--yes", "--json")
    assert again.code == 0, again


def check_site(lab: Lab, machine: Machine, main: str) -> None:
    """A site's files keep their settings and comments, but for the default runtime that nobody asked for."""
    machine.write(MAIN, main)
    machine.write(SITE, OF_SITE)
    machine.sh("systemctl restart containerd")
    proven(lab, machine)
    assert machine.sh(f"cat {MAIN}") == main
    assert machine.sh(f"cat {SITE}") == OF_SITE
    dump = machine.sh("containerd config dump")
    assert "SystemdCgroup = true" in dump
    assert "oom_score = -998" in dump
    assert "nvidia" not in next(line for line in dump.splitlines() if "default_runtime_name" in line)


@pytest.fixture(scope="module")
def second(lab: Lab) -> Iterator[Machine]:
    """A host with containerd 2.1, whose driver is loaded."""
    with loaded("e2e-engines", described("2.1.4")) as machine:
        yield machine


def test_containerd_2_with_a_sites_files(lab: Lab, second: Machine) -> None:
    check_site(lab, second, NEW)
    second.sh(f"sleep 1; touch {SITE}")
    failed = lab.run("verify", lab.inventory(SPEC, second), "--json").failed("container_toolkit")
    assert f"{SITE} changed after the daemon was started" in failed["container_toolkit.registered"]["found"]


def test_the_specification_names_unified_memory_and_verify_tells_where_it_does_not(lab: Lab, second: Machine) -> None:
    specification = "/var/run/cdi/nvidia.yaml"
    assert UVM in second.sh(f"cat {specification}")
    second.sh(f"mv {UVM} /dev/away; systemctl restart nvidia-cdi-refresh.service; mv /dev/away {UVM}")
    assert UVM not in second.sh(f"grep -v tools {specification}"), "no module of a container makes it"
    failed = lab.run("verify", lab.inventory(SPEC, second), "--json").failed("container_toolkit")
    assert UVM in failed["container_toolkit.cdi"]["found"]
    assert "create-device-nodes" in second.sh("cat /etc/systemd/system/nvidia-cdi-refresh.service.d/50-gpuprov.conf")
    hosts.reboot(second.name)
    second.wait_for(f"test -e {specification}")
    assert UVM in second.sh(f"cat {specification}")


def test_containerd_2_without_its_cri_plugin_is_refused(lab: Lab, second: Machine) -> None:
    text = 'version = 3\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'
    second.write(MAIN, text)
    refused = lab.run("apply", lab.inventory(SPEC, second), "--yes")
    assert refused.code != 0
    assert "the CRI plugin is disabled (disabled_plugins: io.containerd.grpc.v1.cri)" in refused.text
    assert second.sh(f"cat {MAIN}") == text


@pytest.mark.slow
@pytest.mark.parametrize(("version", "main"), [("1.6.20", OLD), ("1.7.27", OLD), ("2.1.4", OLD), ("2.3.0", NEW)])
def test_every_generation_without_a_file_and_with_a_sites(lab: Lab, version: str, main: str) -> None:
    with loaded("e2e-engines-each", described(version)) as machine:
        machine.sh(f"! test -e {MAIN}")
        proven(lab, machine)
        machine.sh("rm -rf /etc/containerd; systemctl restart containerd")
        check_site(lab, machine, main)
