"""gpu_settings, known offline: what a spec must not say, what the host's program is given, and export."""

from __future__ import annotations

from typing import Any

from gpuprov.capabilities import gpu_settings
from gpuprov.capabilities.gpu_settings.fragment import GpuSettings, config
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.capabilities.mps.fragment import Mps
from gpuprov.capabilities.nvidia_driver.fragment import NvidiaDriver
from gpuprov.capabilities.persistence import Persistence
from gpuprov.capabilities.vgpu_guest.fragment import VgpuGuest
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, GpuSpec, HostSpec
from tests.capabilities.asking import facts
from tests.capabilities.gpu_settings_host import FIRST, SECOND, both, kept, smi
from tests.capabilities.mps_host import host as mps
from tests.rows import run_each

Plain = dict[str, Any]


def made(plain: Plain, kind: type[Fragment] = GpuSettings) -> Any:
    block, findings = convert(plain, kind)
    assert block is not None, findings
    return block


def told(plain: Plain, gpu: str = "H100-SXM5-80GB", count: int | None = None, **others: Fragment) -> list[str]:
    block = made(plain)
    capabilities: dict[str, Fragment] = {"persistence": Persistence(), **others, "gpu_settings": block}
    host = HostSpec(name="h", gpu=GpuSpec(model=gpu, count=count) if gpu else None, capabilities=capabilities)
    return [str(problem) for problem in gpu_settings.CAPABILITY.rules(host, block)]


LOCK = {"locked_clocks": {"graphics": [1200, 1755]}}
APPS = {"application_clocks": {"memory": 2619, "graphics": 1755}}
RULES: list[tuple[Plain, Plain, str]] = [
    ({"power_limit": 500, "ecc": "enabled", **LOCK}, {}, ""),
    ({}, {}, "warning: gpu_settings asks for nothing"),
    ({"power_limit": 701}, {},
     "gpu_settings.power_limit is 701 W, which a H100-SXM5-80GB does not take; allowed: 200 to 700 W"),
    ({"power_limit": 199}, {}, "allowed: 200 to 700 W, or default, which is 700 W"),
    ({"power_limit": 5000}, {"gpu": "B200"}, ""),
    ({"power_limit": "default"}, {}, ""),
    ({"ecc": "enabled"}, {"gpu": "TITAN-V"}, "gpu_settings.ecc is enabled: TITAN-V has no ECC mode"),
    (LOCK, {"gpu": "P100-PCIE"}, "the graphics clock can be locked from Volta on, and P100-PCIE is Pascal"),
    ({"locked_clocks": {"memory": [5001, 5001]}}, {"gpu": "T4"},
     "the memory clock can be locked from Ampere on, and T4 is Turing"),
    ({"locked_clocks": {"graphics": [1755, 1200]}}, {},
     "locked_clocks.graphics is [1755, 1200]: the least is above the most"),
    ({**LOCK, **APPS}, {}, "application_clocks and locked_clocks.graphics exclude each other"),
    ({**LOCK, "application_clocks": "default"}, {}, ""),
    ({"locked_clocks": {"graphics": "default"}, **APPS}, {}, ""),
    (APPS, {"nvidia_driver": NvidiaDriver(version="580")},
     "warning: gpu_settings.application_clocks: NVIDIA has deprecated"),
    (APPS, {"nvidia_driver": NvidiaDriver(version="535")}, ""),
    ({"compute_mode": "exclusive_process"}, {"mps": Mps()},
     "is exclusive_process, and mps sets the compute mode of every GPU"),
    ({"compute_mode": "default"}, {"mps": Mps(scope="gpu")}, "mps sets the compute mode of every GPU"),
    ({"compute_mode": "prohibited"}, {"mps": Mps(scope="none")}, ""),
    ({"power_limit": 500}, {"mps": Mps()}, ""),
    ({"compute_mode": "prohibited"}, {"mig": Mig()}, "is prohibited, and mig puts every GPU into MIG mode"),
    ({"compute_mode": "default"}, {"mig": Mig()}, ""),
    ({"compute_mode": "prohibited"}, {"mig": Mig(mode="disabled")}, ""),
    ({"power_limit": 500}, {"vgpu_guest": VgpuGuest()}, "gpu_settings.power_limit: a vGPU has none of its own"),
    (LOCK, {"vgpu_guest": VgpuGuest()}, "gpu_settings.locked_clocks: a vGPU has none of its own"),
    ({"ecc": "enabled"}, {"vgpu_guest": VgpuGuest()}, ""),
    ({"confidential_computing": "enabled"}, {}, ""),
    ({"confidential_computing": "enabled"}, {"gpu": "A100-SXM4-80GB"}, "(Ampere) has no confidential computing"),
    ({"confidential_computing": "disabled"}, {"gpu": "A100-SXM4-80GB"}, ""),
    ({"per_gpu": [{"gpus": [2], "ecc": "enabled"}]}, {"count": 2},
     "gpus[0] is 2, and the host has 2 GPUs; allowed: 0 to 1"),
    ({"per_gpu": [{"gpus": [], "ecc": "enabled"}]}, {}, "per_gpu[0].gpus is an empty list"),
    ({"per_gpu": [{"gpus": ["3b:00.0", "0000:3b:00.0"], "ecc": "enabled"}]}, {}, "0000:3b:00.0 is named twice"),
    ({"per_gpu": [{"gpus": [0]}]}, {}, "warning: gpu_settings.per_gpu[0] asks for nothing"),
    ({"per_gpu": [{"gpus": [0], "power_limit": 5}]}, {}, "gpu_settings.per_gpu[0].power_limit is 5 W"),
]  # fmt: skip


