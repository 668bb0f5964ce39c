"""What other capabilities go by of the driver: which one the spec asks for, and which one is there."""

from __future__ import annotations

from gpuprov.probe.base import Facts
from gpuprov.probe.driver import nvidia
from gpuprov.shared import resolve
from gpuprov.spec.model import HostSpec


def asked_version(host: HostSpec) -> str:
    """The version or branch that the spec names; empty where it names none."""
    version = str(getattr(host.capabilities.get("nvidia_driver"), "version", "any"))
    return "" if version == "any" else version


def asked_branch(host: HostSpec) -> int:
    """Its branch; 0 where the spec names none."""
    return _branch(asked_version(host))


def version_now(facts: Facts) -> str:
    """The version of the installed user-mode driver, else of the loaded module; empty if there is none."""
    return facts.get(nvidia.LIBRARIES).get("libcuda", "") or facts.get(nvidia.DRIVER).version


def branch_now(facts: Facts) -> int:
    """Its branch; 0 if there is none."""
    return _branch(version_now(facts))


def branch_wanted(host: HostSpec, facts: Facts) -> int:
    """The branch that the spec asks for, else the one that is there; 0 if that is not known."""
    return asked_branch(host) or branch_now(facts)


def _branch(version: str) -> int:
    return resolve.order(version)[0] if version else 0
