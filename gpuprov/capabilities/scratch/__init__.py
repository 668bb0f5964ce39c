"""`scratch`: one scratch file system on the local NVMe disks, brought back at boot when they came back empty."""

from gpuprov.capabilities.at_boot import carried
from gpuprov.capabilities.base import Capability
from gpuprov.capabilities.scratch.checks import CHECKS
from gpuprov.capabilities.scratch.desired import DESIRED, MODULES, RESOURCES
from gpuprov.capabilities.scratch.fragment import Scratch
from gpuprov.capabilities.scratch.rules import rules
from gpuprov.capabilities.scratch.tasks import TASKS
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host.scratch import SCRATCH
from gpuprov.host_code.at_boot import scratch as onhost
from gpuprov.host_code.at_boot.program import Refused
from gpuprov.host_code.at_boot.scratch_state import RECORD
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment


def export(facts: Facts) -> Fragment | None:
    """Return the configuration of gpuprov's own unit, where its file system is mounted."""
    known = facts.get(SCRATCH)
    try:
        config = onhost.parse_config([line.split() for line in known.config])
    except Refused:
        return None
    if not any(config.mount in device.mounts for device in (*known.state.disks, *known.state.arrays)):
        return None
    values = {key: getattr(config, key) for key in ("mount", "filesystem", "mode", "count")}
    block: Fragment | None = convert(
        {**values, "disks": [*config.patterns], "required_by": [*known.required_by]}, Scratch
    )[0]
    return block


CAPABILITY = Capability(
    name="scratch",
    summary="one scratch file system on local NVMe disks, RAID 0 of several, made anew at boot when they came back "
    "empty",
    fragment=Scratch,
    checks=CHECKS,
    rules=rules,
    export=export,
    export_probes=(SCRATCH,),
    tasks=TASKS,
    desired=DESIRED,
    resources=RESOURCES,
    carried=carried(MODULES),
    packages=True,
    driverless=True,
    at_boot={"mounted": "scratch.enabled"},
    presupposes={"mounted": ("scratch.disks",)},
    stays={
        RECORD: "the file system stays mounted until the next boot, and its data on the disks: scratch brings it back"
    },
    until_boot="mounts",
    shown_by="tests/e2e/test_scratch.py",
    not_rehearsed="no simulated host has local NVMe disks but those of tests",
)
