"""What a capability writes is compared by content: each of its files altered in every way is red, and named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME, CAPABILITIES
from gpuprov.capabilities.base import Context, Outcome
from gpuprov.capabilities.generated import asks
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.catalog.fabric import IMEX_CONFIG
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.host.contents import CONTENTS
from gpuprov.host_code.files import ABOVE
from gpuprov.host_code.unit_files import derive_unit, is_drop_in
from gpuprov.resources import File, Unit
from gpuprov.spec.model import HostSpec
from tests.capabilities import contents_host
from tests.capabilities.asking import CHECKS, facts, good
from tests.capabilities.contents_host import with_lines
from tests.capabilities.specs import SPECS
from tests.rows import run_each

REMOVES = {"nvidia_absent"}
"""Capabilities whose resources are files that should not be there."""
WRITE = [one.name for one in CAPABILITIES if one.resources and one.name not in REMOVES]


class Host:
    """A host that has what one capability writes, and the check of it."""

    def __init__(self, name: str) -> None:
        self.check = CHECKS[f"{name}.{BY_NAME[name].resources.files_check}"]  # type: ignore[union-attr]
        self.block, self.name = SPECS[name], name
        known = {probe.name for probe in self.check.probes}
        self.texts = {key: text for key, text in good().items() if key in known - {"contents"}}
        self.texts["receipt"] = json.dumps({"capabilities": {name: {"digest": "x"}}})
        self.resources = contents_host.resources(BY_NAME[name], self.ctx())
        self.wanted = [one for one in self.resources if isinstance(one, File)]

    def ctx(self, **more: Output | str) -> Context[Any]:
        return Context(
            HostSpec(name="gpu1", capabilities={self.name: self.block}), self.block, facts(**self.texts, **more)
        )

    def text(self, changed: dict[str, str] | None = None, *more: str) -> str:
        return contents_host.own(self.resources, changed, *more)

    def ask(self, changed: dict[str, str] | None = None, *more: str, **units: str) -> Outcome:
        text = self.text(changed, *more)
        for before, after in units.items():
            text = text.replace(before.replace("_", "="), after)
        return self.check.run(self.ctx(contents=text))


def test_every_capability_that_writes_files_has_a_spec_here() -> None:
    assert set(SPECS) == {*WRITE, *REMOVES}
    assert all(Host(name).wanted for name in WRITE)


@pytest.mark.install
@pytest.mark.parametrize("name", WRITE)
def test_each_file_altered_in_each_way_is_red_and_named(name: str) -> None:
    host = Host(name)
    assert host.ask().status == "pass", host.ask()
    for one in host.wanted:
        entry = f"entry|f|{one.mode:o}|0|0|{one.path}"
        digest = next(line for line in host.text().splitlines() if line == f"{line.partition('  ')[0]}  {one.path}")
        ways = {
            "absent": "",
            "a symbolic link": f"entry|l|777|0|0|{one.path}",
            "mode 0666": f"entry|f|666|0|0|{one.path}\n{digest}",
            "of 1000:0": f"entry|f|{one.mode:o}|1000|0|{one.path}\n{digest}",
        }
        if not one.by_meaning:
            empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
            ways |= {"another text": f"{entry}\nsum|{empty}  {one.path}"}
        for told, lines in ways.items():
            outcome = host.ask({one.path: lines})
            assert outcome.status == "fail", (one.path, told)
            assert f"{one.path}: {told}" in outcome.found, (outcome.found, told)
            assert one.path in [change.name for change in outcome.changes]
            assert outcome.fix == "gpuprov apply"


@run_each("name", WRITE)
def test_a_unit_that_systemd_has_otherwise_is_red_and_named(name: str) -> None:
    host = Host(name)
    for one in host.wanted:
        unit = derive_unit(one.path)
        if not unit:
            continue
        stale = host.ask(NeedDaemonReload_no="NeedDaemonReload=yes")
        assert "not read by systemd since it changed" in stale.found
        assert one.path in [change.name for change in stale.changes]
        if is_drop_in(one.path):
            continue
        masked = host.ask(LoadState_loaded="LoadState=masked")
        assert ": masked" in masked.found
        assert (one.path, "masked") in [(change.name, change.before) for change in masked.changes]
        other = f"/etc/systemd/system.control/{unit}"
        moved = host.check.run(
            host.ctx(contents=host.text().replace(f"FragmentPath={one.path}", f"FragmentPath={other}"))
        )
        assert f"{one.path}: {other} is loaded in its place" in moved.found
        site = f"/etc/systemd/system/{unit}.d/90-site.conf"
        text = host.text().replace(
            f"unit|FragmentPath={one.path}\nunit|DropInPaths=",
            f"unit|FragmentPath={one.path}\nunit|DropInPaths={site} ",
        )
        for lines, status in (
            (("[Service]", "ExecStart=", "ExecStart=/bin/true"), "fail"),
            (("[Service]", "MemoryMax=1G"), "pass"),
        ):
            drop_in = "\n".join([f"dropin|{site}", *(f"text|{line}" for line in lines), ""])
            outcome = host.check.run(host.ctx(contents=text + drop_in))
            assert outcome.status == status, (unit, outcome)
            if status == "fail":
                assert f"{site}: sets ExecStart in place of {one.path}" in outcome.found
                assert ("set aside", site) in [(change.after, change.name) for change in outcome.changes]


@run_each("name", [one for one in WRITE if any(f"{ABOVE}/" in file.path for file in Host(one).wanted)])
def test_a_file_beside_the_programs_is_red_for_python_would_load_it(name: str) -> None:
    host = Host(name)
    folder = next(one.path.rpartition("/")[0] for one in host.wanted if one.path.startswith(f"{ABOVE}/"))
    if folder == ABOVE:
        return
    beside = f"{folder}/__pycache__/act.cpython-311.pyc"
    assert f"{beside}: not one of gpuprov's" in host.ask(None, f"entry|f|644|0|0|{beside}").found
    assert f"{folder}: mode 0777" in host.ask(None, f"entry|d|777|0|0|{folder}").found


@run_each("python", ["entry|d|755|0|0|/opt", "sound|777|0|/usr/bin/python3", "sound|755|1000|/usr/bin/python3"])
def test_a_unit_whose_interpreter_others_can_change_is_red(python: str) -> None:
    host = Host("readings")
    text = host.text().replace("sound|755|0|/usr/bin/python3", python)
    assert host.check.run(host.ctx(contents=text)).status == "fail"


@run_each("name", WRITE)
def test_the_probe_reads_every_path_that_is_written(name: str) -> None:
    host = Host(name)
    asked = asks(HostSpec(name="gpu1", capabilities={name: host.block}), BY_NAME)
    paths = {one.path for one in host.resources if not isinstance(one, Unit)}
    assert paths <= set(asked["paths"].split("\n"))
    units = {one.name for one in host.resources if isinstance(one, Unit)}
    assert units | {unit for path in paths if (unit := derive_unit(path))} <= set(asked["units"].split("\n"))


def test_without_a_spec_the_probe_asks_for_nothing() -> None:
    assert CONTENTS.of(HostSpec(name="h")).asks is None


def test_what_was_never_applied_here_is_not_red_for_files_that_are_to_come() -> None:
    """A host that somebody else has set up; but a file that is there, and another than gpuprov writes, is."""
    host = Host("readings")
    host.texts["receipt"] = ""
    assert host.ask({one.path: "" for one in host.wanted}).status == "n/a"
    assert host.ask({host.wanted[0].path: ""}).status == "n/a"
    assert host.ask({host.wanted[0].path: f"entry|f|644|0|0|{host.wanted[0].path}"}).status == "fail"
    host.texts["receipt"] = "{"
    assert host.ask({host.wanted[0].path: ""}).status == "fail"


def test_what_was_never_applied_here_needs_the_lines_that_no_program_does_without() -> None:
    """Of the toolkit's own refresh unit another place is red, and none is its default; nvidia-imex needs each of its
    lines."""
    host, path = Host("container_toolkit"), catalogue.REFRESH_ENVIRONMENT
    host.texts["receipt"] = ""
    gone = {one.path: "" for one in host.wanted}
    for lines, status in (
        ("", "n/a"),
        (with_lines(path, "# as it came"), "n/a"),
        (with_lines(path, f"{catalogue.OUTPUT_VARIABLE}=/etc/cdi/nvidia.yaml"), "fail"),
    ):
        assert host.ask({**gone, path: lines}).status == status, lines
    host = Host("fabric_manager")
    host.texts["receipt"] = ""
    assert host.ask({IMEX_CONFIG: with_lines(IMEX_CONFIG, "LOG_LEVEL=4")}).status == "fail"
    assert host.ask({IMEX_CONFIG: ""}).status == "fail"


def test_a_file_that_nobody_looked_at_is_not_called_absent() -> None:
    host = Host("readings")
    with pytest.raises(ProbeFailed, match=f"{host.wanted[0].path} was not read on the host"):
        host.check.run(host.ctx(contents="@contents\n"))
