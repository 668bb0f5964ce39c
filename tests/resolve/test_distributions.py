"""One version for the whole set where names carry the branch, two archives have the same names, or dnf has the
index."""

from __future__ import annotations

from typing import Any

from gpuprov.catalog import cuda, fabric
from gpuprov.catalog.drivers.sets import DriverPackages, find_packages
from gpuprov.rules import resolve
from gpuprov.rules.package_lists import Answer
from tests.rows import run_each

H100, B200 = "10de:2330", "10de:2901"
TABLE = {H100: "either", B200: "open-required"}


def names(os_id: str, version: str, source: str = "auto") -> DriverPackages:
    found = find_packages(os_id, version, source)
    assert found
    return found


UBUNTU, NVIDIA = names("ubuntu", "24.04"), names("ubuntu", "24.04", "nvidia")
EL9, EL10 = names("rocky", "9.5"), names("rhel", "10.0")
BOOKWORM, NVIDIA_DEBIAN = names("debian", "12"), names("debian", "12", "nvidia")


def offer(packages: DriverPackages, *versions: str, flavours: tuple[str, ...] = ("open",)) -> dict[str, list[str]]:
    """An index with the whole set in each of these package versions, newest first as they are given."""
    index: dict[str, list[str]] = {}
    for version in versions:
        for flavour in flavours:
            for name in resolve.fitting(packages.sets[flavour], version):
                if version not in index.setdefault(name, []):
                    index[name].append(version)
    return index


def installed(packages: DriverPackages, version: str, flavour: str = "open") -> dict[str, str]:
    return dict.fromkeys(resolve.fitting(packages.sets[flavour], version), version)


def decide(packages: DriverPackages, wanted: str, **more: Any) -> Answer:
    given = {"modules": "open", "pci_ids": [H100], "table": TABLE, "index": {}, "installed": {}, **more}
    return resolve.decide(wanted, sets=packages.sets, **given)


U570, U580 = "570.195.03-0ubuntu0.24.04.1", "580.95.05-0ubuntu0.24.04.2"
N570, N580, N590 = "570.195.03-0ubuntu1", "580.95.05-1ubuntu1", "590.48.01-1ubuntu1"
R570, R580 = "3:570.195.03-1.el9", "3:580.95.05-1.el9"


@run_each(
    ("packages", "version", "some"),
    [
        (
            UBUNTU,
            U570,
            {"nvidia-dkms-570-server-open", "nvidia-firmware-570-server-570.195.03", "nvidia-utils-570-server"},
        ),
        (NVIDIA, N570, {"nvidia-dkms-570-open", "nvidia-firmware-570-570.195.03", "nvidia-compute-utils-570"}),
        (NVIDIA, N580, {"nvidia-dkms-580-open", "nvidia-firmware-580", "libnvidia-gpucomp-580", "nvidia-persistenced"}),
        (NVIDIA, N590, {"nvidia-dkms-open", "nvidia-firmware", "libnvidia-compute", "nvidia-kernel-source-open"}),
        (NVIDIA_DEBIAN, "580.95.05-1", {"nvidia-kernel-open-dkms", "nvidia-driver-cuda", "firmware-nvidia-gsp"}),
        (EL9, R580, {"kmod-nvidia-open-dkms", "nvidia-kmod-common", "nvidia-driver-cuda", "libnvidia-ml"}),
        (EL10, "3:595.71.05-1.el10", {"kmod-nvidia-open-dkms", "nvidia-modprobe", "nvidia-driver-cuda-libs"}),
    ],
)
def test_the_names_follow_the_branch(packages: DriverPackages, version: str, some: set[str]) -> None:
    answer = decide(packages, "any", index=offer(packages, version))
    assert answer["problem"] == ""
    assert some <= set(answer["packages"])
    assert set(answer["packages"].values()) == {version}
    assert (answer["version"], answer["branch"]) == (resolve.upstream(version), version.rpartition(":")[2][:3])
    assert next(iter(answer["packages"])) == next(iter(resolve.fitting(packages.open, version)))


def test_headless_no_x_and_no_gl() -> None:
    for packages in (UBUNTU, NVIDIA, NVIDIA_DEBIAN, EL9, EL10):
        for branch in ("570.1", "580.1", "595.1"):
            for rules in packages.sets.values():
                assert not [n for n in resolve.fitting(rules, branch) if "xorg" in n or "-gl" in n or "settings" in n]


