"""The group `gpuprov simulate`: simulated GPU hosts, up and down. The work is done by `gpuprov.simulate`."""

from pathlib import Path
from typing import Any

import click

from gpuprov.cli import complete
from gpuprov.cli.sections import Command, Ordered, Written

FILE = click.Path(dir_okay=False, exists=True, path_type=Path)
NAME = click.argument("name", metavar="NAME")


def _run_tool(*words: object) -> int:
    from gpuprov.simulate.__main__ import main

    return main([str(word) for word in words])


@click.group(cls=Ordered, short_help="Bring simulated GPU hosts up and down, and plant faults in them.")
def simulate() -> None:
    """Bring simulated GPU hosts up and down, and plant faults in them. Needs root, and podman or docker.

    \b
    Example: gpuprov simulate up gpu01 --gpu H100-SXM5-80GB:8 --inventory hosts.yaml
             gpuprov simulate fault gpu01 version-mismatch
             gpuprov simulate down gpu01
    """


@simulate.command(cls=Command, short_help="Install the programs that simulated hosts need.")
@click.option("--machines", is_flag=True, help="Also those that machines (QEMU) need.")
def setup(machines: bool) -> int:
    """Install the programs that simulated hosts need, by apt-get. Needs root on Debian.

    \b
    Example: gpuprov simulate setup
    """
    return _run_tool("setup", *(["--machines"] if machines else []))


@simulate.command(cls=Command, short_help="Bring hosts up.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--gpu",
    metavar="MODEL[:COUNT]",
    shell_complete=complete.models,
    help="The GPUs of each; an instance type has its own.",
)
@click.option("--file", type=FILE, metavar="FILE", help="The description of the hosts, in YAML.")
@click.option("--kind", type=click.Choice(["container", "machine"]), help="What a simulated host is (container).")
@click.option("--distribution", metavar="NAME", help="The distribution it runs (debian12).")
@click.option("--user", type=click.Choice(["gpuadmin", "root"]), help="Who logs in there.")
@click.option("--inventory", type=Written(), metavar="FILE", help="Write an Ansible inventory of them.")
def up(names: tuple[str, ...], **given: Any) -> int:
    """Bring hosts up, and print how to log in to each. Without NAME, one that is called gpu01.

    \b
    Example: gpuprov simulate up --gpu H100-SXM5-80GB:8
             gpuprov simulate up gpu01 gpu02 --gpu p4d.24xlarge --inventory hosts.yaml
    """
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", value)]
    return _run_tool("up", *(names or ("gpu01",)), *words)


@simulate.command(cls=Command, short_help="Remove hosts.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All simulated hosts.")
def down(names: tuple[str, ...], everything: bool) -> int:
    """Remove simulated hosts.

    \b
    Example: gpuprov simulate down --all
    """
    return _run_tool("down", *names, *(["--all"] if everything else []))


@simulate.command("list", cls=Command, short_help="List simulated hosts.")
def list_() -> int:
    """List simulated hosts: name, kind, distribution, state.

    \b
    Example: gpuprov simulate list
    """
    return _run_tool("list")


@simulate.command(cls=Command, short_help="Reboot a host.")
@NAME
def reboot(name: str) -> int:
    """Reboot a host, and wait until it is up again. A container loads its driver only then: what an apply installed
    runs after it.

    \b
    Example: gpuprov simulate reboot gpu01
    """
    return _run_tool("reboot", name)


@simulate.command(cls=Command, short_help="Run a shell script on a host, as root.")
@NAME
@click.argument("script", metavar="SCRIPT")
def run(name: str, script: str) -> int:
    """Run a shell script on a host, as root.

    \b
    Example: gpuprov simulate run gpu01 'nvidia-smi -L'
    """
    return _run_tool("run", name, script)


@simulate.command(cls=Command, short_help="Show the end of a host's journal and console.")
@NAME
def logs(name: str) -> int:
    """Show the end of a host's journal and console.

    \b
    Example: gpuprov simulate logs gpu01
    """
    return _run_tool("logs", name)


@simulate.command(cls=Command, short_help="Switch a fault on or off.")
@NAME
@click.argument("fault", metavar="FAULT[=PARAMETER]")
@click.option("--heal", is_flag=True, help="Switch it off.")
def fault(name: str, fault: str, heal: bool) -> int:
    """Switch a fault on, which a check of verify or health finds, or off again.

    \b
    Example: gpuprov simulate fault gpu01 version-mismatch
    """
    return _run_tool("fault", name, fault, *(["--heal"] if heal else []))


@simulate.command(cls=Command, short_help="List the faults, with the check that finds each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def faults(as_json: bool) -> int:
    """List the faults that simulated hosts can have, with the check that finds each.

    \b
    Example: gpuprov simulate faults
    """
    return _run_tool("faults", *(["--json"] if as_json else []))
