"""`acceptance`: tools and thresholds of perftest, nccl-tests, nvbandwidth, DCGM and stress-ng, which `gpuprov accept`
runs."""

from gpuprov.capabilities.acceptance.checks import CHECKS
from gpuprov.capabilities.acceptance.desired import DESIRED
from gpuprov.capabilities.acceptance.fragment import Acceptance
from gpuprov.capabilities.acceptance.rules import HERE, rules
from gpuprov.capabilities.acceptance.tasks import TASKS
from gpuprov.capabilities.base import LOADED, Capability

CAPABILITY = Capability(
    name=HERE,
    summary="tools and thresholds of perftest, nccl-tests, nvbandwidth, DCGM and stress-ng that `gpuprov accept` "
    "holds hosts to",
    fragment=Acceptance,
    checks=CHECKS,
    rules=rules,
    follows=("rdma", "cuda_toolkit"),
    tasks=TASKS,
    desired=DESIRED,
    packages=True,
    driverless=True,
    shown_by="tests/capabilities/test_acceptance.py",
    presupposes={"result": ("acceptance.tools", *LOADED)},
    sets_up=False,
)
