"""mps: a daemon for each wanted set of devices, of its unit, answering, with its limits; clients that find it."""

from __future__ import annotations

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.mps.fragment import Group, Mps
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.host_code import mps_program
from tests.capabilities import mps_host as host
from tests.capabilities.asking import BARE, CHECKS, NO_GPU, PODMAN, Row, judge, older
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.mps_host import MIG, TWO, A, B, daemon, environment, gpus, units
from tests.rows import run_each

GPU, NONE, PER_MIG = Mps(scope="gpu"), Mps(scope="none"), Mps(scope="mig")
PAIR = Mps(scope="groups", groups=(Group(gpus=(0, "0000:3b:00.0"), name="pair"),))
LIMITED = Mps(
    scope="gpu", active_thread_percentage=50, pinned_memory_limit={"all": "8G", "1": "1500M"}, priority="below-normal"
)
IN_MIG = gpus("Default", "Default", mig="Enabled")
SOLO = (environment(), units("host"))
RIGHT = daemon("gpu0", A, percentage="50.0", priority="1", limits=("8G",)) + daemon(
    "gpu1", B, pid=701, percentage="50.0", priority="1", limits=("1G",)
)
ON_MIG = (
    daemon("gpu0-mig0", MIG[0], pipe="/run/nvidia-mps/gpu0-mig0"),
    daemon("gpu1-mig4", MIG[1], pid=701, pipe="/run/nvidia-mps/gpu1-mig4"),
    units("gpu0-mig0", "gpu1-mig4"),
)
SERVED = "800 1000 ACTIVE 3"
OLD_SERVER = daemon(percentage="50.0", servers=SERVED).replace("800|answer|50.0", "800|answer|100.0")
USER = Mps(user="1000")
PARTS = Mps(scope="gpu", static_partitions=(4, 2))
CUT = "".join(f"partition|{pid}|{u[:12]} - 1 6 8 48 -\npartition|{pid}|{u[:12]} Dx4A - {n} - 32 -\n"
              for pid, u in ((700, A), (701, B)) for n in (4, 2))  # fmt: skip
STATIC = TWO.replace("control -f", "control -f -S") + CUT
PARTITION = "partition|{pid}|{gpu} - 1 6 8 48 -\npartition|{pid}|{gpu} Dx4A - {chunks} - 32 -\n"
SECOND = (TWO + daemon("old", A, pid=702)).replace("control -f", "control -f -S") + "".join(
    PARTITION.format(pid=pid, gpu=gpu[:12], chunks=chunks)
    for pid, gpu, parts in ((700, A, (2,)), (701, B, (4, 2)), (702, A, (4, 2)))
    for chunks in parts
)
PROFILE = "file|/etc/profile.d/gpuprov-mps.sh|if [ -r /run/gpuprov/mps/host.env ]; then\n"
DROP_IN = "file|/etc/systemd/system/triton.service.d/50-gpuprov-mps.conf|EnvironmentFile=/run/gpuprov/mps/gpu1.env\n"
SNIPPET = "file|/srv/mps/host.yaml|  CUDA_MPS_PIPE_DIRECTORY: /tmp/nvidia-mps\n"
PROGRAM = mps_program.CONTROL
OLD_DRIVER = {"driver_libraries": "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03\n"}


def of(name: str, active: str, file: str, said: str = "") -> Also:
    """How systemd has the unit of a daemon."""
    return unit(f"gpuprov-mps@{name}.service", active, file, said)


def seen(*parts: str, gpu: str = "") -> dict[str, str]:
    return {"mps": host.host(*parts, gpu=gpu)}


