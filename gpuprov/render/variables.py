"""A fragment -> its role's variables. Names are computed, never mapped: `version` of `nvidia_driver` is `nvidia_driver_version`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gpuprov import __version__
from gpuprov.capabilities import CAPABILITIES
from gpuprov.capabilities.kubernetes.documents import files as kubernetes_files
from gpuprov.catalog import (
    acceptance,
    cgpu,
    cuda,
    dcgm,
    drivers,
    erdma,
    fabric,
    gpudirect,
    mps,
    pcie,
    rdma,
    rdma_ofed,
    repositories,
    roce,
    toolkit,
    toolkits,
    vgpu,
)
from gpuprov.catalog.driver_sets import GPU_SERVICES, all_driver_packages, kernel_module_table, of_any_drivers
from gpuprov.catalog.gpus import gpus
from gpuprov.catalog.platforms import platforms
from gpuprov.probe import container_engines, container_toolkit, house, nvidia, pci, signing, virtualization
from gpuprov.probe.cgpu import CGPU
from gpuprov.probe.erdma import ERDMA
from gpuprov.probe.gpudirect import GPUDIRECT
from gpuprov.probe.kubernetes import DRIVER_ROOT, NODE
from gpuprov.probe.ofed import OFED
from gpuprov.probe.pcie import PCIE
from gpuprov.probe.precompiled import PRECOMPILED
from gpuprov.probe.rdma import DEVICES as RDMA_DEVICES
from gpuprov.probe.rdma_host import HOST as RDMA_HOST
from gpuprov.probe.repositories import REPOSITORIES
from gpuprov.probe.roce import READER as ROCE_READER
from gpuprov.probe.runfile import RUNFILE
from gpuprov.probe.topology import PCI
from gpuprov.probe.vgpu import GRIDD
from gpuprov.render.carried import role_files
from gpuprov.spec.model import Fragment, HostSpec


def role_variables(name: str, fragment: Fragment) -> dict[str, Any]:
    """Every field of a fragment as the variable of its role, in the order of the model."""
    plain = msgspec.json.decode(msgspec.json.encode(fragment))
    return {f"{name}_{key}": value for key, value in plain.items()}


def host_variables(spec: HostSpec) -> dict[str, Any]:
    """All variables of one host: the house's, then each role's."""
    variables: dict[str, Any] = {
        "gpuprov_capabilities": list(spec.capabilities),
        "gpuprov_reboot": spec.reboot,
        "gpuprov_gpu": msgspec.to_builtins(spec.gpu) if spec.gpu else {},
        "gpuprov_digests": {name: digest(name, fragment, spec.site) for name, fragment in spec.capabilities.items()},
    }
    for name, fragment in spec.capabilities.items():
        variables |= role_variables(name, fragment)
    if "kubernetes" in spec.capabilities:
        variables["gpuprov_kubernetes"] = kubernetes_files(spec)
    return variables


def fleet_variables() -> dict[str, Any]:
    """What is the same for every host: the catalogue's tables that the roles decide by."""
    return {
        "gpuprov_version": __version__,
        "gpuprov_catalog": {
            "platforms": platforms(),
            "flavours": kernel_module_table(),
            "settled_branches": list(drivers.settled()),
            "driver_packages": all_driver_packages(),
            "cuda_drivers": cuda.floors(),
            "cuda_toolkit": {**toolkits.tables(), "scripts": {nvidia.LIBRARIES.name: nvidia.LIBRARIES.script}},
            "gpu_services": GPU_SERVICES,
            "signing": signing_tables(),
            "precompiled": PRECOMPILED.script,
            "runfile": {"script": RUNFILE.script, "packages": of_any_drivers()},
            "dcgm": dcgm.tables(),
            "mps": mps.tables(),
            "rdma_ofed": {**rdma_ofed.tables(), "scripts": {OFED.name: OFED.script}},
            "roce": {**roce.tables(), "scripts": {"reader": ROCE_READER}},
            "topology": {"script": PCI.script},
            "cgpu": {**cgpu.tables(), "scripts": {CGPU.name: CGPU.script}},
            "erdma": {**erdma.tables(), "scripts": {ERDMA.name: ERDMA.script}},
            "rdma": {**rdma.tables(), "scripts": {p.name: p.script for p in (RDMA_DEVICES, RDMA_HOST)}},
            "pcie": {**pcie.tables(), "scripts": {PCIE.name: PCIE.script}},
            "fabric_manager": fabric.tables(),
            "gpudirect": {
                **gpudirect.tables(),
                "scripts": {p.name: p.script for p in (GPUDIRECT, pci.NVIDIA_FUNCTIONS)},
            },
            "kubernetes": {"script": NODE.script, "driver_root": DRIVER_ROOT},
            "vgpu_guest": {**vgpu.tables(), "scripts": {p.name: p.script for p in (virtualization.FUNCTIONS, GRIDD)}},
            "repositories": {**repositories.tables(), "script": REPOSITORIES.script},
            "container_toolkit": {**toolkit.tables(), "scripts": toolkit_scripts()},
            "acceptance": acceptance.tables(),
            "mig": {"models": models_by_pci_id()},
        },
    }


def signing_tables() -> dict[str, object]:
    """Where the site's key lies on a host, which DKMS takes one, and how the role reads what the firmware trusts."""
    return {
        "key_file": signing.KEY_FILE,
        "certificate_file": signing.CERTIFICATE_FILE,
        "settings_file": signing.SETTINGS_FILE,
        "dkms_since": signing.DKMS_SINCE,
        "scripts": {
            probe.name: probe.script for probe in (signing.ENROLLED, house.DKMS_KEY_ENROLLED, house.SECURE_BOOT)
        },
    }


def models_by_pci_id() -> dict[str, str]:
    """The catalogue's key of each GPU by device and vendor as NVML writes them: "0x233010DE"."""
    found: dict[str, str] = {}
    for gpu in gpus():
        for vendor, device in (entry.id.upper().split(":") for entry in gpu.pci_ids):
            found.setdefault(f"0x{device}{vendor}", gpu.key)
    return dict(sorted(found.items()))


def toolkit_scripts() -> dict[str, str]:
    """The probes that container_toolkit's role reads a host with, as the checks do."""
    return {probe.name: probe.script for probe in (container_engines.ENGINES, container_toolkit.TOOLKIT)}


def digest(name: str, fragment: Fragment, site: Mapping[str, object] | None = None) -> str:
    """sha256 over a capability's variables, what the site set for its role, and the role itself.

    Equal digests mean that the same thing was applied.
    """
    overrides = {key: value for key, value in (site or {}).items() if key.startswith(f"{name}_")}
    variables = json.dumps(role_variables(name, fragment) | overrides, sort_keys=True)
    return hashlib.sha256((role_digest(name) + variables).encode()).hexdigest()


@cache
def role_digest(name: str) -> str:
    """sha256 over the files of a role, and over the catalogue's tables that roles decide by."""
    state = hashlib.sha256(json.dumps(fleet_variables(), sort_keys=True).encode())
    for path, file in role_files(name).items():
        state.update(path.encode() + b"\0" + file.read_bytes() + b"\0")
    return state.hexdigest()


ROLES = ("host", *(capability.name for capability in CAPABILITIES))
