"""fabric_manager on compute trays of a rack: nvidia-imex of the driver's version, its domain, its channel; the rules of
both."""

from __future__ import annotations

from gpuprov.capabilities import fabric_manager
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver, followers
from gpuprov.catalog.fabric import IMEX_CONFIG, IMEX_DROP_IN, IMEX_NODES
from gpuprov.catalog.fabric import IMEX_UNIT as UNIT
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.gpus.imex import parse, parse_domain
from gpuprov.spec.build import convert
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import BARE, CHECKS, facts, good, older, units, with_own_files
from tests.capabilities.contents_host import Also, unit, with_lines
from tests.capabilities.imex_host import HERE, PACKAGE, THERE, TRAY, VERSION, domain, tray
from tests.facts.probes import published
from tests.rows import run_each

BLOCK = FabricManager(imex=Imex(nodes=(HERE, THERE)))
DRIVER = f"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  {VERSION}  Release Build\n"
GPU, CLUSTER = "GPU 00000000:19:00.0\n", "9c6f5af3-53bf-49b5-a436-b66766c413c3"
# The values of a healthy tray and of one without its rack's fabric: https://github.com/leptonai/gpud/pull/1106 and 1108
ATTACHED = (
    f"{GPU}    Fabric\n        State                             : Completed\n        Status                        "
    "    : Success\n        CliqueId                          : 4026\n        ClusterUUID                       : "
    f"{CLUSTER}\n"
    "        Health\n            Summary                       : Not Supported\n"
)
BLOCKS = ("azure-fabric-insufficient", "h200-fabric-unhealthy", "fabric-in-progress-580-159")
REAL = {name.partition("-")[0]: GPU + published(name, "nvidia-smi-q-block").text for name in BLOCKS}
TWO = TRAY + TRAY.replace(":19:", ":3b:")
LENT = TRAY.replace(":19:", ":3b:").replace(" nvidia", " nvgrace_gpu_vfio_pci")
OTHER = ATTACHED.replace(":19:", ":3B:").replace("4026", "4027")


def ask(name: str, block: FabricManager = BLOCK, **changed: str) -> Outcome:
    """What a check says of a tray."""
    texts: dict[str, Output | str] = {
        "nvidia_functions": TRAY,
        "fabric_packages": PACKAGE,
        "packages": "",
        "loaded_driver": DRIVER,
        "imex": tray(),
        "fabric_state": ATTACHED,
        **changed,
    }
    check = CHECKS[f"fabric_manager.{name}"]
    declared = {probe.name for probe in check.probes}
    assert set(changed) <= declared
    given = {name: text for name, text in {**good(), **texts}.items() if name in declared}
    outcome = check.run(with_own_files(check, block, given, HostSpec(name="t")))
    assert outcome.found
    assert outcome.status != "fail" or (outcome.expected and outcome.fix)
    return outcome


