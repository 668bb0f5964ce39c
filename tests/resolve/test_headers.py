"""Which package has a kernel's headers, and for which kernels there is none any more."""

from __future__ import annotations

from gpuprov.rules import package_lists
from tests.facts.probes import published

EL, DEBIAN = ["kernel-devel-{kernel}"], ["linux-headers-{kernel}"]
OLD, NEW = "5.14.0-503.40.1.el9_5.x86_64", "5.14.0-570.12.1.el9_6.x86_64"


def row(release: str, headers: str = "0", chosen: str = "0") -> list[str]:
    return ["kernel", release, "1", headers, chosen]


def test_the_kernels_of_el() -> None:
    """As `uname -r` prints them on hosts with Oracle's kernel, with pages of 64 KiB, and with EL's own."""
    releases = published("el-kernels", "uname-r").text.split()
    assert package_lists.header_packages(EL, releases) == [
        "kernel-uek-devel-6.12.0-100.28.2.2.el9uek.x86_64",
        "kernel-uek-devel-5.15.0-300.163.18.el8uek.x86_64",
        "kernel-64k-devel-5.14.0-284.41.1.el9_2.aarch64",
        "kernel-devel-5.14.0-570.12.1.el9_6.x86_64",
    ]
    names = [package_lists.without_release(name) for name in package_lists.header_packages(EL, releases)]
    assert names == ["kernel-uek-devel", "kernel-uek-devel", "kernel-64k-devel", "kernel-devel"]
    assert package_lists.header_packages(EL, ["5.14.0-570.12.1.el9_6.x86_64+rt"]) == [
        "kernel-rt-devel-5.14.0-570.12.1.el9_6.x86_64"
    ]
    google = "5.14.0-687.42.1+2.1.el9_8_ciq.x86_64"
    assert package_lists.header_packages(EL, [google]) == [f"kernel-devel-{google}"], "Rocky's image for Google Cloud"
    assert package_lists.without_release(f"kernel-devel-{google}") == "kernel-devel"
    assert package_lists.header_packages(EL, ["5.14.0-687.42.1+2.1.el9_8_ciq.aarch64+64k"]) == [
        "kernel-64k-devel-5.14.0-687.42.1+2.1.el9_8_ciq.aarch64"
    ]
    assert package_lists.header_packages(DEBIAN, ["6.12.86+deb13-arm64"]) == ["linux-headers-6.12.86+deb13-arm64"]
    assert package_lists.header_packages([*DEBIAN, "libelf-dev"], ["6.1.0-47-amd64"]) == [
        "libelf-dev",
        "linux-headers-6.1.0-47-amd64",
    ]


def test_old_kernels_whose_headers_are_gone_are_left_out() -> None:
    index = {"kernel-devel": ["5.14.0-570.12.1.el9_6"]}
    kernels = [row(OLD), row(NEW)]
    assert package_lists.without_headers(EL, kernels, index) == [OLD]
    assert package_lists.without_headers(EL, [row(OLD), row(NEW, headers="1")], index) == [OLD]
    for stays in (row(OLD, chosen="1"), row(OLD, headers="1")):
        assert package_lists.without_headers(EL, [stays, row(NEW)], index) == []
    offered = {"kernel-devel": ["5.14.0-570.12.1.el9_6", "0:5.14.0-503.40.1.el9_5"]}
    assert package_lists.without_headers(EL, kernels, offered) == []
    assert package_lists.without_headers(EL, [row(NEW)], {}) == [], "the newest: its headers must come"
    google = "5.14.0-687.39.1+2.1.el9_8_ciq"
    both = [row(f"{google}.x86_64"), row("5.14.0-687.42.1+2.1.el9_8_ciq.x86_64", headers="1")]
    assert package_lists.without_headers(EL, both, {"kernel-devel": [google]}) == []
    assert package_lists.without_headers(EL, both, {"kernel-devel": ["5.14.0-687.42.1+2.1.el9_8_ciq"]}) == [
        f"{google}.x86_64"
    ]
    assert package_lists.without_headers(DEBIAN, [row("6.1.0-44-amd64"), row("6.1.0-47-amd64")], {}) == [
        "6.1.0-44-amd64"
    ]
    there = {"linux-headers-6.1.0-44-amd64": ["6.1.159-1"]}
    assert package_lists.without_headers(DEBIAN, [row("6.1.0-44-amd64"), row("6.1.0-47-amd64")], there) == []