@run_each(
    ("packages", "old", "new", "left"),
    [
        (UBUNTU, U570, U580, "nvidia-firmware-570-server-570.195.03"),
        (NVIDIA, N570, N580, "nvidia-dkms-570-open"),
        (NVIDIA, N580, N590, "nvidia-compute-utils-580"),
    ],
)
def test_a_change_of_branch_replaces_every_name_of_the_old_one(
    packages: DriverPackages, old: str, new: str, left: str
) -> None:
    have, branch = installed(packages, old), new[:3]
    answer = decide(packages, branch, index=offer(packages, new, old), installed=have)
    assert answer["replaced"] == sorted(set(have) - set(answer["packages"]))
    assert left in answer["replaced"]
    back = decide(packages, old[:3], index=offer(packages, new, old), installed=answer["packages"])
    assert back["packages"] == have


def test_within_a_branch_only_the_name_with_the_version_changes() -> None:
    older = "570.172.08-0ubuntu0.24.04.1"
    answer = decide(UBUNTU, "570.195.03", index=offer(UBUNTU, U570, older), installed=installed(UBUNTU, older))
    assert answer["replaced"] == ["nvidia-firmware-570-server-570.172.08"]
    assert answer["packages"]["nvidia-firmware-570-server-570.195.03"] == U570


def test_a_name_with_the_version_need_not_be_offered() -> None:
    index = offer(UBUNTU, U570)
    del index["nvidia-firmware-570-server-570.195.03"]
    assert decide(UBUNTU, "570", index=index)["packages"]["nvidia-firmware-570-server-570.195.03"] == U570


def test_the_other_flavour_is_replaced() -> None:
    have = installed(EL9, R580, "proprietary")
    answer = decide(EL9, "580", index=offer(EL9, R580, flavours=("open", "proprietary")), installed=have)
    assert (answer["flavour"], answer["replaced"]) == ("open", ["kmod-nvidia-latest-dkms"])
    bookworm = installed(BOOKWORM, "535.261.03-1", "proprietary")
    answer = decide(BOOKWORM, "535", index=offer(BOOKWORM, "535.261.03-1"), installed=bookworm)
    assert answer["replaced"] == ["nvidia-kernel-dkms", "nvidia-kernel-support"]


def test_a_second_run_never_upgrades() -> None:
    for packages, old, new in ((UBUNTU, U570, U580), (NVIDIA, N580, N590), (EL9, R570, R580)):
        for wanted in ("any", old.rpartition(":")[2][:3]):
            answer = decide(packages, wanted, index=offer(packages, new, old), installed=installed(packages, old))
            assert (answer["kept"], answer["version"]) == (True, resolve.upstream(old))


def test_of_two_suffixes_the_whole_one_is_taken_and_never_a_mix() -> None:
    first, second = "580.95.05-1ubuntu1", "580.95.05-0ubuntu1"
    index = offer(NVIDIA, first, second)
    del index["nvidia-utils-580"][0]
    assert set(decide(NVIDIA, "580", index=index)["packages"].values()) == {second}


def test_where_no_suffix_is_whole_the_newest_of_each_is_taken() -> None:
    first, second = "580.95.05-1ubuntu1", "580.95.05-0ubuntu1"
    index = offer(NVIDIA, first, second)
    index["nvidia-utils-580"].remove(first)
    index["libnvidia-compute-580"].remove(second)
    answer = decide(NVIDIA, "580", index=index)
    assert (answer["problem"], answer["version"]) == ("", "580.95.05")
    assert (answer["packages"]["nvidia-utils-580"], answer["packages"]["nvidia-dkms-580-open"]) == (second, first)


def test_an_installed_mix_stays_only_if_no_archive_has_the_version_whole() -> None:
    first, second = "580.95.05-1ubuntu1", "580.95.05-0ubuntu1"
    mixed = {**installed(NVIDIA, first), "nvidia-utils-580": second}
    assert decide(NVIDIA, "580", installed=mixed)["kept"]
    moved = decide(NVIDIA, "580", index=offer(NVIDIA, first), installed=mixed)
    assert (moved["kept"], set(moved["packages"].values())) == (False, {first})