ROWS = [
    ("imex_hardware", {}, "pass", "1 GPU of a rack"),
    ("imex_hardware", {"nvidia_functions": TRAY.replace("2941", "2901")}, "fail", "none on the bus"),
    ("imex_hardware", {"imex": tray(address="198.51.100.7")}, "fail", "the host has 198.51.100.7"),
    ("imex_hardware", {"imex": ""}, "pass", "of a rack"),
    ("imex_version", {}, "pass", f"nvidia-imex {VERSION}-1"),
    ("imex_version", {"fabric_packages": ""}, "fail", "not installed"),
    ("imex_version", {"fabric_packages": PACKAGE.replace("hi ", "hU ")}, "fail", "is incomplete"),
    ("imex_version", {"imex": tray(version="570.133.20")}, "fail", "says 570.133.20"),
    ("imex_held", {}, "pass", "1 package held"),
    ("imex_held", {"fabric_packages": PACKAGE.replace("hi ", "ii ")}, "fail", "not held: nvidia-imex"),
    ("imex_held", {"fabric_packages": ""}, "fail", "no package of nvidia-imex"),
    ("enabled", {}, "pass", "nvidia-imex.service enabled"),
    ("enabled", {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled"),
    ("enabled", {"contents": unit(UNIT, "inactive", "")}, "fail", "is not-found"),
    ("files", {"contents": Also(f"sum|0  {IMEX_DROP_IN}\n")}, "fail", f"{IMEX_DROP_IN}: another text"),
    ("files", {"contents": Also(f"sum|0  {IMEX_NODES}\n")}, "fail", f"{IMEX_NODES}: another text"),
    ("active", {}, "pass", "nvidia-imex.service active"),
    ("active", {"contents": unit(UNIT, "failed", "enabled", "no interface")}, "fail", 'is failed ("no interface")'),
    ("active", {"imex": tray(process=False)}, "fail", "is active without a process"),
    ("active", {"unit_reads": older(UNIT, "/usr/bin/nvidia-imex")}, "fail", "is older than /usr/bin/nvidia-imex"),
    ("active", {"unit_reads": older(UNIT, IMEX_NODES)}, "fail", f"is older than {IMEX_NODES}"),
    ("active", {"imex": "", "container": "podman\n", "loaded_driver": ""}, "skip", "none is loaded there"),
    ("imex_alive", {"imex": tray(process=False)}, "fail", "is active, no process"),
    ("imex_alive", {"imex": "", "container": "podman\n", "loaded_driver": ""}, "skip", "none is loaded there"),
    ("imex_nodes", {}, "pass", "2 members"),
    ("imex_nodes", {"imex": tray(address="")}, "fail", "no address"),
    ("files", {"contents": Also(with_lines(IMEX_CONFIG, "IMEX_CMD_PORT=50005"))}, "fail",
     "IMEX_CMD_ENABLED is not set"),
    ("imex_domain", {}, "pass", "UP, 2 members"),
    ("imex_domain", {"imex": tray(told=domain("READY", "UNAVAILABLE", state="DEGRADED"))}, "fail",
     f"{THERE} is UNAVAILABLE"),
    ("imex_domain", {"imex": tray(told=domain("READY", "READY", lost=True))}, "fail",
     f"{HERE} is not connected to {THERE}"),
    ("imex_domain", {"imex": tray(told=domain("READY"))}, "fail", f"{THERE} is not told of"),
    ("imex_domain", {"imex": tray(told=domain("READY", "READY", state="DOWN"))}, "fail", "DOWN: no member says why"),
    ("imex_domain", {"imex": tray(told=domain("READY", "READY").replace(THERE, "192.0.2.99"))}, "fail",
     "192.0.2.99 is a member that the spec does not name"),
    ("imex_domain", {"imex": tray(told="Failed to connect")}, "fail", "does not tell: Failed to connect"),
    ("imex_domain", {"imex": "", "container": "podman\n", "loaded_driver": ""}, "skip", "none is loaded there"),
    ("imex_fabric", {}, "pass", "1 GPU attached, clique 4026 of 9c6f5af3-53bf-49b5-a436-b66766c413c3"),
    ("imex_fabric", {"fabric_state": ATTACHED.replace("4026", "0")}, "fail", "in no clique (CliqueId 0,"),
    ("imex_fabric", {"fabric_state": ATTACHED.partition("        CliqueId")[0]}, "skip",
     "does not report their clique"),
    ("imex_fabric", {"fabric_state": REAL["azure"]}, "fail", "(Insufficient Resources)"),
    ("imex_fabric", {"fabric_state": REAL["h200"]}, "fail", "Health Unhealthy"),
    ("imex_fabric", {"fabric_state": REAL["fabric"]}, "fail", "In Progress (N/A)"),
    ("imex_fabric", {"fabric_state": ATTACHED + OTHER, "nvidia_functions": TWO}, "fail", "several: 9c6f5af3"),
    ("imex_fabric", {"fabric_state": ATTACHED, "nvidia_functions": TWO}, "fail", "0000:3b:00.0 not told"),
    ("imex_fabric", {"fabric_state": ATTACHED, "nvidia_functions": TRAY + LENT}, "pass", "1 GPU attached"),
    ("imex_fabric", {"fabric_state": "", "nvidia_functions": LENT}, "n/a", "to virtual machines"),
    ("imex_fabric", {"nvidia_functions": ""}, "fail", "no GPU on the bus"),
    ("imex_fabric", {"loaded_driver": ""}, "fail", "no NVIDIA module"),
    ("imex_fabric", {"loaded_driver": "", "container": "podman\n"}, "skip", "none is loaded there"),
    ("imex_channel", {}, "pass", "channel0"),
    ("imex_channel", {"imex": tray(channel=False)}, "fail", "no such device"),
    ("imex_channel", {"loaded_driver": ""}, "fail", "no NVIDIA module"),
    ("imex_channel", {"loaded_driver": "", "container": "podman\n"}, "skip", "none is loaded there"),
]  # fmt: skip


@run_each(("check", "changed", "status", "found"), ROWS)
def test_a_tray(check: str, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask(check, BLOCK, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_a_driver_that_was_loaded_without_the_parameter_needs_a_reboot() -> None:
    outcome = ask("imex_channel", imex=tray(parameter="0"))
    assert (outcome.status, outcome.found) == ("fail", "it is 0")
    assert "NVreg_CreateImexChannel0=1" in outcome.reboot
    assert (
        ask("imex_channel", FabricManager(imex=Imex(nodes=(HERE,), channel0=False)), imex=tray(channel=False)).found
        == "not in the spec"
    )


@run_each(
    "name",
    sorted(
        {name for name in CHECKS if name.startswith("fabric_manager.")}
        - {f"fabric_manager.{name}" for name in ("resolvable", "files", "unmasked", "enabled", "active")}
    ),
)
def test_each_check_is_of_one_of_both(name: str) -> None:
    """On a tray Fabric Manager's checks have nothing to say, whatever there is; on a board those of nvidia-imex have
    not."""
    check, tail = CHECKS[name], name.partition(".")[2]
    imex = tail.startswith("imex_")
    answer = check.run(Context(HostSpec(name="h"), FabricManager() if imex else BLOCK, facts()))
    nothing = "no IMEX domain in the spec" if imex else "a compute tray of a rack has no Fabric Manager"
    assert (answer.status, answer.found) == ("n/a", nothing)


PACKAGE_ONLY = FabricManager(imex=Imex(service="disabled", channel0=False))


def test_the_package_alone_for_kubernetes() -> None:
    """ComputeDomains start a daemon of their own: the host's unit is off, and nobody asks for its domain."""
    state = tray(nodes=None, process=False, unit=("loaded", "inactive", "disabled"), channel=False, parameter="")
    for name in ("imex_alive", "imex_nodes", "imex_domain", "imex_channel"):
        assert ask(name, PACKAGE_ONLY, imex=state).status == "n/a", name
    assert ask("imex_version", PACKAGE_ONLY, imex=state).status == "pass"
    assert ask("imex_held", PACKAGE_ONLY).status == "pass"
    assert ask("imex_fabric", PACKAGE_ONLY).status == "pass"
    assert ask("imex_hardware", PACKAGE_ONLY, imex=state).status == "pass"
    for name, active, file in (("active", "active", "disabled"), ("enabled", "inactive", "enabled")):
        assert ask(name, PACKAGE_ONLY, imex=state).status == "n/a"
        assert ask(name, PACKAGE_ONLY, imex=state, contents=unit(UNIT, active, file)).status == "fail"
    others: dict[str, Fragment] = {"fabric_manager": PACKAGE_ONLY}
    release = facts(os_release="ID=ubuntu\nVERSION_ID=24.04\nNAME=Ubuntu\n")
    (rules,) = followers(HostSpec(name="t", capabilities=others), release)
    assert {rule["name"] for rule in rules} <= {"nvidia-imex", "nvidia-imex-{branch}"}
    assert problems(PACKAGE_ONLY) == []
    both = FabricManager(imex=Imex(nodes=(HERE,), service="disabled"))
    assert any("has no meaning where service is disabled" in told for told in problems(both))
    assert fabric_manager.contribute(HostSpec(name="t"), PACKAGE_ONLY) is None


def problems(block: FabricManager, gpu: str = "GB200", driver: str = "580") -> list[str]:
    others: dict[str, Fragment] = {"nvidia_driver": NvidiaDriver(version=driver), "fabric_manager": block}
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu), capabilities=others)
    return [str(problem) for problem in fabric_manager.rules(host, block)]


@run_each(
    ("block", "gpu", "driver", "told"),
    [
        (BLOCK, "GB200", "580", ""),
        (FabricManager(), "B200", "550", "boards of B200 need branch 570 or newer, the driver is 550"),
        (FabricManager(), "B200", "any", ""),
        (FabricManager(), "B200", "570", ""),
        (FabricManager(), "GB200", "580", "needs nvidia-imex instead; fabric_manager: {imex: {nodes:"),
        (BLOCK, "H100-SXM5-80GB", "580",
            "is for compute trays of GB200 and GB300 racks, and the host has H100-SXM5-80GB"),
        (FabricManager(imex=Imex(nodes=(HERE, "tray2"))), "GB200", "580",
            'nodes[1] is "tray2"; allowed: an IPv4 or IPv6 address'),
        (FabricManager(imex=Imex(nodes=(HERE, "2001:DB8::1"))), "GB200", "580", 'write it as "2001:db8::1"'),
        (FabricManager(imex=Imex(nodes=(HERE, HERE))), "GB200", "580", "names 192.0.2.1 twice"),
        (FabricManager(settings={"LOG_LEVEL": 3}, imex=BLOCK.imex), "GB200", "580", "have no meaning there"),
        (FabricManager(imex=Imex(nodes=(HERE,))), "GB200", "560",
            "needs a driver of branch 565 or newer, the driver is 560"),
        (FabricManager(imex=Imex(nodes=(HERE,), channel0=False)), "GB200", "560", ""),
    ],
)  # fmt: skip
def test_rules(block: FabricManager, gpu: str, driver: str, told: str) -> None:
    found = problems(block, gpu, driver)
    assert [one for one in found if told in one] == found
    assert len(found) == bool(told)


def fleet(*blocks: FabricManager | None) -> list[tuple[str, str]]:
    hosts = [
        HostSpec(name=f"t{n}", capabilities={"fabric_manager": block} if block else {})
        for n, block in enumerate(blocks)
    ]
    return [(name, problem.message) for name, problem in fabric_manager.CAPABILITY.fleet_rules(hosts, [], whole=True)]


def test_members_of_one_domain_have_one_list() -> None:
    other = FabricManager(imex=Imex(nodes=("192.0.2.9",)))
    assert fleet(BLOCK, None, FabricManager(), BLOCK, other) == []
    ((name, message),) = fleet(BLOCK, BLOCK, FabricManager(imex=Imex(nodes=(THERE, HERE))))
    assert name == "t2"
    assert f"that of t0, its member: {THERE} {HERE} here, {HERE} {THERE} there" in message


def test_what_is_asked_of_the_kernel() -> None:
    names = ("nvidia", "nvidia-current", "nvidia-current-open")
    wanted = Kernel(module_options={name: {"NVreg_CreateImexChannel0": 1} for name in names})
    host = HostSpec(name="h", gpu=GpuSpec(model="GB200"))
    assert fabric_manager.contribute(host, BLOCK) == wanted
    assert fabric_manager.contribute(host, FabricManager(imex=Imex(nodes=(HERE,), channel0=False))) is None


@run_each(
    ("index", "status", "found"),
    [
        (f" nvidia-imex | {VERSION}-1 | https://mirror.example/nvidia  Packages\n", "pass", f"nvidia-imex {VERSION}-1"),
        (f" nvidia-fabricmanager | {VERSION}-1 | https://mirror.example/nvidia  Packages\n", "fail",
            "have no nvidia-imex"),
    ],
)  # fmt: skip
def test_it_follows_a_driver_that_is_not_in_the_spec(index: str, status: str, found: str) -> None:
    outcome = ask("resolvable", BLOCK, package_index=index, fabric_packages="")
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_the_drivers_set_has_imex_in_place_of_fabric_manager() -> None:
    found = facts(os_release='ID=ubuntu\nVERSION_ID="24.04"\n')
    for block, name in ((BLOCK, "nvidia-imex"), (FabricManager(), "nvidia-fabricmanager")):
        (rules,) = followers(HostSpec(name="h", capabilities={"fabric_manager": block}), found)
        assert {str(rule["name"]).replace("-{branch}", "") for rule in rules} == {name}
    assert followers(HostSpec(name="h"), found) == ()


@run_each(
    ("text", "block"),
    [
        (tray(), BLOCK),
        (tray(parameter="0"), FabricManager(imex=Imex(nodes=(HERE, THERE), channel0=False))),
        (tray(nodes=()), None),
        (tray(unit=("loaded", "active", "disabled")), None),
    ],
)
def test_export(text: str, block: FabricManager | None) -> None:
    assert fabric_manager.export(facts(imex=text, units=units(), fabric_manager=BARE["fabric_manager"])) == block


@run_each("text", ["", "[]", "null", '{"nodes": []}', "Failed to connect to 127.0.0.1"])
def test_what_is_no_state_of_a_domain(text: str) -> None:
    assert parse_domain(text) is None


def test_the_control_programs_own_words_are_kept() -> None:
    state = parse(Output(tray(told='{"nodes": {}, "status": "DOWN"}')))
    assert state.domain is not None
    assert (state.domain.status, state.domain.members, state.ready) == ("DOWN", (), "READY")


def test_values_that_no_model_takes() -> None:
    for values, told in (
        ({"imex": {"nodes": ["a b"]}}, "fabric_manager.imex.nodes[0]"),
        ({"imex": {"nodes": [], "node": []}}, 'unknown key "node"'),
    ):
        _, ((_, message, _),) = convert(values, FabricManager, ("fabric_manager",))
        assert told in message