@run_each(("plain", "others", "said"), RULES)
def test_rules(plain: Plain, others: Plain, said: str) -> None:
    found = told(plain, **others)
    assert [one for one in found if said in one] == found
    assert len(found) == bool(said)


def test_limits_without_persistence_are_warned_of() -> None:
    block = made({"power_limit": 500})
    host = HostSpec(name="h", capabilities={"gpu_settings": block})
    (said,) = [str(problem) for problem in gpu_settings.CAPABILITY.rules(host, block)]
    assert said.startswith("warning: ")
    assert said.endswith("add persistence: {}")
    ecc = made({"ecc": "enabled"})
    assert not list(gpu_settings.CAPABILITY.rules(HostSpec(name="h", capabilities={"gpu_settings": ecc}), ecc))


def test_an_entry_that_later_ones_cover_is_warned_of() -> None:
    def said(*entries: Plain) -> list[str]:
        block = made({"per_gpu": list(entries)})
        host = HostSpec(name="h", capabilities={"gpu_settings": block, "persistence": Persistence()})
        return [str(problem) for problem in gpu_settings.CAPABILITY.rules(host, block)]

    lock, first = {"graphics": [1000, 1980]}, {"gpus": [0], "power_limit": 500}
    assert [
        text for text in said(first, {"gpus": "all", "power_limit": 600}) if "per_gpu[0].power_limit has no" in text
    ]
    assert [text for text in said(first, {"gpus": [1, 0], "power_limit": 600}) if "per_gpu[0].power" in text]
    assert not said({"gpus": "all", "power_limit": 600}, first), "what is for all stands first"
    assert not said(first, {"gpus": [1], "power_limit": 600}), "another GPU"
    assert not said(first, {"gpus": [0], "ecc": "enabled"}), "another setting"
    assert not said({"gpus": [0], "locked_clocks": lock}, {"gpus": [0], "locked_clocks": {"memory": [1, 2]}})


def test_of_groups_of_mps_only_their_gpus_are_taken() -> None:
    groups = made({"scope": "groups", "groups": [{"gpus": [0, 1]}]}, Mps)
    assert not told({"per_gpu": [{"gpus": [2], "compute_mode": "prohibited"}]}, mps=groups)
    (said,) = told({"per_gpu": [{"gpus": [1, 2], "compute_mode": "prohibited"}]}, mps=groups)
    assert "mps sets the compute mode of GPU 1" in said
    (said,) = told({"compute_mode": "prohibited"}, mps=groups)
    assert "mps sets the compute mode of GPU 0, 1" in said


def test_of_a_layout_of_mig_only_its_gpus_are_taken() -> None:
    layout = made({"layout": [{"gpus": [0], "instances": {"7g.80gb": 1}}, {"gpus": [1], "mode": "disabled"}]}, Mig)
    assert not told({"per_gpu": [{"gpus": [1], "compute_mode": "prohibited"}]}, mig=layout)
    (said,) = told({"compute_mode": "prohibited"}, mig=layout)
    assert "mig puts GPU 0 into MIG mode" in said


