"""The driver as other capabilities see it: the one that the spec asks for, and the installed one."""

from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.rules import resolve
from gpuprov.spec.model import HostSpec


def asked_version(host: HostSpec) -> str:
    """Return the version or branch that the spec names; empty if it names none."""
    version = str(getattr(host.capabilities.get("nvidia_driver"), "version", "any"))
    return "" if version == "any" else version


def asked_branch(host: HostSpec) -> int:
    """Return its branch; 0 if the spec names none."""
    return _branch(asked_version(host))


def version_now(facts: Facts) -> str:
    """Return the version of the installed user-mode driver, else of the loaded module; empty if there is none."""
    return facts.get(nvidia.LIBRARIES).get("libcuda", "") or facts.get(nvidia.DRIVER).version


def branch_now(facts: Facts) -> int:
    """Return its branch; 0 if there is none."""
    return _branch(version_now(facts))


def branch_wanted(host: HostSpec, facts: Facts) -> int:
    """Return the branch that the spec asks for, else the installed one; 0 if that is unknown."""
    return asked_branch(host) or branch_now(facts)


def _branch(version: str) -> int:
    return resolve.order(version)[0] if version else 0
