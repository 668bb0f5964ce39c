"""Programs of gpuprov/host_code/at_boot as a capability installs them on its hosts: as a package with its name."""

from collections.abc import Iterable

from gpuprov.capabilities.answers import HEADER
from gpuprov.host_code.files import ABOVE, PYTHON

__all__ = ("ABOVE", "COMMON", "PATH", "carried", "command", "files", "unit")

# A line of a unit: the folder in which Python finds the packages.
PATH = f"Environment=PYTHONPATH={ABOVE}"
# Modules that each of these programs needs.
COMMON = ("__init__", "program")


def command(capability: str, module: str, *words: object) -> str:
    """Return the command with which a unit runs one of these programs."""
    return " ".join([PYTHON, "-B", "-m", f"{capability}.{module}", *map(str, words)])


def unit(order: str, service: str, *, wanted_by: str = "multi-user.target", top: str = "") -> str:
    """Return the text of a unit that runs such a program once at each boot: comments at its `top`, lines of [Unit] and
    of [Service]."""
    return f"""{HEADER}{top}[Unit]
{order.strip()}

[Service]
Type=oneshot
RemainAfterExit=yes
{PATH}
{service.strip()}

[Install]
WantedBy={wanted_by}
"""


def files(capability: str, modules: Iterable[str]) -> dict[str, str]:
    """Return the role's files by path on the host."""
    return {f"{ABOVE}/{capability}/{name}.py": f"{name}.py" for name in modules}


def carried(modules: Iterable[str]) -> tuple[str, ...]:
    """Return the Python names of these modules."""
    return tuple(f"gpuprov.host_code.at_boot{'' if name == '__init__' else f'.{name}'}" for name in modules)
