"""Firmware of the same boards on all hosts of a run: the few that differ are named, and a tie is reported."""

from __future__ import annotations

from pathlib import Path

from gpuprov.capabilities.health import firmware
from gpuprov.capabilities.health.fragment import FirmwareVersions, Health
from gpuprov.facts.captures import Record
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.facts.probes.host.hardware import FIRMWARE, Firmware
from gpuprov.report import as_json, html, text
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify import evaluate, recorded
from gpuprov.verify.evaluate import Result
from gpuprov.verify.fitness import fitness
from gpuprov.verify.racks import compare_hosts
from tests.capabilities.asking import good
from tests.capabilities.health_host import boards, both, smi
from tests.facts.probes import run_script
from tests.facts.probes.rdma.test_rdma import hca, put, soft
from tests.rows import run_each

FLEET = Health(firmware="fleet")
OLD, NEW = "28.35.1012", "28.39.1002"
ADAPTER = "adapter of MT_0000000838 (MT4129)"


def judge(*hosts: dict[str, str], block: Health = FLEET) -> list[Result]:
    """Return the result of each host, numbered from 1, whose probes print these instead of the good host's."""
    results: list[Result] = []
    for number, changed in enumerate(hosts, 1):
        spec = HostSpec(name=f"gpu{number}", capabilities={"health": block})
        texts = {**good(), **changed}
        outputs = {name: value if isinstance(value, Output) else Output(value) for name, value in texts.items()}
        results += evaluate(spec, Facts(outputs))
    return [result for result in compare_hosts(results) if result.check == firmware.BASELINE]


MIXED = {"board_firmware": boards(OLD) + boards(NEW).replace("18:00.0", "19:00.0")}


def named(machine: str) -> dict[str, str]:
    """What a host prints whose machine has this identity."""
    return {"which_machine": f"{machine} pid:[1]\n"}


def old(adapter: str = OLD) -> dict[str, str]:
    return {"board_firmware": boards(adapter)}


@run_each(
    ("hosts", "statuses", "words"),
    [
        ([{}] * 4, "pass pass pass pass", f"{ADAPTER}: {NEW}, as on all 4 hosts"),
        ([old(), {}, {}], "fail pass pass", f"{ADAPTER}: {OLD}; 2 of 3 hosts have {NEW}"),
        ([old(), old("28.33.4030"), {}, {}, {}], "fail fail pass pass pass",
         f"{ADAPTER}: {OLD}; 3 of 5 hosts have {NEW}"),
        ([old(), {}], "skip skip",
         f"{ADAPTER}: no version is on most of 2 hosts: {OLD} on 1, {NEW} on 1 (from 3 hosts on"),
        ([old(), old(), {}, {}], "skip skip skip skip", f"no version is on most of 4 hosts: {OLD} on 2, {NEW} on 2"),
        ([{}, {}], "pass pass", "as on all 2 hosts"),
        ([{}], "skip", "no other host of this run has this board"),
        ([{"gpu_health": both(VBIOS_Version="96.00.89.00.01")}, {}, {}], "fail pass pass",
         "96.00.74.00.0D on 0000:19:00.0, 96.00.89.00.01 on 0000:3b:00.0; 2 of 3 hosts have 96.00.74.00.0D"),
        ([{"gpu_health": smi(Board_Part_Number="692-2G520-0280-000", VBIOS_Version="1")}, {}, {}], "skip pass pass",
         "VBIOS of NVIDIA H100 80GB HBM3 (692-2G520-0280-000): no other host of this run has this board"),
        ([{"board_firmware": boards(switch="1.2")}, {}, {}], "fail pass pass",
         "NVSwitch of 10de:22a3: 1.2; 2 of 3 hosts"),
        ([{"board_firmware": "adapter|0000:20:00.0|||0.0.0.0\n"}, {}, {}], "pass pass pass", "on all 3 hosts"),
        ([{"board_firmware": "adapter|1\x1b[2J|\nadapter|a||b c|$(id)\nswitch|a|b|c|1\n"}, {}, {}], "skip pass pass",
         "adapter of b c at a does not show its version; VBIOS of"),
        ([old("N/A"), {}, {}], "skip pass pass", f"{ADAPTER} at 0000:18:00.0 does not show its version; VBIOS of"),
        ([{"gpu_health": smi(VBIOS_Version="N/A", Image_Version="N/A")}, {}, {}], "skip pass pass",
         "VBIOS of NVIDIA H100 80GB HBM3 (692-2G520-0200-000) at 0000:19:00.0 does not show its version; NVSwitch of"),
        ([MIXED] * 2, "pass pass", f"{ADAPTER}: {OLD} and {NEW}, as on all 2 hosts"),
        ([MIXED, MIXED, {}], "skip skip skip", f"no version is on most of 3 hosts: {OLD} and {NEW} on 2, {NEW} on 1"),
        ([old("28.ab"), old("28.AB"), old("28.AB")], "pass pass pass", f"{ADAPTER}: 28.ab, as on all 3 hosts"),
        ([old() | named("a"), old() | named("a"), named("b")], "skip skip skip",
         f"no version is on most of 2 hosts: {OLD} on 1"),
        ([named("a"), named("a")], "skip skip", "no other host of this run has this board"),
        ([old() | named(""), old() | named(""), {}], "pass pass fail", f"{ADAPTER}: {OLD}, as on 2 of 3 hosts"),
    ],
)  # fmt: skip
def test_most_hosts_with_the_same_board_decide(hosts: list[dict[str, str]], statuses: str, words: str) -> None:
    results = judge(*hosts)
    assert " ".join(result.status for result in results) == statuses
    assert words in results[0].found
    assert not any(result.firmware for result in results)
    for result in results:
        if result.status == "fail":
            assert (result.action, bool(result.fix and result.expected)) == ("update", True)
            assert str(fitness([result])[0]) == "not until driver and firmware are updated"


