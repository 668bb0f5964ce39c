"""Firmware of GPUs, NVSwitches and network adapters: the same within a host, as declared, and the same as on other
hosts."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from gpuprov.capabilities.base import Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.health.fragment import REMOVED, Ctx, is_driver_removed
from gpuprov.capabilities.health.reported import shown
from gpuprov.catalog.health import get_tool
from gpuprov.catalog.verdicts import find_complaints
from gpuprov.facts.probes.base import NotRecorded, ProbeFailed
from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.gpu_state import GpuHealth
from gpuprov.facts.probes.host.hardware import ADAPTER, FIRMWARE, NVSWITCH, Firmware
from gpuprov.facts.probes.host.house import MACHINE
from gpuprov.host_code.machine import find_duplicates

BASELINE = "health.firmware_baseline"
# Kinds of firmware, in the order of a report.
NAMES = {"vbios": "VBIOS", "inforom": "InfoROM", NVSWITCH: "NVSwitch", ADAPTER: "adapter"}
# Hosts with the same board from which most of them decide which firmware is right.
LEAST = 3


@check(
    "health.firmware", GPU_HEALTH, fields=("firmware",), evidence="nvidia-smi -q | grep -E '^GPU|VBIOS|Image Version'"
)
def firmware(ctx: Ctx) -> Outcome:
    """GPUs of the same model and maker have the same VBIOS and InfoROM image, and no InfoROM is corrupt."""
    gpus = shown(ctx)
    state = ctx.facts.get(GPU_HEALTH)
    corrupt = find_complaints(state.warnings, "inforom-corrupted")
    if corrupt:
        return fail(
            "no corrupt InfoROM", "; ".join(corrupt), "drain the host, and ask the vendor's support", action="drain"
        )
    if ctx.fragment.firmware == "any":
        return not_asked("firmware: any")
    listed = []
    for kind in ("vbios", "inforom"):
        for model in dict.fromkeys(gpu.kind for gpu in gpus):
            versions: dict[str, list[str]] = {}
            for gpu in gpus:
                if gpu.kind == model and getattr(gpu, kind):
                    versions.setdefault(getattr(gpu, kind), []).append(gpu.address)
            if len(versions) > 1:
                each = ", ".join(f"{version} on {' '.join(where)}" for version, where in versions.items())
                listed.append(f"{NAMES[kind]}: {each}")
    if listed:
        fix = "bring the GPUs to one firmware with the vendor's tool"
        return fail("one VBIOS and one InfoROM image", "; ".join(listed), fix)
    if not any(gpu.vbios for gpu in gpus):
        return skip("no GPU reports its VBIOS") if gpus else not_asked("no NVIDIA GPU on the PCI bus")
    return ok(", ".join(dict.fromkeys(f"VBIOS {gpu.vbios}" for gpu in gpus)), "one VBIOS and one InfoROM image")


@check(
    BASELINE,
    *(GPU_HEALTH, FIRMWARE, MACHINE),
    fields=("firmware", "firmware_versions"),
    evidence=f"{GPU_HEALTH.evidence}; {FIRMWARE.evidence}",
)
def baseline(ctx: Ctx) -> Outcome:
    """Boards have the firmware that the spec declares. With firmware: fleet, others have that of most hosts of the run
    with the same board, if three or more have it; verify and health compare them."""
    declared = msgspec.to_builtins(ctx.fragment.firmware_versions)
    learned = ctx.fragment.firmware == "fleet"
    if not learned and not any(declared.values()):
        return not_asked("neither firmware: fleet nor firmware_versions is in the spec")
    devices, unread = _list_devices(ctx, {kind for kind in NAMES if learned or declared[kind]})
    if not devices and not unread and is_driver_removed(ctx.host):
        return not_asked(REMOVED)
    if not devices and not unread:
        return skip("no GPU, NVSwitch or network adapter reports its firmware")
    unmatched = [
        f"{NAMES[kind]} {board}"
        for kind, versions in declared.items()
        for board in versions
        if not any(device.kind == kind and board in device.names for device in devices)
    ]
    expected = [(device, _find_declared(declared, device)) for device in devices]
    # GPUs that are made for desks have no InfoROM.
    silent = [
        f"{NAMES[device.kind]} of {device.board} at {device.address} does not show its version"
        for device, version in expected
        if not device.version and (version or (learned and device.kind != "inforom"))
    ]
    shown = [(device, version) for device, version in expected if device.version]
    outcome = _judge_declared([(device, version) for device, version in shown if version], unmatched)
    if (unread or silent) and outcome.status != "fail":
        outcome = skip("; ".join(filter(None, (unread, *silent))))
    others = tuple(device for device, version in shown if learned and not version)
    machine = (ctx.facts.known(MACHINE) or "") if others else ""
    return msgspec.structs.replace(outcome, firmware=others, machine=machine)


def _list_devices(ctx: Ctx, kinds: Collection[str]) -> tuple[list[Firmware], str]:
    """Return the firmware of all devices of these kinds, and why that of some is unknown."""
    devices: list[Firmware] = []
    unread = []
    if not {"vbios", "inforom"}.isdisjoint(kinds) and not is_driver_removed(ctx.host):
        try:
            devices += [part for gpu in shown(ctx) for part in _list_parts(gpu)]
        except ProbeFailed as error:
            unread.append(str(error))
    if not {ADAPTER, NVSWITCH}.isdisjoint(kinds):
        try:
            devices += ctx.facts.get(FIRMWARE)
        except NotRecorded:
            unread.append("the record does not hold the firmware of network adapters and NVSwitches")
    return [device for device in devices if device.kind in kinds], "; ".join(unread)


def _list_parts(gpu: GpuHealth) -> Iterator[Firmware]:
    board = gpu.part or gpu.board
    names = tuple(filter(None, (gpu.name, gpu.part)))
    for kind, version in (("vbios", gpu.vbios), ("inforom", gpu.inforom)):
        name = f"{gpu.name} ({board})" if board else gpu.name
        yield Firmware(kind=kind, board=name, names=names, address=gpu.address, version=version)


def _find_declared(declared: Mapping[str, Mapping[str, str]], device: Firmware) -> str:
    """Return the version that the spec has for a device; that of its board or part goes before that of its model."""
    versions = declared.get(device.kind, {})
    order = device.names if device.kind == ADAPTER else device.names[::-1]
    return next((versions[name] for name in order if name in versions), "")


def _judge_declared(devices: Sequence[tuple[Firmware, str]], unmatched: Sequence[str]) -> Outcome:
    wrong: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for device, version in devices:
        if device.version.casefold() != version.casefold():
            versions = wrong.setdefault((device.kind, device.board, version), {})
            versions.setdefault(device.version, []).append(device.address)
    if wrong:
        listed = [f"{NAMES[kind]} of {board}: {_describe(versions)}" for (kind, board, _), versions in wrong.items()]
        expected = [f"{NAMES[kind]} {version} of {board}" for kind, board, version in wrong]
        kinds = [kind for kind, _, _ in wrong]
        return fail("; ".join(expected), "; ".join(listed), _describe_update(kinds), action="update")
    lacking = f"not here: {', '.join(unmatched)}" if unmatched else ""
    if not devices:
        return (
            skip(f"declared for other boards; {lacking}") if unmatched else not_asked("compared with other hosts alone")
        )
    matched = dict.fromkeys(f"{NAMES[device.kind]} {device.version} of {device.board}" for device, _ in devices)
    return ok("; ".join(filter(None, (*matched, lacking))))


def _describe(versions: Mapping[str, Sequence[str]]) -> str:
    """Return versions, with the devices where there are several."""
    if len(versions) == 1:
        return next(iter(versions))
    return ", ".join(f"{version} on {' '.join(addresses)}" for version, addresses in versions.items())


def _describe_update(kinds: Iterable[str]) -> str:
    """Return the commands that write firmware, which gpuprov itself never runs."""
    needed = set(kinds)
    return "; ".join(dict.fromkeys(get_tool(kind) for kind in NAMES if kind in needed))


class _Board(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} of {self.name}"


# Addresses of devices by version.
Versions = dict[str, list[str]]
# All versions of a board on a host, in small letters.
Key = frozenset[str]


def judge_fleet(hosts: Mapping[str, Sequence[Firmware]], machines: Mapping[str, str]) -> dict[str, Outcome]:
    """Compare the firmware of the same boards on all hosts: the outcome of each host that has any. machines: identity
    of each host's machine, empty if unknown."""
    boards: dict[_Board, dict[str, Versions]] = {}
    for host, devices in hosts.items():
        for device in devices:
            versions = boards.setdefault(_Board(device.kind, device.board), {}).setdefault(host, {})
            versions.setdefault(device.version, []).append(device.address)
    outcomes: dict[str, list[tuple[_Board, Outcome]]] = {}
    for board in sorted(boards, key=lambda board: ([*NAMES].index(board.kind), board.name)):
        for host, outcome in _judge_board(board, boards[board], machines):
            outcomes.setdefault(host, []).append((board, outcome))
    return {host: _join(rows) for host, rows in outcomes.items()}


