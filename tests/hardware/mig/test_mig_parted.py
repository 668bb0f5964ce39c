"""A mig-parted file means here what it means to mig-parted v0.15."""

from __future__ import annotations

from typing import Any

import pytest

from gpuprov.catalog.gpus import find_by_pci_id, list_gpus
from gpuprov.catalog.mig import find_class
from gpuprov.hardware.mig import model_of
from gpuprov.hardware.mig.judge import judge
from gpuprov.host_code.mig.layout import Gpu, LayoutError, Target, normalize_layout, select_targets
from tests.rows import run_each

# The labels of mig-parted's shipped configuration, without all-disabled and all-enabled: filters (nothing: none) and
# devices. https://github.com/NVIDIA/mig-parted/blob/main/deployments/systemd/config-default.yaml (v0.15.0)
A100_80 = "2330 2331 2322 20B2 20B5 20F3 20F5 2324"
A100_40 = "20B0 20B1 20F1 20F6"
BALANCED = """
2941: 1g.23gb=2 2g.47gb=1 3g.93gb=1
31C2: 1g.35gb=2 2g.70gb=1 3g.139gb=1
2BB5: 1g.24gb=2 2g.48gb=1
2901: 1g.23gb=2 2g.45gb=1 3g.90gb=1
3182: 1g.34gb=2 2g.67gb=1 3g.135gb=1
2348: 1g.18gb=2 2g.36gb=1 3g.72gb=1
2335 233B: 1g.18gb=2 2g.35gb=1 3g.71gb=1
2321 233A: 1g.12gb=2 2g.24gb=1 3g.47gb=1
2330 2331 2322 20B2 20B5 20F3 20F5 2324: 1g.10gb=2 2g.20gb=1 3g.40gb=1
20B0 20B1 20F1 20F6: 1g.5gb=2 2g.10gb=1 3g.20gb=1
20B7: 1g.6gb=2 2g.12gb=1
2342 233D 20B6 2329: 1g.12gb=2 2g.24gb=1 3g.48gb=1
"""
FILTERED = {
    "all-balanced": BALANCED,
    "all-1g.10gb": f"{A100_80}: 1g.10gb=7\n{A100_40}: 1g.10gb=4",
    "all-1g.35gb": "2335: 1g.35gb=4\n31C2: 1g.35gb=7",
}
# Labels without a filter, all-PROFILE or all-PROFILE.ATTRIBUTE, by the count they ask for.
PLAIN = {
    7: "1g.5gb 1g.12gb 1g.18gb 1g.23gb 1g.34gb",
    4: "1g.20gb 1g.6gb 1g.24gb 1g.47gb 1g.36gb 1g.45gb 1g.67gb 1g.70gb 1g.24gb+gfx 1g.24gb-me",
    3: "2g.10gb 2g.20gb 2g.24gb 2g.47gb 2g.35gb 2g.36gb 2g.45gb 2g.67gb 2g.70gb",
    2: "3g.20gb 3g.40gb 2g.12gb 3g.93gb 3g.47gb 3g.48gb 3g.71gb 3g.72gb 3g.90gb 3g.135gb 3g.139gb 3g.95gb "
    "2g.48gb 2g.48gb+gfx 2g.48gb-me",
    1: "1g.5gb+me 4g.20gb 7g.40gb 1g.24gb+me.all 2g.48gb+me.all 4g.96gb 4g.96gb+gfx 1g.10gb+me 4g.40gb 7g.80gb "
    "1g.6gb+me 2g.12gb+me 4g.24gb 1g.12gb+me 1g.24gb+me 4g.93gb 7g.186gb 4g.47gb 7g.94gb 4g.48gb 7g.96gb 1g.18gb+me "
    "1g.23gb+me 4g.71gb 7g.141gb 1g.34gb+me 1g.35gb+me 4g.72gb 4g.90gb 4g.95gb 4g.135gb 4g.139gb 7g.144gb 7g.180gb "
    "7g.189gb 7g.269gb 7g.278gb",
}
# Names of the GB200 before mig-parted v0.12.3: no GPU reports them.
STALE = {"3g.95gb", "4g.95gb", "7g.189gb"}


def default_configuration() -> dict[str, list[dict[str, Any]]]:
    labels: dict[str, list[dict[str, Any]]] = {}
    for label, text in FILTERED.items():
        for line in text.strip().splitlines():
            ids, devices = line.split(": ")
            counts = {name: int(count) for name, count in (word.split("=") for word in devices.split())}
            filters = [f"0x{number}10DE" for number in ids.split()]
            entry = {"device-filter": filters, "devices": "all", "mig-enabled": True, "mig-devices": counts}
            labels.setdefault(label, []).append(entry)
    for count, names in PLAIN.items():
        for name in names.split():
            labels[f"all-{name.replace('+', '.')}"] = [
                {"devices": "all", "mig-enabled": True, "mig-devices": {name: count}}
            ]
    return labels


def on(pci: str, *, subsystem: str = "0x000010DE", capable: bool = True, index: int = 0) -> Gpu:
    return Gpu(index, f"0000:{index:02x}:00.0", f"GPU-{index}", "", "", pci, subsystem, capable)


