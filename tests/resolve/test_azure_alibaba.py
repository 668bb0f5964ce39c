"""Azure Linux 3, whose packages have open modules only, and Alibaba Cloud Linux 3, which has none that anybody
confirms."""

from __future__ import annotations

from gpuprov.catalog import fabric
from gpuprov.catalog.distributions import find_distribution
from gpuprov.catalog.drivers.any import find_installed_driver
from gpuprov.catalog.drivers.sets import find_packages, list_sources, pick_source
from gpuprov.rules import package_lists
from tests.resolve.test_distributions import decide, names, offer

V100 = "10de:1db4"
A580 = "3:580.105.08-1.azl3"
# Of https://packages.microsoft.com/azurelinux/3.0/prod/nvidia/x86_64/Packages/
OF_MICROSOFT = {
    "cuda-open": "580.105.08-4_6.6.138.1.1.azl3",
    "cuda-open-hwe": "580.105.08-10_6.12.87.1.1.azl3",
    "cuda": "570.133.20-1_6.6.85.1.4.azl3",
}


def test_azure_linux_has_open_modules_only() -> None:
    azure = names("azurelinux", "3.0")
    assert azure.proprietary == ()
    assert (azure.streams, azure.compilers) == ({}, {"open": ("gcc-c++",)})
    answer = decide(azure, "580", modules="auto", index=offer(azure, A580) | {"nvidia-fabricmanager": ["580.105.08-1"]},
                    beside=[fabric.build_rules("azurelinux", "3.0")])  # fmt: skip
    assert (answer["problem"], answer["flavour"]) == ("", "open")
    assert next(iter(answer["packages"])) == "kmod-nvidia-open-dkms"
    assert answer["packages"]["nvidia-fabricmanager"] == "580.105.08-1"


def test_proprietary_modules_on_azure_linux_are_refused_with_a_way_out() -> None:
    azure = names("azurelinux", "3.0")
    for given in (
        {"modules": "proprietary"},
        {"modules": "auto", "pci_ids": [V100], "table": {V100: "proprietary-required"}},
    ):
        answer = decide(azure, "580", index=offer(azure, A580), **given)
        assert answer["problem"].endswith("and this distribution's packages have no proprietary modules")
        assert "source runfile" in answer["fix"]


def test_the_driver_of_microsoft_is_another() -> None:
    azure = names("azurelinux", "3.0")
    assert all(azure.foreign(name, name) for name in OF_MICROSOFT)
    assert not azure.foreign("cuda-toolkit-13-0", "cuda-toolkit-13-0")
    assert find_installed_driver("azurelinux", "3.0", OF_MICROSOFT) == ""
    found = find_distribution("azurelinux", "3.0")
    assert found
    assert "cuda-open" in found.no_driver


def test_kernels_of_azure_linux() -> None:
    """A release has no architecture; the newer series is kernel-hwe."""
    forms, old, new = names("azurelinux", "3.0").headers, "6.6.117.1-1.azl3", "6.6.150.1-1.azl3"
    assert package_lists.header_packages(forms, [new, "6.12.57.1-2.azl3", "6.18.31.1-1.azl3"]) == [
        *("kernel-devel-6.6.150.1-1.azl3", "kernel-hwe-devel-6.12.57.1-2.azl3", "kernel-hwe-devel-6.18.31.1-1.azl3"),
        *("kernel-drivers-gpu-6.6.150.1-1.azl3", "kernel-hwe-drivers-gpu-6.12.57.1-2.azl3"),
        "kernel-hwe-drivers-gpu-6.18.31.1-1.azl3",
    ]
    kernels = [["kernel", old, "1", "0", "0"], ["kernel", new, "1", "0", "1"]]
    there = {"kernel-devel": ["6.6.150.1-1.azl3"], "kernel-drivers-gpu": ["6.6.150.1-1.azl3"]}
    assert package_lists.without_headers(forms, kernels, there) == [old]
    both = {name: [*found, "6.6.117.1-1.azl3"] for name, found in there.items()}
    assert package_lists.without_headers(forms, kernels, both) == []


def test_alibaba_cloud_linux_takes_runfiles_only() -> None:
    found = find_distribution("alinux", "3")
    assert found
    assert (found.key, pick_source(found), list_sources(found)) == ("alinux3", "runfile", ("runfile",))
    assert find_packages("alinux", "3", "nvidia") is None
    known = find_packages("alinux", "3")
    assert known
    assert (known.open, known.proprietary, known.ask) == ((), (), ())
    kernel = "5.10.134-19.2.al8.x86_64"
    assert package_lists.header_packages(known.headers, [kernel]) == [f"kernel-devel-{kernel}"]
    assert known.dkms == ("dkms",)
    assert "epel-aliyuncs-release" in known.builds_from