def _judge_board(
    board: _Board, hosts: Mapping[str, Versions], machines: Mapping[str, str]
) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcome of each host with this board."""
    again = find_duplicates({host: machines[host] for host in hosts})
    keys = {host: frozenset(version.casefold() for version in versions) for host, versions in hosts.items()}
    counts = Counter(key for host, key in keys.items() if host not in again)
    words = {keys[host]: " and ".join(sorted(versions)) for host, versions in reversed([*hosts.items()])}
    total = counts.total()
    usual, count = max(
        ((key, counts[key]) for key in counts if len(key) == 1 or counts[key] == total),
        key=_rank,
        default=(frozenset[str](), 0),
    )
    if total == 1:
        for host in hosts:
            yield host, skip(f"{board}: no other host of this run has this board")
    elif count == total or (count * 2 > total >= LEAST):
        others = f"all {total} hosts" if count == total else f"{count} of {total} hosts"
        for host, versions in hosts.items():
            if keys[host] == usual:
                yield host, ok(f"{board}: {words[usual]}, as on {others}")
            else:
                message = f"{board}: {_describe(versions)}; {others} have {words[usual]}"
                yield host, fail("the firmware of most hosts with the same board", message, "", action="update")
    else:
        each = [
            f"{text} on {number}"
            for text, number in sorted(((words[key], counts[key]) for key in counts), key=_sort_key)
        ]
        reason = f"{board}: no version is on most of {total} hosts: {', '.join(each)}"
        reason += f" (from {LEAST} hosts on, most of them decide)" if total < LEAST else ""
        for host in hosts:
            yield host, skip(reason, "declare the right one: firmware_versions")


def _rank(row: tuple[Key, int]) -> int:
    return row[1]


def _sort_key(row: tuple[str, int]) -> tuple[int, str]:
    return -row[1], row[0]


def _join(rows: Sequence[tuple[_Board, Outcome]]) -> Outcome:
    """Return the worst outcome of a host's boards, with the words of all that are as bad."""
    worst = next(status for status in ("fail", "skip", "pass") if any(row.status == status for _, row in rows))
    same = [(board, row) for board, row in rows if row.status == worst]
    text = "; ".join(row.found for _, row in same)
    fix = _describe_update(board.kind for board, _ in same) if worst == "fail" else same[0][1].fix
    return msgspec.structs.replace(same[0][1], found=text, fix=fix)


CHECKS = (firmware, baseline)
