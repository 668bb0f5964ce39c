"""A host whose driver is NVIDIA's runfile's, and a spec that does not say so: no package of another driver comes."""

from __future__ import annotations

import pytest

from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
NAME = "e2e-other-driver"
HOST = Description(gpu=Gpus(model="L40S", count=2))
VERSION = "580.178.04"
FILE = f"NVIDIA-Linux-x86_64-{VERSION}.run"
PROGRAMS = "ls /usr/bin/nvidia-installer /usr/bin/nvidia-uninstall"
# What Debian's nvidia-persistenced would have brought.
NAMES = (
    "nvidia-installer-cleanup",
    "glx-alternative-nvidia",
    "nvidia-alternative",
    "libnvidia-cfg1",
    "nvidia-persistenced",
)

# Without an apply's mark there is nothing to do, and plan tells what would be in the way; with it all is to run, and is
# blocked.
MARKS = (("rm -f", 0), ("touch", 1))

INSTALL = f"""
cd /tmp && sh /usr/share/gpuprov-sim/repository/runfile/{FILE} -x && cd {FILE.removesuffix(".run")}
install -m 755 bin/* /usr/bin && cp -a lib/* /usr/lib/x86_64-linux-gnu/ && ldconfig
install -m 755 nvidia-installer /usr/bin/nvidia-installer && ln -sf nvidia-installer /usr/bin/nvidia-uninstall
mkdir -p -m 700 /var/lib/nvidia && echo '1.0-{VERSION.replace(".", "")} ({VERSION})' > /var/lib/nvidia/log
"""
"""What the file's installer leaves, but for modules, which take minutes to build."""


@pytest.fixture(scope="module")
def runfile(site: Machine) -> Machine:
    """The host with the driver of a file, which no spec speaks of."""
    site.sh(INSTALL)
    return site


def test_persistence_is_refused_with_the_names_and_nothing_is_changed(lab: Lab, runfile: Machine) -> None:
    folder, before = lab.inventory({"persistence": {}}, runfile), runfile.state()
    plan = lab.run("plan", folder, "--json")
    assert plan.code == 1, plan
    [blocked] = plan.json["hosts"][0]["blocked"]
    applied = lab.run("apply", folder, "--yes")
    assert applied.code == 3, applied
    for told in (blocked["found"], " ".join(applied.text.split())):
        assert "the host's driver is of NVIDIA's runfile" in told
        assert [name for name in NAMES if name not in told] == []
        assert "asks whether to uninstall the host's" in told
    assert blocked["fix"].startswith("persistence: {mode: legacy}, which needs no package; or ")
    assert "persistence: {mode: legacy}" in applied.text
    assert runfile.state() == before
    assert runfile.sh("ls /var/lib/gpuprov/applying.json 2>/dev/null || :") == "", (
        "no act that changes something has begun"
    )
    verified = lab.run("apply", lab.inventory({"persistence": {"mode": "legacy"}}, runfile), "--yes")
    assert verified.code == 0, verified


@pytest.mark.slow
def test_the_package_that_asks_is_never_completed_blindly(lab: Lab, runfile: Machine) -> None:
    runfile.sh("DEBIAN_FRONTEND=noninteractive apt-get -y -q --no-install-recommends install nvidia-persistenced || :")
    assert "nvidia-installer-cleanup" in runfile.sh("dpkg --audit")
    folder, before = lab.inventory({"persistence": {"mode": "legacy"}}, runfile), runfile.state()
    for mark, planned in MARKS:
        runfile.sh(f"{mark} /var/lib/gpuprov/applying.json")
        for command in (("plan",), ("apply", "--yes", "--full")):
            ran = lab.run(command[0], folder, *command[1:])
            told = " ".join(ran.text.split())
            assert ran.code == {"plan": planned, "apply": 3}[command[0]], ran
            assert "nvidia-installer-cleanup asks whether to uninstall the driver" in told
            assert "apt-get purge nvidia-installer-cleanup" in told
            assert "a run that was cut off" not in told
        assert runfile.state() == before
    runfile.sh(
        "rm -f /var/lib/gpuprov/applying.json; DEBIAN_FRONTEND=noninteractive apt-get -y -q purge "
        "nvidia-installer-cleanup"
    )
    assert runfile.sh("dpkg --audit") == ""
    runfile.sh(PROGRAMS)
    done = lab.run("apply", folder, "--yes", "--full")
    assert done.code == 0, done