def test_two_archives_with_the_same_names_are_told_apart() -> None:
    """Ubuntu has non-server drivers under NVIDIA's names, of other revisions."""
    index = offer(NVIDIA, "580.126.09-0ubuntu0.24.04.1", N580)
    assert decide(NVIDIA, "580", index=index)["packages"]["nvidia-dkms-580-open"] == N580
    ubuntus = installed(NVIDIA, "580.126.09-0ubuntu0.24.04.1")
    assert resolve.kernel_package(NVIDIA.sets, ubuntus) == {}
    moved = decide(NVIDIA, "580", index=index, installed=ubuntus)
    assert (moved["kept"], moved["version"]) == (False, "580.95.05")


def test_what_came_with_a_metapackage_moves_along() -> None:
    have = {**installed(UBUNTU, U570), "nvidia-driver-570-server-open": U570, "libnvidia-gl-570-server": U570}
    index = offer(UBUNTU, U580) | {"libnvidia-gl-580-server": [U580], "nvidia-driver-580-server-open": [U580]}
    answer = decide(UBUNTU, "580", index=index, installed=have)
    assert {"libnvidia-gl-580-server", "nvidia-driver-580-server-open"} <= set(answer["packages"])
    assert {"libnvidia-gl-570-server", "nvidia-driver-570-server-open"} <= set(answer["replaced"])
    without = decide(UBUNTU, "580", index=offer(UBUNTU, U580), installed=have)
    assert "libnvidia-gl-570-server" in without["replaced"], "what the new branch does not have goes"


def test_a_host_with_a_metapackage_and_prebuilt_modules_only_gets_the_set() -> None:
    have = {"nvidia-driver-570-server": U570, "linux-modules-nvidia-570-server-generic": "6.8.0-51.52+1"}
    answer = decide(UBUNTU, "570", index=offer(UBUNTU, U570), installed=have)
    assert (answer["kept"], answer["packages"]["nvidia-dkms-570-server-open"]) == (False, U570)
    assert answer["replaced"] == ["nvidia-driver-570-server"], "a metapackage of the other flavour"


def test_dnf_metapackages_move_in_version() -> None:
    have = {**installed(EL9, R570), "nvidia-open": R570, "nvidia-settings": R570}
    index = offer(EL9, R580, R570) | {"nvidia-open": [R580, R570], "nvidia-settings": [R580, R570]}
    answer = decide(EL9, "580", index=index, installed=have)
    assert answer["replaced"] == []
    assert (answer["packages"]["nvidia-open"], answer["packages"]["nvidia-settings"]) == (R580, R580)


FM = fabric.build_rules("rocky", "9.5")


def test_fabric_manager_is_missing_for_the_newest_driver() -> None:
    index = offer(EL9, R580, R570) | {"nvidia-fabric-manager": ["570.195.03-1"]}
    answer = decide(EL9, "580", index=index, beside=[FM])
    assert answer["problem"].endswith("no nvidia-fabricmanager 580.95.05")
    assert answer["fix"] == "the nearest version with the whole set is 570.195.03; whole sets: 570.195.03"
    assert decide(EL9, "any", index=index, beside=[FM])["packages"]["nvidia-fabric-manager"] == "570.195.03-1"


def test_fabric_manager_changes_its_name_at_580() -> None:
    have = {**installed(EL9, R570), "nvidia-fabric-manager": "570.195.03-1"}
    index = offer(EL9, R580) | {"nvidia-fabricmanager": ["580.95.05-1"]}
    answer = decide(EL9, "580", index=index, installed=have, beside=[FM])
    assert (answer["packages"]["nvidia-fabricmanager"], answer["replaced"]) == (
        "580.95.05-1",
        ["nvidia-fabric-manager"],
    )


def test_ubuntus_fabric_manager_goes_with_ubuntus_driver_only() -> None:
    rules = fabric.build_rules("ubuntu", "24.04")
    both = {"nvidia-fabricmanager-580": [U580], "nvidia-fabricmanager": ["580.95.05-1"]}
    own = decide(UBUNTU, "580", index=offer(UBUNTU, U580) | both, beside=[rules])
    assert own["packages"]["nvidia-fabricmanager-580"] == U580
    nvidia = decide(NVIDIA, "580", index=offer(NVIDIA, N580) | both, beside=[rules])
    assert nvidia["packages"]["nvidia-fabricmanager"] == "580.95.05-1"
    assert "nvidia-fabricmanager-580" not in nvidia["packages"]


