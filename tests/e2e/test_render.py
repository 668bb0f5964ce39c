"""A rendered project runs with plain ansible-playbook, where gpuprov can be imported; elsewhere it says so and changes
nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from gpuprov.core import assets
from tests.e2e.lab import SPEC, Lab

pytestmark = pytest.mark.e2e


ANSIBLE = [sys.executable, "-m", "ansible", "playbook"]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """ansible-playbook of a Python that sees our site-packages without its .pth files, and so without the editable
    gpuprov."""
    folder = tmp_path_factory.mktemp("plain")
    venv.create(folder, with_pip=False)
    python = ["env", f"PYTHONPATH={sysconfig.get_path('purelib')}", str(folder / "bin" / "python")]
    found = subprocess.run(
        [*python, "-c", "import gpuprov.cli"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "No module named 'gpuprov" in found.stderr, "gpuprov can be imported: install it editable for this test"
    return [*python, "-m", "ansible", "playbook"]


def recap(text: str) -> dict[str, int]:
    """ansible-playbook's counts of its one host."""
    return {key: int(value) for key, value in re.findall(r"(ok|changed|unreachable|failed)=(\d+)", text)}


def test_rendered_project_runs_with_plain_ansible(lab: Lab, newest: str, bare: list[str], tmp_path: Path) -> None:
    machine = lab.simulated("render", newest)
    folder = lab.inventory(SPEC, machine)
    assert lab.run("render", folder, "--out", tmp_path / "project").code == 0
    machine.sh(
        "apt-mark unhold nvidia-smi >/dev/null; rm /etc/modprobe.d/gpuprov.conf; systemctl -q disable "
        "nvidia-persistenced"
    )
    command = ["-i", str(tmp_path / "project/inventory.yml"), str(tmp_path / "project/site.yml")]
    refused = lab.finish(lab.start(*command, program=bare))
    assert refused.code == 2, refused
    assert "the Python that runs Ansible has no package gpuprov (No module named 'gpuprov" in refused.out
    assert recap(refused.out)["changed"] == 0, refused
    fixed = lab.finish(lab.start(*command, program=ANSIBLE))
    assert fixed.code == 0, fixed
    assert recap(fixed.out)["changed"] >= 3, fixed
    told = lab.run("verify", folder)
    assert told.code == 0, told
    second = lab.finish(lab.start(*command, program=ANSIBLE))
    assert recap(second.out)["changed"] == recap(second.out)["failed"] == 0, second
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["ran"] == {}


def test_one_capability_has_its_own_playbook(lab: Lab, newest: str, tmp_path: Path) -> None:
    machine = lab.simulated("single", newest)
    assert lab.run("render", lab.inventory(SPEC, machine), "--out", tmp_path / "project").code == 0
    machine.sh("rm /etc/modprobe.d/gpuprov.conf; systemctl -q disable nvidia-persistenced")
    command = ["-i", str(tmp_path / "project/inventory.yml"), str(tmp_path / "project/persistence.yml")]
    ran = lab.finish(lab.start(*command, program=ANSIBLE))
    assert ran.code == 0, ran
    assert machine.sh("systemctl is-enabled nvidia-persistenced").strip() == "enabled"
    assert machine.sh("ls /etc/modprobe.d/gpuprov.conf 2>&1 || true").startswith("ls: cannot access")
    assert set(json.loads(machine.sh("cat /var/lib/gpuprov/receipt.json"))["capabilities"]) >= {"persistence"}


@pytest.mark.slow
def test_playbooks_and_roles_of_the_checkout_do_the_job(lab: Lab, newest: str, tmp_path: Path) -> None:
    """Nothing was rendered: the merged spec is read in the play, and a play of a site's own has nothing but the names
    of the roles."""
    machine = lab.simulated("checkout", newest)
    folder = lab.inventory(SPEC, machine)
    spoil = (
        "apt-mark unhold nvidia-smi >/dev/null; rm -f /etc/modprobe.d/gpuprov.conf; systemctl -q disable "
        "nvidia-persistenced"
    )
    roles = ["nouveau", {"role": "nvidia_driver", "vars": {"nvidia_driver_version": "535"}}, "persistence"]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "roles": roles}]))
    program = ["env", f"ANSIBLE_CONFIG={assets.root() / 'ansible.cfg'}", *ANSIBLE]
    for playbook in (assets.root() / "playbooks" / "site.yml", tmp_path / "play.yml"):
        machine.sh(spoil)
        ran = lab.finish(lab.start("-i", str(folder), str(playbook), program=program))
        assert ran.code == 0, ran
        assert recap(ran.out)["changed"] >= 3, ran
        told = lab.run("verify", folder)
        assert told.code == 0, told
        second = lab.finish(lab.start("-i", str(folder), str(playbook), program=program))
        assert second.code == recap(second.out)["changed"] == recap(second.out)["failed"] == 0, second
    assert lab.run("apply", folder, "--yes", "--json").json["hosts"][0]["ran"] == {}