WRONG: list[tuple[Plain, str]] = [
    ({"power_limit": "600"}, 'power_limit is "600"'),
    ({"power_limit": 0}, "power_limit is 0"),
    ({"ecc": True}, "ecc is true"),
    ({"compute_mode": "exclusive"}, 'compute_mode is "exclusive"'),
    ({"application_clocks": {"memory": 2619}}, "application_clocks.graphics is missing"),
    ({"locked_clocks": {"graphics": [1200]}}, "locked_clocks.graphics is a list"),
    ({"locked_clocks": {"graphics": [1, 2, 3]}}, "locked_clocks.graphics is a list"),
    ({"locked_clocks": {"sm": [1, 2]}}, 'unknown key "sm" in locked_clocks'),
    ({"per_gpu": [{"power_limit": 500}]}, "per_gpu[0].gpus is missing"),
    ({"per_gpu": [{"gpus": ["gpu0"], "power_limit": 500}]}, "per_gpu[0].gpus[0]"),
    ({"per_gpu": [{"gpus": [0], "confidential_computing": "enabled"}]}, 'unknown key "confidential_computing"'),
]


@run_each(("plain", "said"), WRONG)
def test_what_no_block_can_be(plain: Plain, said: str) -> None:
    block, findings = convert(plain, GpuSettings)
    assert block is None
    assert said in findings[0][1]


def test_the_program_is_given_what_is_asked_for_and_no_more() -> None:
    plain = {
        "power_limit": 500,
        "locked_clocks": {"graphics": [1200, 1755]},
        "confidential_computing": "enabled",
        "per_gpu": [{"gpus": [0, "0000:3b:00.0"], "power_limit": "default"}],
    }
    assert config(made(plain)) == {
        "version": 1,
        "all": {"power_limit": 500, "locked_clocks": {"graphics": [1200, 1755]}},
        "per_gpu": [{"gpus": [0, "0000:3b:00.0"], "settings": {"power_limit": "default"}}],
    }


def exported(**texts: str) -> Any:
    given = {"gpu_settings": smi(), "gpu_settings_kept": kept(file=""), "mps": mps(" "), **texts}
    return gpu_settings.CAPABILITY.export(facts(**given))


def test_gpus_with_their_own_settings_export_nothing() -> None:
    assert exported() is None


EXPORTED: list[tuple[dict[str, str], Plain]] = [
    ({"gpu_settings": both(limit="500.00 W")}, {"power_limit": 500}),
    ({"gpu_settings": both(ecc="Disabled", pending="Disabled")}, {"ecc": "disabled"}),
    ({"gpu_settings": both(app_graphics="1755 MHz")}, APPS),
    ({"gpu_settings": both(mode="Exclusive_Process")}, {"compute_mode": "exclusive_process"}),
    (
        {"gpu_settings_kept": kept(locks={one: {"graphics": [1200, 1755], "memory": "default"} for one in (FIRST,
                                                                                                           SECOND)})},
        LOCK,
    ),
    (
        {"gpu_settings": smi({"limit": "500.00 W"}, {"limit": "500.00 W", "mode": "Prohibited"})},
        {"power_limit": 500, "per_gpu": [{"gpus": [1], "compute_mode": "prohibited"}]},
    ),
    (
        {"gpu_settings": smi({"limit": "500.00 W"}, {"limit": "400.00 W"})},
        {"per_gpu": [{"gpus": [0], "power_limit": 500}, {"gpus": [1], "power_limit": 400}]},
    ),
    ({"gpu_settings_kept": kept(config(made({"ecc": "enabled"})))}, {"ecc": "enabled"}),
]  # fmt: skip


@run_each(("texts", "plain"), EXPORTED)
def test_export(texts: dict[str, str], plain: Plain) -> None:
    assert exported(**texts) == made(plain)


def test_the_compute_mode_of_mps_is_exported_with_mps() -> None:
    assert exported(gpu_settings=both(mode="Exclusive_Process"), mps=mps()) is None


def test_a_pending_mode_counts_and_not_the_present_one() -> None:
    assert exported(gpu_settings=both(pending="Disabled")) == made({"ecc": "disabled"})