def test_a_declared_version_goes_before_that_of_the_others() -> None:
    """And the other boards of these hosts are compared all the same."""
    block = Health(firmware="fleet", firmware_versions=FirmwareVersions(adapter={"MT4129": OLD}))
    first, *others = judge({**old(), "gpu_health": smi(VBIOS_Version="1")}, {}, {}, block=block)
    assert first.found.startswith("VBIOS of NVIDIA H100")
    assert {result.status for result in others} == {"fail"}
    assert {result.found for result in others} == {f"{ADAPTER}: {NEW}"}
    first, *_ = judge({"gpu_health": smi(VBIOS_Version="1")}, {}, {}, block=block)
    assert first.found.startswith(
        f"{ADAPTER}: {NEW}; VBIOS of NVIDIA H100 80GB HBM3 (692-2G520-0200-000): 1; 2 of 3 hosts have"
    )


def test_the_three_of_many_stand_in_text_page_and_document() -> None:
    results = judge(*([old()] * 3), *([{}] * 37))
    shown = text.render(results, width=120)
    assert "3 hosts: gpu[1:3]" in shown or "gpu[1:3]" in shown
    assert f"{OLD}; 37 of 40 hosts have {NEW}" in " ".join(shown.split())
    document = as_json.build_document(results)
    (cause,) = document.causes
    assert (cause.check, cause.hosts) == (firmware.BASELINE, ("gpu1", "gpu2", "gpu3"))
    assert f"37 of 40 hosts have {NEW}" in cause.found
    assert f"37 of 40 hosts have {NEW}" in html.render(results, "firmware")


@run_each("probes", [("gpu_health", "board_firmware"), ("gpu_health",)])
def test_records_are_compared_as_hosts_are(probes: tuple[str, ...]) -> None:
    """A bug report holds no firmware of adapters: what it holds is compared, and the rest is not proven."""
    pairs, records = [], []
    for number in range(4):
        outputs = {
            "gpu_health": smi(VBIOS_Version="1" if number == 2 else "96.00.74.00.0D"),
            "board_firmware": boards(),
        }
        name = f"gpu{number}"
        pairs.append((RawHost(name=name), HostSpec(name=name, capabilities={"health": FLEET})))
        answers = {probe: Output(outputs[probe]) for probe in probes}
        records.append(Record(host=name, path=name, kind="capture", outputs=answers))
    results = [result for result in recorded.verify(pairs, records) if result.check == firmware.BASELINE]
    rest = "pass" if len(probes) == 2 else "skip"
    assert [result.status for result in results] == [rest, rest, "fail", rest]
    assert "3 of 4 hosts have 96.00.74.00.0D" in results[2].found
    if rest == "skip":
        assert "the record does not hold the firmware of network adapters and NVSwitches; VBIOS of" in results[0].found


def test_the_probe_reads_sysfs_and_the_modules_own_files(tmp_path: Path) -> None:
    """Functions of virtual machines, soft devices and further devices of one function do not count."""
    put(hca(tmp_path, "mlx5_0", "0000:18:00.0"), board_id="MT_0000000838", hca_type="MT4129")
    put(hca(tmp_path, "mlx5_1", "0000:18:00.1"), board_id="MT_0000000838", hca_type="MT4129")
    (tmp_path / "devices" / "0000:18:00.1" / "physfn").symlink_to(tmp_path)
    put(hca(tmp_path, "rdmap0s0", "0000:20:00.0", firmware="0.0.0.0"))
    soft(tmp_path, "rxe0", parent="ens4")
    put(tmp_path / "devices" / "0000:07:00.0", vendor="0x10de", device="0x22a3")
    put(tmp_path / "switches" / "0000:07:00.0", information="BIOS Version: 96.10.57.00.01")
    put(tmp_path / "switches" / "0000:08:00.0", information="BIOS Version: N/A")
    script = FIRMWARE.script.replace("/sys/class/infiniband", str(tmp_path / "infiniband"))
    script = script.replace("/proc/driver/nvidia-nvswitch/devices", str(tmp_path / "switches"))
    script = script.replace("/sys/bus/pci/devices", str(tmp_path / "devices"))
    assert FIRMWARE.parse(run_script(script, tmp_path, {})) == (
        Firmware(kind="adapter", board="MT_0000000838 (MT4129)", names=("MT_0000000838", "MT4129"),
                 address="0000:18:00.0",
                 version="28.39.1002"),
        Firmware(kind="nvswitch", board="10de:22a3", names=("10de:22a3",), address="0000:07:00.0",
                 version="96.10.57.00.01"),
    )  # fmt: skip
