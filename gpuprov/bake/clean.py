"""Traces of one machine, which must not be in an image that many start from: removed, and looked for once more."""

from pathlib import Path

from gpuprov.bake import place

POLICY = "/usr/sbin/policy-rc.d"
POLICY_TEXT = "#!/bin/sh\n# While gpuprov bakes: nothing is started in an image.\nexit 101\n"
"""https://people.debian.org/~hmh/invokerc.d-policyrc.d-specification.txt"""
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
    "/root/.ansible": "Ansible's temporary files",
}
"""gpuprov's own files of one host, and what they are."""
IDENTITY = ("/var/lib/dbus/machine-id", "/var/lib/systemd/random-seed", "/var/lib/systemd/credential.secret")
"""Files of one machine: https://systemd.io/BUILDING_IMAGES"""
MACHINE = "/etc/machine-id"
KEYS = "/etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub"
_BEFORE = f"""[ -e {POLICY} ] || [ ! -d /etc/init.d ] || {{ cat > {POLICY}; chmod 0755 {POLICY}; }}
ls -d {KEYS} 2>/dev/null || true"""
_FIND = f"""for p in {" ".join((*OWN, *IDENTITY))}; do [ ! -e "$p" ] || echo "$p"; done
[ ! -s {MACHINE} ] || grep -qx uninitialized {MACHINE} || echo {MACHINE}
find /var/log -type f -size +0 2>/dev/null | grep -E '/(journal/|ansible|gpuprov)' || true
ls -d {KEYS} 2>/dev/null || true"""


def before(root: Path) -> frozenset[str]:
    """Keep packages from starting services in the image; return its ssh host keys, which are not gpuprov's to remove."""
    return frozenset(place.run(root, _BEFORE, POLICY_TEXT.encode()).split())


def clean(root: Path, kept: frozenset[str]) -> tuple[str, ...]:
    """Remove what this run or an earlier one left of a host; return the paths. kept: keys that were there before it."""
    matches = _matches(root, kept)
    removed = [path for path in matches if path != MACHINE]
    script = f"""while IFS= read -r p; do rm -rf -- "$p"; done
[ ! -e {POLICY} ] || ! grep -q 'While gpuprov bakes' {POLICY} || rm -f {POLICY}
rmdir /run/gpuprov 2>/dev/null || true
[ ! -e {MACHINE} ] || : > {MACHINE}"""
    place.run(root, script, "".join(f"{path}\n" for path in removed).encode())
    return tuple(matches)


def left(root: Path, kept: frozenset[str]) -> tuple[str, ...]:
    """Return what of a host is still in the image, each with the fix; not the keys that were kept."""
    return tuple(f"{path}: {OWN.get(path, 'of one machine')}: remove it" for path in _matches(root, kept))


def _matches(root: Path, kept: frozenset[str]) -> list[str]:
    """Return the paths, without lines that are a part of a file's name."""
    known = (*OWN, *IDENTITY, MACHINE)
    lines = [line for line in place.run(root, _FIND).splitlines() if line not in kept and "/../" not in line]
    return [line for line in lines if line in known or line.startswith(("/var/log/", "/etc/ssh/ssh_host_"))]
