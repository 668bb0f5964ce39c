"""Settings that are put back: only where they still have the value that was applied, read again, and taken out of the
receipt. Kernel files lie in a folder; what PCIe, RoCE and NVML have is stand-in."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.capabilities import pcie_host, roce_host
from tests.host_code.modules import on_host, ran, step

lasting, receipt, reasons = on_host("lasting"), on_host("receipt"), on_host("reasons")
act, kernel, devices, gpus = (on_host(f"restore.{name}") for name in ("act", "kernel", "devices", "gpus"))
kinds, look = on_host("restore.kinds"), on_host("restore.act")
GPU, PORT = "GPU 0 (0000:17:00.0)", "mlx5_0 port 1 (ens1f0np0)"


def setting(check: str, name: str, value: str, before: str, device: str = "") -> Any:
    return lasting.Lasting(check, device, name, value, before, lasting.BOOT)


SWAPPINESS = setting("kernel.sysctl", "vm.swappiness", "1", "60")
PAGES = setting("kernel.hugepages", "hugepages 2M", "64", "0")
GOVERNOR = setting("kernel.governor", "governor", "performance", "powersave", "policy0")


@pytest.fixture(name="root", autouse=True)
def fixture_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host whose settings have the values that were applied, with a receipt."""
    monkeypatch.setattr(on_host("running_kernel"), "PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(kernel, "PAGES", str(tmp_path / "pages"))
    monkeypatch.setattr(kernel.governor, "POLICIES", str(tmp_path / "cpufreq"))
    monkeypatch.setattr(receipt, "RECEIPT", str(tmp_path / "receipt.json"))
    monkeypatch.setattr(receipt, "MARK", str(tmp_path / "applying.json"))
    monkeypatch.setattr(receipt, "BOOT_ID", str(tmp_path / "boot"))
    monkeypatch.setattr(receipt, "settle", lambda _folders: None)
    monkeypatch.setattr(reasons, "FOLDER", str(tmp_path / "reasons"))
    (tmp_path / "boot").write_text("one\n")
    for one in (SWAPPINESS, PAGES, GOVERNOR):
        place = Path(kernel.find_path(one))
        place.parent.mkdir(parents=True)
        place.write_text(f"{one.value}\n")
    return tmp_path


def remember(*settings: Any, more: tuple[str, ...] = ()) -> None:
    lines = [*more, *map(lasting.format_setting, settings)]
    entry = {"digest": "1", "applied_at": "2026-01-01T00:00:00Z", "resources": lines}
    Path(receipt.RECEIPT).write_text(json.dumps({"schema": 2, "applied_at": "x", "capabilities": {"kernel": entry}}))


def listed() -> list[str]:
    entries = json.loads(Path(receipt.RECEIPT).read_text())["capabilities"]
    return [line for entry in entries.values() for line in entry["resources"]]


def restore(capsys: pytest.CaptureFixture[str], *settings: Any, check: bool = False) -> dict[str, Any]:
    return step(capsys, "settings", check=check, settings=[*map(lasting.format_setting, settings)])


def test_what_still_has_its_value_is_put_back_and_listed_no_longer(capsys: pytest.CaptureFixture[str]) -> None:
    remember(SWAPPINESS, PAGES, GOVERNOR, more=("unit x.service",))
    planned = restore(capsys, SWAPPINESS, PAGES, GOVERNOR, check=True)
    assert planned["diff"]["before"] == "vm.swappiness = 1\nhugepages 2M = 64\ngovernor = performance\n"
    assert Path(kernel.find_path(PAGES)).read_text() == "64\n"
    assert len(listed()) == 4, "check mode changes nothing"
    done = restore(capsys, SWAPPINESS, PAGES, GOVERNOR)
    assert (done["changed"], done["restored"]) == (True, ["vm.swappiness", "hugepages 2M", "governor"])
    assert [Path(kernel.find_path(one)).read_text().strip() for one in (SWAPPINESS, PAGES, GOVERNOR)] == [
        "60",
        "0",
        "powersave",
    ]
    assert listed() == ["unit x.service"]
    again = restore(capsys, SWAPPINESS, PAGES, GOVERNOR)
    assert (again["changed"], again.get("warnings")) == (False, None), "it has its value before: no news"


def test_what_others_changed_stays_and_what_cannot_be_read_or_set_stays_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    remember(SWAPPINESS, PAGES, GOVERNOR)
    Path(kernel.find_path(SWAPPINESS)).write_text("10\n")
    Path(kernel.find_path(PAGES)).unlink()
    monkeypatch.setattr(kernel.program, "write", lambda _path, _value: "Device or resource busy")
    done = restore(capsys, SWAPPINESS, PAGES, GOVERNOR)
    assert (done["changed"], done["warnings"]) == (
        False,
        [
            "not put back: vm.swappiness = 1: changed by others since it was applied: it is 10",
            "not put back: hugepages 2M = 64: it cannot be read: the host has none",
            "not put back: governor = performance: it is performance, not powersave: Device or resource busy",
        ],
    )
    assert Path(kernel.find_path(SWAPPINESS)).read_text() == "10\n"
    kept = [one._replace(left="one") for one in (PAGES, GOVERNOR)]
    assert listed() == [*map(lasting.format_setting, kept)]
    ran(capsys, "gpuprov_receipt", state="applied", capabilities=[], forgotten=["kernel"])
    assert listed() == [*map(lasting.format_setting, kept)], "the receipt forgets the capability, and not these"
    Path(receipt.BOOT_ID).write_text("two\n")
    ran(capsys, "gpuprov_receipt", state="applied", capabilities=[], forgotten=["kernel"])
    assert listed() == [], "a boot has ended them"


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (setting("kernel.sysctl", "vm.swappiness", "1", ""), "not known; by hand: sysctl -w vm.swappiness=VALUE"),
        (setting("kernel.sysctl", "a//etc/x", "1", "2"), "does not know how to set it"),
        (setting("kernel.governor", "governor", "performance", "powersave in 4 of 4", "policy0"), "which nothing sets"),
        (setting("pcie.affinity", "0000:17:00.0 smp_affinity_list", "its own node", "elsewhere"), "irqbalance"),
        (
            setting("rdma.roce_settings", f"{PORT} ecn", "3", "notification 3, reaction none", PORT),
            "which nothing sets",
        ),
        (setting("rdma.roce_settings", f"{PORT} colour", "3", "4", PORT), "which nothing sets"),
        (
            setting("gpu_settings.locked_clocks", f"{GPU}: locked clocks", "x", "graphics not locked by gpuprov", GPU),
            "nvidia-smi -i 0000:17:00.0 -rgc",
        ),
        (setting("later.setting", "name", "1", "2"), "this gpuprov does not know"),
    ],
)
def test_what_has_no_way_back_says_why_and_is_not_touched(
    one: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in kinds.explain_stay(one)
    done = restore(capsys, one)
    assert (done["changed"], why in done["warnings"][0]) == (False, True)


def test_a_plan_asks_the_host_which_settings_would_stay(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(kernel.find_path(SWAPPINESS)).write_text("10\n")
    lines = [*map(lasting.format_setting, (SWAPPINESS, PAGES))]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps({"settings": lines})))
    look.main()
    assert json.loads(capsys.readouterr().out)["stays"] == {
        lines[0]: "changed by others since it was applied: it is 10"
    }
    assert Path(kernel.find_path(PAGES)).read_text() == "64\n"