ROWS = [
    Row("the host's", "mps.daemons", None, {}, "pass", "host: pid 700"),
    Row("each GPU's", "mps.daemons", GPU, seen(TWO), "pass", "gpu1: pid 701"),
    Row("a group's", "mps.daemons", PAIR, seen(daemon("pair")), "pass", "pair: pid 700"),
    Row("each MIG device's", "mps.daemons", PER_MIG, seen(*ON_MIG, gpu=IN_MIG), "pass", "gpu1-mig4"),
    Row("none asked for", "mps.daemons", NONE, seen(environment()), "pass", "no daemon"),
    Row("none asked for, and one left", "mps.daemons", NONE, {}, "fail", "pid 700 (gpuprov-mps@host.service"),
    Row("somebody else's, which is left alone", "mps.daemons", NONE, seen(daemon(unit="slurmd.service")), "pass",
        "no daemon"),
    Row("somebody else's on another GPU", "mps.daemons", Mps(scope="groups", groups=(Group(gpus=(1,)),)),
        seen(daemon("group0", B), daemon("x", A, pid=701, unit="slurmd.service")), "pass", "group0: pid 700"),
    Row("one was killed", "mps.daemons", GPU, seen(daemon("gpu0", A), units("gpu0"), "unit|gpu1|failed|enabled\n"),
        "fail",
        "no daemon for gpu1", "journalctl"),
    Row("one was killed", "mps.active", GPU, {**seen(daemon("gpu0", A)),
                                              "contents": of("gpu1", "failed", "enabled", "no device")},
        "fail", 'gpuprov-mps@gpu1.service is failed ("no device")', "journalctl",
        change="service gpuprov-mps@gpu1.service: failed -> active"),
    Row("each GPU's", "mps.active", GPU, seen(TWO), "pass",
        "gpuprov-mps@gpu0.service active, gpuprov-mps@gpu1.service active"),
    Row("each MIG device's", "mps.active", PER_MIG, seen(*ON_MIG, gpu=IN_MIG), "pass",
        "gpuprov-mps@gpu1-mig4.service active"),
    Row("of the driver before", "mps.active", None, {"unit_reads": older("gpuprov-mps@host.service", PROGRAM)}, "fail",
        f"is older than {PROGRAM}", change=f"service gpuprov-mps@host.service: older than {PROGRAM} -> started anew"),
    Row("the other protocol", "mps.active", Mps(protocol="v3"), {}, "fail", "is of protocol v2", "gpuprov apply"),
    Row("v3", "mps.active", Mps(protocol="v3"), seen(daemon(command=f"{host.COMMAND} -p 3 -m -a /run/x.toml")), "pass"),
    Row("other devices", "mps.active", None, seen(daemon("host", A)), "fail", "is for other devices", "gpuprov apply"),
    Row("no GPU", "mps.active", None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("one left", "mps.active", NONE, {"contents": of("host", "active", "disabled")}, "fail", "is active",
        "systemctl stop"),
    Row("one too many", "mps.daemons", None, seen(daemon(), daemon("gpu0", A, pid=701)), "fail",
        "pid 701 (gpuprov-mps@gpu0.service"),
    Row("somebody else's", "mps.daemons", None, seen(daemon(), daemon(pid=701, unit="slurmd.service", pipe="/var/mps")),
        "fail",
        "pid 701 (slurmd.service, /var/mps)", "echo quit"),
    Row("a MIG device with another UUID", "mps.daemons", PER_MIG,
        seen(daemon("gpu0-mig0", "MIG-old"), ON_MIG[1], gpu=IN_MIG), "fail", f"no daemon for {MIG[0]}"),
    Row("it hangs", "mps.daemons", None, seen(daemon(answer="no answer within 5 s")), "fail", "no answer within 5 s",
        "systemctl restart"),
    Row("GPUs in MIG mode", "mps.daemons", None, seen(daemon(), gpu=gpus(mig="Enabled")), "fail",
        "GPU 0 is in MIG mode", "mps.gpus"),
    Row("no GPU", "mps.daemons", None, {"mps": "gpu|No devices were found\n"}, "fail", "No devices were found"),
    Row("a GPU that is not there", "mps.daemons", Mps(scope="groups", groups=(Group(gpus=(7,)),)), {}, "fail",
        "no GPU is 7"),
    Row("a GPU twice", "mps.daemons", Mps(scope="groups", groups=(Group(gpus=(0,)), Group(gpus=("19:00.0",)))), {},
        "fail",
        "GPU 0 is in group0 and again in group1"),
    Row("units on", "mps.enabled", GPU, seen(TWO), "pass",
        "gpuprov-mps@gpu0.service enabled, gpuprov-mps@gpu1.service enabled"),
    Row("one is off", "mps.enabled", GPU, {**seen(TWO), "contents": of("gpu1", "active", "disabled")}, "fail",
        "is disabled",
        change="service gpuprov-mps@gpu1.service: disabled -> enabled"),
    Row("of another scope", "mps.enabled", None, {**seen(TWO, units("host")),
                                                  "contents": of("gpu0", "active", "enabled")}, "fail",
        "gpuprov-mps@gpu0.service is enabled", change="service gpuprov-mps@gpu0.service: enabled -> disabled"),
    Row("left behind", "mps.enabled", NONE, {"contents": of("host", "active", "enabled")}, "fail",
        "host.service is enabled"),
    Row("names that the host alone knows", "mps.enabled", NONE, {**seen(TWO), "contents": "@contents\n"}, "fail",
        "gpuprov-mps@gpu0.service is enabled; gpuprov-mps@gpu1.service is enabled"),
    Row("one that systemd does not list", "mps.enabled", GPU, {**seen(daemon()), "contents": "@contents\n"}, "fail",
        "gpuprov-mps@gpu0.service is disabled"),
    Row("no driver to start them with", "mps.enabled", None, {"mps": BARE["mps"]}, "pass",
        "gpuprov-mps@host.service enabled"),
    Row("GPUs in MIG mode", "mps.enabled", None, seen(daemon(), gpu=gpus(mig="Enabled")), "n/a", "no unit"),
    Row("a unit too many for MIG", "mps.enabled", PER_MIG,
        {**seen(*ON_MIG, units("gpu0-mig9"), gpu=IN_MIG), "contents": of("gpu0-mig9", "inactive", "enabled")}, "fail",
        "gpuprov-mps@gpu0-mig9.service is enabled"),
    Row("one that is not named for MIG", "mps.enabled", PER_MIG,
        {**seen(ON_MIG[0], units("gpu0-mig0", "gpu1-mig4"), gpu=IN_MIG), "contents": "@contents\n"}, "pass",
        "mig0.service"),
    Row("as it is by default", "mps.limits", None, {}, "pass", "100 %"),
    Row("limited", "mps.limits", LIMITED, seen(RIGHT), "pass", "memory all 8G, 1 1500M"),
    Row("set back by hand", "mps.limits", LIMITED, seen(RIGHT.replace("|50.0", "|100.0")), "fail",
        "gpu0: active thread percentage is 100.0, wanted 50.0",
        change="setting gpu0: active thread percentage: 100.0 -> 50.0"),
    Row("memory by hand", "mps.limits", LIMITED, seen(RIGHT.replace("|8G", "|16G")), "fail",
        f"memory limit of {A} is 16G, wanted 8G"),
    Row("memory limit nobody asked for", "mps.limits", None, seen(daemon(limits=("4G",))), "fail",
        "is 4G, wanted none"),
    Row("priority by hand", "mps.limits", LIMITED, seen(RIGHT.replace("|1\n", "|0\n")), "fail",
        "client priority is 0, wanted 1"),
    Row("a server from before", "mps.limits", Mps(active_thread_percentage=50),
        seen(OLD_SERVER), "fail", "of server 800 is 100.0"),
    Row("nobody answers", "mps.limits", None, seen(daemon(answer="Cannot find MPS control daemon process")), "fail",
        "does not answer"),
    Row("no partitions", "mps.static_partitions", None, {}, "pass", "none"),
    Row("partitions", "mps.static_partitions", PARTS, seen(STATIC), "pass", "[2, 4]"),
    Row("one is missing", "mps.static_partitions", Mps(scope="gpu", static_partitions=(4, 2, 1)), seen(STATIC), "fail",
        "gpu0: [2, 4]"),
    Row("partitions nobody asked for", "mps.static_partitions", GPU, seen(STATIC), "fail", "[2, 4] on"),
    Row("of a second daemon on the same GPU", "mps.static_partitions", PARTS, seen(SECOND), "fail", "gpu0: [2] on"),
    Row("partitions of none", "mps.static_partitions", PARTS, seen(units("gpu0")), "fail", "no daemon runs",
        "mps.daemons"),
    Row("exclusive", "mps.compute_mode", None, {}, "pass", "Exclusive_Process"),
    Row("after a boot", "mps.compute_mode", None, seen(gpu=gpus("Default", "Exclusive_Process")), "fail",
        "GPU 0: Default",
        change="setting compute mode of GPU 0: Default -> Exclusive_Process"),
    Row("default asked for", "mps.compute_mode", Mps(compute_mode="default"), {}, "fail", "GPU 1: Exclusive_Process"),
    Row("of no GPU of a group", "mps.compute_mode", Mps(scope="groups", groups=(Group(gpus=(1,)),)),
        seen(gpu=gpus("Default", "Exclusive_Process")), "pass"),
    Row("MIG has none", "mps.compute_mode", PER_MIG, seen(gpu=IN_MIG), "pass", "Default"),
    Row("none to be judged", "mps.compute_mode", NONE, {}, "n/a", "no daemon in the spec"),
    Row("exclusive from before MIG", "mps.compute_mode", PER_MIG, seen(gpu=gpus(mig="Enabled")), "fail",
        "GPU 1: Exclusive_Process"),
    Row("no GPU at all", "mps.limits", None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("no driver loaded", "mps.daemons", None, {**PODMAN, "mps": "gpu|failed\n"}, "skip", "podman container without"),
    Row("devices that cannot have them", "mps.limits", None, seen(gpu=gpus(mig="Enabled")), "fail", "MIG mode",
        "mps.gpus"),
    Row("servers on demand", "mps.servers", None, {}, "pass", "the first client"),
    Row("somebody is served", "mps.servers", None, seen(daemon(servers=SERVED)), "pass",
        "server 800 of uid 1000, 3 clients"),
    Row("a server that failed", "mps.servers", None, seen(daemon(servers="800 1000 FAULT 1")), "fail",
        "server 800 is FAULT"),
    Row("the user's", "mps.servers", USER, seen(daemon(servers=SERVED)), "pass"),
    Row("another user's", "mps.servers", USER, seen(daemon(servers="800 1001 ACTIVE 1")), "fail", "host: uid 1001",
        "waits"),
    Row("nobody's", "mps.servers", USER, {}, "fail", "no server: host", "control.log"),
    Row("by name", "mps.servers", Mps(user="triton"), seen("user|triton|1000\n", daemon(servers=SERVED)), "pass"),
    Row("no such user", "mps.servers", Mps(user="triton"), {}, "fail", "no user triton"),
    Row("no number of clients", "mps.clients", None, {}, "n/a", "not in the spec"),
    Row("as many as there can be", "mps.clients", Mps(clients=48), {}, "pass"),
    Row("too many clients", "mps.clients", Mps(clients=60), OLD_DRIVER, "fail", "48 with driver branch 535"),
    Row("sixty from 590 on", "mps.clients", Mps(clients=60), {"driver_libraries": "/usr/lib/libcuda.so.590.44.01\n"},
        "pass"),
    Row("too many for MIG", "mps.clients", Mps(scope="mig", clients=40), seen(gpu=IN_MIG), "fail",
        "inferred 20"),
    Row("no services", "mps.units", None, {}, "pass", "no client"),
    Row("a service", "mps.units", Mps(scope="gpu", units={"triton.service": "gpu1"}), seen(TWO, DROP_IN), "pass",
        "triton.service: gpu1"),
    Row("a service no more", "mps.units", GPU, seen(TWO, DROP_IN), "fail", "is not asked for", "gpuprov apply"),
    Row("environments", "mps.environment", GPU, seen(TWO), "pass", "2 environments"),
    Row("with a snippet", "mps.environment", Mps(container_directory="/srv/mps"), seen(daemon(), *SOLO, SNIPPET),
        "pass"),
    Row("without it", "mps.environment", Mps(container_directory="/srv/mps"), {}, "fail",
        "missing: /srv/mps/host.yaml"),
    Row("one is missing", "mps.environment", GPU, seen(TWO.replace("mps/gpu1.env", "mps/x.env")), "fail",
        "mps/gpu1.env"),
    Row("of another directory", "mps.environment", None, seen(daemon(), units("host"), environment(pipe="/run/x")),
        "fail",
        "another directory"),
    Row("of a MIG device that is gone", "mps.environment", PER_MIG,
        seen(*ON_MIG, *(environment(n, f"/run/nvidia-mps/{n}", "CUDA_VISIBLE_DEVICES=MIG-old") for n in ("gpu0-mig0",
                                                                                                         "gpu1-mig4")),
             gpu=IN_MIG), "fail", "or device"),
    Row("no size", "mps.shm", None, {}, "n/a", "not in the spec"),
    Row("large enough", "mps.shm", Mps(shm_size="64G"), {}, "pass", "65536 MiB"),
    Row("too small", "mps.shm", Mps(shm_size="65G"), {}, "fail", "65536 MiB", "remount",
        change="setting /dev/shm: 65536 MiB -> 65G"),
    Row("no shared memory", "mps.shm", Mps(shm_size="1G"), {"mps": host.gpus()}, "fail", "not mounted"),
]  # fmt: skip


def asked(row: Row) -> None:
    """The row, on a host with MPS: what its check reads and the row does not say is as on the good host."""
    declared = {probe.name for probe in CHECKS[row.check].probes}
    judge(
        row._replace(changed={**{name: text for name, text in host.PROBES.items() if name in declared}, **row.changed})
    )


@run_each("row", ROWS, ids=lambda row: f"{row.check}: {row.name}")
def test_state(row: Row) -> None:
    asked(row)


def exported(text: str) -> object:
    return BY_NAME["mps"].export(Facts({"mps": Output(text)}))


@run_each(
    ("text", "block"),
    [
        (host.host(), Mps()),
        (host.host(TWO), GPU),
        (host.host(RIGHT, units("gpu0", "gpu1")), Mps(scope="gpu", active_thread_percentage=50, priority="below-normal",
                                                      pinned_memory_limit={"0": "8G", "1": "1G"})),
        (host.host(daemon("pair", B, A), units("pair")), Mps(scope="groups",
                                                             groups=(Group(gpus=(1, 0), name="pair"),))),
        (host.host(*ON_MIG, gpu=IN_MIG), PER_MIG),
        (host.host(daemon(limits=("8G", "8G")), units("host"), gpu=gpus("Default", "Default")),
         Mps(compute_mode="default", pinned_memory_limit={"all": "8G"})),
        (host.host(daemon(), units("host"), PROFILE, DROP_IN,
                   host.state(user="triton", shm="8G", container_directory="/srv/mps")),
         Mps(user="triton", shm_size="8G", container_directory="/srv/mps", profile=True,
             units={"triton.service": "gpu1"})),
        (host.host(daemon(), units("host"), host.state(version=1), "file|/etc/gpuprov/mps.json|}}\n"), Mps()),
        (host.host(units("host")), None),
        (host.host(daemon(answer="no answer within 5 s"), units("host")), None),
        (host.host(daemon(unit="slurmd.service")), None),
    ],
)  # fmt: skip
def test_export(text: str, block: Mps | None) -> None:
    assert exported(text) == block
