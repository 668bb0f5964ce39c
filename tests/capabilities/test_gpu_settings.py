"""gpu_settings: each setting is read back, the next boot is judged, and a host's own numbers decide what it takes."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities.base import Outcome
from gpuprov.capabilities.gpu_settings.fragment import GpuSettings
from gpuprov.facts.probes.gpus.gpu_settings import CONFIG, UNIT
from gpuprov.spec.build import convert
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, H100, PODMAN, good, with_own_files
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.gpu_settings_host import FIRST, OFF, ON, SECOND, UUIDS, both, kept, smi
from tests.rows import run_each

TWO = H100 + H100.replace("0000:19", "0000:3b")
Plain = dict[str, Any]


def block(plain: Plain) -> GpuSettings:
    made, findings = convert(plain, GpuSettings)
    assert isinstance(made, GpuSettings), findings
    return made


def ask(name: str, plain: Plain, *others: str, **changed: str) -> Outcome:
    """What a check says of the host with two GPUs."""
    check = CHECKS[f"gpu_settings.{name}"]
    texts = {**good(), "nvidia_functions": TWO, "gpu_settings": smi(), "nvidia_smi": ON, **changed}
    given = {key: text for key, text in texts.items() if key in {probe.name for probe in check.probes}}
    fragment = block(plain)
    host = HostSpec(name="h", capabilities=dict.fromkeys(("gpu_settings", *others), fragment))
    outcome = check.run(with_own_files(check, fragment, given, host))
    assert outcome.found
    assert outcome.status != "fail" or (outcome.expected and outcome.fix), outcome
    return outcome


LOCKED = {"locked_clocks": {"graphics": [1200, 1755]}}
NOTED = {address: {"graphics": [1200, 1755]} for address in (FIRST, SECOND)}
HELD: dict[str, str] = {"gpu_settings": both(graphics="1200 MHz"), "gpu_settings_kept": kept(locks=NOTED)}
APPS = {"application_clocks": {"memory": 2619, "graphics": 1755}}
NOW: list[tuple[str, Plain, dict[str, str], str, str]] = [
    ("ecc", {}, {}, "n/a", "not in the spec"),
    ("ecc", {"ecc": "enabled"}, {}, "pass", "GPUs 0, 1: enabled"),
    ("ecc", {"ecc": "disabled"}, {}, "fail", "GPUs 0, 1: enabled"),
    ("ecc", {"ecc": "disabled"}, {"gpu_settings": both(pending="Disabled")}, "fail", "enabled, disabled is pending"),
    ("ecc", {"ecc": "enabled"}, {"gpu_settings": both(pending="Disabled")}, "fail", "disabled is pending"),
    ("ecc", {"ecc": "enabled"}, {"gpu_settings": both(ecc="N/A", pending="N/A")}, "fail", "no ECC mode"),
    ("ecc", {"ecc": "enabled"}, {"nvidia_functions": ""}, "skip", "no NVIDIA GPU on the PCI bus"),
    ("ecc", {"ecc": "enabled"}, {"gpu_settings": "NVIDIA-SMI has failed\n"}, "fail", "NVIDIA-SMI has failed"),
    ("ecc", {"ecc": "enabled"}, {"gpu_settings": "has failed\n", **PODMAN}, "skip", "podman container"),
    (
        "power_limit",
        {"power_limit": 500},
        {"gpu_settings": both(limit="500.00 W", enforced="500.00 W")},
        "pass",
        "500 W",
    ),
    ("power_limit", {"power_limit": 500}, {}, "fail", "GPUs 0, 1: 700 W"),
    ("power_limit", {"power_limit": "default"}, {}, "pass", "GPUs 0, 1: 700 W"),
    (
        "power_limit",
        {"power_limit": "default"},
        {"gpu_settings": smi({"limit": "500.00 W"})},
        "fail",
        f"GPU 0 ({FIRST}): 500 W",
    ),
    (
        "power_limit",
        {"power_limit": 700},
        {"gpu_settings": both(enforced="500.00 W")},
        "pass",
        "500 W in force, by another limiter",
    ),
    ("power_limit", {"power_limit": 700}, {"gpu_settings": both(limit="N/A")}, "fail", "no limit that can be set"),
    ("application_clocks", APPS, {}, "fail", "memory 2619 MHz, graphics 1980 MHz"),
    ("application_clocks", APPS, {"gpu_settings": both(app_graphics="1755 MHz")}, "pass", "graphics 1755 MHz"),
    ("application_clocks", {"application_clocks": "default"}, {}, "pass", "graphics 1980 MHz"),
    (
        "application_clocks",
        {"application_clocks": "default"},
        {"gpu_settings": both(app_graphics="1755 MHz")},
        "fail",
        "1755",
    ),
    (
        "application_clocks",
        APPS,
        {
            "gpu_settings": both(
                app_graphics="Requested functionality has been deprecated",
                app_memory="Requested functionality has been deprecated",
            )
        },
        "fail",
        "(Requested functionality has been deprecated)",
    ),
    ("locked_clocks", LOCKED, {}, "fail", "graphics not locked by gpuprov"),
    ("locked_clocks", LOCKED, HELD, "pass", "graphics 1200 to 1755 MHz"),
    (
        "locked_clocks",
        LOCKED,
        {**HELD, "gpu_settings_kept": kept(locks=NOTED, module=4712)},
        "fail",
        "not locked by gpuprov",
    ),
    (
        "locked_clocks",
        LOCKED,
        {**HELD, "gpu_settings": both(graphics="1980 MHz", idle="Not Active")},
        "fail",
        "above 1755 MHz: the lock is gone",
    ),
    (
        "locked_clocks",
        LOCKED,
        {**HELD, "gpu_settings": both(graphics="345 MHz", idle="Not Active")},
        "fail",
        "the GPU says no reason",
    ),
    (
        "locked_clocks",
        LOCKED,
        {**HELD, "gpu_settings": both(graphics="1055 MHz", idle="Not Active")},
        "pass",
        "1200 to 1755",
    ),
    (
        "locked_clocks",
        LOCKED,
        {**HELD, "gpu_settings": both(graphics="900 MHz", idle="Not Active", cap="Active")},
        "pass",
        "1200 to 1755",
    ),
    ("locked_clocks", {"locked_clocks": {"graphics": [1200, 1800]}}, HELD, "fail", "graphics 1200 to 1755 MHz"),
    ("locked_clocks", {"locked_clocks": {"graphics": "default"}}, HELD, "fail", "graphics 1200 to 1755 MHz"),
    (
        "locked_clocks",
        {"locked_clocks": {"memory": "default"}},
        {"gpu_settings_kept": kept(locks={a: {"memory": "default"} for a in (FIRST, SECOND)})},
        "pass",
        "memory default",
    ),
    ("compute_mode", {"compute_mode": "exclusive_process"}, {}, "fail", "GPUs 0, 1: default"),
    ("compute_mode", {"compute_mode": "prohibited"}, {"gpu_settings": both(mode="Prohibited")}, "pass", "prohibited"),
    ("confidential_computing", {}, {}, "n/a", "not in the spec"),
    ("confidential_computing", {"confidential_computing": "disabled"}, {}, "pass", "disabled"),
    (
        "confidential_computing",
        {"confidential_computing": "disabled"},
        {"gpu_confidential": "No CC capable devices found.\n"},
        "pass",
        "disabled",
    ),
    ("confidential_computing", {"confidential_computing": "enabled"}, {}, "fail", "disabled"),
    (
        "confidential_computing",
        {"confidential_computing": "enabled"},
        {"gpu_confidential": "CC status: ON\nDevTools Mode: OFF\n"},
        "pass",
        "enabled",
    ),
    (
        "confidential_computing",
        {"confidential_computing": "enabled"},
        {"gpu_confidential": "CC status: ON\nDevTools Mode: ON\n"},
        "fail",
        "devtools",
    ),
    (
        "confidential_computing",
        {"confidential_computing": "enabled"},
        {"gpu_confidential": 'Option "conf-compute" is not recognized.\n'},
        "fail",
        "is not recognized",
    ),
    (
        "confidential_computing",
        {"confidential_computing": "disabled"},
        {"gpu_confidential": "CC status: OFF\nDevTools Mode: OFF\nMulti-GPU Mode   : Protected PCIe\n"},
        "fail",
        "protected_pcie",
    ),
    ("persistence", {"ecc": "enabled"}, {}, "n/a", "no setting that the driver forgets"),
    ("persistence", {"power_limit": 500}, {}, "pass", "Enabled on 2 GPUs"),
    ("persistence", {"power_limit": 500}, {"nvidia_smi": OFF}, "fail", f"not Enabled: GPU 1 ({SECOND})"),
    ("persistence", {"power_limit": 500}, {"nvidia_smi": OFF, **PODMAN}, "skip", "podman container"),
]


@run_each(("name", "plain", "changed", "status", "found"), NOW)
def test_now(name: str, plain: Plain, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask(name, plain, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_an_ecc_mode_that_differs_asks_for_a_reboot_and_a_pending_one_that_apply_takes_back_does_not() -> None:
    waits = {"gpu_settings": both(pending="Disabled")}
    waiting, other = ask("ecc", {"ecc": "disabled"}, **waits), ask("ecc", {"ecc": "disabled"})
    assert waiting.reboot == other.reboot
    assert "changes at a boot" in other.reboot
    assert (waiting.fix, other.fix) == ("reboot: a pending ECC mode waits for it", "gpuprov apply, then a reboot")
    back = ask("ecc", {"ecc": "enabled"}, **waits)
    assert (back.reboot, back.fix) == ("", "gpuprov apply")


def test_changes_name_gpu_setting_and_both_values() -> None:
    (first, second) = ask("power_limit", {"power_limit": 500}).changes
    assert (first.name, first.before, first.after) == (f"GPU 0 ({FIRST}): power limit", "700 W", "500 W")
    assert second.name.startswith("GPU 1 ")


PER_GPU = [
    ([1], "GPU 1"),
    ([SECOND], "GPU 1"),
    (["3b:00.0"], "GPU 1"),
    ([UUIDS[1]], "GPU 1"),
    ([UUIDS[1][:12]], "GPU 1"),
    ("all", "GPUs 0, 1"),
]


@run_each(("names", "who"), PER_GPU)
def test_an_entry_counts_for_the_gpus_that_it_names(names: Any, who: str) -> None:
    plain = {"power_limit": 700, "per_gpu": [{"gpus": names, "power_limit": 400}]}
    outcome = ask("power_limit", plain)
    assert outcome.status == "fail"
    assert outcome.expected.endswith(f"{who}: 400 W" if who == "GPUs 0, 1" else f"{who} ({SECOND}): 400 W")


def test_a_later_entry_wins_setting_by_setting() -> None:
    plain = {
        "locked_clocks": {"graphics": [1200, 1755]},
        "per_gpu": [
            {"gpus": "all", "power_limit": 400, "locked_clocks": {"memory": [2619, 2619]}},
            {"gpus": [0], "power_limit": 300},
        ],
    }
    expected = ask("power_limit", plain).expected
    assert f"GPU 0 ({FIRST}): 300 W" in expected
    assert f"GPU 1 ({SECOND}): 400 W" in expected
    assert ask("locked_clocks", plain).expected == "GPUs 0, 1: graphics 1200 to 1755 MHz, memory 2619 to 2619 MHz"


def test_a_gpu_that_is_not_there_is_named() -> None:
    outcome = ask("power_limit", {"per_gpu": [{"gpus": [0, 7], "power_limit": 400}]})
    assert outcome.found == f"no GPU here is 7; there are: 0 {FIRST}, 1 {SECOND}"


ASKED = {"power_limit": 500}
NOTHING = {"confidential_computing": "enabled"}
BOOTS: list[tuple[str, Plain, dict[str, str], str, str]] = [
    ("enabled", {}, {}, "n/a", "the spec asks for no unit"),
    ("enabled", NOTHING, {"contents": unit(UNIT, "active", "enabled")}, "fail",
     "gpuprov-gpu-settings.service is enabled"),
    ("enabled", ASKED, {}, "pass", "enabled"),
    ("enabled", ASKED, {"contents": unit(UNIT, "inactive", "")}, "fail", "is not-found"),
    ("enabled", ASKED, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled"),
    ("active", ASKED, {}, "pass", "active"),
    ("active", ASKED, {"contents": unit(UNIT, "failed", "enabled", "gpu_settings: no")}, "fail",
     'failed ("gpu_settings: no")'),
    ("active", ASKED, {"nvidia_functions": "", "contents": unit(UNIT, "failed", "enabled")}, "skip", "no NVIDIA GPU"),
    ("active", ASKED, {"gpu_settings": "has failed\n", **PODMAN}, "skip", "podman container"),
    ("files", NOTHING, {}, "n/a", "no file of its own"),
    ("files", NOTHING, {"contents": Also(f"entry|f|644|0|0|{CONFIG}\n")}, "fail", f"{CONFIG}: there"),
    ("files", ASKED, {"contents": Also(f"sum|0  {CONFIG}\n")}, "fail", f"{CONFIG}: another text"),
]  # fmt: skip


@run_each(("name", "plain", "changed", "status", "found"), BOOTS)
def test_boot(name: str, plain: Plain, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask(name, plain, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_the_pending_ecc_mode_is_the_one_of_the_next_kept() -> None:
    pending = {"gpu_settings": both(pending="Disabled")}
    assert ask("ecc_boot", {"ecc": "disabled"}, **pending).status == "pass"
    assert ask("ecc_boot", {"ecc": "enabled"}, **pending).status == "fail"
    assert ask("ecc_boot", {}).status == "n/a"


FITS: list[tuple[Plain, dict[str, str], str, str]] = [
    ({"power_limit": 500, "ecc": "disabled", "compute_mode": "prohibited", **APPS}, {}, "pass", "supported by 2 GPUs"),
    ({"power_limit": 100}, {}, "fail", f"GPU 0 ({FIRST}): power_limit is 100 W; allowed: 200 to 700 W"),
    ({"power_limit": 701}, {}, "fail", "allowed: 200 to 700 W"),
    ({"power_limit": "default"}, {}, "pass", "supported by 2 GPUs"),
    ({"power_limit": 500}, {"gpu_settings": both(limit="N/A")}, "fail", "it has no power limit that can be set"),
    ({"ecc": "enabled"}, {"gpu_settings": both(ecc="N/A", pending="N/A")}, "fail", "it has no ECC mode"),
    (
        {"application_clocks": {"memory": 1593, "graphics": 1755}},
        {},
        "fail",
        "application_clocks.memory is 1593 MHz; allowed: 2619 MHz",
    ),
    (
        {"application_clocks": {"memory": 2619, "graphics": 1760}},
        {},
        "fail",
        "graphics is 1760 MHz; allowed with 2619: 110 clocks from 345 to 1980",
    ),
    (
        APPS,
        {"gpu_settings": both(app_graphics="N/A", app_memory="N/A")},
        "fail",
        "no application clocks (N/A); take locked_clocks",
    ),
    (LOCKED, {}, "pass", "supported by 2 GPUs"),
    (
        {"locked_clocks": {"graphics": [1200, 1985]}},
        {},
        "fail",
        "locked_clocks.graphics is 1985 MHz; allowed: 110 clocks",
    ),
    ({"locked_clocks": {"memory": [2600, 2619]}}, {}, "fail", "locked_clocks.memory is 2600 MHz; allowed: 2619 MHz"),
    ({"locked_clocks": {"memory": [2619, 2619]}}, {"gpu_clocks": "looked\n"}, "pass", "supported by 2 GPUs"),
    ({"per_gpu": [{"gpus": [2], "ecc": "enabled"}]}, {}, "fail", "no GPU here is 2"),
    ({"power_limit": 500}, {"nvidia_functions": ""}, "skip", "no NVIDIA GPU"),
]


@run_each(("plain", "changed", "status", "found"), FITS)
def test_fits(plain: Plain, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask("fits", plain, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome


def test_before_the_driver_comes_nothing_is_judged() -> None:
    text = {"gpu_settings": "NVIDIA-SMI has failed\n", "loaded_driver": ""}
    assert ask("fits", {"power_limit": 500}, "nvidia_driver", **text).status == "skip"
    assert ask("clients", {"compute_mode": "prohibited"}, "nvidia_driver", **text).status == "skip"
    assert ask("fits", {"power_limit": 500}, **text).status == "fail"


COMPUTING = {"gpu_computing": f"0000{FIRST.upper()}, 811, /usr/bin/python3\nlooked\n"}
CLIENTS: list[tuple[Plain, dict[str, str], str, str]] = [
    ({"compute_mode": "exclusive_process"}, {}, "pass", "no process on 2 GPUs"),
    ({"compute_mode": "exclusive_process"}, COMPUTING, "fail", f"python3 (pid 811) on GPU 0 ({FIRST})"),
    ({"compute_mode": "default"}, COMPUTING, "pass", "excludes a process"),
    (
        {"compute_mode": "exclusive_process"},
        {**COMPUTING, "gpu_settings": both(mode="Exclusive_Process")},
        "pass",
        "excludes",
    ),
    ({"per_gpu": [{"gpus": [1], "compute_mode": "prohibited"}]}, COMPUTING, "pass", "no process on 1 GPU"),
    ({"power_limit": 300, **LOCKED}, COMPUTING, "n/a", "not in the spec"),
]


@run_each(("plain", "changed", "status", "found"), CLIENTS)
def test_clients(plain: Plain, changed: dict[str, str], status: str, found: str) -> None:
    outcome = ask("clients", plain, **changed)
    assert (outcome.status, found in outcome.found) == (status, True), outcome
