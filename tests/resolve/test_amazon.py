"""Amazon Linux 2023: AWS's own archive and NVIDIA's repository, and the kernel's packages."""

from __future__ import annotations

from gpuprov.catalog import fabric
from gpuprov.catalog.distributions import find_distribution
from gpuprov.catalog.drivers.sets import find_packages, list_sources, pick_source
from gpuprov.rules import package_lists, resolve
from tests.resolve.test_distributions import decide, names
from tests.rows import run_each

# What AWS's archive has of the driver:
# https://docs.aws.amazon.com/linux/al2023/release-notes/relnotes-2023.10.20260302.html
OF_AWS = """
cuda-drivers-580.126.16-1.amzn2023 kmod-nvidia-latest-dkms-580.126.16-1.amzn2023 kmod-nvidia-open-dkms-580.126.16-1.amzn2023
libnvidia-cfg-580.126.16-1.amzn2023 libnvidia-fbc-580.126.16-1.amzn2023 libnvidia-gpucomp-580.126.16-1.amzn2023
libnvidia-ml-580.126.16-1.amzn2023 libnvidia-nscq-580.126.16-1 libnvsdm-580.126.16-1 nvidia-driver-580.126.16-1.amzn2023
nvidia-driver-cuda-580.126.16-1.amzn2023 nvidia-driver-cuda-libs-580.126.16-1.amzn2023 nvidia-driver-libs-580.126.16-1.amzn2023
nvidia-fabric-manager-devel-580.126.16-1 nvidia-fabricmanager-580.126.16-1 nvidia-imex-580.126.16-1
nvidia-kmod-common-580.126.16-1.amzn2023 nvidia-libXNVCtrl-580.126.16-1.amzn2023 nvidia-libXNVCtrl-devel-580.126.16-1.amzn2023
nvidia-modprobe-580.126.16-1.amzn2023 nvidia-open-580.126.16-1.amzn2023 nvidia-persistenced-580.126.16-1.amzn2023
nvidia-settings-580.126.16-1.amzn2023 nvidia-xconfig-580.126.16-1.amzn2023 nvlink5-580.126.16-1 nvlink5-580-580.126.16-1
xorg-x11-nvidia-580.126.16-1.amzn2023
"""
# What an EL 9 has installed with 615.71.09, by rpm -qa.
EL9_615 = """
nvidia-driver-common-615.71.09-1.el9 nvidia-driver-cuda-libs-615.71.09-1.el9 nvidia-libXNVCtrl-615.71.09-1.el9
libnvidia-fbc-615.71.09-1.el9 nvidia-persistenced-615.71.09-1.el9 dkms-3.4.3-2.el9 nvidia-modprobe-615.71.09-1.el9
nvidia-driver-selinux-0.1-2.el9 nvidia-kmod-common-615.71.09-1.el9 kmod-nvidia-open-dkms-615.71.09-1.el9
nvidia-driver-cuda-615.71.09-1.el9 nvidia-driver-libs-615.71.09-1.el9 nvidia-driver-615.71.09-1.el9
nvidia-settings-615.71.09-1.el9 nvidia-open-615.71.09-1.el9
"""
K61, K612 = "6.1.163-186.299.amzn2023.x86_64", "6.12.73-95.123.amzn2023.x86_64"


def index(text: str) -> dict[str, list[str]]:
    """Names and versions of a list of packages, as an index has them."""
    rows = (package.rsplit("-", 2) for package in text.split())
    return {name: [f"{version}-{release}"] for name, version, release in rows}


def test_what_it_is_called() -> None:
    found = find_distribution("amzn", "2023")
    assert found
    assert (found.key, found.family, pick_source(found)) == ("amzn2023", "redhat", "distribution")
    assert list_sources(found) == ("distribution", "nvidia", "mirror")
    assert find_distribution("amzn", "2") is None


