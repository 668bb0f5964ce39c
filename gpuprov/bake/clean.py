"""Traces of one machine, which must not be in an image that many start from: removed, and looked for once more."""

from pathlib import Path
from typing import NamedTuple

from gpuprov.bake import place

POLICY = "/usr/sbin/policy-rc.d"
# https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt
POLICY_TEXT = "#!/bin/sh\n# While gpuprov bakes: nothing is started in an image.\nexit 101\n"
# Not gpuprov's on a machine that runs: it may have collections.
ANSIBLE = "/root/.ansible"
# gpuprov's own files of one host, and what they are.
OWN = {
    "/var/lib/gpuprov/receipt.json": "the receipt of an apply",
    "/var/lib/gpuprov/receipt.json.damaged": "the receipt of an apply",
    "/var/lib/gpuprov/written.json": "the times at which files of a host were written",
    "/var/lib/gpuprov/applying.json": "the mark of an apply under way",
    "/var/lib/gpuprov/lock": "the lock of a host",
    "/var/lib/gpuprov/checkpoints": "checkpoints of a host",
    "/var/lib/gpuprov/scratch": "the record of a host's scratch file system",
    "/var/lib/gpuprov/pull": "the state of a host that pulls",
    "/var/lib/gpuprov/first-boot/done.json": "the report of a first boot",
    ANSIBLE: "Ansible's temporary files",
}
# Files of one machine: https://systemd.io/BUILDING_IMAGES
IDENTITY = ("/var/lib/dbus/machine-id", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret")
MACHINE = "/etc/machine-id"
OWN_LOGS = "/var/log/gpuprov"
KEYS = "/etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub"
_BEFORE = f"""[ -e {POLICY} ] || [ ! -d /etc/init.d ] || {{ cat > {POLICY}; chmod 0755 {POLICY}; }}
ls -d {KEYS} 2>/dev/null || true"""
_FIND = f"""for p in {" ".join((*OWN, *IDENTITY))}; do [ ! -e "$p" ] || echo "$p"; done
[ ! -s {MACHINE} ] || grep -qx uninitialized {MACHINE} || echo {MACHINE}
find /var/log -type f -size +0 2>/dev/null | grep -E '/(journal/|ansible|gpuprov)' || true
ls -d {KEYS} 2>/dev/null || true"""


class Kept(NamedTuple):
    """What stays: `paths` that were there before, and everything but gpuprov's own files if `identity` does."""

    paths: frozenset[str] = frozenset()
    identity: bool = False


def before(root: Path, *, own_root: bool = False, everything: bool = False) -> Kept:
    """Keep packages from starting services in the image; return what is not gpuprov's to remove: its ssh host keys; of
    the machine that runs, its identity, unless everything is asked for."""
    keys = frozenset(place.run(root, _BEFORE, POLICY_TEXT.encode()).split())
    if not own_root:
        return Kept(keys)
    of_machine = () if everything else (path for path in _find(root) if path not in OWN)
    return Kept(frozenset({ANSIBLE, *of_machine}), identity=not everything)


def clean(root: Path, kept: Kept) -> tuple[str, ...]:
    """Remove what this run or an earlier one left of a host; return the paths."""
    matches = _list_matches(root, kept)
    removed = [path for path in matches if path != MACHINE]
    empty = ":" if kept.identity else f": > {MACHINE}"
    script = f"""while IFS= read -r p; do rm -rf -- "$p"; done
[ ! -e {POLICY} ] || ! grep -q 'While gpuprov bakes' {POLICY} || rm -f {POLICY}
rmdir /run/gpuprov 2>/dev/null || true
[ ! -e {MACHINE} ] || {empty}"""
    place.run(root, script, "".join(f"{path}\n" for path in removed).encode())
    return tuple(matches)


def left(root: Path, kept: Kept) -> tuple[str, ...]:
    """Return what of a host is still in the image, each with the fix; not what was kept."""
    return tuple(f"{path}: {OWN.get(path, 'of one machine')}: remove it" for path in _list_matches(root, kept))


def describe(kept: Kept) -> tuple[str, ...]:
    """Return what stays that every clone would share, public keys and single journals left out."""
    paths = {"/var/log/journal" if path.startswith("/var/log/") else path for path in kept.paths - {ANSIBLE}}
    return tuple(sorted(path for path in paths if not path.endswith(".pub")))


def _list_matches(root: Path, kept: Kept) -> list[str]:
    """Return the paths that do not stay."""
    paths = [path for path in _find(root) if path not in kept.paths]
    return [path for path in paths if path in OWN or path.startswith(OWN_LOGS)] if kept.identity else paths


def _find(root: Path) -> list[str]:
    """Return the paths of files of one machine, without lines that are a part of a file's name."""
    known = (*OWN, *IDENTITY, MACHINE)
    lines = [line for line in place.run(root, _FIND).splitlines() if "/../" not in line]
    return [line for line in lines if line in known or line.startswith(("/var/log/", "/etc/ssh/ssh_host_"))]
