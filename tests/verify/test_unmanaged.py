"""What an apply brought and the spec asks for no longer: named from the receipt, and only where it is as it was
applied."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME, package_sources, receipts
from gpuprov.capabilities.base import Change, Context
from gpuprov.capabilities.mps.desired import plain
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.capabilities.readings import Readings
from gpuprov.core.sanitize import fold_paths
from gpuprov.facts.probes.base import Facts
from gpuprov.host_code import lasting, sources
from gpuprov.plan import as_text, sentence
from gpuprov.plan.collect import host_plan
from gpuprov.plan.decide import Decision
from gpuprov.plan.model import HostPlan, Item
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from gpuprov.verify.evaluate import Result
from gpuprov.verify.unmanaged import changes_of, find_unmanaged, in_words, prune_values
from gpuprov.verify.unmanaged import lines as as_lines
from tests.capabilities import gpu_settings_host, pcie_host, roce_host
from tests.capabilities.asking import facts, good
from tests.capabilities.specs import block
from tests.rows import run_each

SUM, OTHER = "a" * 64, "b" * 64
MPS, UNIT = "/etc/gpuprov/mps.json", "/etc/systemd/system/gpuprov-mps@.service"
OS = "ID=debian\nVERSION_ID=12\n"


def receipt(**resources: list[str]) -> str:
    entries = {
        name: {"digest": "1", "applied_at": "2026-01-01T00:00:00Z", "resources": each}
        for name, each in resources.items()
    }
    return json.dumps({"applied_at": "2026-01-01T00:00:00Z", "capabilities": entries})


def file(path: str, digest: str = SUM, kind: str = "f") -> str:
    return f"entry|{kind}|644|0|0|{path}\nsum|{digest}  {path}\n"


def unit(name: str, active: str, state: str) -> str:
    rows = f"Id={name}\nLoadState=loaded\nActiveState={active}\nUnitFileState={state}\n\n"
    return "".join(f"unit|{line}\n" for line in rows.split("\n")[:-1])


def known(remembered: str, *contents: str) -> Facts:
    return facts(receipt=remembered, contents="@contents\n" + "".join(contents), os_release=OS)


HOST = HostSpec(name="gpu1")
BROUGHT = receipt(
    mps=[f"file {SUM} {MPS}", f"file {SUM} {UNIT}", "unit gpuprov-mps@host.service"],
    fabric_manager=["unit nvidia-fabricmanager.service", "hold nvidia-fabricmanager-535"],
)
THERE = (
    file(MPS),
    file(UNIT),
    unit("gpuprov-mps@host.service", "active", "enabled"),
    unit("nvidia-fabricmanager.service", "active", "enabled"),
)


def test_files_and_their_units_go_and_a_package_s_unit_stays() -> None:
    there = known(BROUGHT, *THERE)
    found = find_unmanaged(HOST, there)
    assert [(one.name, one.stays) for one in found] == [
        (MPS, ""),
        (UNIT, ""),
        ("gpuprov-mps@host.service", ""),
        ("nvidia-fabricmanager.service", "a package brings it"),
        ("nvidia-fabricmanager-535", ""),
    ]
    values = prune_values(HOST, there, found)
    assert values == {
        "files": {MPS: SUM, UNIT: SUM},
        "units": ["gpuprov-mps@host.service"],
        "holds": ["nvidia-fabricmanager-535"],
        "busy": True,
        "forgotten": ["mps", "fabric_manager"],
        "mps": plain(HOST, Mps(scope="none")),
    }
    assert in_words(values) == (
        "no longer asked for: 2 files, 1 unit, 1 hold; users' processes must have left the GPUs"
    )
    assert [(one.kind, one.name, one.after) for one in changes_of(found)] == [
        ("file", MPS, "removed"),
        ("file", UNIT, "removed"),
        ("service", "gpuprov-mps@host.service", "disabled"),
        ("hold", "nvidia-fabricmanager-535", "not held"),
    ]


@run_each(
    ("contents", "stays"),
    [
        (file(MPS, OTHER), "changed by others since it was applied"),
        (file(MPS, kind="l"), "changed by others since it was applied"),
        (f"none|{MPS}\n", None),
    ],
)
def test_a_file_goes_only_as_it_was_applied(contents: str, stays: str | None) -> None:
    there = known(receipt(mps=[f"file {SUM} {MPS}"]), contents)
    found = find_unmanaged(HOST, there)
    assert [one.stays for one in found] == ([] if stays is None else [stays])
    values = prune_values(HOST, there, found)
    assert (values["files"], values["busy"]) == ({}, False)
    assert in_words(values) == "no longer asked for: mps", "the receipt forgets it"


def test_a_unit_that_is_off_is_not_named() -> None:
    off = [unit(name, "inactive", "disabled") for name in ("gpuprov-mps@host.service", "nvidia-fabricmanager.service")]
    found = find_unmanaged(HOST, known(BROUGHT, file(MPS), file(UNIT), *off))
    assert [one.name for one in found if one.kind == "unit"] == []


@run_each(
    ("facts_", "why"),
    [
        (facts(receipt=BROUGHT, os_release=OS), "contents was not read"),
        (known(BROUGHT, *THERE[1:]), f"{MPS} was not read on the host"),
        (known(BROUGHT, *THERE[:2], THERE[3]), "systemd of the host did not say how it has gpuprov-mps@host.service"),
    ],
    ids=["nothing-read", "a-file", "a-unit"],
)
def test_what_was_not_read_stays_and_the_receipt_goes_on_naming_it(facts_: Facts, why: str) -> None:
    found = [one for one in find_unmanaged(HOST, facts_) if one.capability == "mps"]
    assert [one.name for one in found] == [MPS, UNIT, "gpuprov-mps@host.service"]
    assert all(why in one.stays and one.unknown for one in found)
    values = prune_values(HOST, facts_, find_unmanaged(HOST, facts_))
    assert "mps" not in values.get("forgotten", ())
    assert not values.get("files")


def test_what_an_earlier_gpuprov_brought_is_not_known() -> None:
    text = '{"capabilities": {"mps": {"digest": "1"}}}'
    (one,) = find_unmanaged(HOST, known(text, *THERE))
    assert (one.unknown, "earlier gpuprov" in one.stays) == (True, True)
    assert prune_values(HOST, known(text, *THERE), [one]) == {}


def test_a_unit_stays_where_its_file_was_changed() -> None:
    found = find_unmanaged(HOST, known(BROUGHT, file(MPS), file(UNIT, OTHER), *THERE[2:]))
    assert {one.name: one.stays for one in found}["gpuprov-mps@host.service"] == "its file was changed by others"


def test_what_a_capability_of_the_spec_has_in_its_own_list_is_not_named() -> None:
    """Two capabilities share a package source; of the one that stays nobody knows what its role is handed."""
    shared = "/etc/apt/sources.list.d/gpuprov-nvidia.sources"
    spec = HostSpec(name="gpu1", capabilities={"readings": Readings()})
    remembered = receipt(readings=[f"file {SUM} {shared}", "hold x"], mps=[f"file {SUM} {shared}", "hold x"])
    assert find_unmanaged(spec, known(remembered, file(shared))) == ()


def test_what_another_capability_of_the_spec_may_write_is_not_named() -> None:
    path = "/etc/systemd/system/gpuprov-readings.timer"
    spec = HostSpec(name="gpu1", capabilities={"readings": Readings()})
    there = known(receipt(mps=[f"file {SUM} {path}", f"file {SUM} {MPS}"]), file(path), file(MPS))
    assert [one.name for one in find_unmanaged(spec, there)] == [MPS]
    assert prune_values(spec, there, ())["forgotten"] == ["mps"]


def test_of_a_capability_of_the_spec_what_is_asked_for_no_longer_is_named_and_its_holds_are_its_role_s() -> None:
    spec = HostSpec(name="gpu1", capabilities={"readings": Readings()})
    old = "/etc/systemd/system/gpuprov-old.service"
    remembered = receipt(readings=[f"file {SUM} {old}", "hold something"])
    there = known(remembered, file(old))
    assert find_unmanaged(spec, there) == (), "nobody knows what its role is handed"
    assert [one.name for one in find_unmanaged(spec, there, {"readings": {}})] == [old]
    assert find_unmanaged(spec, there, {"readings": {"absent": [old]}}) == (), "its own role removes it"


def test_facts_that_a_capability_of_the_spec_lacks_now_make_nothing_unmanaged() -> None:
    """MPS names no unit while its GPUs do not answer: they are asked for all the same."""
    spec = HostSpec(name="gpu1", capabilities={"mps": Mps()})
    remembered = receipt(mps=[f"file {SUM} {MPS}", f"file {SUM} {UNIT}", "unit gpuprov-mps@gpu-1.service", "hold x"])
    there = known(remembered, file(MPS), file(UNIT), unit("gpuprov-mps@gpu-1.service", "active", "enabled"))
    assert find_unmanaged(spec, there, {"mps": {}}) == ()


@run_each("remembered", ["", "{"])
def test_nothing_is_named_without_a_receipt(remembered: str) -> None:
    assert find_unmanaged(HOST, known(remembered, *THERE)) == ()


def test_the_kernel_s_boot_entries_are_made_anew() -> None:
    path = "/etc/default/grub.d/90-gpuprov.cfg"
    there = known(receipt(kernel=[f"file {SUM} {path}"]), file(path))
    values = prune_values(HOST, there, find_unmanaged(HOST, there))
    assert values["entries"] == "update-grub"
    assert in_words(values) == "no longer asked for: 1 file"
    silent = facts(receipt=receipt(kernel=[f"file {SUM} {path}"]), contents="@contents\n" + file(path))
    (one,) = find_unmanaged(HOST, silent)
    assert "os_release" in one.stays
    assert prune_values(HOST, silent, [one]) == {}


def test_a_rollback_takes_away_what_was_brought_since_alone() -> None:
    there = known(BROUGHT, *THERE)
    found = find_unmanaged(HOST, there)
    assert prune_values(HOST, there, found, ("fabric_manager",)) == {
        "files": {},
        "units": [],
        "holds": ["nvidia-fabricmanager-535"],
        "busy": False,
        "forgotten": ["fabric_manager"],
    }
    assert prune_values(HOST, there, found, ()) == {}


def test_a_timer_that_runs_keeps_no_job_waiting() -> None:
    path = "/etc/systemd/system/gpuprov-readings.timer"
    remembered = receipt(readings=[f"file {SUM} {path}", "unit gpuprov-readings.timer"])
    there = known(remembered, file(path), unit("gpuprov-readings.timer", "active", "enabled"))
    values = prune_values(HOST, there, find_unmanaged(HOST, there))
    assert (values["units"], values["busy"]) == (["gpuprov-readings.timer"], False)


def test_a_capability_of_another_gpuprov_is_taken_away_like_all_others() -> None:
    path = "/etc/systemd/system/gpuprov-later.service"
    remembered = receipt(later=[f"file {SUM} {path}", "unit gpuprov-later.service"])
    there = known(remembered, file(path), unit("gpuprov-later.service", "active", "enabled"))
    values = prune_values(HOST, there, find_unmanaged(HOST, there))
    assert (values["files"], values["busy"], values["forgotten"]) == ({path: SUM}, True, ["later"])
    assert in_words(values) == "no longer asked for: 1 file, 1 unit; users' processes must have left the GPUs"


def test_mig_stays_on_the_gpus() -> None:
    there = known(receipt(mig=[f"file {SUM} {MPS}"]), file(MPS))
    assert in_words(prune_values(HOST, there, find_unmanaged(HOST, there))) == (
        "no longer asked for: 1 file; mig stays on the GPUs until mig: {mode: disabled} is applied"
    )


def test_the_data_of_scratch_stay_and_that_is_said() -> None:
    path = "/etc/gpuprov/scratch.conf"
    there = known(receipt(scratch=[f"file {SUM} {path}"]), file(path))
    found = find_unmanaged(HOST, there)
    assert [line for line in as_lines(found) if "its data on the disks" in line] == [
        "scratch: /var/lib/gpuprov/scratch (the file system stays mounted until the next boot, and its data on the "
        "disks: scratch brings it back)"
    ]
    assert prune_values(HOST, there, found)["files"] == {path: SUM}


SWAPPINESS = ("kernel.sysctl", "", "vm.swappiness", "1", "60", lasting.BOOT)
DIRTY = ("kernel.sysctl", "", "vm.dirty_ratio", "5", "", lasting.BOOT)
ECC = ("gpu_settings.ecc", "GPU 0 (0000:17:00.0)", "GPU 0 (0000:17:00.0): ECC mode", "enabled", "", lasting.AGAIN)
SYSCTLS = "vm.swappiness = 1\nvm.dirty_ratio = 5\n"
UNKNOWN = "its value before is not known; by hand: "
ONE_GPU = {"per_gpu": [{"gpus": [0], "power_limit": 400}]}
EACH = (gpu_settings_host.FIRST, gpu_settings_host.SECOND)
TWO_GPUS = {"gpu_settings": gpu_settings_host.HEAD + "".join(map(gpu_settings_host.gpu, EACH))}
ONE_PORT = {"fabric": "roce", "devices": [{"pci": "0000:3b:00.0"}], "roce": {"mtu": 9000}}
DEVICE = (
    "device|mlx5_0|0000:3b:00.0|mlx5_core|0x15b3|0x1021|1: "
    "CA|b83f:d203:0000:0001|28.43.2566|0|ens1f0np0|b8:3f:d2:00:00:01|"
)
TWO_PORTS = {
    "roce": roce_host.said() + roce_host.said().replace("mlx5_0", "mlx5_1"),
    "rdma_devices": f"{DEVICE}\nport|mlx5_0|1|4: ACTIVE|5: LinkUp|Ethernet|400 Gb/sec (4X NDR)|0x0|0x0\n",
}
PCIE = {"pcie": pcie_host.said(), "rdma_devices": pcie_host.RDMA, "machine": "kind|none\n"}
LEFT_DIRTY = f"vm.dirty_ratio = 5 (stays until the next boot: {UNKNOWN}sysctl -w vm.dirty_ratio=VALUE)"
LEFT_ECC = f"stays until something sets it again: {UNKNOWN}nvidia-smi -i 0000:17:00.0 -e 0 or 1, then a reboot"


@run_each(
    ("block", "applied", "boot", "named"),
    [
        (None, [(*SWAPPINESS, "")], "one", ["vm.swappiness = 1 (before: 60)"]),
        ({}, [(*DIRTY, "")], "one", [LEFT_DIRTY]),
        ({}, [(*DIRTY, "one")], "", [LEFT_DIRTY]),
        ({}, [(*DIRTY, "one")], "two", []),
        ({"sysctl": {"vm.dirty_ratio": 7}}, [(*DIRTY, "")], "one", []),
        (
            {"sysctl": {"vm.dirty_ratio": 7}},
            [(*SWAPPINESS, ""), (*DIRTY, "")],
            "one",
            ["vm.swappiness = 1 (before: 60)"],
        ),
        (None, [(*ECC, "one")], "two", [f"GPU 0 (0000:17:00.0): ECC mode = enabled ({LEFT_ECC})"]),
        (
            {"cpu_governor": "performance"},
            [("kernel.governor", "policy0", "governor", "x", "", lasting.BOOT, "")],
            "",
            [],
        ),
        ({}, [("kernel.sysctl", "", "a line of another form")], "one", []),
    ],
    ids=[
        *("no-block", "no-entry", "the-boot-is-not-known", "after-a-boot", "another-value"),
        *("one-of-two", "kept-by-the-card", "what-cannot-be-read", "another-form"),
    ],
)
def test_settings_that_the_spec_declares_no_longer(
    block: dict[str, Any] | None, applied: list[tuple[str, ...]], boot: str, named: list[str]
) -> None:
    spec = HOST if block is None else HostSpec(name="gpu1", capabilities={"kernel": Kernel(**block)})
    remembered = receipt(kernel=[lasting.SETTING + "\t".join(words) for words in applied])
    there = facts(
        receipt=remembered, contents="@contents\n", os_release=OS, sysctl=SYSCTLS, sysctl_at_boot="", boot=boot
    )
    found = find_unmanaged(spec, there)
    assert as_lines(found) == [f"kernel: {line}" for line in named]
    back = [one for one in applied if one[:6] == SWAPPINESS]
    changes = [(one.kind, one.name, one.before, one.after) for one in changes_of(found)]
    assert changes == [("setting", "vm.swappiness", "1", "60") for _ in back]
    values = prune_values(spec, there, found)
    assert values.get("settings", []) == [lasting.SETTING + "\t".join(words) for words in back]
    words = "no longer asked for: 1 setting" if back else "no longer asked for: kernel" if block is None else ""
    assert in_words(values) == words


@run_each(
    ("check", "value", "before", "reboot", "busy"),
    [
        ("ecc", "enabled", "disabled", "the ECC mode of GPU 0 (0000:17:00.0) changes at a boot", False),
        ("compute_mode", "default", "exclusive_process", "", True),
        ("compute_mode", "prohibited", "default", "", False),
        ("power_limit", "500 W", "700 W", "", False),
    ],
)
def test_a_setting_that_is_put_back_asks_for_what_its_apply_asks_for(
    check: str, value: str, before: str, reboot: str, *, busy: bool
) -> None:
    device = "GPU 0 (0000:17:00.0)"
    line = lasting.Lasting(f"gpu_settings.{check}", device, f"{device}: {check}", value, before, lasting.DRIVER)
    there = facts(receipt=receipt(gpu_settings=[lasting.format_setting(line)]), contents="@contents\n", os_release=OS)
    found = find_unmanaged(HOST, there)
    assert [(one.stays, one.reboot) for one in found] == [("", reboot)]
    assert prune_values(HOST, there, found)["busy"] is busy


@run_each(
    ("name", "block_", "device", "known_", "named"),
    [
        ("gpu_settings", ONE_GPU, f"GPU 1 ({gpu_settings_host.SECOND})", TWO_GPUS, True),
        ("gpu_settings", ONE_GPU, "GPU 2 (0000:5e:00.0)", TWO_GPUS, False),
        ("pcie", {"max_read_request": 4096}, pcie_host.GPU, PCIE, True),
        ("pcie", {"max_read_request": 4096}, "0000:ff:00.0", PCIE, False),
        ("rdma", ONE_PORT, "mlx5_1 port 1 (ens1f0np0)", TWO_PORTS, True),
        ("rdma", ONE_PORT, "mlx5_2 port 1", TWO_PORTS, False),
    ],
    ids=["a-gpu", "a-gpu-that-is-gone", "a-function", "a-function-that-is-gone", "a-port", "a-port-that-is-gone"],
)
def test_a_device_that_left_the_block_is_named_while_it_is_there(
    name: str, block_: dict[str, Any], device: str, known_: dict[str, str], *, named: bool
) -> None:
    check = {"gpu_settings": "gpu_settings.power_limit", "pcie": "pcie.max_read_request", "rdma": "rdma.roce_settings"}
    left = lasting.Lasting(check[name], device, f"{device} mtu", "400 W", "700 W", lasting.DRIVER)
    spec = HostSpec(name="gpu1", capabilities={name: block(name, block_)})
    remembered = receipt(**{name: [lasting.format_setting(left)]})
    there = facts(**{**good(), **known_, "receipt": remembered, "contents": "@contents\n"})
    assert [one.name for one in find_unmanaged(spec, there)] == ([left.name] if named else [])


def test_a_check_that_breaks_says_nothing_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_kernel: Kernel) -> None:
        raise ValueError

    monkeypatch.setattr("gpuprov.capabilities.kernel.now.sysctls", breaks)
    spec = HostSpec(name="gpu1", capabilities={"kernel": Kernel(sysctl={"vm.dirty_ratio": 5})})
    remembered = receipt(kernel=[lasting.format_setting(lasting.Lasting(*SWAPPINESS))])
    there = facts(receipt=remembered, contents="@contents\n", sysctl=SYSCTLS, sysctl_at_boot="")
    assert find_unmanaged(spec, there) == ()


def test_what_is_applied_is_declared_and_its_value_before_is_known() -> None:
    kernel = Kernel(sysctl={"vm.swappiness": 1, "vm.dirty_ratio": 5}, cpu_governor="performance")
    spec = HostSpec(name="gpu1", capabilities={"kernel": kernel})
    there = facts(sysctl="vm.swappiness = 60\nvm.dirty_ratio = 5\n", sysctl_at_boot="")
    made = receipts.settings(BY_NAME["kernel"], Context(spec, kernel, there))
    assert made.lines == [
        lasting.format_setting(lasting.Lasting(*SWAPPINESS)),
        lasting.format_setting(lasting.Lasting(*DIRTY)),
        "unread kernel.governor",
    ]


RUNS = Decision({"nvidia_absent": "a check fails"}, {})
LEFT = find_unmanaged(HOST, known(BROUGHT, *THERE))


def test_a_plan_names_them_also_where_there_is_nothing_to_do() -> None:
    plan = HostPlan(host="gpu1", unmanaged=LEFT)
    text = as_text([plan])
    assert "gpu1: nothing to do" in text
    assert "no longer asked for (--prune takes it away)\n    mps: /etc/gpuprov/mps.json, " in text
    assert "fabric_manager: nvidia-fabricmanager.service (a package brings it)" in text
    assert sentence([plan]) == "1 host: nothing to do, 4 resources no longer asked for (--prune)"


def test_with_prune_they_are_changes_and_what_stays_is_said() -> None:
    plan = HostPlan(
        host="gpu1",
        run={"host": "no longer asked for: 2 files, 1 unit, 1 hold"},
        unmanaged=LEFT,
        changes=tuple(Item.of("host", one) for one in changes_of(LEFT)),
    )
    text = as_text([plan])
    assert "- /etc/gpuprov/mps.json: there -> removed" in text
    assert "- gpuprov-mps@host.service: active -> disabled" in text
    assert "no longer asked for\n    fabric_manager: nvidia-fabricmanager.service (a package brings it)" in text
    assert "--prune" not in text
    assert sentence([plan]) == "1 host: 1 hold, 2 files, 1 unit"


@run_each(("after", "named"), [("removed", 0), ("restarted", 1)])
def test_a_unit_that_goes_with_its_package_is_named_once(after: str, named: int) -> None:
    change = Change(kind="service", name="nvidia-fabricmanager.service", before="active", after=after)
    found = Result(
        host="gpu1", capability="nvidia_absent", check="nvidia_absent.units", status="fail", changes=(change,)
    )
    plan = host_plan(HOST, [found], known(BROUGHT, *THERE), RUNS, datetime.now(UTC), unmanaged=LEFT)
    assert [each.name for each in plan.unmanaged if each.stays] == ["nvidia-fabricmanager.service"] * named
    assert len(plan.unmanaged) == len(LEFT) - 1 + named


def test_paths_of_one_folder_are_written_as_one() -> None:
    assert fold_paths(["/etc/a/x", "/etc/a/y", "/etc/b/z", "docker.service", "cuda", "net.q/7.mtu"]) == [
        "/etc/a/{x,y}",
        "/etc/b/z",
        "docker.service",
        "cuda",
        "net.q/7.mtu",
    ]


BLOCK: sources.Source = {
    **package_sources.SOURCE,
    "name": "container-toolkit",
    "of": "container_toolkit.repository",
    "url": "https://mirror.example/cuda",
    "key_file": "/k.asc",
    "key_url": "",
}


@run_each(("there", "name"), [("nvidia", "nvidia"), ("", "container-toolkit")])
def test_a_package_source_is_listed_by_the_name_that_it_has_on_the_host(there: str, name: str) -> None:
    """Two capabilities with one repository share a file under the first one's name: it is not taken from under the
    second."""
    text = sources.format_text({**BLOCK, "name": there}, "debian") if there else ""
    shown = f"@file /etc/apt/sources.list.d/gpuprov-{there}.sources\n" + "".join(
        f" {one}\n" for one in text.splitlines()
    )
    told = facts(os_release=OS, repositories=f"@arch amd64\n{shown if there else ''}@end\n")
    toolkit = BY_NAME["container_toolkit"]
    ctx: Context[Any] = Context(HOST, toolkit.fragment(), told)
    without = dataclasses.replace(toolkit, resources=None)
    listed = receipts.entries(
        without, ctx, {"repository": BLOCK, "components": {"/etc/apt/sources.list.d/x.sources": ""}}
    )
    assert listed[-2:] == [
        f"file /etc/apt/sources.list.d/gpuprov-{name}.sources",
        f"file /etc/apt/keyrings/gpuprov-{name}.asc",
    ]
    assert "file /etc/apt/sources.list.d/x.sources" in listed
