"""persistence: the daemon, or the legacy unit where there is none; enabled, active, and the mode on."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import persistence
from gpuprov.capabilities.persistence import Persistence
from gpuprov.probe.base import Output, ProbeFailed
from tests.capabilities.asking import GIVEN, H100, NO_GPU, PODMAN, Row, ask, facts, judge, units
from tests.probe import captured

DAEMON, LEGACY = Persistence(mode="daemon"), Persistence(mode="legacy")
OFF = ("inactive", "")
ON = ("active", "enabled")
FAILED = ("failed", "enabled")
IDLE = "ExecStart={ path=/usr/bin/x ; argv[]=/usr/bin/x --user x --no-persistence-mode --verbose ; }"
TWO = captured("nvidia_smi", "two_gpus")

ENABLED, ACTIVE, MODE = "persistence.enabled", "persistence.active", "persistence.mode_on"
OFFER = (
    "offer|nvidia-persistenced | 535.171.04-1~deb12u1 | http://deb.debian.org/debian bookworm/contrib amd64 Packages\n"
)
ROWS = [
    Row("the daemon is enabled", ENABLED, None, {}, "pass", "nvidia-persistenced.service enabled"),
    Row(
        "auto with the legacy unit in force",
        ENABLED,
        None,
        {"units": units(OFF, ON), "persistenced": "gpus|1\n"},
        "pass",
        "gpuprov-p",
    ),
    Row(
        "auto with the legacy unit in force, and the daemon on offer since",
        ENABLED,
        None,
        {"units": units(OFF, ON), "persistenced": f"{OFFER}gpus|1\n"},
        "fail",
        "nvidia-persistenced.service is not-found",
        change="service nvidia-persistenced.service: not-found -> enabled",
    ),
    Row("legacy as asked for", ENABLED, LEGACY, {"units": units(("inactive", "disabled"), ON)}, "pass", "gpuprov-pers"),
    Row(
        "nothing is installed",
        ENABLED,
        None,
        {"units": units(OFF)},
        "fail",
        "nvidia-persistenced.service is not-found",
        "gpuprov apply",
        change="service nvidia-persistenced.service: not-found -> enabled",
    ),
    Row(
        "the daemon is disabled",
        ENABLED,
        DAEMON,
        {"units": units(("active", "disabled"))},
        "fail",
        "nvidia-persistenced.service is disabled",
        "systemctl enable --now nvidia-persistenced.service",
        change="service nvidia-persistenced.service: disabled -> enabled",
    ),
    Row(
        "both are enabled",
        ENABLED,
        LEGACY,
        {"units": units(ON, ON)},
        "fail",
        "nvidia-persistenced.service is enabled too",
        "systemctl disable --now nvidia-persistenced.service",
        change="service nvidia-persistenced.service: enabled -> disabled",
    ),
    Row(
        "Ubuntu's unit has no [Install] section",
        ENABLED,
        None,
        {"units": units(("active", "static"))},
        "fail",
        "nvidia-persistenced.service is static",
        "50-gpuprov.conf with [Install]",
        change="service nvidia-persistenced.service: static -> enabled",
    ),
    Row(
        "the daemon of Ubuntu's unit leaves the mode off",
        ENABLED,
        None,
        {"units": units().replace("UnitFileState=enabled\n", f"UnitFileState=enabled\n{IDLE}\n", 1)},
        "fail",
        "nvidia-persistenced.service is started with --no-persistence-mode",
        "gpuprov apply writes /etc/systemd/system/nvidia-persistenced.service.d/50-gpuprov.conf",
        change="file /etc/systemd/system/nvidia-persistenced.service.d/50-gpuprov.conf: absent -> written",
    ),
    Row("the daemon runs", ACTIVE, None, {}, "pass", "active"),
    Row(
        "the daemon failed at installation and was never restarted",
        ACTIVE,
        None,
        {"units": units(FAILED)},
        "fail",
        "failed",
        "journalctl -u nvidia-persistenced.service",
        change="service nvidia-persistenced.service: failed -> active",
    ),
    Row("no GPU to hold", ACTIVE, None, {**NO_GPU, "units": units(FAILED)}, "skip", "no NVIDIA GPU"),
    Row("a container with the machine's GPUs", ACTIVE, None, {**PODMAN, "units": units(FAILED)}, "skip", "podman"),
    Row("the mode is on", MODE, None, {}, "pass", "Enabled on 1 GPU"),
    Row(
        "one GPU lost the mode",
        MODE,
        None,
        {"nvidia_smi": TWO, "nvidia_functions": H100 + H100.replace(":19:", ":3b:")},
        "fail",
        "not Enabled: 0000:3b:00.0",
        "systemctl restart nvidia-persistenced.service",
    ),
    Row("but for a virtual machine's", MODE, None, {"nvidia_functions": H100 + GIVEN}, "pass", "Enabled on 1 GPU"),
    Row(
        "one GPU on the bus is dead: nvidia-smi does not list it",
        MODE,
        None,
        {"nvidia_functions": H100 + H100.replace(":19:", ":5d:")},
        "fail",
        "not Enabled: 0000:5d:00.0",
    ),
    Row(
        "nvidia-smi complains", MODE, None, {"nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "fail", "has failed"
    ),
    Row("no GPU to ask", MODE, None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("a container cannot ask", MODE, None, {**PODMAN, "nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "skip"),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_persistence(row: Row) -> None:
    judge(row)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [(units(), DAEMON), (units(OFF, ON), LEGACY), (units(OFF), None), (units(("active", "disabled")), None)],
)
def test_export(text: str, fragment: Persistence | None) -> None:
    assert persistence.export(facts(units=text)) == fragment


def test_a_systemd_that_does_not_answer_is_no_unit_that_is_absent() -> None:
    with pytest.raises(ProbeFailed, match="units printed nothing on the host: Host is down"):
        ask(ENABLED, None, units=Output("", 1, "Host is down"))