@run_each("flavour", ["open", "proprietary"])
def test_the_archive_of_aws_has_the_whole_set(flavour: str) -> None:
    answer = decide(
        names("amzn", "2023"), "580", modules=flavour, index=index(OF_AWS), beside=[fabric.build_rules("amzn", "2023")]
    )
    assert answer["problem"] == ""
    module = "kmod-nvidia-open-dkms" if flavour == "open" else "kmod-nvidia-latest-dkms"
    assert set(answer["packages"]) == {
        *(
            module,
            "nvidia-kmod-common",
            "nvidia-driver-cuda",
            "nvidia-driver-cuda-libs",
            "libnvidia-ml",
            "libnvidia-cfg",
        ),
        *("nvidia-persistenced", "nvidia-modprobe", "nvidia-fabricmanager"),
    }
    assert answer["packages"]["nvidia-fabricmanager"] == "580.126.16-1"


def test_only_the_repository_of_nvidia_has_module_streams() -> None:
    assert names("amzn", "2023").streams == {}
    assert names("amzn", "2023", "nvidia").streams["open"] == "nvidia-driver:{branch}-open"
    assert find_packages("amzn", "2023", "nvidia", "precompiled") is None


def test_a_host_without_the_archive_is_told_how_to_have_it() -> None:
    lacking = decide(names("amzn", "2023"), "580")
    assert "none of kmod-nvidia-open-dkms" in lacking["problem"]
    assert "dnf install nvidia-release" in lacking["fix"]
    assert decide(names("amzn", "2023", "nvidia"), "580")["fix"] == resolve.NO_DRIVER


def test_both_archives_have_one_set() -> None:
    """A host moves from the one to the other without a package that leaves."""
    assert names("amzn", "2023").others == names("amzn", "2023", "nvidia").others == ()
    have = {n: found[0] for n, found in index(OF_AWS).items() if n not in ("cuda-drivers", "kmod-nvidia-latest-dkms")}
    moved = decide(names("amzn", "2023", "nvidia"), "580", installed=have)
    assert (moved["kept"], moved["replaced"]) == (True, [])


def test_branches_from_610_on_have_one_package_of_libraries() -> None:
    el9 = names("rocky", "9.8")
    have = {name: found[0] for name, found in index(EL9_615).items()}
    answer = decide(el9, "615", installed=have)
    assert (answer["kept"], answer["problem"]) == (True, "")
    assert {"nvidia-driver-common", "nvidia-open", "libnvidia-fbc"} <= set(answer["packages"])
    assert "libnvidia-ml" not in answer["packages"]
    older = {name: ["3:580.178.04-1.el9"] for name in resolve.fitting(el9.open, "580.178.04")}
    back = decide(el9, "580", index=older, installed=have)
    assert "nvidia-driver-common" in back["replaced"]
    assert "libnvidia-ml" in back["packages"]


def test_each_series_of_kernels_has_packages_of_its_own() -> None:
    forms = names("amzn", "2023").headers
    assert package_lists.header_packages(forms, [K61, K612]) == [
        *(f"kernel-devel-{K61}", f"kernel6.12-devel-{K612}"),
        *(f"kernel-modules-extra-{K61}", f"kernel6.12-modules-extra-{K612}"),
    ]
    both = package_lists.header_packages(forms, [K61, "6.18.8-9.213.amzn2023.x86_64"])
    assert [package_lists.without_release(name) for name in both] == [
        *("kernel-devel", "kernel6.18-devel", "kernel-modules-extra", "kernel6.18-modules-extra")
    ]


def test_an_old_kernel_is_known_by_its_own_packages() -> None:
    forms, old = names("amzn", "2023").headers, "6.12.58-82.121.amzn2023.x86_64"
    kernels = [["kernel", old, "1", "0", "0"], ["kernel", K612, "1", "0", "1"]]
    there = {name: ["1:6.12.73-95.123.amzn2023"] for name in ("kernel6.12-devel", "kernel6.12-modules-extra")}
    assert package_lists.without_headers(forms, kernels, there) == [old]
    both = {name: [*found, "1:6.12.58-82.121.amzn2023"] for name, found in there.items()}
    assert package_lists.without_headers(forms, kernels, both) == []
