"""Hosts that are a stub of ssh: it answers gpuprov's script with what a good host printed, or as the host's name says.

bad...: nouveau is loaded. gone...: nobody answers. slow...: an answer after a second. Each call leaves a line in
`calls`.
"""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.base import Output
from gpuprov.fleet.specs import judge
from gpuprov.jobs import cut, frozen, stored
from gpuprov.spec.model import RawHost
from gpuprov.verify.evaluate import probes_of
from tests.capabilities.asking import good

SPEC: dict[str, object] = {"nouveau": {}}
NONCE = "01234567-89ab-cdef-0123-456789abcdef"
SSH = r"""#!/bin/sh
printf '%s\n' "$*" >>FOLDER/calls
text=$(cat)
run=${text#*gpuprov-begin %s %s %s\\n\' }
run=${run%% *}
case $* in *gone*) echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255;; *slow*) sleep 1;; esac
body=good
case $* in *bad*) body=bad;; esac
printf 'gpuprov-begin %s NONCE 0\n' "$run"
cat FOLDER/$body.out
printf 'gpuprov-begin %s NONCE 0\n' "$run" >&2
cat FOLDER/$body.err >&2
"""


def transport(folder: Path, values: dict[str, object] = SPEC) -> Path:
    """The stub, with what it prints beside it, for hosts with such a spec."""
    folder.mkdir(parents=True, exist_ok=True)
    (spec,) = (spec for _, spec in judge([RawHost(name="a", values=values)]).pairs)
    names = [probe.name for probe in probes_of(spec)]
    loaded = "nouveau 2400256 0 - Live 0x0000000000000000\n"
    for body, changed in (("good", {}), ("bad", {"loaded_modules": loaded})):
        told = {**good(), **changed}
        out, err = [], []
        for name in names:
            one = told.get(name, Output("", 127))
            one = one if isinstance(one, Output) else Output(one)
            out.append(f"{NONCE}>{name}\n{one.text}{NONCE}<{one.status}\n")
            err.append(f"{NONCE}!{name}\n{one.error}")
        (folder / f"{body}.out").write_text("".join([*out, f"{NONCE}.\n"]))
        (folder / f"{body}.err").write_text("".join([*err, f"{NONCE}.\n"]))
    ssh = folder / "ssh"
    ssh.write_text(SSH.replace("FOLDER", str(folder)).replace("NONCE", NONCE))
    ssh.chmod(0o755)
    (folder / "calls").touch()
    return ssh


def jobs(folder: Path, names: list[str], size: int = 50, **connection: object) -> list[Path]:
    """Job files of such hosts."""
    ssh = transport(folder / "stub")
    values = SPEC
    hosts = [
        RawHost(
            name=name,
            values=values,
            connection={"ansible_ssh_executable": str(ssh), "ansible_host": name, **connection},
        )
        for name in names
    ]
    fleet = frozen.freeze(judge(hosts), "2026-11-23T18:00:00Z")
    stored.save(fleet, folder / "fleet.json")
    return cut.save(cut.cut(fleet, size), folder / "jobs")


def calls(folder: Path, host: str) -> int:
    """How often the host was reached."""
    lines = (folder / "stub" / "calls").read_text().splitlines()
    return sum(host in line.split() for line in lines)
