"""A bake of the machine that it runs on: refused on a machine at work, and done in a bind mount of its root."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuprov.bake import own_root, text
from gpuprov.bake.model import Baked
from gpuprov.cli import cli
from gpuprov.core.errors import GpuprovError
from gpuprov.facts.probes.base import Facts, Output

IDLE = {"receipt": "", "lock": "", "apply_marker": "", "gpu_clients": "looked\n"}
DAEMON = "8|nvidia-persiste|nvidia-persistenced.service\nlooked\n"
MOUNTS = """22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
23 22 0:5 / /dev rw - devtmpfs udev rw
24 22 254:15 / /boot/efi rw - vfat /dev/vda15 rw
25 22 254:32 / /srv/with\\040space rw - xfs /dev/vdb rw
26 22 0:30 / /tmp rw - tmpfs tmpfs rw
27 22 7:1 / /snap/core20/1 ro - squashfs /dev/loop1 ro
28 22 0:40 / /home rw - nfs4 server:/home rw
29 22 0:41 / /var/lib/x rw shared:3 - zfs tank/x rw
30 22 254:1 /run /run/data rw - ext4 /dev/vda1 rw
"""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """This machine as its probes print it: idle, but for what the test says."""
    printed = {**IDLE, **getattr(request, "param", {})}
    facts = Facts({name: Output(output) for name, output in printed.items()})
    monkeypatch.setattr(own_root, "gather", lambda asked: {raw.name: facts for raw, _ in asked})


def test_an_idle_machine_is_taken(machine: None) -> None:
    own_root.refuse_at_work()


@pytest.mark.parametrize(
    ("machine", "message", "fix"),
    [
        ({"receipt": '{"capabilities": {}}'}, "gpuprov has been applied", "rm /var/lib/gpuprov/receipt.json"),
        ({"receipt": "-"}, "gpuprov has been applied", "rm /var/lib/gpuprov/receipt.json"),
        ({"lock": '{"user": "ada"}'}, "ada runs gpuprov", "wait for that run"),
        ({"apply_marker": "1"}, "an apply was interrupted", "applying.json"),
        ({"gpu_clients": "71|python3|\n72|train|\nlooked\n"}, "python3 (pid 71), train (pid 72)", "stop it"),
    ],
    indirect=["machine"],
)
def test_a_machine_at_work_is_refused(machine: None, message: str, fix: str) -> None:
    with pytest.raises(GpuprovError) as raised:
        own_root.refuse_at_work()
    assert message in raised.value.message
    assert fix in raised.value.fix
    assert raised.value.fix.startswith("gpuprov apply")


@pytest.mark.parametrize("machine", [{"gpu_clients": DAEMON}], indirect=True)
def test_the_drivers_own_services_do_no_work(machine: None) -> None:
    own_root.refuse_at_work()


def test_a_job_of_slurm_is_work(machine: None, tmp_path: Path) -> None:
    program = tmp_path / "slurmstepd"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "30"]) as step:
        try:
            while Path(f"/proc/{step.pid}/comm").read_text() != "slurmstepd\n":  # exec names it after Popen returns
                time.sleep(0.01)
            with pytest.raises(GpuprovError, match="a job of Slurm runs"):
                own_root.refuse_at_work()
        finally:
            step.kill()


def test_a_node_of_a_cluster_is_at_work(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (joined := tmp_path / "kubelet.conf").touch()
    monkeypatch.setattr(own_root, "KUBECONFIGS", ("/no/such/file", str(joined)))
    with pytest.raises(GpuprovError, match=f"node of a Kubernetes cluster \\({joined}\\)"):
        own_root.refuse_at_work()


def test_disks_are_mounted_again_and_nothing_else() -> None:
    assert own_root.list_mounts(MOUNTS) == ["/boot/efi", "/srv/with space", "/var/lib/x"]


BOUND = """
import os
from gpuprov.bake import files, own_root
os.makedirs(files.CACHE, exist_ok=True)
with own_root.bound() as root:
    assert os.path.samefile(root / "etc", "/etc"), root
    assert not (root / "proc/self").exists()
print(any(map(os.path.exists, ("/run/gpuprov-machine", files.CACHE))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems")
def test_the_root_is_seen_without_what_runs() -> None:
    words: Sequence[str] = ("unshare", "--mount", "--propagation", "private", sys.executable, "-c", BOUND)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_the_identity_of_a_folder_is_always_removed(tmp_path: Path) -> None:
    words = ["bake", "x.yaml", "--root", str(tmp_path), "--wheels", str(tmp_path), "--clean-machine"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2
    assert "--clean-machine is for --root /" in done.output


def test_what_clones_would_share_is_said_with_the_step_that_removes_it() -> None:
    printed = text.as_text(Baked(host="image", root="/", kept=("/etc/machine-id",)))
    assert "every clone would share this of the machine: /etc/machine-id" in printed
    assert "cloud-init clean --machine-id --logs" in printed
