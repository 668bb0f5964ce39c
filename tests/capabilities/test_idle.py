"""Units of others that a drop-in of others leaves idle at the next boot: red, with the file that does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.facts.probes.base import Output
from gpuprov.facts.probes.host import contents
from gpuprov.host_code import unit_files
from gpuprov.host_code.files import ABOVE, SETTINGS, select_guarded_folders
from gpuprov.host_code.unit_files import Loaded, is_instance
from gpuprov.resources.idle import explain_idle, explain_rival
from gpuprov.spec.model import HostSpec
from tests.capabilities import contents_host
from tests.capabilities.asking import CHECKS, facts, good
from tests.capabilities.specs import SPECS
from tests.rows import run_each

UNIT, FILE = "nvidia-fabricmanager.service", "/usr/lib/systemd/system/nvidia-fabricmanager.service"
SITE = f"/etc/systemd/system/{UNIT}.d/zz-site.conf"
TEXT = "[Service]\nType=forking\nExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg\n"


def state(text: str, *unmet: str) -> contents.Contents:
    lines = ["@contents", f"dropin|{FILE}", *(f"text|{line}" for line in TEXT.splitlines())]
    lines += [f"dropin|{SITE}", *(f"text|{line}" for line in text.splitlines())]
    lines += [f"unmet|{SITE}|{condition}" for condition in unmet]
    return contents.parse(Output("\n".join(lines), 0))


@run_each(
    ("text", "words"),
    [
        ("[Service]\nType=oneshot\nExecStart=\nExecStart=/bin/true\n", "whose ExecStart is /bin/true"),
        ("[Service]\nExecStart=\nExecStart=-/bin/sh -c 'exit 0'\n", "whose ExecStart is -/bin/sh -c 'exit 0'"),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/env sleep infinity\n", "sleep infinity"),
        (
            "[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --no-persistence-mode\n",
            "--no-persistence-mode",
        ),
        ("[Service]\nExecCondition=/bin/false\n", "unless its ExecCondition=/bin/false agrees"),
        ("[Service]\nExecCondition=/bin/false\nExecCondition=\n", ""),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/numactl -N 0 /usr/bin/nv-fabricmanager -c /etc/fm.cfg\n", ""),
        ("[Service]\nExecStart=\nExecStart=/opt/site/fabricmanager\n", ""),
        ("[Service]\nExecStartPre=/bin/true\nNice=5\n", ""),
        ("# ExecStart=\n", ""),
        ("[Service]\nPrivateDevices=yes\n", "kept from the GPUs' device files by"),
        ("[Service]\nDevicePolicy=closed\n", "whose DevicePolicy is closed"),
        ("[Service]\nDevicePolicy=auto\nPrivateDevices=no\nRuntimeMaxSec=infinity\n", ""),
        ("[Service]\nRuntimeMaxSec=1d\n", "ended some time after its start by"),
        ("[Unit]\nPartOf=site.service\n", "stopped with site.service, by PartOf in"),
        ("[Unit]\nBindsTo=site.service graphical.target\n", "stopped with site.service, by BindsTo in"),
        ("[Unit]\nPartOf=multi-user.target\n", ""),
    ],
)
def test_what_a_site_says(text: str, words: str) -> None:
    unit = Loaded("loaded", FILE, (SITE,), active="active", file="enabled")
    told = explain_idle(unit, state(text), [])
    assert words in told if words else not told, told
    assert SITE in told or not words
    assert not explain_idle(unit, state(text), [SITE]), "gpuprov's own"


def test_conditions_and_faulty_files() -> None:
    unit = Loaded("loaded", FILE, (SITE,), active="active", file="enabled")
    text = "[Unit]\nConditionPathExists=/nowhere\n"
    assert f"by {SITE}, whose ConditionPathExists=/nowhere is not met" in explain_idle(
        unit, state(text, "ConditionPathExists=/nowhere"), []
    )
    assert not explain_idle(unit, state(text), []), "met"
    assert "faulty" in explain_idle(unit._replace(load="bad-setting"), state(""), [])


@run_each("folder", ["/etc/systemd/system", "/run/systemd/system"])
def test_a_unit_file_of_the_site_in_place_of_a_packages(folder: str) -> None:
    path = f"{folder}/{UNIT}"
    unit = Loaded("loaded", path, (), active="active", file="enabled")
    lines = [f"dropin|{path}", "text|[Unit]", "text|[Service]", "text|ExecStart=/bin/true"]
    idle = contents.parse(Output("\n".join(["@contents", *lines]), 0))
    assert explain_idle(unit, idle, []) == f"made idle by {path}, whose ExecStart is /bin/true"
    assert not explain_idle(unit, idle, [path]), "gpuprov's own"
    unmet = contents.parse(Output("\n".join(["@contents", *lines, f"unmet|{path}|ConditionPathExists=/no"]), 0))
    assert f"kept from starting by {path}" in explain_idle(unit, unmet, [])


def judge(check: str, *more: str, drop_in: str = "", rival: str = "") -> Outcome:
    """One check of a host that has all that its spec asks for, with this drop-in of each unit, and these lines."""
    name = check.partition(".")[0]
    known = {probe.name for probe in CHECKS[check].probes}
    texts = {key: text for key, text in good().items() if key in known}
    host = HostSpec(name="gpu1", capabilities={name: SPECS[name]})
    text = contents_host.own(
        contents_host.resources(BY_NAME[name], Context(host, SPECS[name], facts(**texts))), None, *more
    )
    text = text.replace("unit|DropInPaths=", f"unit|ConflictedBy={rival}\nunit|DropInPaths={drop_in} ")
    return CHECKS[check].run(Context(host, SPECS[name], facts(**{**texts, "contents": text})))


def test_a_unit_of_the_sites_in_place_of_a_packages() -> None:
    """`systemctl edit --full`, of a unit that then starts nothing."""
    path = f"/etc/systemd/system/{UNIT}"
    unit = Loaded("loaded", path, (), active="active", file="enabled")
    text = "@contents\ndropin|{}\ntext|[Service]\ntext|ExecStart={}\n"
    known = {
        start: contents.parse(Output(text.format(path, start))) for start in ("/bin/true", "/usr/bin/nv-fabricmanager")
    }
    assert f"made idle by {path}, whose ExecStart is /bin/true" in explain_idle(unit, known["/bin/true"], [])
    assert not explain_idle(unit, known["/usr/bin/nv-fabricmanager"], [])


@run_each(
    ("state", "active", "words"),
    [
        ("enabled", "inactive", "kept from running by foe.service, which conflicts with it and starts at a boot, too"),
        ("disabled", "active", "kept from running by foe.service, which conflicts with it and runs now"),
        ("disabled", "inactive", ""),
    ],
)
def test_a_unit_that_conflicts(state: str, active: str, words: str) -> None:
    rows = [
        "unit|Id=nvidia-dcgm.service",
        "unit|ConflictedBy=shutdown.target foe.service",
        "unit|",
        "other|Id=foe.service",
    ]
    rows += ["other|LoadState=loaded", f"other|ActiveState={active}", f"other|UnitFileState={state}"]
    known = contents.parse(Output("\n".join(["@contents", *rows])))
    assert explain_rival("nvidia-dcgm.service", known, []) == (words, "foe.service" if words else "")
    assert explain_rival("nvidia-dcgm.service", known, ["foe.service"]) == ("", ""), "the spec has it off"
    outcome = judge("dcgm.enabled", *rows[3:], rival="foe.service")
    assert (outcome.status, words in outcome.found) == ("fail" if words else "pass", True), outcome
    assert outcome.fix == ("systemctl disable --now foe.service" if words else "")
    assert not outcome.changes


def test_the_check_names_the_file_and_what_to_do() -> None:
    assert judge("dcgm.enabled").status == "pass"
    outcome = judge("dcgm.enabled", f"unmet|{SITE}|ConditionPathExists=/nowhere", drop_in=SITE)
    assert (outcome.status, SITE in outcome.found) == ("fail", True), outcome
    assert "systemctl cat nvidia-dcgm.service, and take that setting out" in outcome.fix
    assert not outcome.changes, "no apply takes out what a site has set of a unit that is not gpuprov's"


def test_the_probe_reads_units_of_others_and_judges_their_conditions(tmp_path: Path) -> None:
    """The script itself, with a systemctl that has one unit with a drop-in."""
    tool, drop_in, unit = tmp_path / "systemctl", tmp_path / "zz.conf", tmp_path / "a.service"
    unit.write_text(TEXT)
    drop_in.write_text("[Unit]\nConditionPathExists=/nowhere\nConditionPathExists=/\nConditionPathExists=!/\n")
    tool.write_text(
        f"#!/bin/sh\nprintf 'Id=a.service\\nLoadState=loaded\\nFragmentPath={unit}\\nDropInPaths={drop_in}\\n'\n"
    )
    (tmp_path / "systemd-analyze").write_text("#!/bin/sh\nexit 1\n")
    for program in (tool, tmp_path / "systemd-analyze"):
        program.chmod(0o755)
    script = f"PATH={tmp_path}:$PATH; paths=; folders=; lines=; units=a.service\n{contents.CONTENTS.script}"
    out = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout
    parsed = contents.parse(Output(out, 0))
    assert parsed.unmet == {str(drop_in): ("ConditionPathExists=/nowhere", "ConditionPathExists=!/")}
    assert "nv-fabricmanager" in parsed.drop_ins[str(unit)]


def test_drop_ins_of_one_instance_are_its_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template = "/etc/systemd/system/gpuprov-mps@.service"
    assert is_instance("gpuprov-mps@gpu0.service", template)
    assert not is_instance("gpuprov-mps@gpu0.service", "/etc/systemd/system/gpuprov-mig.service")
    (tmp_path / "gpuprov-mps@gpu0.service.d").mkdir()
    (tmp_path / "gpuprov-mig.service.d").mkdir()
    monkeypatch.setattr("gpuprov.host_code.systemd.FILES", f"{tmp_path}/")
    assert list(unit_files._list_instances([f"{tmp_path}/gpuprov-mps@.service"])) == ["gpuprov-mps@gpu0.service"]


def test_the_folders_above_programs_and_settings_are_roots_alone() -> None:
    assert select_guarded_folders([f"{ABOVE}/mig/plan.py", f"{SETTINGS}/mig.json"]) == {ABOVE, f"{ABOVE}/mig", SETTINGS}
    assert select_guarded_folders(["/etc/sysctl.d/90-gpuprov.conf"]) == set()
    for folder in (ABOVE, SETTINGS):
        outcome = judge("mig.files", f"entry|d|777|0|0|{folder}")
        assert (outcome.status, f"{folder.rpartition('/')[2]}: mode 0777" in outcome.found) == ("fail", True), outcome
        assert judge("mig.files", f"entry|d|755|0|0|{folder}").status == "pass"
