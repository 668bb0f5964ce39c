"""A bake of the machine that it runs on, as Packer's provisioners, cloud-init and virt-customize build images: refused
on a machine at work, and done in a bind mount of its root, so that nothing of what runs is touched."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuprov.bake import files, place
from gpuprov.catalog.drivers.sets import is_gpu_service
from gpuprov.core.errors import GpuprovError, UnreachableError
from gpuprov.facts.collect.gather import gather
from gpuprov.facts.probes.containers.kubernetes import KUBECONFIGS
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.host import house
from gpuprov.spec.model import RawHost

# A file system of its own while it is baked: the machine's root, and what Ansible writes for itself.
PLACE = Path("/run/gpuprov-machine")
ELSEWHERE = ("/proc", "/sys", "/dev", "/run")
THIS = RawHost(name="this machine", connection={"ansible_connection": "local"})


def refuse_at_work() -> None:
    """Raise GpuprovError, with all reasons and their fixes, if this machine has a task, and is not an image in the
    making."""
    if reasons := list(_list_reasons()):
        signs, fixes = zip(*reasons, strict=True)
        message = f"--root / bakes an image of a machine that has no task yet, and here {'; '.join(signs)}"
        raise GpuprovError(
            message, f"gpuprov apply brings a host to its spec. If it is the builder: {'; '.join(fixes)}"
        )


def _list_reasons() -> Iterator[tuple[str, str]]:
    """Yield each sign of a machine at work, and what to do if it is none."""
    facts = gather([(THIS, (house.RECEIPT, house.LOCK, house.MARKER, nvidia.CLIENTS))])[THIS.name]
    if isinstance(facts, UnreachableError):
        raise GpuprovError(facts.message, facts.fix)
    if facts.get(house.RECEIPT):
        yield "gpuprov has been applied", f"rm {house.RECEIPT_FILE}"
    if lock := facts.get(house.LOCK):
        yield f"{lock.user or 'somebody'} runs gpuprov", "wait for that run"
    elif facts.get(house.MARKER):
        yield "an apply was interrupted", "rm /var/lib/gpuprov/applying.json"
    if users := [client for client in facts.get(nvidia.CLIENTS) if not is_gpu_service(client.unit, {})]:
        yield f"{', '.join(f'{user.command} (pid {user.pid})' for user in users)} uses a GPU", "stop it"
    if _has_step():
        yield "a job of Slurm runs", "drain the node"
    if joined := next(filter(os.path.exists, KUBECONFIGS), ""):
        yield f"it is a node of a Kubernetes cluster ({joined})", "kubeadm reset, or remove that file"


def _has_step() -> bool:
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text(encoding="utf-8", errors="replace").strip() == "slurmstepd":
                return True
        except OSError:
            continue  # it has ended
    return False


@contextmanager
def bound() -> Iterator[Path]:
    """Mount this machine's root and its disks' file systems once more, in this mount namespace; yield the folder."""
    try:
        yield _bind()
    finally:
        place.unmount(PLACE)
        with suppress(OSError):
            PLACE.rmdir()
        shutil.rmtree(
            files.CACHE, ignore_errors=True
        )  # /run is a folder of the image in containers and in virt-customize


def _bind() -> Path:
    PLACE.mkdir(parents=True, exist_ok=True)
    place.run_mount("-t", "tmpfs", "-o", "mode=0700,nosuid,nodev", "tmpfs", PLACE)
    root = PLACE / "root"
    root.mkdir()
    place.run_mount("--bind", "/", root)
    for point in list_mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")):
        if os.path.isdir(point):
            place.run_mount("--bind", point, f"{root}{point}")
    if not os.path.exists(os.path.expanduser("~/.ansible")):
        os.environ.setdefault("ANSIBLE_HOME", str(PLACE / "ansible"))
    return root


def list_mounts(mountinfo: str) -> list[str]:
    """Return where file systems of disks are mounted below the root, in the order of mounting: proc(5)."""
    points = []
    for line in mountinfo.splitlines():
        first, _, rest = line.partition(" - ")
        words, (kind, source) = first.split(), rest.split()[:2]
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), words[4])
        if kind == "squashfs" or not (source.startswith("/dev/") or kind == "zfs"):
            continue
        if point != "/" and not point.startswith(tuple(f"{folder}/" for folder in ELSEWHERE)):
            points.append(point)
    return points


def list_block_devices() -> dict[str, int | str]:
    """Return this machine's disks and their links below /dev, by path: GRUB's programs look for the root's among
    them."""
    devices: dict[str, int | str] = {}
    for folder, _, names in os.walk("/dev"):
        for path in (os.path.join(folder, name) for name in names):
            try:
                if not Path(path).is_block_device():
                    continue
                devices[path] = os.readlink(path) if os.path.islink(path) else os.stat(path).st_rdev
            except OSError:
                continue
    return devices
