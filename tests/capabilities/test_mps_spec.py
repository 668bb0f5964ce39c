"""mps in the spec: groups, MIG, driver branch and GPU, limits, environments; and what is judged before anything is
changed."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.capabilities.base import Context
from gpuprov.capabilities.mig.fragment import GpuInstance, LayoutEntry, Mig
from gpuprov.capabilities.mps.fragment import Group, Mps, canonical
from gpuprov.capabilities.mps.rules import rules
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.catalog import gpus
from gpuprov.catalog import mps as catalogue
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities import mps_host as host
from tests.capabilities.asking import BARE, CHECKS, NO_GPU, Row, facts, good
from tests.capabilities.test_mps import asked
from tests.rows import run_each

H100X8 = GpuSpec(model="H100-SXM5-80GB", count=8)
T4 = GpuSpec(model="T4", count=2)
CUT = Mig(layout=(LayoutEntry(gpus="all", instances={"3g.40gb": 2}),))
TWO = Mig(layout=(LayoutEntry(gpus=(0, 1), instances=(GpuInstance(profile="1c.3g.40gb"),)),))


def groups(*rows: tuple[int | str, ...], **more: Any) -> Mps:
    return Mps(scope="groups", groups=tuple(Group(gpus=row) for row in rows), **more)


def found(block: Mps, gpu: GpuSpec | None = H100X8, driver: str = "580", **others: Fragment) -> list[str]:
    """What the rules say of a block, on a host with this GPU and driver."""
    given: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver(version=driver), "mps": block, **others}
    said = list(rules(HostSpec(name="gpu1", gpu=gpu, capabilities=given), block))
    assert all(problem.fix and problem.path[0] == "mps" for problem in said)
    return [("warning: " if problem.severity == "warning" else "") + problem.message for problem in said]


GOOD = [
    Mps(), Mps(scope="none"), Mps(scope="gpu", units={"a.service": "gpu7"}),
    groups((0, 1), (2, 3), clients=48, profile=False),
    groups((0,), profile=True), Mps(profile=True, pinned_memory_limit={"all": "10G", "7": "80G"},
                                    units={"a.service": "host"}),
    Mps(scope="groups", groups=(Group(gpus=("19:00.0", "0000:3b:00.0"), name="left"),), units={"a.service": "left"}),
]  # fmt: skip


@run_each("block", GOOD)
def test_nothing_is_said_of_what_can_be(block: Mps) -> None:
    assert found(block) == []


@run_each("model", ["P100", "P4", "M60"])
def test_before_volta_mps_limits_nothing(model: str) -> None:
    old = GpuSpec(model=model, count=1)
    if gpus.find_gpu(model) is None:
        pytest.skip(f"{model} is not in the catalogue")
    limits = {
        "active_thread_percentage": Mps(active_thread_percentage=50),
        "pinned_memory_limit": Mps(pinned_memory_limit={"all": "2G"}),
    }
    for field, block in limits.items():
        (told,) = found(block, gpu=old)
        assert told.startswith(f"mps.{field} is set: ")
        assert "the first with it is 7.0" in told
        assert found(block, gpu=T4) == []
    assert found(Mps(clients=16), gpu=old) == []


@run_each(
    ("block", "driver"),
    [(Mps(protocol="v3"), "615"), (Mps(protocol="v3"), "any"), (Mps(clients=60), "590"), (Mps(clients=60), "any"),
     (Mps(scope="gpu", static_partitions=(4, 2), units={"a.service": "gpu0-1"}), "590"),
     (Mps(scope="gpu", static_partitions=(8, 8)), "590")],
)  # fmt: skip
def test_nor_of_what_this_driver_has(block: Mps, driver: str) -> None:
    assert found(block, driver=driver) == []


BAD: list[tuple[Mps, str]] = [
    (Mps(scope="groups"), "mps.groups is empty, and scope is groups"),
    (Mps(groups=(Group(gpus=(0,)),)), "mps.groups has no effect with scope host"),
    (groups((0, 1), (1, 2)), "mps.groups[1].gpus[0] is 1, which group0 has already"),
    (groups(("0000:19:00.0",), ("19:00.0",)), "mps.groups[1].gpus[0] is 19:00.0, which group0 has already"),
    (groups((8,)), "mps.groups[0].gpus[0] is 8, and the host has 8 GPUs"),
    (Mps(scope="groups", groups=(Group(gpus=(0,), name="a"), Group(gpus=(1,), name="a"))),
     'mps.groups[1].name is "a" again'),
    (Mps(scope="mig"), "mps.scope is mig, and the host has no MIG devices by its spec"),
    (Mps(protocol="v3"), "mps.protocol is v3: driver branch 580 has none; the first is 615"),
    (Mps(scope="gpu", static_partitions=(4,)), "mps.static_partitions: driver branch 580 has none; the first is 590"),
    (Mps(pinned_memory_limit={"9": "1G"}), "mps.pinned_memory_limit.9 is 9, and the host has 8 GPUs"),
    (Mps(pinned_memory_limit={"all": "81G"}),
     "mps.pinned_memory_limit.all is 81G, more than the 80 GB of H100-SXM5-80GB"),
    (Mps(clients=49), "mps.clients is 49, and a device takes 48 with driver branch 580 and a H100-SXM5-80GB"),
    (Mps(scope="gpu", profile=True), "mps.profile is true, and login shells cannot tell"),
    (groups((0,), (1,), profile=True), "mps.profile is true, and login shells cannot tell"),
    (Mps(units={"a.service": "gpu0"}), 'mps.units.a.service is "gpu0", and there is no such daemon'),
    (Mps(scope="gpu", units={"a.service": "gpu8"}), 'mps.units.a.service is "gpu8", and there is no such daemon'),
    (Mps(scope="none", units={"a.service": "host"}), "and there is no such daemon"),
    (groups((0,), units={"a.service": "group1"}), 'mps.units.a.service is "group1"'),
]  # fmt: skip


@run_each(("block", "message"), BAD)
def test_what_cannot_be(block: Mps, message: str) -> None:
    said = found(block)
    assert len(said) == 1, said
    assert message in said[0]


@run_each(
    ("block", "message"),
    [
        (
            Mps(scope="gpu", static_partitions=(4,), active_thread_percentage=50),
            "has no effect beside static_partitions",
        ),
        (Mps(static_partitions=(4,)), "mps.static_partitions goes with daemons of one whole GPU each"),
        (Mps(scope="gpu", static_partitions=(4,), units={"a.service": "gpu0"}), "a client has to have one"),
        (Mps(scope="gpu", static_partitions=(4,), units={"a.service": "gpu0-1"}), "and there are 1 partitions"),
        (
            Mps(scope="gpu", static_partitions=(10, 9)),
            "asks for 152 SMs, 8 a chunk, and H100-SXM5-80GB has at most 151",
        ),
        (Mps(scope="gpu", static_partitions=(4,), profile=True), "several daemons or partitions"),
        (Mps(clients=61), "a device takes 60 with driver branch 615"),
        (Mps(protocol="v3", pinned_memory_limit={"0": "1G"}), "protocol v3 has one limit for a daemon's GPUs"),
    ],
)
def test_what_cannot_be_with_any_driver(block: Mps, message: str) -> None:
    said = found(block, driver="615")
    assert len(said) == 1, said
    assert message in said[0]


def test_a_gpu_that_is_too_old() -> None:
    block = Mps(scope="gpu", static_partitions=(4,))
    assert found(block, T4, "590") == ["mps.static_partitions: T4 has compute capability 7.5; the first with it is 8.0"]


@run_each(
    ("block", "mig", "message"),
    [
        (Mps(), CUT, "mps.scope is host, and mig puts every GPU into MIG mode"),
        (Mps(scope="gpu"), TWO, "mps.scope is gpu, and mig puts GPUs into MIG mode"),
        (Mps(scope="gpu"), Mig(), "mps.scope is gpu, and mig puts every GPU into MIG mode"),
        (Mps(), Mig(config_file="/srv/mig.yaml", selected="all"), "mps.scope is host, and mig puts GPUs"),
        (groups((1, 2)), TWO, "mps.groups[0].gpus[0] is 1, which mig puts into MIG mode"),
        (groups((0,)), CUT, "mps.groups[0].gpus[0] is 0, which mig puts into MIG mode"),
        (groups((2, 3)), TWO, ""),
        (Mps(), Mig(mode="disabled"), ""),
        (Mps(), Mig(layout=(LayoutEntry(gpus="all"), LayoutEntry(gpus="all", mode="disabled"))), ""),
        (Mps(scope="mig"), CUT, ""),
        (Mps(scope="mig", units={"a.service": "gpu0-mig4"}), CUT, ""),
        (Mps(scope="mig", units={"a.service": "gpu0"}), CUT, "gpu0-mig0 ...: GPU and first memory slice"),
        (Mps(scope="mig"), Mig(mode="disabled"), "the host has no MIG devices by its spec"),
        (
            Mps(scope="mig", compute_mode="exclusive_process"),
            CUT,
            "mps.compute_mode is exclusive_process, which a GPU in MIG mode",
        ),
        (
            Mps(scope="mig", pinned_memory_limit={"0": "4G"}),
            CUT,
            "names GPU 0, and daemons of scope mig have MIG devices",
        ),
        (
            Mps(scope="mig", clients=21),
            CUT,
            "warning: mps.clients is 21, and MIG devices of 3 compute slices take about 20 of 48",
        ),
        (
            Mps(scope="mig", clients=7),
            TWO,
            "warning: mps.clients is 7, and MIG devices of 1 compute slices take about 6 of 48",
        ),
    ],
)
def test_beside_mig(block: Mps, mig: Mig, message: str) -> None:
    host_spec = HostSpec(name="a", gpu=H100X8, capabilities={"nvidia_driver": NvidiaDriver(version="580"), "mig": mig})
    said = [(problem.severity, f"{problem.message}; {problem.fix}") for problem in rules(host_spec, block)]
    if not message:
        assert said == []
        return
    severity = "warning" if message.startswith("warning: ") else "error"
    assert len(said) == 1, said
    assert said[0][0] == severity
    assert message.removeprefix("warning: ") in said[0][1]


@run_each(
    ("values", "message"),
    [
        ({"scope": "slurm"}, "mps.scope"),
        ({"groups": [{"gpus": []}]}, "mps.groups[0].gpus"),
        ({"groups": [{"gpus": ["H100"]}]}, "mps.groups[0].gpus[0]"),
        ({"groups": [{"gpus": [0], "name": "Left"}]}, "mps.groups[0].name"),
        ({"active_thread_percentage": 0}, "mps.active_thread_percentage"),
        ({"pinned_memory_limit": {"all": "8"}}, "mps.pinned_memory_limit.all"),
        ({"units": {"triton": "host"}}, "mps.units"),
        ({"container_directory": "mps"}, "mps.container_directory"),
        ({"pinned_memory": "8G"}, 'unknown key "pinned_memory"'),
    ],
)
def test_what_the_model_refuses(values: dict[str, Any], message: str) -> None:
    _, findings = convert(values, Mps, ("mps",))
    assert any(message in text for _, text, _ in findings), findings


def test_selectors_are_compared_as_what_they_name() -> None:
    assert [canonical(one) for one in (3, "03", "3b:00.0", "00000000:3b:00.0", host.A)] == [
        "3",
        "3",
        "0000:3b:00.0",
        "0000:3b:00.0",
        host.A,
    ]


@run_each(
    ("model", "branch", "limit"),
    [
        ("H100-SXM5-80GB", 535, 48),
        ("H100-SXM5-80GB", 590, 60),
        ("T4", 580, 48),
        ("H100-SXM5-80GB", 0, 60),
        ("none", 580, 48),
    ],
)
def test_client_limits(model: str, branch: int, limit: int) -> None:
    assert catalogue.find_client_limit(gpus.find_gpu(model), branch) == limit
    assert catalogue.compute_mig_share(limit, 7) == limit
    assert catalogue.compute_mig_share(1, 1) == 1


def test_a_gpu_before_volta_takes_sixteen() -> None:
    keys = {gpu.key: gpu for gpu in gpus.list_gpus()}
    assert catalogue.limit_of("6.1", 590) == 16
    assert catalogue.find_client_limit(keys["M4"], 580) == 16
    assert catalogue.find_client_limit(keys["H100-SXM5-80GB"], 580) == 48


NO_PROGRAM = {"mps": "shm|1\n" + host.gpus()}
NO_DRIVER = {"driver_libraries": "", "loaded_driver": ""}
PREFLIGHT = [
    Row("the program is there", "mps.programs", None, {}, "pass", "nothing to install"),
    Row("in the driver's version", "mps.programs", None, NO_PROGRAM, "pass", "nvidia-cuda-mps 535.261.03-1",
        change="package nvidia-cuda-mps:  -> 535.261.03-1"),
    Row("in no such version", "mps.programs", None, NO_PROGRAM | {"mps_index": host.INDEX.replace("535.261",
                                                                                                  "535.000")}, "fail",
        "have no nvidia-compute-utils-535-server or nvidia-compute-utils-535 or nvidia-cuda-mps in the driver's "
        "version"),
    Row("without a driver", "mps.programs", None, NO_PROGRAM | NO_DRIVER, "fail", "no NVIDIA driver"),
    Row("for no daemon", "mps.programs", Mps(scope="none"), NO_PROGRAM | NO_DRIVER, "pass", "nothing"),
    Row("no user", "mps.user", None, {}, "n/a", "no user by name in the spec"),
    Row("a user by number", "mps.user", Mps(user="1000"), {}, "n/a", "no user by name"),
    Row("a user who is there", "mps.user", Mps(user="alice"), {"mps_user": "user|alice|1001\n"}, "pass",
        "alice: uid 1001"),
    Row("a user who is not", "mps.user", Mps(user="alice"), {"mps_user": "user|alice|\n"}, "fail", "has no user alice",
        "create the user first, or correct mps.user"),
    Row("what every driver has", "mps.features", None, {}, "pass", "branch 535"),
    Row("no v3", "mps.features", Mps(protocol="v3"), {}, "fail", "driver branch 535 has none; the first is 615"),
    Row("no partitions", "mps.features", Mps(scope="gpu", static_partitions=(4,)), {}, "fail", "the first is 590"),
    Row("no driver yet", "mps.features", Mps(protocol="v3"), NO_DRIVER | NO_GPU, "pass", "that nvidia_driver installs"),
    Row("GPUs", "mps.gpus", Mps(scope="gpu"), {}, "pass", "2 daemons"),
    Row("no such GPU", "mps.gpus", groups((2,)), {}, "fail", "GPU is 2; there are: 0 (0000:19:00.0, GPU-3c",
        "correct mps.groups"),
    Row("a limit of no GPU", "mps.gpus", Mps(pinned_memory_limit={"all": "8G", "5": "4G"}), {}, "fail",
        "is 5; there are: 0", "-L"),
    Row("in MIG mode", "mps.gpus", None, {"mps": host.host(gpu=host.gpus(mig="Enabled"))}, "fail",
        "GPU 0 is in MIG mode", "scope: mig"),
    Row("not known yet", "mps.gpus", None, {"mps": BARE["mps"]}, "skip", "judged once a driver is installed"),
]  # fmt: skip


@run_each("row", PREFLIGHT, ids=lambda row: f"{row.check}: {row.name}")
def test_before_anything_is_changed(row: Row) -> None:
    asked(row)


def test_what_other_capabilities_bring_is_not_missed() -> None:
    given: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver(), "mig": CUT}
    texts = {**good(), **host.PROBES, **NO_PROGRAM}
    for name, words in (
        ("mps.programs", "it comes with nvidia_driver"),
        ("mps.gpus", "judged once mig, which comes first, is applied"),
    ):
        check = CHECKS[name]
        known = facts(**{probe.name: texts[probe.name] for probe in check.probes})
        assert words in check.run(Context(HostSpec(name="a", capabilities=given), Mps(), known)).found


def test_devices_are_judged_where_mig_is_not_applied_in_this_run() -> None:
    """It was applied before: nothing will change the GPUs until the daemons come."""
    given: dict[str, Fragment] = {"mig": CUT}
    known = facts(**{**good(), **host.PROBES, "mps": host.host(gpu=host.gpus(mig="Enabled"))})
    ask = CHECKS["mps.gpus"].run
    assert (
        ask(Context(HostSpec(name="a", capabilities=given), Mps(), known, frozenset({"mps", "mig"}))).status == "skip"
    )
    assert ask(Context(HostSpec(name="a", capabilities=given), Mps(), known, frozenset({"mps"}))).status == "fail"
