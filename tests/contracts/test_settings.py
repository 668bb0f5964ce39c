"""Settings and kernel modules: a check passes exactly where nothing differs, names exactly what differs, and asks for
nothing more once that has its value. Hosts compare as the controller does.

What a host has is stand-in here: facts of tests/capabilities, altered in memory, and a folder in place of /proc/sys and
/sys/module.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuprov.capabilities import BY_NAME, CAPABILITIES, receipts
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.compared import Group, compare_resource, judge, list_compared
from gpuprov.capabilities.kernel.desired import make as make_values
from gpuprov.capabilities.kernel.now import sysctls
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.host_code import running_kernel, settings
from gpuprov.host_code.lasting import merge_settings, parse_settings
from gpuprov.host_code.restore import act as restore
from gpuprov.host_code.restore import kinds
from gpuprov.resources import KernelModule, Modules, Setting
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.unmanaged import find_unmanaged
from tests.capabilities import erdma_host, pcie_host, roce_host
from tests.capabilities.asking import facts, good
from tests.capabilities.kernel_host import frequency
from tests.capabilities.specs import SPECS, block
from tests.rows import run_each

make: Callable[..., Any] = make_values


KERNEL = Kernel(
    blacklist=("nouveau", "nova_core"),
    module_options={"nvidia": {"NVreg_EnableMSI": 1}},
    modules_load=("ib_umad", "nvidia-uvm"),
    sysctl={"vm.swappiness": 1, "net.ipv4.tcp_rmem": "4096 131072  33554432"},
    limits={"memlock": "unlimited", "nofile": 65536},
    command_line={"iommu": "pt", "quiet": ""},
    hugepages={"2M": 64},
    cpu_governor="performance",
    numa_balancing="disabled",
)
GPU_SETTINGS = {
    "ecc": "enabled",
    "power_limit": 400,
    "application_clocks": {"memory": 2619, "graphics": 1755},
    "locked_clocks": {"graphics": [1200, 1755]},
    "compute_mode": "exclusive_process",
    "confidential_computing": "disabled",
}
PCIE = {
    "acs": "disabled",
    "max_read_request": 4096,
    "gpu_max_read_request": 4096,
    "relaxed_ordering": "enabled",
    "affinity": "local",
}
BLOCKS: dict[str, tuple[Fragment, ...]] = {
    "kernel": (KERNEL,),
    "nouveau": (BY_NAME["nouveau"].fragment(),),
    "nvidia_absent": (BY_NAME["nvidia_absent"].fragment(),),
    "gpu_settings": (block("gpu_settings", GPU_SETTINGS),),
    "pcie": (block("pcie", PCIE), block("pcie", {"acs": "rdma_topo"})),
    "mps": (block("mps", {"shm_size": "64M", "active_thread_percentage": 50}),),
    "rdma": (
        Rdma(fabric="infiniband", memlock="unlimited"),
        block("rdma", {"fabric": "roce", "roce": {"tos": 106, "pfc": [3], "mtu": 9000}}),
        Rdma(fabric="soft"),
        block(
            "rdma", {"fabric": "erdma", "stack": "erdma-vendor", "erdma": {"parameters": {"reserve_ports_base": 30608}}}
        ),
    ),
    "gds": (SPECS["gds"],),
    "gpudirect_rdma": (SPECS["gpudirect_rdma"],),
    "cuda_toolkit": (SPECS["cuda_toolkit"],),
    **{
        name: (BY_NAME[name].fragment(),)
        for name in ("fabric_manager", "cgpu", "container_toolkit", "kubernetes", "persistence")
    },
}
METAL = {"machine": "kind|none\n", "cpu_frequency": frequency("powersave", "performance")}
ROCE = "\n".join([
    "device|mlx5_0|0000:3b:00.0|mlx5_core|0x15b3|0x1021|1: "
    "CA|b83f:d203:0000:0001|28.43.2566|0|ens1f0np0|b8:3f:d2:00:00:01|",
    "port|mlx5_0|1|4: ACTIVE|5: LinkUp|Ethernet|400 Gb/sec (4X NDR)|0x0|0x0",
])  # fmt: skip
ERDMA = {"erdma": erdma_host.said(), "rdma_devices": erdma_host.devices()}
MORE: dict[str, dict[str, str]] = {
    "kernel": {"sysctl": "vm.swappiness = 60\nkernel.numa_balancing = 1\n", **METAL},
    "pcie": {"pcie": pcie_host.said(), "rdma_devices": pcie_host.RDMA, "machine": METAL["machine"]},
    "rdma.roce": {"roce": roce_host.said(), "rdma_devices": ROCE},
    "rdma.erdma": ERDMA,
}
"""What is otherwise on the hosts of these blocks."""
UNREACHED = {"fabric_manager.subnet_manager_at_boot", "kubernetes.labels", "container_toolkit.rootless"}
"""Checks that have nothing to compare on these hosts, which lack what they are about; their own tests show them."""


def list_groups() -> list[tuple[str, Group]]:
    """Return the groups of all checks for these blocks on the good host."""
    found = []
    for name, blocks in BLOCKS.items():
        for fragment in blocks:
            spec = HostSpec(name="gpu1", capabilities={name: fragment})
            more = MORE.get(f"{name}.{getattr(fragment, 'fabric', '')}", MORE.get(name, {}))
            ctx: Context[Any] = Context(spec, fragment, facts(**{**good(), **more}))
            groups = [(check.id, check.group(ctx)) for check in list_compared(BY_NAME[name])]
            found += [(check, group) for check, group in groups if isinstance(group, Group) and group.resources]
    return found


GROUPS = list_groups()


LASTING = [(name, fragment) for name, blocks in BLOCKS.items() for fragment in blocks]


@run_each(("name", "fragment"), LASTING, ids=[f"{n}-{name}" for n, (name, _) in enumerate(LASTING)])
def test_what_outlasts_its_declaration_is_listed_and_named_where_no_block_declares_it(
    name: str, fragment: Fragment
) -> None:
    spec = HostSpec(name="gpu1", capabilities={name: fragment})
    known = {**good(), **MORE.get(f"{name}.{getattr(fragment, 'fabric', '')}", MORE.get(name, {}))}
    ctx: Context[Any] = Context(spec, fragment, facts(**known))
    lines = receipts.settings(BY_NAME[name], ctx).lines
    lasting = {check.id: check.group(ctx) for check in list_compared(BY_NAME[name]) if check.until}
    listed = {setting.check for setting in parse_settings(lines)}
    assert listed == {check for check, group in lasting.items() if isinstance(group, Group) and group.resources}
    kept = list(merge_settings(lines, [], "one"))
    entry = {"digest": "1", "applied_at": "2026-01-01T00:00:00Z", "resources": kept}
    there = facts(**{**known, "receipt": json.dumps({"capabilities": {name: entry}}), "contents": "@contents\n"})
    assert [left for left in find_unmanaged(spec, there) if left.kind == "setting"] == []
    left = find_unmanaged(HostSpec(name="gpu1"), there)
    assert {(one.name, one.value) for one in left} == {(one.name, one.value) for one in parse_settings(kept)}
    assert all(" until " in one.stays if one.stays else one.before for one in left)


def test_each_setting_that_outlasts_its_declaration_has_a_way_back() -> None:
    assert {check.id for one in CAPABILITIES for check in list_compared(one) if check.until} == set(kinds.KINDS)
    assert {name.partition(".")[0] for name in kinds.KINDS} == set(restore.WAYS)


def settle(group: Group) -> Group:
    """Return the group on a host that has everything that it asks for: stand-in."""
    values = {(one.device, one.key): one.value for one in group.resources if isinstance(one, Setting)}
    own = [one for one in group.resources if isinstance(one, KernelModule)]
    modules = Modules(
        loaded={one.kernel_name for one in own if one.loaded},
        at_boot={one.kernel_name for one in own if one.at_boot},
        kept_out={one.kernel_name for one in own if one.kept_out},
        options={one.kernel_name: one.options for one in own},
    )
    right = tuple(
        msgspec.structs.replace(one, outdated="") if isinstance(one, KernelModule) else one for one in group.resources
    )
    return msgspec.structs.replace(group, resources=right, values=values, modules=modules, beside=())


def spoil(group: Group, resource: Setting | KernelModule) -> Group:
    """Return the group on a host on which this one alone is otherwise."""
    if isinstance(resource, Setting):
        values = {**group.values, (resource.device, resource.key): "0" if resource.how == "least" else "other"}
        return msgspec.structs.replace(group, values=values)
    name, had = resource.kernel_name, group.modules
    loaded = {*had.loaded} ^ ({name} if resource.loaded is not None else set())
    modules = Modules(
        loaded=loaded,
        at_boot={*had.at_boot} - {name},
        kept_out={*had.kept_out} - {name},
        options={key: value for key, value in had.options.items() if key != name},
    )
    return msgspec.structs.replace(group, modules=modules)


def test_every_generated_check_is_asked() -> None:
    known = {check.id for one in CAPABILITIES for check in list_compared(one)}
    assert known - {name for name, _ in GROUPS} == UNREACHED


@run_each(("name", "group"), GROUPS, ids=[f"{number}-{name}" for number, (name, _) in enumerate(GROUPS)])
def test_it_passes_exactly_where_nothing_differs(name: str, group: Group) -> None:
    keys = [(one.device, one.key, one.moment) for one in group.resources if isinstance(one, Setting)]
    assert len(keys) == len(set(keys)), "a second value of one key would hide the first"
    outcome = judge(group)
    assert (outcome.status == "pass") == (not group.compare() and not group.beside), outcome
    right = settle(group)
    assert judge(right).status == "pass", judge(right)
    assert right.compare() == []
    assert judge(right).changes == ()
    for resource in right.resources:
        wrong = spoil(right, resource)
        found, outcome = wrong.compare(), judge(wrong)
        assert found, resource
        assert {one.device or one.path for one in found} == {
            one.device or one.path for one in compare_resource(resource, wrong)
        }
        assert outcome.status == "fail"
        assert outcome.found
        assert outcome.fix
        assert group.changed == "" or outcome.changes, outcome
        assert {one.reboot for one in found} <= {"", *outcome.reboot.split("; "), outcome.reboot}


SYSCTLS: dict[str, Mapping[str, str]] = {
    "right": {"vm.swappiness": "1", "net.ipv4.tcp_rmem": "4096\t131072\t33554432"},
    "one differs": {"vm.swappiness": "60", "net.ipv4.tcp_rmem": "4096 131072 33554432"},
    "none is there": {},
}


@pytest.mark.parametrize("way", SYSCTLS)
def test_a_host_compares_sysctls_as_the_controller_does(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SYSCTLS[way].items():
        place = tmp_path / name.replace(".", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"{value}\n")
    monkeypatch.setattr(running_kernel, "PROC", str(tmp_path))
    asked = {one.key: one.value for one in sysctls(KERNEL)}
    values = {("", name): value for name, value in SYSCTLS[way].items()}
    differing = {one.key for one in sysctls(KERNEL) if one.compare(values)}
    assert set(running_kernel.list_differing(asked)) == differing


@pytest.mark.parametrize("loaded", [(), ("ib_umad",), ("ib_umad", "nvidia_uvm")])
def test_a_host_compares_modules_as_the_controller_does(
    loaded: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in loaded:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(running_kernel, "MODULES", str(tmp_path))
    values = make(Context(HostSpec(name="gpu1"), KERNEL, facts(**{**good(), **METAL})))
    asked = values["tasks"]["running_kernel"]["modules"]
    modules = Modules(loaded=loaded)
    differing = {name for name in asked for _ in KernelModule(name=name, loaded=True).compare(modules)}
    assert set(running_kernel.list_absent(asked)) == differing


def test_what_the_role_is_handed_is_what_the_checks_compare() -> None:
    values = make(Context(HostSpec(name="gpu1"), KERNEL, facts(**{**good(), **METAL})))["tasks"]["running_kernel"]
    by_check = {name: group for name, group in GROUPS if name.startswith("kernel.")}
    handed = {one.key: one.value for one in by_check["kernel.sysctl"].resources if isinstance(one, Setting)}
    assert values["sysctl"] == handed
    assert values["modules"] == [
        one.kernel_name for one in by_check["kernel.modules_load"].resources if isinstance(one, KernelModule)
    ]
    assert values["hugepages"] == 64


def test_words_of_devices_that_differ_alike() -> None:
    gpus = [
        Setting(kind="ECC mode", device=f"GPU {n} (0000:0{n}:00.0)", value="on", words="{devices}: {before}")
        for n in (1, 2)
    ]
    values = {(one.device, ""): "off" for one in gpus}
    outcome = judge(Group(tuple(gpus), values))
    assert outcome.found == "GPUs 1, 2: off"
    assert [f"{one.name}: {one.before} -> {one.after}" for one in outcome.changes] == [
        "GPU 1 (0000:01:00.0) ECC mode: off -> on",
        "GPU 2 (0000:02:00.0) ECC mode: off -> on",
    ]


def test_words_of_hosts_are_no_templates() -> None:
    setting = Setting(kind="mode", key="mode", value="on")
    outcome = judge(Group((setting,), {("", "mode"): "{devices} {before} {0.__class__}"}))
    assert isinstance(outcome, Outcome)
    assert outcome.found.startswith("mode=")
    assert "{0.__class__}" in outcome.found


@run_each("actual", ["1" * 5000, "9" * 21, "²", "", "x"])
def test_a_number_that_is_none_never_reaches_a_limit(actual: str) -> None:
    """Python's `int` raises ValueError for thousands of digits, and a host may print them."""
    assert not settings.is_met("64", actual, settings.LEAST)
    assert not settings.is_met(actual, "64", settings.LEAST)