@run_each(("label", "entries"), default_configuration().items())
def test_every_label_fits_on_the_gpus_it_filters_for(label: str, entries: list[dict[str, Any]]) -> None:
    asked, layout = 0, normalize_layout("enabled", [], entries)
    for model in list_gpus():
        found = find_class(model)
        for pci in model.pci_ids:
            target = select_targets(layout, [on(f"0x{pci.id[5:].upper()}10DE")]).get(0)
            # Where nothing is filtered the label is for the GPUs that have its profiles.
            if (
                not target
                or not found
                or found.grid_size is None
                or any(not found.find(i.profile) for i in target.instances)
            ):
                assert "device-filter" not in entries[0] or not target, f"{label} asks {model.key} for what it has not"
                continue
            asked += 1
            fit = judge(model_of(model), target.instances)
            assert not fit.reason, f"{label} on {model.key}"
            assert len(fit.placed) == len(target.instances)
    names = {name for entry in entries for name in entry["mig-devices"]}
    assert bool(asked) is not (names <= STALE)


@run_each(
    ("filter_", "passed"),
    [
        (None, True),
        ("", True),
        ([], True),
        ("0x233010DE", True),
        ("0X233010de", True),
        ("590352606", True),
        (["0x20B710DE", "0x233010DE"], True),
        ("0x233010DE:0x16C110DE", True),
        ("0x233010DE:0x16C010DE", False),
        ("0x20B710DE", False),
        ("0x2330", False),
        ("2330", False),
        ("10de:2330", False),
        ("H100", False),
        (["H100", "0x233010DE"], True),
        ("0x233010DE:", False),
        ("0x233010DE:0x16C110DE:0x1", False),
        ("0x1233010DE", False),
    ],
)
def test_device_filters(filter_: Any, passed: bool) -> None:
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {}}
    entry |= {} if filter_ is None else {"device-filter": filter_}
    gpu = on("0x233010DE", subsystem="0x16C110DE")
    assert (0 in select_targets(normalize_layout("enabled", [], [entry]), [gpu])) is passed


def test_indexes_and_gpus_without_mig() -> None:
    host = [on("0x233010DE"), on("0x27B810DE", capable=False, index=1), on("0x233010DE", index=2)]
    every = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}
    last = {"devices": [2, 9], "mig-enabled": True, "mig-devices": {"7g.80gb": 1}}
    found = select_targets(normalize_layout("enabled", [], [every, last]), host)
    assert {index: len(target.instances) for index, target in found.items()} == {0: 7, 2: 1}
    with pytest.raises(LayoutError, match=r"entry 0: GPU 1 \(\) has no MIG"):
        select_targets(
            normalize_layout("enabled", [], [{"devices": [1], "mig-enabled": True, "mig-devices": {}}]), host
        )
    assert select_targets(normalize_layout("enabled", [], [{"devices": [1], "mig-enabled": False}]), host) == {}


def test_enabled_without_instances() -> None:
    host = [on("0x233010DE")]
    nothing: tuple[Any, ...] = ({}, None)
    for devices in nothing:
        entry = {"devices": "all", "mig-enabled": True, "mig-devices": devices}
        assert select_targets(normalize_layout("enabled", [], [entry]), host) == {0: Target(True)}


def test_two_modes_for_one_gpu() -> None:
    entries = [{"devices": "all", "mig-enabled": False}, {"devices": [0], "mig-enabled": True, "mig-devices": {}}]
    with pytest.raises(LayoutError, match="entry 1: GPU 0 has another mode in an earlier entry"):
        select_targets(normalize_layout("enabled", [], entries), [on("0x233010DE")])


@run_each(
    ("entry", "text"),
    [
        ([], "entry 0 is []; write a mapping of device-filter, devices, mig-enabled, mig-devices"),
        ({"mig-enabled": False}, "entry 0.devices is None; allowed: all, or a list of indexes"),
        ({"devices": "0", "mig-enabled": False}, "entry 0.devices is '0'"),
        ({"devices": [True], "mig-enabled": False}, "entry 0.devices is [True]"),
        ({"devices": "all"}, "entry 0.mig-enabled is None; allowed: true, false"),
        ({"devices": "all", "mig-enabled": "yes"}, "entry 0.mig-enabled is 'yes'"),
        ({"devices": "all", "mig-enabled": True}, "entry 0: mig-devices is missing"),
        ({"devices": "all", "mig-enabled": True, "mig-devices": ["1g.5gb"]}, "write {profile: count}"),
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 0}}, "mig-devices: all counts are 0"),
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": -1}}, "mig-devices: 1g.5gb is -1"),
        ({"devices": "all", "mig-enabled": True, "mig-devices": {"1g": 1}}, '"1g" is not a MIG profile'),
        ({"devices": "all", "mig-enabled": False, "mig-devices": {"1g.5gb": 1}}, "mig-enabled: false has none"),
        ({"devices": "all", "mig-enabled": False, "device-filter": 1}, "entry 0.device-filter is 1; write it as text"),
        ({"devices": "all", "mig-enabled": False, "device-filter": [1]}, "entry 0.device-filter is [1]"),
        ({"devices": "all", "mig-enabled": False, "gpus": []}, 'entry 0: unknown key "gpus"'),
    ],
)
def test_entries_that_mig_parted_refuses(entry: Any, text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        normalize_layout("enabled", [], [entry])
    assert text in str(caught.value)


def test_filters_of_the_table_are_gpus_of_the_catalogue() -> None:
    for entries in default_configuration().values():
        for entry in entries:
            assert all(find_by_pci_id(one) for one in entry.get("device-filter", ()))
