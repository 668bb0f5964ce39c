"""python -m gpuprov.simulate: bring simulated hosts up and down."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuprov.errors import GpuprovError
from gpuprov.simulate import container, image, inventory, tools


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0, or 2 with one clear line."""
    options = _parser().parse_args(arguments)
    try:
        _run(options)
    except GpuprovError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def _run(options: argparse.Namespace) -> None:
    match options.command:
        case "setup":
            tools.setup()
        case "image":
            print(image.build(options.distribution, rebuild=options.rebuild))
        case "up":
            hosts = [container.up(name, options.distribution, user=options.user) for name in options.names]
            for host in hosts:
                print(f"{host.name}\t{host.user}@{host.address}:{host.port}\t{host.key_file}")
            if options.inventory:
                inventory.write(hosts, options.inventory)
                tools.say(f"wrote {options.inventory}")
        case "down":
            _down(options.names, everything=options.all)
        case "list":
            for row in container.listing():
                print("\t".join(row))


def _down(names: list[str], *, everything: bool) -> None:
    if everything == bool(names):
        raise GpuprovError("down needs host names, or --all")
    for name in names or [row[0] for row in container.listing()]:
        if container.down(name):
            tools.say(f"{name} is down")
        else:
            raise GpuprovError(f'no simulated host is named "{name}"', hint="python -m gpuprov.simulate list")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpuprov.simulate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("setup", help="install the programs that simulated hosts need (apt-get, as root)")
    commands.add_parser("list", help="list simulated hosts: name, distribution, state")
    make = commands.add_parser("image", help="build the image, or find the cached one")
    make.add_argument("--rebuild", action="store_true", help="build afresh, with today's packages")
    start = commands.add_parser("up", help="bring hosts up")
    start.add_argument("names", nargs="+", metavar="NAME")
    start.add_argument("--user", default=image.USER, choices=[image.USER, "root"], help="who logs in")
    start.add_argument("--inventory", type=Path, metavar="FILE", help="write an Ansible inventory of them")
    for command in (make, start):
        command.add_argument("--distribution", default="debian12", choices=list(image.DISTRIBUTIONS))
    stop = commands.add_parser("down", help="remove hosts")
    stop.add_argument("names", nargs="*", metavar="NAME")
    stop.add_argument("--all", action="store_true", help="all simulated hosts")
    return parser


if __name__ == "__main__":
    sys.exit(main())
