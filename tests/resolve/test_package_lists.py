"""What package managers print, as the resolver takes it: dnf's index in rpm's order, rows of installed packages."""

from __future__ import annotations

from gpuprov.host_code.packages import lists
from gpuprov.rules import package_lists
from tests.rows import run_each


# The pairs of rpm's own test suite that concern digits, letters, ~ and ^: older first.
# https://github.com/rpm-software-management/rpm/blob/master/tests/rpmvercmp.at
@run_each(
    ("older", "newer"),
    [
        ("1.0-1", "2.0-1"), ("2.0-1", "2.0.1-1"), ("2.0.1-1", "2.0.1a-1"), ("5.5p1-1", "5.5p2-1"),
        ("10xyz-1", "10.1xyz-1"),
        ("xyz.4-1", "8-1"), ("xyz.4-1", "2-1"), ("5.6p1-1", "6.5p1-1"), ("6.0-1.1", "6.0.rc1-1"),
        ("1.0~rc1-1", "1.0-1"),
        ("1.0~rc1-1", "1.0~rc2-1"), ("1.0-1", "1.0^-1"), ("1.0^-1", "1.0^git1-1"), ("1.0^git1-1", "1.01-1"),
        ("1.0^20160101-1", "1.0.1-1"), ("1.0~rc1^git1-1", "1.0-1"), ("9:1-1", "10:0-1"),
        ("580.95.05-1.el9", "3:570.1-1.el9"),
        ("580.95.05-1.el9", "580.126.09-1.el9"), ("1-1.el9", "1-2.el9"),
    ],
)  # fmt: skip
def test_rpms_order(older: str, newer: str) -> None:
    assert package_lists.rpm_order(older) < package_lists.rpm_order(newer)


@run_each("native", ["amd64", "i386"])
@run_each("turned", [False, True])
def test_of_two_architectures_the_hosts_own_tells_the_version(native: str, turned: bool) -> None:
    lines = [
        f"ii |dpkg|1.21|dpkg|{native}|Debian",
        "ii |libcuda1|535.261.03-1|s|amd64|Debian",
        "ii |libcuda1|535.216.03-1|s|i386|Debian",
        "ii |libglx|1-1|s|armhf|Debian",
    ]
    found = lists.parse_installed("\n".join(lines[::-1] if turned else lines))
    wanted = {"amd64": "535.261.03-1", "i386": "535.216.03-1"}[native]
    assert found == {"dpkg": "1.21", "libcuda1": wanted, "libglx": "1-1"}


@run_each("cells", [3, 4, 5, 6])
def test_the_first_three_cells_will_do(cells: int) -> None:
    row = "ii |libc6|2.36-9|glibc|amd64|Debian".split("|")[:cells]
    assert lists.parse_installed("|".join(row)) == {"libc6": "2.36-9"}
