"""python -m gpuprov.simulate: bring simulated hosts up and down."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuprov.catalog.fabric import BOARD
from gpuprov.catalog.gpus import explain_unknown, find_gpu, split_count
from gpuprov.catalog.instances import find_instance
from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.simulate import description, distributions, faults, hosts, image, inventory, tools, waivers


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0, or 2 with a one-line error; 1 if `judge` reports a failure."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what is half made is removed, as after Ctrl-C
    try:
        return _run(options)
    except GpuprovError as error:
        terminal.error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "setup":
            tools.setup(*(("container", "machine") if options.machines else ("container",)))
        case "image":
            terminal.result(image.build(options.distribution, rebuild=options.rebuild))
        case "up":
            _up(options)
        case "down":
            _down(options.names, everything=options.all)
        case "list":
            for row in hosts.listing():
                terminal.result("\t".join((row.name, row.kind, row.distribution, row.state)))
        case "run":
            _show(hosts.run(options.name, options.script))
        case "reboot":
            hosts.reboot(options.name)
            tools.say(f"{options.name} is up again")
        case "logs":
            _show(hosts.logs(options.name))
        case "fault":
            _fault(options)
        case "faults":
            _faults(as_json=options.json)
        case "judge":
            return _judge(options)
    return 0


def _show(text: str) -> None:
    if text:
        terminal.result(text.removesuffix("\n"))


def _up(options: argparse.Namespace) -> None:
    desired = description.read(options.file) if options.file else description.Description()
    for field in ("distribution", "user", "kind"):
        if (given := getattr(options, field)) is not None:
            desired = msgspec.structs.replace(desired, **{field: given})
    if options.gpu:
        desired = _with_gpus(desired, options.gpu)
    made = [hosts.up(name, desired) for name in options.names]
    for host in made:
        terminal.result(f"{host.name}\t{host.user}@{host.address}:{host.port}\t{host.key_file}")
    if options.inventory:
        inventory.write(made, options.inventory, desired)
        tools.say(f"wrote {options.inventory}")


def _with_gpus(desired: description.Description, text: str) -> description.Description:
    """Add GPUs given as MODEL:COUNT or an instance type, on NVSwitches if boards of that many GPUs have them."""
    model, number = split_count(text)
    instance = find_instance(model)
    count = number if number is not None else instance.count if instance else 1
    if not 1 <= count <= description.MOST_GPUS:
        raise GpuprovError(f"--gpu {text}: {count} GPUs", f"allowed: 1 to {description.MOST_GPUS}")
    known = find_gpu(model)
    if known is None:
        what, fix = explain_unknown(model)
        raise GpuprovError(f'--gpu {text}: "{model}" {what}', fix)
    joined = known.fabric_manager.needed == "nvswitch-boards" and count >= BOARD and known.nvswitch
    made = msgspec.structs.replace(desired, gpu=description.Gpus(model=known.key, count=count))
    return msgspec.structs.replace(made, nvswitch=known.nvswitch.generation or 0) if joined and known.nvswitch else made


def _down(names: list[str], *, everything: bool) -> None:
    if everything == bool(names):
        raise GpuprovError("down needs host names, or --all")
    for name in names or [row.name for row in hosts.listing()]:
        if hosts.down(name):
            tools.say(f"{name} is down")
        else:
            raise GpuprovError(f'no simulated host is named "{name}"', fix="gpuprov simulate list")


def _fault(options: argparse.Namespace) -> None:
    if options.heal:
        fault = faults.heal(options.name, options.fault, hosts.run)
        tools.say(f"{options.name}: {fault.name} is off")
        return
    faults.check(msgspec.structs.replace(hosts.describe(options.name), faults=(options.fault,)))
    fault = faults.plant(options.name, options.fault, hosts.run)
    tools.say(f"{options.name}: {fault.what}; found by {fault.caught_by} ({fault.moment})")


def _faults(*, as_json: bool) -> None:
    rows = [
        {
            "name": f.name,
            "what": f.what,
            "caught_by": f.caught_by,
            "moment": f.moment,
            "kinds": f.kinds,
            "parameter": f.parameter,
        }
        for f in faults.TABLE
    ]
    if as_json:
        terminal.result(json.dumps(rows, indent=2))
        return
    for row in rows:
        terminal.result(
            f"{row['name']:20} {row['what']}; found by {row['caught_by']} ({row['moment']}, "
            f"{' or '.join(row['kinds'])})"
        )


def _judge(options: argparse.Namespace) -> int:
    results = waivers.read_results(options.results)
    judged = waivers.judge(results, options.kind, gpu=not options.no_gpu, nvswitch=options.nvswitch)
    for line in waivers.lines(judged):
        terminal.result(line)
    tools.say(judged.summary)
    return int(not judged.green)


class _Parser(argparse.ArgumentParser):
    """Parser that prints its messages through gpuprov's console."""

    def _print_message(self, message: str, file: object = None) -> None:
        (terminal.result if file is sys.stdout else terminal.progress)(message.removesuffix("\n"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpuprov simulate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    prepare = commands.add_parser("setup", help="install the programs that simulated hosts need (apt-get, as root)")
    prepare.add_argument("--machines", action="store_true", help="also those that machines (QEMU) need")
    commands.add_parser("list", help="list simulated hosts: name, kind, distribution, state")
    make = commands.add_parser("image", help="build the container image, or find the cached one")
    make.add_argument("--rebuild", action="store_true", help="build afresh, with today's packages")
    make.add_argument("--distribution", default="debian12", choices=list(distributions.DISTRIBUTIONS))
    start = commands.add_parser("up", help="bring hosts up")
    start.add_argument("names", nargs="+", metavar="NAME")
    start.add_argument("--file", type=Path, metavar="FILE", help="the description of the hosts, in YAML")
    start.add_argument("--kind", choices=["container", "machine"], help="instead of the description's")
    start.add_argument("--user", choices=[image.USER, "root"], help="who logs in")
    start.add_argument("--distribution", choices=list(distributions.DISTRIBUTIONS), metavar="NAME")
    start.add_argument("--gpu", metavar="MODEL[:COUNT]", help="the GPUs of each, instead of the description's")
    start.add_argument("--inventory", type=Path, metavar="FILE", help="write an Ansible inventory of them")
    stop = commands.add_parser("down", help="remove hosts")
    stop.add_argument("names", nargs="*", metavar="NAME")
    stop.add_argument("--all", action="store_true", help="all simulated hosts")
    inside = commands.add_parser("run", help="run a shell script as root on a host")
    inside.add_argument("name", metavar="NAME")
    inside.add_argument("script", metavar="SCRIPT")
    for command, summary in (("reboot", "reboot a host"), ("logs", "show the end of a host's journal and console")):
        commands.add_parser(command, help=summary).add_argument("name", metavar="NAME")
    switch = commands.add_parser("fault", help="switch a fault on")
    switch.add_argument("name", metavar="NAME")
    switch.add_argument("fault", metavar="FAULT[=PARAMETER]")
    switch.add_argument("--heal", action="store_true", help="switch it off")
    commands.add_parser("faults", help="list the faults").add_argument("--json", action="store_true")
    judging = commands.add_parser("judge", help="judge what `gpuprov verify --json` wrote, by the waivers")
    judging.add_argument("results", type=Path, metavar="RESULTS.json")
    judging.add_argument("--kind", required=True, choices=["container", "machine"])
    judging.add_argument("--no-gpu", action="store_true", help="the hosts were described without GPUs")
    judging.add_argument("--nvswitch", type=int, default=0, metavar="GENERATION")
    return parser


if __name__ == "__main__":
    sys.exit(main())
