"""The `dcgm` block, and what follows from it on a given host."""

import re
from itertools import pairwise
from typing import Annotated, Literal

from gpuprov.capabilities.driver import find_target_branch
from gpuprov.catalog import dcgm as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import dcgm
from gpuprov.facts.probes.host import pci
from gpuprov.facts.probes.software.packages import Package
from gpuprov.spec.described import describe
from gpuprov.spec.model import Fragment, HostSpec

VERSION = r"^(any|3|4|[34]\.[0-9]{1,2}\.[0-9]{1,2})$"
ADDRESS = r"^((ALL|[0-9]{1,3}(\.[0-9]{1,3}){3}):[0-9]{1,5}|/[A-Za-z0-9._/-]+)$"


class Dcgm(Fragment, frozen=True):
    """Data Center GPU Manager: one version of all its packages, held, its host engine running and responding.

    Packages of the other release line are removed in the same transaction. The host engine is restarted only if its
    program, a library that it loads or its unit's settings changed.
    """

    version: Annotated[
        str,
        describe(
            'any, a release line ("3", "4") or an exact version ("4.4.1"). An installed one that fits is kept',
            pattern=VERSION,
        ),
    ] = "any"
    cuda: Annotated[
        Literal["auto", "11", "12", "13"],
        describe(
            "the CUDA build of the diagnostics. auto takes the user-mode CUDA of the driver's branch, and the"
            " build for CUDA 12 too where a GPU is older than CUDA 13 knows"
        ),
    ] = "auto"
    proprietary: Annotated[
        bool,
        describe("also install the closed parts of line 4, which have the profiling metrics and further diagnostics"),
    ] = True
    multinode: Annotated[bool, describe("also install the diagnostics over several hosts (line 4, CUDA 12 and 13)")] = (
        False
    )
    listen: Annotated[
        str, describe("IP:PORT, ALL:PORT or a socket's absolute path, where the host engine listens", pattern=ADDRESS)
    ] = catalogue.LISTEN
    hold: Annotated[bool, describe("hold every package of DCGM against upgrades, or release them")] = True
    exporter: Annotated[
        bool,
        describe(
            "run dcgm-exporter for Prometheus on the one host engine; its metrics carry the host engine's "
            "address as Hostname. false leaves an exporter alone, except that DCGM 3 cannot have the packaged"
            " one"
        ),
    ] = False
    exporter_port: Annotated[int, describe("the port of the exporter's /metrics, on all addresses", ge=1, le=65535)] = (
        catalogue.EXPORTER_PORT
    )
    exporter_counters: Annotated[
        str, describe("The file of counters on the host (CSV)", pattern=r"^/[A-Za-z0-9._/-]+$")
    ] = catalogue.COUNTERS


DRIVER_PROBES = (nvidia.LIBRARIES, nvidia.DRIVER, pci.NVIDIA_FUNCTIONS)
BASE_PROBES = (*DRIVER_PROBES, dcgm.PACKAGES)


def choose_builds(fragment: Dcgm, branch: int, facts: Facts) -> tuple[str, ...]:
    """Return the CUDA builds for this host with a driver of this branch."""
    ids = [gpu.identifier for gpu in pci.gpus(facts.get(pci.NVIDIA_FUNCTIONS))]
    return catalogue.list_builds(fragment.cuda, branch, ids)


def list_parts(fragment: Dcgm) -> dict[str, bool]:
    """Return the optional parts, and whether each is wanted."""
    return {"proprietary": fragment.proprietary, "multinode": fragment.multinode}


def list_versions(facts: Facts) -> dict[str, str]:
    """Return versions of DCGM's installed packages."""
    return {name: package.version for name, package in facts.get(dcgm.PACKAGES).items()}


def list_needed(host: HostSpec, fragment: Dcgm, facts: Facts) -> list[str]:
    """Return the packages that the host needs with the driver of its spec, else its current one; without a known
    driver, with the installed CUDA builds."""
    versions = list_versions(facts)
    cuda = choose_builds(fragment, find_target_branch(host, facts), facts)
    line = catalogue.find_line(fragment.version, versions, cuda)
    present = [major for major in catalogue.CUDA if f"datacenter-gpu-manager-4-cuda{major}" in versions]
    return catalogue.list_names(line, list_parts(fragment), cuda or present)


def find_installed(facts: Facts) -> dict[str, Package]:
    """Return every installed package of DCGM's except the exporter, which has a version of its own."""
    present = facts.get(dcgm.PACKAGES)
    return {
        name: package
        for name, package in present.items()
        if any(re.fullmatch(p, name) for p in catalogue.PATTERNS.values())
    }


def parse_listen_address(command: str) -> str:
    """Return the address that a command line of nv-hostengine makes it listen on, in the form of the field `listen`."""
    host, port = catalogue.LISTEN.split(":")
    words = re.sub(r"(--[a-z-]+)=", r"\1 ", command).split()
    for option, value in pairwise(words):
        if option in ("-d", "--domain-socket"):
            return value
        host = value if option in ("-b", "--bind-interface") else host
        port = value if option in ("-p", "--port") else port
    return f"{host}:{port}"
