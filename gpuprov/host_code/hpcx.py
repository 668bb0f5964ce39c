"""NVIDIA's HPC-X on this host: an archive that the spec names, unpacked to its own folder, and the link that leads to
it.

Name and layout of the archive: https://docs.nvidia.com/networking/display/hpcx222/Installing+and+Loading+HPC-X
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile

from .archives import unpack
from .failed import Failed
from .files import compute_digest, read

HOME = "/opt"
LINK = "hpcx"
# The record in the folder of a release: the archive's SHA-256. A folder without it is not gpuprov's.
MARK = ".gpuprov.json"
# Files without which an archive is not an HPC-X.
NEEDED = ("hpcx-init.sh", "modulefiles/hpcx", "ompi/bin/mpirun", "nccl_rdma_sharp_plugin/lib/libnccl-net.so")


def read_mark(text: str) -> str:
    """Return the SHA-256 of a record; "" for none."""
    try:
        record = json.loads(text) if text else {}
    except ValueError:
        return ""
    return str(record.get("sha256", "")) if isinstance(record, dict) else ""


def explain_installation(link: str, mark: str, folder: str, sha256: str) -> str:
    """Return the reason why the archive has to be unpacked, or the link set; "" if nothing is to be done. `link`: where
    the link leads; `mark`: the text of the record there."""
    if os.path.basename(link) != folder:
        return "{} leads to {}".format(os.path.join(HOME, LINK), link or "nothing")
    unpacked = read_mark(mark)
    if unpacked != sha256:
        return f"it is of an archive with SHA-256 {unpacked}" if unpacked else "gpuprov did not unpack it"
    return ""


def install(archive: str, sha256: str, folder: str) -> None:
    """Unpack the archive beside its place, move it there, and set the link. Raises Failed; nothing is changed
    then."""
    place, link = os.path.join(HOME, folder), os.path.join(HOME, LINK)
    if os.path.lexists(link) and not os.path.islink(link):
        raise Failed(f"{link} is not a link: move it away")
    if os.path.lexists(place) and not os.path.isfile(os.path.join(place, MARK)):
        raise Failed(f"{place} exists, and is not gpuprov's: move it away")
    if read_mark(read(os.path.join(place, MARK))) != sha256:
        unpack_release(archive, sha256, place)
    if os.path.realpath(link) != os.path.realpath(place):
        aside = os.path.join(HOME, ".gpuprov-" + LINK)
        if os.path.lexists(aside):
            os.remove(aside)
        os.symlink(folder, aside)
        os.replace(aside, link)


def unpack_release(archive: str, sha256: str, place: str) -> None:
    """Put the only folder of the archive at its place, in exchange for what gpuprov unpacked there before."""
    checksum = compute_digest(archive)
    if checksum != sha256:
        raise Failed(f"{archive} has SHA-256 {checksum}, and the spec says {sha256}; nothing was unpacked")
    folder = os.path.basename(place)
    with tempfile.TemporaryDirectory(prefix=".gpuprov-hpcx-", dir=HOME) as into:
        unpack(archive, into)
        lacking = [name for name in NEEDED if not os.path.exists(os.path.join(into, folder, name))]
        if os.listdir(into) != [folder] or lacking:
            what = f"{folder}/{lacking[0]}" if lacking else f"{folder} alone"
            raise Failed(f"{archive} holds no {what}: it is another archive than its name says")
        with open(os.path.join(into, folder, MARK), "w", encoding="utf-8") as file:
            json.dump({"sha256": sha256}, file)
        os.chmod(os.path.join(into, folder), 0o755)
        if os.path.lexists(place):
            os.rename(place, os.path.join(into, "before"))
        os.rename(os.path.join(into, folder), place)
        shutil.rmtree(os.path.join(into, "before"), ignore_errors=True)