def test_registers_are_set_by_the_expressions_of_the_boot_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    acs = setting("pcie.acs", f"{pcie_host.LEFT} ACSCtl", "0000", "001d", pcie_host.LEFT)
    size = setting("pcie.max_read_request", f"{pcie_host.HCA} MaxReadReq", "4096", "512", pcie_host.HCA)
    order = setting("pcie.relaxed_ordering", f"{pcie_host.HCA} relaxed ordering", "enabled", "disabled", pcie_host.HCA)
    gone = setting("pcie.acs", "0000:ff:00.0 ACSCtl", "0000", "001d", "0000:ff:00.0")
    outputs = iter([
        pcie_host.said(acs=0, request=0x5010),
        pcie_host.said(acs=0, request=0x5010),
        pcie_host.said(acs=0x1D, request=0x2000),
    ])  # fmt: skip
    monkeypatch.setattr(devices.program, "read", lambda _reader: next(outputs))
    put: list[Any] = []
    monkeypatch.setattr(devices.pcie, "put", put.append)
    answer = act.restore([acs, size, order, gone], change=True)
    assert (answer.restored, [*answer.failed]) == ([acs, size, order], [gone])
    assert [one.change for one in put] == ["ECAP_ACS+6.w=001d", "CAP_EXP+8.w=2000:7000", "CAP_EXP+8.w=0000:0010"]


