"""persistence: the daemon, or the legacy unit where there is none; enabled, active, and the mode on."""

from __future__ import annotations

import pytest

from gpuprov.capabilities import persistence
from gpuprov.capabilities.persistence import Persistence
from gpuprov.capabilities.persistence.fragment import DROP_IN, LEGACY_FILE
from gpuprov.facts.probes.base import ProbeFailed
from tests.capabilities.asking import GIVEN, H100, NO_GPU, PODMAN, Row, ask, facts, judge, units
from tests.capabilities.contents_host import Also, unit
from tests.facts.probes import captured
from tests.rows import run_each

DAEMON, LEGACY = Persistence(mode="daemon"), Persistence(mode="legacy")
OFF = ("inactive", "")
ON = ("active", "enabled")
FAILED = ("failed", "enabled")
# Ubuntu's nvidia-compute-utils: started by udev, with the mode left off.
UBUNTUS = (
    "unit|[Service]\nunit|ExecStart=/usr/bin/x --user x --no-persistence-mode "
    "--verbose\nunit|[Install]\npackage|ii \ngpus|1\n"
)
TWO = captured("nvidia_smi", "two_gpus")

ENABLED, ACTIVE, MODE, FILES = "persistence.enabled", "persistence.active", "persistence.mode_on", "persistence.files"
OFFER = (
    "offer|nvidia-persistenced | 535.171.04-1~deb12u1 | http://deb.debian.org/debian bookworm/contrib amd64 Packages\n"
)


def states(daemon: tuple[str, str] = ON, legacy: tuple[str, str] = ("inactive", "")) -> Also:
    """How systemd has the two units: (active, file) of each."""
    return Also(unit("nvidia-persistenced.service", *daemon) + unit("gpuprov-persistence.service", *legacy))


ROWS = [
    Row("the daemon is enabled", ENABLED, None, {}, "pass", "nvidia-persistenced.service enabled"),
    Row("auto with the legacy unit in force", ENABLED, None, {"contents": states(OFF, ON), "persistenced": "gpus|1\n"},
        "pass", "gpuprov-persistence.service enabled, nvidia-persistenced.service off"),
    Row("auto with the legacy unit in force, and the daemon on offer since", ENABLED, None,
        {"contents": states(OFF, ON), "persistenced": f"{OFFER}gpus|1\n"}, "fail",
        "nvidia-persistenced.service is not-found; gpuprov-persistence.service is enabled",
        "systemctl disable --now gpuprov-persistence.service; gpuprov apply",
        change="service nvidia-persistenced.service: not-found -> enabled"),
    Row("legacy as asked for", ENABLED, LEGACY, {"contents": states(("inactive", "disabled"), ON)}, "pass",
        "gpuprov-pers"),
    Row("nothing is installed", ENABLED, None, {"contents": states(OFF)}, "fail",
        "nvidia-persistenced.service is not-found", "gpuprov apply",
        change="service nvidia-persistenced.service: not-found -> enabled"),
    Row("the daemon is disabled", ENABLED, DAEMON, {"contents": states(("active", "disabled"))}, "fail",
        "nvidia-persistenced.service is disabled", "systemctl enable --now nvidia-persistenced.service",
        change="service nvidia-persistenced.service: disabled -> enabled"),
    Row("until the next boot only", ENABLED, DAEMON, {"contents": states(("active", "enabled-runtime"))}, "fail",
        "nvidia-persistenced.service is enabled-runtime", "systemctl enable --now nvidia-persistenced.service"),
    Row("both are enabled", ENABLED, LEGACY, {"contents": states(ON, ON)}, "fail",
        "nvidia-persistenced.service is enabled", "systemctl disable --now nvidia-persistenced.service",
        change="service nvidia-persistenced.service: enabled -> disabled"),
    Row("both run", ACTIVE, LEGACY, {"contents": states(("active", "disabled"), ON)}, "fail",
        "nvidia-persistenced.service is active", "systemctl stop nvidia-persistenced.service",
        change="service nvidia-persistenced.service: active -> inactive"),
    Row("Ubuntu's unit has no [Install] section", ENABLED, None, {"contents": states(("active", "static"))}, "fail",
        "nvidia-persistenced.service is static", "gpuprov apply",
        change="service nvidia-persistenced.service: static -> enabled"),
    Row("the daemon of Ubuntu's unit leaves the mode off, where gpuprov was never applied", FILES, None,
        {"persistenced": UBUNTUS, "contents": f"@contents\nnone|{LEGACY_FILE}\nnone|{DROP_IN}\n{states()}"}, "fail",
        f"{DROP_IN}: absent", "gpuprov apply", change=f"file {DROP_IN}: absent -> written"),
    Row("it runs so still", ACTIVE, None, {"persistenced": f"{UBUNTUS}idle|77\n"}, "fail",
        "nvidia-persistenced.service is active with --no-persistence-mode", "gpuprov apply",
        change="service nvidia-persistenced.service: active with --no-persistence-mode -> started anew"),
    Row("the daemon runs", ACTIVE, None, {}, "pass", "active"),
    Row("the daemon failed at installation and was never restarted", ACTIVE, None, {"contents": states(FAILED)},
        "fail", "failed", "journalctl -u nvidia-persistenced.service",
        change="service nvidia-persistenced.service: failed -> active"),
    Row("no GPU to hold", ACTIVE, None, {**NO_GPU, "contents": states(FAILED)}, "skip", "no NVIDIA GPU"),
    Row("a container with the machine's GPUs", ACTIVE, None, {**PODMAN, "contents": states(FAILED)}, "skip", "podman"),
    Row("the mode is on", MODE, None, {}, "pass", "Enabled on 1 GPU"),
    Row("one GPU lost the mode", MODE, None,
        {"nvidia_smi": TWO, "nvidia_functions": H100 + H100.replace(":19:", ":3b:")}, "fail",
        "not Enabled: 0000:3b:00.0", "systemctl restart nvidia-persistenced.service"),
    Row("but for a virtual machine's", MODE, None, {"nvidia_functions": H100 + GIVEN}, "pass", "Enabled on 1 GPU"),
    Row("one GPU on the bus is dead: nvidia-smi does not list it", MODE, None,
        {"nvidia_functions": H100 + H100.replace(":19:", ":5d:")}, "fail", "not Enabled: 0000:5d:00.0"),
    Row("nvidia-smi complains", MODE, None, {"nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "fail",
        "has failed"),
    Row("no GPU to ask", MODE, None, NO_GPU, "skip", "no NVIDIA GPU"),
    Row("a container cannot ask", MODE, None, {**PODMAN, "nvidia_smi": captured("nvidia_smi", "no_module", 9)}, "skip"),
]  # fmt: skip


@run_each("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_persistence(row: Row) -> None:
    judge(row)


@run_each(
    ("text", "fragment"),
    [(units(), DAEMON), (units(OFF, ON), LEGACY), (units(OFF), None), (units(("active", "disabled")), None)],
)
def test_export(text: str, fragment: Persistence | None) -> None:
    assert persistence.export(facts(units=text)) == fragment


def test_a_systemd_that_does_not_answer_is_no_unit_that_is_absent() -> None:
    silent = "".join(f"none|{path}\n" for path in (LEGACY_FILE, DROP_IN))
    with pytest.raises(ProbeFailed, match=r"did not say how it has nvidia-persistenced\.service"):
        ask(ENABLED, None, contents=f"@contents\n{silent}")