def test_cuda_asks_for_a_driver_that_runs_it() -> None:
    floor, index = cuda.find_floor("13.0"), offer(EL9, R580, R570)
    assert decide(EL9, "any", index=index, cuda=floor)["version"] == "580.95.05"
    moved = decide(EL9, "any", index=index, cuda=floor, installed=installed(EL9, R570))
    assert (moved["kept"], moved["version"]) == (False, "580.95.05")
    kept = decide(EL9, "any", index=index, cuda=cuda.find_floor("12.8"), installed=installed(EL9, R570))
    assert (kept["kept"], kept["version"]) == (True, "570.195.03")
    lacking = decide(EL9, "any", index=offer(EL9, R570), cuda=floor)
    assert (
        lacking["problem"]
        == "the host's repositories have no driver 580.65.06 or newer, which the CUDA of the spec needs"
    )
    assert lacking["fix"].endswith("whole sets: 570.195.03")


def test_a_branch_that_the_distribution_has_no_names_for() -> None:
    answer = decide(UBUNTU, "450", modules="proprietary", index=offer(UBUNTU, U570, flavours=("proprietary",)))
    assert answer["problem"] == 'no driver version matches "450" in the host\'s repositories'
    assert "570.195.03" in answer["fix"]
    nothing = decide(UBUNTU, "any")
    assert "nvidia-dkms-BRANCH-server-open" in nothing["problem"]


@run_each(
    ("to", "version", "there"),
    [
        (UBUNTU, U570, installed(NVIDIA, N570)),
        (UBUNTU, U580, installed(NVIDIA, N590)),
        (NVIDIA, N590, installed(UBUNTU, U570, "proprietary")),
        (BOOKWORM, "535.261.03-1~deb12u1", installed(NVIDIA_DEBIAN, "580.95.05-1")),
        (NVIDIA_DEBIAN, "580.95.05-1", installed(BOOKWORM, "535.261.03-1~deb12u1")),
    ],
)
def test_another_archives_set_leaves_whole(to: DriverPackages, version: str, there: dict[str, str]) -> None:
    answer = decide(to, resolve.upstream(version), index=offer(to, version), installed=there, others=to.others)
    assert answer["problem"] == ""
    assert {*there} - {*answer["packages"], *to.extra} <= {*answer["replaced"]}
    assert not {*answer["packages"]} & {*answer["replaced"]}


def test_debians_own_daemon_of_another_version_stays() -> None:
    there = {"nvidia-persistenced": "535.171.04-1~deb12u1"}
    assert resolve.of_another(BOOKWORM.others, there | {"nvidia-driver-cuda": "580.95.05-1"}) == ["nvidia-driver-cuda"]
    assert resolve.of_another(BOOKWORM.others, there) == []
    assert resolve.of_another(EL9.others, {"nvidia-driver-cuda": R580}) == []


def test_a_change_of_flavour_stays_at_the_installed_version() -> None:
    newer = "580.105.08-0ubuntu0.24.04.1"
    index = offer(UBUNTU, newer, U580, flavours=("open", "proprietary"))
    had = installed(UBUNTU, U580, "proprietary")
    for wanted, modules in (("580", "auto"), ("any", "open")):
        answer = decide(UBUNTU, wanted, modules=modules, index=index, installed=had)
        assert (answer["flavour"], answer["version"]) == ("open", "580.95.05")


def test_any_version_stays_in_the_branch_that_is_installed() -> None:
    half = installed(EL9, "3:580.105.08-1.el9")
    half.pop("nvidia-persistenced")
    answer = decide(EL9, "any", index=offer(EL9, "3:595.10-1.el9", "3:580.178.04-1.el9"), installed=half)
    assert answer["version"] == "580.178.04"
    answer = decide(EL9, "any", index=offer(EL9, "3:595.10-1.el9"), installed=half)
    assert answer["version"] == "595.10", "nothing of the branch is offered whole"
