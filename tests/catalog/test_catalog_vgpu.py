"""vGPU releases, the keys of gridd.conf, and machines."""

from __future__ import annotations

from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.catalog import drivers, gpus, vgpu
from tests.rows import run_each


@run_each(
    ("guest", "host", "fits"),
    [
        ("580", "580", True),
        ("570", "580", True),
        ("535", "580", True),
        ("470", "535", True),
        ("550", "580", False),
        ("470", "580", False),
        ("595", "580", False),
        ("580", "595", True),
        ("570", "595", False),
        ("580", "999", True),
        ("999", "580", False),
    ],
)
def test_which_guest_goes_with_which_host(guest: str, host: str, fits: bool) -> None:
    assert vgpu.is_compatible(guest, host) is fits


def test_releases_have_branches_of_the_catalogue() -> None:
    known = {branch.branch for branch in drivers.list_branches()}
    assert {one.branch for one in vgpu.read_vgpu_file().releases} <= known
    assert vgpu.release_of("580") == "19"
    assert vgpu.release_of("575") == ""


def test_gpus_without_vgpu_are_of_the_catalogue() -> None:
    assert all(gpus.find_gpu(one.gpu) for one in vgpu.read_vgpu_file().without_vgpu)
    assert vgpu.has_no_vgpu("RTX4090")
    assert not vgpu.has_no_vgpu("L40S")


def test_each_key_has_its_field() -> None:
    block = VgpuGuest()
    assert all(hasattr(block, one.field) for one in vgpu.read_vgpu_file().settings)
    for one in vgpu.read_vgpu_file().settings:
        if one.field != "feature_type":
            assert vgpu.format_value(one, getattr(block, one.field)) == one.default, (
                f"{one.key}: gridd's default is not the field's"
            )


@run_each(
    ("vendor", "product", "tag", "name"),
    [
        ("Amazon EC2", "g6.xlarge", "Amazon EC2", "AWS EC2"),
        ("Google", "Google Compute Engine", "", "Google Cloud"),
        ("Microsoft Corporation", "Virtual Machine", "7783-7084-3265-9085-8269-3286-77", "Azure"),
        ("Microsoft Corporation", "Virtual Machine", "", ""),
        ("Alibaba Cloud", "Alibaba Cloud ECS", "", "Alibaba Cloud ECS"),
        ("VMware, Inc.", "VMware20,1", "No Asset Tag", ""),
        ("", "", "", ""),
    ],
)
def test_clouds_by_dmi(vendor: str, product: str, tag: str, name: str) -> None:
    assert vgpu.find_cloud(vendor, product, tag) == name


def test_hypervisors() -> None:
    kinds = [one.kind for one in vgpu.read_vgpu_file().hypervisors]
    assert len(kinds) == len(set(kinds))
    assert vgpu.find_hypervisor("bhyve") is None
