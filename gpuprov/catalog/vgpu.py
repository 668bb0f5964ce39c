"""NVIDIA's vGPU guest driver: releases, the keys of gridd.conf; and the machines in which GPUs are passed through or
shared."""

from functools import partial
from typing import Literal

from gpuprov.catalog.drivers import find_branch
from gpuprov.catalog.reader import BranchFact, Fact, File, load

Licensing = Literal["token", "server", "provider"]
# https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/index.html
PROGRAM = "/usr/bin/nvidia-gridd"
UNIT = "nvidia-gridd.service"
CONFIG = "/etc/nvidia/gridd.conf"
TOKEN_DIRECTORY = "/etc/nvidia/ClientConfigToken"
TOKEN_NAME = "client_configuration_token_*.tok"
PORTAL = "install the guest driver of NVIDIA's licensing portal: the package nvidia-linux-grid-BRANCH, or the .run"
FIX = f"nvidia_driver: false for these hosts, and before apply {PORTAL}"
OTHER_HYPERVISOR = "the VM needs UEFI firmware and a 64-bit window for memory-mapped I/O that holds the GPUs' memory"
BARE_METAL = 'set "Above 4G Decoding" (MMIO above 4 GiB) in the machine\'s firmware'
CLOUD = "stop and start the instance, so that it moves; if that does not help, it is the provider's to fix: {name}"


class Release(BranchFact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vGPU release ("19") and its driver branch."""

    release: str


class Setting(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key of gridd.conf."""

    key: str
    field: str
    # Gridd's value without it.
    default: str = ""
    licensing: tuple[Licensing, ...]
    # The spelling of the field's values.
    values: dict[str, str] = {}


class WithoutVgpu(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A GPU of the catalogue that no hypervisor can share as vGPUs."""

    gpu: str


class Hypervisor(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`kind` is systemd-detect-virt's word. `memory`: the fix if there is no room for memory regions. `hidden`: how it
    hides."""

    kind: str
    name: str
    memory: str
    hidden: str = ""


class Cloud(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider, known by one field of DMI."""

    name: str
    product: str = ""
    vendor: str = ""
    tag: str = ""


class VgpuFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """data/vgpu.yaml"""

    releases: tuple[Release, ...]
    legacy_server_last: BranchFact
    visible_hypervisor_since: BranchFact
    settings: tuple[Setting, ...]
    without_vgpu: tuple[WithoutVgpu, ...]
    hypervisors: tuple[Hypervisor, ...]
    clouds: tuple[Cloud, ...]


read_vgpu_file = partial(load, "vgpu", VgpuFile)


def release_of(branch: str) -> str:
    """Return the vGPU release of a driver branch: '580' -> '19'; "" for a branch without a release."""
    return next((release.release for release in read_vgpu_file().releases if release.branch == branch), "")


def has_no_vgpu(gpu: str) -> bool:
    """Return whether the GPU with this key is known to have no vGPU."""
    return any(entry.gpu == gpu for entry in read_vgpu_file().without_vgpu)


def is_compatible(guest: str, host: str) -> bool:
    """Return whether a guest driver of one branch works with a vGPU manager of another, by NVIDIA's release notes.

    It works with the same branch, the previous one, or the long-term branch before a long-term branch. A branch that is
    no known release is judged by its age alone.
    """
    if int(guest) >= int(host):
        return guest == host
    order = [int(release.branch) for release in read_vgpu_file().releases]
    if int(guest) not in order or int(host) not in order:
        return True
    lasting = [branch for branch in order if (known_branch := find_branch(str(branch))) and known_branch.type == "LTSB"]
    return any(
        int(guest) in row and int(host) in row and row.index(int(host)) - row.index(int(guest)) == 1
        for row in (order, lasting)
    )


def list_settings(licensing: str) -> tuple[Setting, ...]:
    """Return the keys that apply to this way of licensing."""
    return tuple(setting for setting in read_vgpu_file().settings if licensing in setting.licensing)


def format_value(setting: Setting, value: object) -> str:
    """Return a field's value in the format of gridd.conf."""
    return setting.values.get(str(value), str(value))


def find_hypervisor(kind: str) -> Hypervisor | None:
    """Return the hypervisor with this name in systemd-detect-virt."""
    return next((entry for entry in read_vgpu_file().hypervisors if entry.kind == kind), None)


def find_cloud(vendor: str, product: str, tag: str) -> str:
    """Return the cloud named by a machine's DMI; "" if it is unknown."""
    actual = {"vendor": vendor, "product": product, "tag": tag}
    for entry in read_vgpu_file().clouds:
        expected = {"vendor": entry.vendor, "product": entry.product, "tag": entry.tag}
        if all(actual[key] == value for key, value in expected.items() if value):
            return entry.name
    return ""
