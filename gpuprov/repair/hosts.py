"""The hosts of a repair, reached as the inventory says: their health, and the program that acts on them."""

import time
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.health import watched
from gpuprov.capabilities.slurm import desired
from gpuprov.catalog.container_toolkit import OWN_UNITS, REFRESH_UNITS
from gpuprov.catalog.drivers.sets import list_gpu_services
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.collect.rounds import Pace
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.gpus import gpu_settings, mig
from gpuprov.facts.probes.host import slurm
from gpuprov.facts.probes.host.checkpoints import REPAIRS
from gpuprov.facts.probes.host.system import CLOCK
from gpuprov.hardware.topology.fabric import UNIT as FABRIC_MANAGER
from gpuprov.host_code import process, repair
from gpuprov.host_code.at_boot.slurm import GRES
from gpuprov.host_code.fence import Owner
from gpuprov.plan.host_code import run_on_hosts
from gpuprov.plan.host_lock import of_host
from gpuprov.repair.model import HostPlan, Options
from gpuprov.repair.scope import PROBES
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import CAPABILITY
from gpuprov.verify.racks import compare_hosts
from gpuprov.verify.verify import Pairs, verify_each

# Seconds for one act: services are stopped and started around a reset.
LIMIT = repair.RESET_SECONDS + 120.0
# Seconds for a question to a host that may be rebooting.
SHORT = 20.0
# Capabilities whose state units have to bring back after a reset.
RESTORED = frozenset(capability.name for capability in CAPABILITIES if capability.ends_with_reset)
# Units that set GPUs up at boot, in their order: a reset takes that from the GPUs.
BOOT_UNITS = (mig.UNIT, gpu_settings.UNIT)
# Units that list the GPUs for containers and for jobs of Slurm.
LISTINGS: tuple[repair.Listing, ...] = (
    {"unit": REFRESH_UNITS[-1], "file": "", "reader": ""},
    {"unit": OWN_UNITS[-1], "file": "", "reader": ""},
    {"unit": desired.UNIT, "file": GRES, "reader": slurm.UNIT},
)
REBOOT_TIMEOUT = "host_reboot_timeout"
# As in roles/host.
USUAL_REBOOT = 1800.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of gpuprov/host_code/repair.py."""

    problem: str = ""
    services: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    failed: dict[str, str] = {}
    boot: str = ""
    here: bool = False
    lost: bool = False
    # Why an act is not in its record.
    unrecorded: str = ""
    locked: dict[str, Any] | None = None
    # None came.
    silent: bool = False


Judged = tuple[list[Result], Facts | None]


class Hosts(Protocol):
    """Hosts as a repair needs them; tests have others."""

    def judge(self, names: Sequence[str]) -> dict[str, Judged]:
        """Read the health of hosts, with what a reset takes from their GPUs."""
        ...

    def act(self, action: str, plan: HostPlan, **more: Any) -> Answer:
        """Have the host do one act."""
        ...

    def get_reboot_limit(self, host: str) -> float:
        """Return the seconds that a reboot of the host may take."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class ReachedHosts:
    """The hosts of an inventory."""

    def __init__(self, pairs: Pairs, options: Options) -> None:
        self.pairs = {raw.name: (raw, spec) for raw, spec in pairs}
        self._options = options
        self._compared: dict[str, list[Result]] = {}
        lease = max((self.get_reboot_limit(name) for name in self.pairs), default=0.0) + LIMIT
        self.owner: Owner = {**process.describe(options.run, __version__), "lease": lease}

    def judge(self, names: Sequence[str]) -> dict[str, Judged]:
        """Read the hosts once, many at a time, and compare them with one another and with what others were when they
        were last read."""
        judged: dict[str, Judged] = {}

        def note(name: str, results: list[Result], facts: Facts | UnreachableError) -> None:
            judged[name] = (results, facts if isinstance(facts, Facts) else None)

        pairs = [(raw, watched(spec)) for raw, spec in (self.pairs[name] for name in names)]
        options = self._options
        verify_each(
            pairs,
            note,
            only={CAPABILITY, *RESTORED},
            pace=Pace(options.forks),
            timeout=options.timeout,
            also=(REPAIRS, CLOCK, *PROBES),
        )
        others = [row for name, rows in [*self._compared.items()] if name not in judged for row in rows]
        results = [result for own, _ in judged.values() for result in own]
        self._compared |= {name: [row for row in own if row.firmware] for name, (own, _) in judged.items()}
        compared: dict[str, list[Result]] = {name: [] for name in judged}
        for own, result in zip(results, compare_hosts([*results, *others]), strict=False):
            # A run over few hosts has nothing to compare with, which says nothing of a repair.
            compared[own.host].append(own if result.status == "skip" and own.firmware else result)
        return {name: (compared[name], facts) for name, (_, facts) in judged.items()}

    def act(self, action: str, plan: HostPlan, **more: Any) -> Answer:
        """Run the program on the host."""
        raw, spec = self.pairs[plan.host]
        known = list_gpu_services(spec.site)
        request = {
            "action": action,
            "owner": of_host(self.owner, plan.host),
            "known": known,
            "services": select_services(known, plan),
            "boot_units": [*BOOT_UNITS],
            "listings": [*LISTINGS],
            "gpus": [gpu.address for gpu in plan.scope.all] if not plan.scope.whole else [],
            "ids": [gpu.id for gpu in plan.scope.all] if not plan.scope.whole else [],
            "checks": [*plan.checks],
            "broken": [*self._options.break_lock],
            **more,
        }
        limit = SHORT if action in ("seen", "release", "note", "mark") else LIMIT
        result = run_on_hosts(repair, {plan.host: (raw, request)}, Answer, limit=limit)[plan.host]
        if result.answer is None:
            return Answer(problem=result.problem or "it gave no answer", silent=True)
        return result.answer

    def get_reboot_limit(self, host: str) -> float:
        """Return host_reboot_timeout of the host."""
        return float(str(self.pairs[host][1].site.get(REBOOT_TIMEOUT, USUAL_REBOOT)))

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def select_services(known: Sequence[str], plan: HostPlan) -> list[str]:
    """Return the services that are stopped for a reset: Fabric Manager only where the fabric is reset, since it brings
    the NVLinks of a single GPU back."""
    # https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide
    return [unit for unit in known if plan.scope.whole or unit != FABRIC_MANAGER]