def test_ports_get_their_trust_before_what_follows_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"tos": ("106", "0"), "dscp.26": ("3", "by PCP"), "trust": ("dscp", "pcp")}
    settings = [setting("rdma.roce_settings", f"{PORT} {key}", *both, PORT) for key, both in values.items()]
    now = {key: value for key, (value, _) in values.items()}
    hidden = {key: "" for key in roce_host.VALUES if key.startswith("dscp.")}

    def read(reader: str) -> str:
        return roce_host.said({**hidden, **now}) if reader == devices.roce.READER else ""

    def put(_host: Any, difference: Any) -> str:
        order.append(difference.key)
        now[difference.key] = difference.value
        if difference.key == "trust":
            now["dscp.26"] = ""
        return ""

    order: list[str] = []
    monkeypatch.setattr(devices.roce, "read", read)
    monkeypatch.setattr(devices.roce, "load_manager", lambda: None)
    monkeypatch.setattr(devices.roce.devices, "select_devices", lambda *_: [SimpleNamespace(name="mlx5_0")])
    monkeypatch.setattr(devices.roce.Host, "put_value", put)
    answer = act.restore(settings, change=True)
    assert (sorted(answer.restored), answer.failed) == (sorted(settings), {})
    assert order == ["trust", "tos"]


@pytest.fixture(name="calls")
def fixture_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A GPU of which NVML says what was applied; the configurations that are carried out."""
    compare = on_host("gpu_settings.compare")
    state = {"ecc": ("enabled", "enabled"), "power": 500_000.0, "mode": "exclusive_process"}
    calls: list[Any] = []

    def read(_nvml: object) -> list[Any]:
        had = (state["ecc"], state["power"], 700_000.0, (2619, 1755), None, "", state["mode"])
        one = SimpleNamespace(state=compare.State(*had, mig=False), gpu=SimpleNamespace(address="0000:17:00.0"))
        return [one]

    def run(config: Any, *, change: bool, partly: bool) -> Any:
        assert (change, partly) == (True, True)
        calls.append(config)
        (entry,) = config["per_gpu"]
        for name, value in entry["settings"].items():
            if name == "compute_mode":
                return gpus.act.Answer(problems=[f"{GPU}: compute_mode {value} would keep processes out"])
            if name in ("ecc", "power_limit"):
                state[name.partition("_")[0]] = ("enabled", value) if name == "ecc" else value * 1000
        return gpus.act.Answer()

    monkeypatch.setattr(gpus, "Nvml", lambda: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(gpus, "read_cards", read)
    monkeypatch.setattr(gpus.act, "run", run)
    monkeypatch.setattr(gpus.act, "read_record", lambda: {"0000:17:00.0": {"graphics": [1200, 1755]}})
    return calls


def test_gpus_are_set_as_by_their_block_and_one_that_is_used_keeps_its_mode(
    calls: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    values = {
        "ecc": ("enabled", "disabled"),
        "power_limit": ("500 W", "449.5 W"),
        "compute_mode": ("exclusive_process", "prohibited"),
        "application_clocks": ("memory 2619 MHz, graphics 1980 MHz", "memory 2619 MHz, graphics 1755 MHz"),
        "locked_clocks": ("graphics 1200 to 1755 MHz", "graphics 900 to 1000 MHz"),
    }
    settings = [setting(f"gpu_settings.{name}", f"{GPU}: {name}", *both, GPU) for name, both in values.items()]
    done = restore(capsys, *settings)
    assert done["restored"] == [f"{GPU}: ecc", f"{GPU}: power_limit"]
    assert done["reboot"] == f"the ECC mode of {GPU} changes at a boot"
    assert [one["per_gpu"][0]["settings"] for one in calls] == [
        {"ecc": "disabled"},
        {"power_limit": 449.5},
        {"compute_mode": "prohibited"},
        {"locked_clocks": {"graphics": [900, 1000]}},
    ], "the application clocks are as before"
    assert "would keep processes out" in done["warnings"][0]
    assert "it is graphics 1200 to 1755 MHz" in done["warnings"][1]


@pytest.mark.parametrize(("now", "left"), [("1", False), ("2", True)])
def test_what_the_kernel_shows_in_decimal_was_changed_by_nobody(now: str, left: bool) -> None:
    applied = setting("kernel.sysctl", "net.ipv4.conf.all.log_martians", "0x1", "0")
    assert bool(kinds.explain_change(applied, now)) == left


@pytest.mark.parametrize("name", ["../../../etc/passwd", ".etc.passwd", "net//ipv4", "net.ipv4..x", "vm;x"])
def test_a_name_that_leads_elsewhere_is_not_set(name: str) -> None:
    assert kinds.explain_stay(setting("kernel.sysctl", name, "1", "0"))
