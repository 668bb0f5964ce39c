"""`python -m benchmarks [--hosts 1,10,50] [--peers 1,10] [--runs 3]`; `--offline` leaves out everything that needs
hosts."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks import hosts, mig_fit
from benchmarks.clock import Timing, command, row
from gpuprov.facts.collect.script import compose
from gpuprov.facts.probes.host import house
from gpuprov.fleet.specs import judge
from gpuprov.inventory import load
from gpuprov.plan.read import probes_for
from gpuprov.verify.evaluate import probes_of

BIN = Path(sys.executable).parent
GPUPROV = BIN / "gpuprov"
PEER_RUNS = 1


def title(text: str) -> None:
    sys.stdout.write(f"\n{text}\n")


def start_up(runs: int) -> None:
    title("start-up")
    floor = command([sys.executable, "-c", "import click"], runs=runs)
    row("python -c 'import click' (the floor)", floor)
    row("gpuprov --help", command([GPUPROV, "--help"], runs=runs), floor)


def offline(folder: Path, count: int) -> None:
    for kind, text in (("a range and one group spec", ranged(count)), ("an inline spec on every host", inline(count))):
        title(f"check of {count} hosts: {kind}")
        file = folder / "many.yaml"
        file.write_text(text, encoding="utf-8")
        floor = command([BIN / "ansible-inventory", "-i", file, "--list", "--output", folder / "list.json"], runs=1)
        row("ansible-inventory --list (the floor)", floor)
        row("gpuprov check --no-cache", command([GPUPROV, "check", "--no-cache", file], runs=1), floor)
        command([GPUPROV, "check", file], runs=1)
        row("gpuprov check, inventory cached", command([GPUPROV, "check", file], runs=1), floor)


def ranged(count: int) -> str:
    return f"all:\n{hosts.SPEC}  hosts:\n    gpu[00001:{count:05}]:\n"


def inline(count: int) -> str:
    spec = "{nouveau: {}, nvidia_driver: {version: '535'}, persistence: {}, gpu: {model: H100-SXM5-80GB, count: 8}}"
    return "all:\n  hosts:\n" + "".join(f"    gpu{n:05}: {{gpuprov: {spec}}}\n" for n in range(count))


def scripts(folder: Path, inventory: Path) -> dict[str, Path]:
    """Write the scripts that gpuprov runs on these hosts: those of `verify` and of `apply`."""
    spec = judge(load([str(inventory)]).hosts).pairs[0][1]
    found = {}
    for name, probes in (("verify", (*probes_of(spec), house.MACHINE)), ("apply", tuple(probes_for(spec)))):
        found[name] = folder / f"{name}.sh"
        found[name].write_text(compose(probes), encoding="utf-8")
    return found


def online(folder: Path, counts: list[int], peers: list[int], runs: int) -> None:
    host = hosts.up(max(counts), folder, GPUPROV)
    for count in counts:
        file = hosts.inventory(host, count, folder)
        programs = scripts(folder, file)
        entries = folder / "hosts.json"
        entries.write_text(json.dumps([raw.connection for raw in load([str(file)]).hosts]), encoding="utf-8")
        for verb, arguments in (("verify", ["verify"]), ("apply", ["apply", "--yes"])):
            title(f"{verb} with nothing to do, {count} host{'s' if count > 1 else ''}")
            floor = command([sys.executable, "benchmarks/floor.py", entries, programs[verb]], runs=runs)
            row("the same script, one ssh exec per host (the floor)", floor)
            cold = command([GPUPROV, *arguments, "--no-cache", file], runs=runs)
            row(f"gpuprov {verb} --no-cache", cold, floor)
            if count == 1:
                version = command([BIN / "ansible-inventory", "--version"], runs=runs)
                allowed = Timing(floor.seconds + version.seconds, 0)
                row("floor + ansible-inventory --version (allowed for one host)", allowed, floor)
            row(f"gpuprov {verb}, inventory cached", command([GPUPROV, *arguments, file], runs=runs), floor)
            if verb == "apply" and count in peers:
                against_peers(folder, file, count, floor)


def against_peers(folder: Path, file: Path, count: int, floor: Timing) -> None:
    project = folder / f"project-{count}"
    command([GPUPROV, "render", file, "--out", project], runs=1)
    os.environ |= {
        "ANSIBLE_PIPELINING": "1",
        "ANSIBLE_FORKS": str(count),
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_CONFIG": str(project / "ansible.cfg"),
    }
    playbook: list[str | Path] = [BIN / "ansible-playbook", "-i", project / "inventory.yml", project / "site.yml"]
    row("ansible-playbook of the rendered project, tuned", command(playbook, runs=PEER_RUNS, cwd=project), floor)
    pyinfra_hosts = folder / "pyinfra_hosts.py"
    entries = json.loads((folder / "hosts.json").read_text(encoding="utf-8"))
    listed = [
        (
            f"gpu{number:03}",
            {
                "ssh_hostname": entry["ansible_host"],
                "ssh_port": entry["ansible_port"],
                "ssh_user": "root",
                "ssh_key": entry["ansible_ssh_private_key_file"],
                "ssh_strict_host_key_checking": "off",
                "ssh_known_hosts_file": str(folder / "known_hosts"),
            },
        )
        for number, entry in enumerate(entries)
    ]
    pyinfra_hosts.write_text(f"hosts = {listed!r}\n", encoding="utf-8")
    row(
        "pyinfra, comparable work",
        command([BIN / "pyinfra", "-y", pyinfra_hosts, "benchmarks/pyinfra_deploy.py"], runs=PEER_RUNS),
        floor,
    )


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--hosts", type=numbers, default=[1, 10, 50])
    parser.add_argument("--peers", type=numbers, default=[1, 10], help="host counts at which the peers run too (slow)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--many", type=int, default=10_000, help="hosts of the offline check")
    parser.add_argument("--offline", action="store_true")
    given = parser.parse_args()
    sys.stdout.write(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}; the best of {given.runs} runs\n")
    with tempfile.TemporaryDirectory(prefix="gpuprov-bench-") as name:
        folder = Path(name)
        os.environ["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
        start_up(max(given.runs, 5))
        title("MIG placements")
        mig_fit.main()
        offline(folder, given.many)
        if not given.offline:
            try:
                online(folder, given.hosts, given.peers, given.runs)
            finally:
                hosts.down()


if __name__ == "__main__":
    main()
