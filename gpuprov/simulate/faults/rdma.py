"""Faults of HCAs, their ports and the PCIe links, for simulated containers; `gpuprov.simulate.parts.silicon_files`
makes them."""

from __future__ import annotations

import re

from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.readings import COUNTERS, FOLDER
from gpuprov.simulate.description import Description
from gpuprov.simulate.faults.base import SILICON, Fault

BUS = "/usr/lib/gpuprov-sim/bus"
AGAIN = "if systemctl cat {0} >/dev/null 2>&1; then systemctl restart {0}; fi"
ROCE, PCIE = "gpuprov-roce.service", "gpuprov-pcie.service"
NARROWED = re.compile(r"(gpu|hca)([0-9]+)")


def _function(name: str, what: str, caught_by: str, parameter: str = "0") -> Fault:
    # A function that comes back has no setting of the boot units any more.
    heal = "\n".join([SILICON, *(AGAIN.format(unit) for unit in (ROCE, PCIE) if name.startswith("hca-"))])
    return Fault(name, what, caught_by, plant=SILICON, heal=heal, parameter=parameter, kinds=("container",))


def _forgotten(name: str, what: str, caught_by: str, word: str, unit: str) -> Fault:
    return Fault(name, what, caught_by, plant=f"{BUS} forget {word}", heal=AGAIN.format(unit), kinds=("container",))


# Readings of a port that had no errors two hours ago, and as many as now an hour ago.
GROWTH = f"""
d=$(ls /sys/class/infiniband | sed -n "$((${{1:-0}} + 1))p") && [ -n "$d" ] || {{ echo 'no RDMA device' >&2; exit 1; }}
mkdir -p {FOLDER}
for n in '2 0' '1 500'; do
  set -- $n "$(date -u -d "${{n% *}} hours ago" +%Y-%m-%dT%H:%M:%SZ)"
  printf '{{"at": "%s", "ports": {{"%s/1": {{"symbol_error": %s}}}}}}\\n' "$3" "$d" "$2"
done > {FOLDER}/{COUNTERS}"""

TABLE: tuple[Fault, ...] = (
    _function("hca-missing", "an HCA is not on the PCI bus (parameter: its index)", "rdma.devices"),
    _function("hca-misplaced", "an HCA is in a slot of the other socket (parameter: its index)", "topology.rails"),
    _function(
        "hca-link-layer",
        "an HCA's port has the other link layer, as its firmware was left (parameter: its index)",
        "rdma.devices",
    ),
    _function(
        "pcie-link-narrow",
        "a PCIe link was trained to x4 at 8 GT/s (parameter: gpu or hca, and its index)",
        "topology.pcie",
        "gpu0",
    ),
    Fault(
        "nvlink-down",
        "the first NVLink of a GPU is not active (parameter: the GPU's index)",
        "topology.nvlinks",
        parameter="0",
    ),
    _function("ib-port-down", "a port is down, as without a cable (parameter: the HCA's index)", "rdma.ports"),
    _function(
        "ib-port-init",
        "a port has a link and no subnet manager: INIT, sm_lid 0 (parameter: the HCA's index)",
        "rdma.ports",
    ),
    _function("ib-rate-low", "a port runs on one lane, at 100 Gb/s (parameter: the HCA's index)", "rdma.rate"),
    _function(
        "rdma-port-flaps",
        "a port has gone down 14 times, and has symbol errors (parameter: the HCA's index)",
        "health.ports",
    ),
    _function(
        "rdma-timeouts",
        "a port has counted 12 acknowledgements that did not come in time (parameter: the HCA's index)",
        "health.rdma_counters",
    ),
    Fault(
        "rdma-errors-grow",
        "a port has counted 500 symbol errors in an hour, by the host's readings (parameter: the HCA's index)",
        "health.link_error_rates",
        plant=f"{SILICON}\n{GROWTH}",
        heal=f"rm -f {FOLDER}/{COUNTERS}\n{SILICON}",
        parameter="0",
        kinds=("container",),
    ),
    _function(
        "roce-gid-missing",
        "a RoCE interface has lost its IPv4 address, and its GIDs with it (parameter: the HCA's index)",
        "rdma.nccl_gid",
    ),
    _forgotten(
        "roce-settings-lost", "settings of RoCE are those of a driver loaded anew", "rdma.roce_settings", "roce", ROCE
    ),
    Fault(
        "roce-pfc-refused",
        "mlnx_qos cannot set priority flow control, as where the firmware decides on it",
        "pfc is none, expected",
        heal=AGAIN.format(ROCE),
        moment="apply",
        kinds=("container",),
    ),
    _forgotten("acs-again", "ACS is enabled on all bridges, as the kernel leaves it at boot", "pcie.acs", "acs", PCIE),
    _forgotten(
        "read-requests-small",
        "functions ask for 512 bytes at a time, as after a reset",
        "pcie.max_read_request",
        "requests",
        PCIE,
    ),
)
NAMES = frozenset(fault.name for fault in TABLE)


def check(name: str, parameter: str, description: Description) -> None:
    """Raise unless the host has the device that this fault affects."""
    if name not in NAMES or name == "nvlink-down":
        return
    if description.hcas == 0 and not parameter.startswith("gpu"):
        raise GpuprovError(f'fault "{name}" needs a host with HCAs', fix="describe them: hcas: 8")
    fabric = "roce" if name.startswith("roce-") else "infiniband" if name == "ib-port-init" else description.fabric
    if description.fabric != fabric:
        raise GpuprovError(f'fault "{name}" needs HCAs on {fabric}, the host has fabric: {description.fabric}')
    role, index = "hca", parameter
    if name == "pcie-link-narrow":
        match = NARROWED.fullmatch(parameter)
        if match is None:
            raise GpuprovError(f'fault "{name}={parameter}"; allowed: gpu or hca and an index, e.g. {name}=hca3')
        role, index = match[1], match[2]
    count = description.hcas if role == "hca" else description.gpu.count if description.gpu else 0
    if not name.endswith(("-lost", "-again", "-small", "-refused")) and not (index.isdigit() and int(index) < count):
        raise GpuprovError(f'fault "{name}={parameter}"; allowed: an index from 0 to {count - 1}')
