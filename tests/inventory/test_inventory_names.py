"""Many hosts in few words, which --limit takes back."""

from __future__ import annotations

from gpuprov.inventory.limit import select
from gpuprov.inventory.names import fold_names
from gpuprov.spec.model import RawHost
from tests.rows import run_each


@run_each(
    ("hosts", "words"),
    [
        (["a"], "a"),
        (["gpu1", "gpu2"], "gpu1, gpu2"),
        (["gpu001", "gpu002", "gpu003", "gpu005"], "gpu[001:003], gpu005"),
        (["gpu098", "gpu099", "gpu100"], "gpu[098:100]"),
        (["gpu10", "gpu8", "gpu9"], "gpu[8:10]"),
        (["gpu08", "gpu9", "gpu10"], "gpu08, gpu9, gpu10"),
        (["gpu1", "gpu01", "gpu2"], "gpu1, gpu01, gpu2"),
        (["r1-gpu1.lan", "r1-gpu2.lan", "r1-gpu3.lan", "login"], "r1-gpu[1:3].lan, login"),
        ([f"train{number}.dc1.example.com" for number in range(100, 160)], "train[100:159].dc1.example.com"),
        ([f"ip-10-0-3-{number}.eu-west-1.compute.internal" for number in (17, 18, 19)],
         "ip-10-0-3-[17:19].eu-west-1.compute.internal"),
        ([f"r{rack}n{node}" for rack in (1, 2, 3) for node in (1, 2, 3, 4)], "r[1:3]n[1:4]"),
        (["r1n1", "r1n2", "r1n3", "r2n1"], "r1n[1:3], r2n1"),
        (["10.0.0.1", "10.0.0.2", "10.0.0.3"], "10.0.0.[1:3]"),
        (["fe80::1", "fe80::2", "fe80::3"], "fe80::1, fe80::2, fe80::3"),
        (["n" + "9" * 5000, "n" + "9" * 4999 + "8", "n3"], f"n{'9' * 5000}, n{'9' * 4999}8, n3"),
    ],
)  # fmt: skip
def test_names_fold_and_limit_takes_them_back(hosts: list[str], words: str) -> None:
    assert fold_names(hosts) == words
    fleet = [RawHost(name=name, groups=("all",)) for name in [*hosts, "gpu0", "other7", "train99.dc1.example.com"]]
    chosen, problems = select(fleet, ["all"], words)
    assert not problems
    assert {host.name for host in chosen} == set(hosts)


def test_a_group_of_the_name_goes_before_a_range() -> None:
    fleet = [RawHost(name=f"gpu{number}", groups=("all", "gpu")) for number in range(5)]
    chosen, _ = select(fleet, ["all", "gpu"], "gpu[3:4]")
    assert [host.name for host in chosen] == ["gpu3", "gpu4"]
    chosen, _ = select(fleet, ["all", "gpu"], "gpu[0:1]")
    assert [host.name for host in chosen] == ["gpu0", "gpu1"]


def test_a_range_without_any_known_host_is_told() -> None:
    chosen, problems = select([RawHost(name="gpu1", groups=("all",))], ["all"], "gpu[7:9]")
    assert not chosen
    assert 'no host or group matches "gpu[7:9]"' in problems[0].message
