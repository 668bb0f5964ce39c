"""`gds`: GPUDirect Storage: libcufile, its tools, nvidia-fs or PCI P2PDMA, and settings of /etc/cufile.json."""

import re

from gpuprov.capabilities.base import LOADED, Capability
from gpuprov.capabilities.gds import checks
from gpuprov.capabilities.gds.desired import DESIRED, RESOURCES
from gpuprov.capabilities.gds.fragment import Gds
from gpuprov.capabilities.gds.rules import contribute, rules
from gpuprov.capabilities.gds.tasks import TASKS
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.driver import gds as probe
from gpuprov.rules import resolve
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the newest release whose tools are installed, with nvidia-fs loaded; None without one of them."""
    matches = (re.fullmatch(r"gds-tools-(\d+)-(\d+)", name) for name in facts.get(probe.PACKAGES))
    releases = [f"{match[1]}.{match[2]}" for match in matches if match]
    if not releases or not facts.get(probe.GDS).module:
        return None
    return Gds(toolkit=max(releases, key=resolve.order))


CAPABILITY = Capability(
    name="gds",
    summary="GPUDirect Storage: libcufile, gdscheck, nvidia-fs or PCI P2PDMA, and settings of /etc/cufile.json",
    fragment=Gds,
    checks=checks.CHECKS,
    rules=rules,
    contribute=contribute,
    export=export,
    export_probes=(probe.PACKAGES, probe.GDS),
    follows=("rdma", "nvidia_driver", "cuda_toolkit"),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    packages=True,
    needs_gpu=True,
    shown_by="tests/e2e/test_gds.py",
    presupposes={
        "direct": ("gds.packages", "gds.module", *LOADED),
        "module": ("gds.packages", *LOADED),
        "configuration": ("gds.packages",),
    },
)
