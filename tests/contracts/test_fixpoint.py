"""All checks of a capability's resources pass, nothing differs, and its modules change nothing: each exactly where the
others do.

The probe's own script and the modules run on a folder in place of a host's file system; systemctl is a stand-in beside
this file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from gpuprov.capabilities import BY_NAME, CAPABILITIES, receipts
from gpuprov.capabilities.base import Capability, Context
from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit
from gpuprov.capabilities.dcgm.fragment import Dcgm
from gpuprov.capabilities.fabric_manager.fragment import FabricManager, Imex
from gpuprov.capabilities.generated import asks, desired, generated_checks
from gpuprov.capabilities.gpu_settings.fragment import GpuSettings
from gpuprov.capabilities.gpudirect_rdma.desired import make as make_values
from gpuprov.capabilities.gpudirect_rdma.fragment import Gdrcopy, GpudirectRdma
from gpuprov.capabilities.persistence import Persistence
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.read_files import asks_reads
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host.contents import CONTENTS, READS, SHOW_ALL
from gpuprov.facts.probes.host.house import RECEIPT_FILE
from gpuprov.host_code.files import ABOVE
from gpuprov.host_code.reads import LATE, NOTES, is_read
from gpuprov.host_code.unit_files import derive_unit, is_among
from gpuprov.plan.foresee import foresee
from gpuprov.resources import Absent, File, Lines, Resource, Unit, role_values, started
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, HostSpec
from gpuprov.verify.unmanaged import Unmanaged, find_unmanaged, prune_values
from tests.capabilities import erdma_host, gpu_settings_host, gpudirect_host
from tests.capabilities.asking import facts, good
from tests.capabilities.specs import SPECS
from tests.contracts import systemctl
from tests.contracts.test_desired import MORE
from tests.host_code.modules import on_host, ran
from tests.rows import run_each

make_gpudirect: Callable[..., Any] = make_values


def rows(names: Iterable[str]) -> list[Any]:
    """Return parameters of which a few alone run with the fast tests."""
    return [name if name in AT_ONCE else pytest.param(name, marks=pytest.mark.install) for name in names]


AT_ONCE = ("persistence", "kernel", "container_toolkit", "mps")
"""Capabilities with each kind of resource between them."""
WITH_RESOURCES = [one.name for one in CAPABILITIES if one.resources]
WITH_READS = [one.name for one in CAPABILITIES if one.resources and one.resources.reads]
WITH_UNITS = [one.name for one in CAPABILITIES if one.resources and one.resources.units]
KINDS = ("files", "programs", "units", "program", "absent", "lines", "on", "off")
CLOCK = 0.03
"""Seconds within which the clocks of files and of processes agree."""
UNDECIDED = {"fabric_manager"}
"""Capabilities without packages on the good host, a Debian with driver 535, for this spec: the role is refused, and no
files are predicted."""
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="files of root's are made")


AHEAD = f"""#!/bin/sh
read -r words < "$UNITS_BELOW/words" && [ "$*" = "$words" ] && exec cat "$UNITS_BELOW/shown"
exec {sys.executable} -I -S {systemctl.__file__} "$@"
"""
"""A systemctl that has the stand-in's answer to the words that are expected, and starts it for others."""


def as_it_came(path: str) -> str:
    """Return the text of a file of others."""
    return '{\n    // as it came\n    "other": 1\n}\n' if path.endswith(".json") else "# as it came\nOTHER=1\n"


class Tree:
    """A host's file system in a folder, the capability's resources on it, and the results of checks and modules."""

    def __init__(
        self,
        name: str,
        root: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        block: Fragment | None = None,
    ) -> None:
        self.capability: Capability = BY_NAME[name]
        self.root, self.capsys = root, capsys
        self.block = block or SPECS[name]
        self.spec = HostSpec(name="gpu1", capabilities={name: self.block})
        programs = root / "bin"
        programs.mkdir(parents=True)
        (programs / "systemctl").write_text(AHEAD)
        (programs / "systemctl").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("UNITS_BELOW", str(root))
        monkeypatch.setattr(systemctl, "ROOT", root)
        monkeypatch.setattr(os, "fsync", lambda _file: None)
        for module in [on_host("systemd"), on_host("units")]:  # both are loaded before one is another's
            monkeypatch.setattr(module, "systemctl", systemctl.answer)
        monkeypatch.setattr(on_host("units"), "list_processes", lambda unit, _process: [unit])
        monkeypatch.setattr(on_host("units"), "find_start", self.find_start)
        monkeypatch.setattr(on_host("reads"), "NOTES", f"{root}{NOTES}")
        (root / NOTES[1:]).parent.mkdir(parents=True)
        monkeypatch.setattr(on_host("systemd"), "FILES", f"{root}/etc/systemd/system/")
        monkeypatch.setattr(on_host("files"), "ABOVE", f"{root}{ABOVE}")
        told = {key: text for key, text in good().items() if key != "contents"}
        told["receipt"] = json.dumps({"capabilities": {name: {"digest": "x"}}})
        self.told = told
        units = {one.name for one in self.resources if isinstance(one, Unit)}
        units |= {
            derive_unit(one.path) for one in self.files if "/etc/systemd/system/" in one.path and ".d/" in one.path
        }
        for unit in units - {one.path.rpartition("/")[2] for one in self.files}:
            self.write(f"/usr/lib/systemd/system/{unit}", "[Service]\nExecStart=/usr/bin/true\n")

        for shared in self.lines:
            if not shared.made:
                self.write(shared.path, as_it_came(shared.path))

    @cached_property
    def resources(self) -> list[Resource]:
        """Return the resources for the host's spec and its other facts, which do not change here."""
        return desired(self.capability, Context(self.spec, self.block, facts(**self.told)))

    @cached_property
    def files(self) -> list[File]:
        return [one for one in self.resources if isinstance(one, File)]

    @property
    def lines(self) -> list[Lines]:
        return [one for one in self.resources if isinstance(one, Lines)]

    def write(self, path: str, text: str) -> Path:
        place = Path(f"{self.root}{path}")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o644)
        return place

    def read(self, path: str) -> str:
        place = Path(f"{self.root}{path}")
        return place.read_bytes().decode(errors="replace") if place.exists() else ""

    def contents(self) -> str:
        """Return the probe's output for this tree."""
        asked = asks(self.spec, BY_NAME)
        for key in ("paths", "lines", "folders"):
            asked[key] = "\n".join(f"{self.root}{path}" for path in asked[key].splitlines())
        words = [*SHOW_ALL, *sorted(filter(None, set(asked["units"].splitlines())))]
        self.write("/words", f"{' '.join(words)}\n")
        self.write("/shown", f"{systemctl.answer(*words)[1]}\n")
        environment = {**os.environ, **asked, "LC_ALL": "C"}
        done = subprocess.run(["sh", "-c", CONTENTS.script], env=environment, check=False, capture_output=True)
        return done.stdout.decode(errors="replace").replace(str(self.root), "")

    def find_start(self, unit: str) -> Iterator[float]:
        """Yield when a unit that runs was started, as a host's process says."""
        state = json.loads((self.root / "systemctl.json").read_text())
        if state["active"].get(unit) == "active" and unit in state.get("started", {}):
            boot = max(time.time() - time.monotonic() for _ in range(9))  # a pause between the two makes it too early
            yield boot + state["started"][unit] + LATE

    def reads(self) -> str:
        """Return what the probe prints of what running units have read."""
        pairs = [line.partition("|")[::2] for line in asks_reads(self.spec, BY_NAME)["reads"].splitlines()]
        if not pairs:
            return "@reads\n"
        asked = {"reads": "\n".join(f"{unit}|{self.root}{path}" for unit, path in pairs)}
        script = READS.script.replace(NOTES, f"{self.root}{NOTES}")
        done = subprocess.run(["sh", "-c", script], env={**os.environ, **asked}, check=True, capture_output=True)
        return done.stdout.decode().replace(str(self.root), "")

    def start_anew(self, ahead: float = 0) -> None:
        """Let the units that run have been started just now, so that what is written from here on is newer; ahead: or
        these seconds later."""
        file = self.root / "systemctl.json"
        state = json.loads(file.read_text())
        state["started"] = dict.fromkeys(state.get("started", {}), time.monotonic() + ahead - LATE + CLOCK)
        file.write_text(json.dumps(state))
        time.sleep(0 if ahead else 3 * CLOCK)

    def unmanaged(self) -> tuple[tuple[Unmanaged, ...], dict[str, Any]]:
        """Return the leftovers of a host whose spec no longer requests the capability, and the configuration that
        removes them."""
        spec = HostSpec(name="gpu1")
        script = CONTENTS.script.replace(RECEIPT_FILE, f"{self.root}/receipt.json")
        done = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True, errors="replace")
        remembered = Path(f"{self.root}/receipt.json").read_text()
        told = {"receipt": remembered, "contents": done.stdout}
        known = facts(**{**self.told, **{name: text.replace(str(self.root), "") for name, text in told.items()}})
        found = find_unmanaged(spec, known)
        return found, prune_values(spec, known, found)

    def remember(self) -> None:
        """Write the receipt of an apply, as the judge and the module do."""
        ctx: Context[Any] = Context(self.spec, self.block, facts(**self.told))
        entries = [one.replace("file /", f"file {self.root}/") for one in receipts.entries(self.capability, ctx, {})]
        listed = list(on_host("receipt").list_resources(entries))
        entry = {"digest": "x", "applied_at": "2026-01-01T00:00:00Z", "resources": listed}
        self.write("/receipt.json", json.dumps({"capabilities": {self.capability.name: entry}}, indent=2))

    def failing(self, contents: str = "") -> dict[str, set[str]]:
        """Return, for each failing check, what it would change. `contents`: the probe's output, where it was read
        already."""
        told = {**self.told, "contents": contents or self.contents(), "unit_reads": self.reads()}
        ctx: Context[Any] = Context(self.spec, self.block, facts(**told))
        found = {}
        for check in generated_checks(self.capability):
            outcome = check.run(ctx)
            assert outcome.status in ("pass", "fail", "n/a", "skip"), outcome
            if outcome.status == "fail":
                found[check.id] = {change.name for change in outcome.changes}
        return found

    def foreseen(self, contents: str) -> dict[str, str | None]:
        """Return the files that a plan predicts to be written, those of settings with their texts."""
        known = foresee(self.spec, facts(**{**MORE, **self.told}, contents=contents))
        name = self.capability.name
        assert known.unknown == {} or name in UNDECIDED, known.unknown
        files = dict.fromkeys(one.path for one in known.files.get(name, ()))
        return {**files, **{one.path: one.text for one in known.texts.get(name, ())}}

    def apply(self, *, check: bool) -> set[str]:
        """Return the changes by the modules, by path and unit. They are called as roles call them: units that should be
        off first, then files."""
        values = role_values(self.resources, *KINDS)

        def moved(texts: dict[str, str]) -> dict[str, str]:
            return {f"{self.root}{path}": text for path, text in texts.items()}

        given: dict[str, Any] = {key: moved(values[key]) for key in ("files", "programs", "units")}
        given["absent"] = [f"{self.root}{path}" for path in values["absent"]]
        given["lines"] = [{**one, "path": f"{self.root}{one['path']}"} for one in values["lines"]]
        done = self.ran("gpuprov_files", **given, disabled=values["off"], enabled=values["on"], check=check)
        headers = {shown["before_header"].removeprefix(str(self.root)) for shown in done["diff"]}
        found = (headers - {"units"}) | set(done["units"])
        assert done["changed"] == bool(found), done
        for one in self.resources:
            if isinstance(one, Unit) and (one.active or (one.active is None and one.reads)):
                options = started(one)
                files = [f"{self.root}{path}" for path in options.pop("files", ())]
                if self.ran("gpuprov_unit", **options, files=files, written=done["written"], check=check)["changed"]:
                    found.add(one.name)
        return found

    def ran(self, module: str, **given: Any) -> dict[str, Any]:
        done = ran(self.capsys, module, **given)
        assert "failed" not in done, done
        return done

    def ask(self, block: Fragment) -> None:
        """Set another spec for the same host."""
        self.block = block
        self.spec = HostSpec(name="gpu1", capabilities={self.capability.name: block})
        for name in ("resources", "files"):
            self.__dict__.pop(name, None)


@pytest.fixture
def tree(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Tree:
    return Tree(request.param, tmp_path, capsys, monkeypatch)


def settles(tree: Tree, way: str, *, differs: bool | None = True, units: bool = False) -> set[str]:
    """Assert that modules change what checks name, in check mode and without; then nothing is left to name or to
    change. Return what was named. differs: whether anything does, if that is known; units: no file was altered."""
    contents, before = tree.contents(), {one.path: tree.read(one.path) for one in tree.lines}
    failing, foreseen = tree.failing(contents), tree.foreseen(contents)
    assert differs is None or bool(failing) == differs, (way, failing)
    named = {one for names in failing.values() for one in names}
    would = tree.apply(check=True)
    assert would == named, (way, would ^ named)
    paths = {one.path for one in tree.resources if isinstance(one, File | Absent | Lines)}
    left_out = units or tree.capability.name in UNDECIDED
    assert left_out or foreseen.keys() & paths == named & paths, (way, foreseen.keys() ^ named)
    done = tree.apply(check=False)  # nothing, if check mode had changed the host
    # A unit whose file alone was gone is on again when the file is there.
    assert {one for one in named - done if not any(path.endswith(f"/{one}") for path in done)} == set(), (
        way,
        named,
        done,
    )
    assert done <= named, (way, done - named)
    if would or done or failing:
        assert tree.apply(check=False) == set(), way
        contents = tree.contents()
        assert tree.failing(contents) == {}, way
        assert units or tree.foreseen(contents) == {}, way
    for one in tree.lines:
        if one.path in foreseen:
            assert foreseen[one.path] == (tree.read(one.path) if before[one.path] != tree.read(one.path) else None), way
    return named


@pytest.mark.parametrize("tree", rows(WITH_RESOURCES), indirect=True)
def test_a_host_that_has_nothing_yet(tree: Tree) -> None:
    assert tree.resources
    settles(tree, "nothing there", differs=bool(tree.files or tree.lines) or tree.capability.name in WITH_UNITS)


def replace_by_link(path: Path) -> None:
    shutil.move(path, f"{path}.kept")
    path.symlink_to("/bin/true")


WAYS: dict[str, Callable[[Path], object]] = {
    "another text": lambda path: path.write_text("true\n"),
    "emptied": lambda path: path.write_text(""),
    "removed": lambda path: path.unlink(),
    "a link": replace_by_link,
    "writable for all": lambda path: path.chmod(0o666),
    "of another user": lambda path: os.chown(path, 1000, 1000),
}


@pytest.mark.parametrize("tree", rows(WITH_RESOURCES), indirect=True)
def test_all_files_altered_each_in_another_way(tree: Tree) -> None:
    tree.apply(check=False)
    for turn in range(1 if len(tree.files) > 3 else 2):
        for number, one in enumerate(tree.files):
            ways = [*WAYS.values()][2 if one.by_meaning else 0 :]  # another check compares the text by what it means
            ways[(number + turn * 3) % len(ways)](Path(f"{tree.root}{one.path}"))
        named = settles(tree, f"altered, {turn}", differs=bool(tree.files))
        assert {one.path for one in tree.files} <= named
        for one in tree.files:
            Path(f"{tree.root}{one.path}.kept").unlink(missing_ok=True)


@pytest.mark.parametrize("tree", rows(WITH_RESOURCES), indirect=True)
def test_what_should_not_be_there_and_what_others_put_beside(tree: Tree) -> None:
    tree.apply(check=False)
    beside = False
    for one in tree.resources:
        if isinstance(one, Absent):
            tree.write(one.path, "left behind\n")
            beside = True
    for folder in {path for one in tree.files if (path := one.path.rpartition("/")[0]).startswith(f"{ABOVE}/")}:
        tree.write(f"{folder}/json.py", "import os\n")
        beside = True
    for one in tree.files:
        if derive_unit(one.path) and ".d/" not in one.path and not one.path.rpartition("/")[2].count("@"):
            folder = f"/usr/lib/systemd/system/{one.path.rpartition('/')[2]}.d"
            tree.write(f"{folder}/90-site.conf", "[Service]\nExecStart=\nExecStart=/bin/true\n")
            beside = True
    settles(tree, "beside", differs=beside)


def appended(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(path.read_text() + text)


def changed(old: str, new: str) -> Callable[[Path], object]:
    def change(path: Path) -> None:
        text = path.read_bytes()
        assert re.search(old.encode(), text), (old, text)
        path.write_bytes(re.sub(old.encode(), new.encode(), text))

    return change


LINES: dict[str, FabricManager | ContainerToolkit | Rdma] = {
    "fabric_manager": FabricManager(settings={"LOG_LEVEL": 3}),
    "container_toolkit": ContainerToolkit(cdi_directory="/etc/cdi"),
    "rdma": Rdma(fabric="roce", stack="doca-ofed"),
}
"""Blocks that set lines in files of others."""
LINE_WAYS: dict[str, tuple[Callable[[Path, str], object], bool]] = {
    "another value": (lambda path, key: changed(rf"(?m)^{key}=.*", f"{key}=9")(path), True),
    "commented": (lambda path, key: changed(rf"(?m)^{key}=", f"#{key}=")(path), True),
    "commented with another value": (lambda path, key: appended(f"#{key}=9\n # {key}=9\n")(path), False),
    "without a value": (lambda path, key: changed(rf"(?m)^{key}=.*", f"{key}=")(path), True),
    "gone": (lambda path, key: changed(rf"(?m)^{key}=.*\n", "")(path), True),
    "emptied": (lambda path, _key: path.write_text(""), True),
    "set again, to another value": (lambda path, key: appended(f"{key}=9\n")(path), True),
    "set before, to another value": (lambda path, key: changed(rf"(?m)^{key}=", f"{key}=9\n{key}=")(path), False),
    "blanks around the =": (lambda path, key: changed(rf"(?m)^{key}=", f"{key} = ")(path), True),
    "blanks around the line": (lambda path, key: changed(rf"(?m)^{key}=(.*)", rf" \t{key}=\1 ")(path), False),
    "quoted": (lambda path, key: changed(rf"(?m)^{key}=(.*)", rf'{key}="\1"')(path), False),
    "half quoted": (lambda path, key: changed(rf"(?m)^{key}=(.*)", rf'{key}="\1')(path), True),
    "with a comment": (lambda path, key: changed(rf"(?m)^{key}=(.*)", rf"{key}=\1 # so")(path), True),
    "of a longer name": (lambda path, key: changed(rf"(?m)^{key}=", f"X_{key}=")(path), True),
    "with carriage returns": (lambda path, _key: changed(r"\n", r"\r\n")(path), True),
    "behind a form feed": (lambda path, key: changed(rf"(?m)^{key}=", f"OTHER=1\f{key}=")(path), True),
    "without the last line's end": (lambda path, _key: changed(r"\n\Z", "")(path), False),
    "bytes that are not text": (lambda path, key: path.write_bytes(path.read_bytes() + b"\xff=1\n"), False),
    "more of the site's": (lambda path, _key: appended("SITE=1\n\n# theirs")(path), False),
    "writable for its group": (lambda path, _key: path.chmod(0o664), True),
    "read by root alone": (lambda path, _key: path.chmod(0o600), False),
    "of another user": (lambda path, _key: os.chown(path, 1000, 0), True),
}
"""Possible states of such a file, each of one key's line, and whether it then differs."""


@pytest.fixture
def with_lines(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Tree:
    return Tree(request.param, tmp_path, capsys, monkeypatch, LINES[request.param])


@pytest.mark.install
@pytest.mark.parametrize("with_lines", LINES, indirect=True)
def test_lines_in_files_of_others(with_lines: Tree) -> None:
    tree = with_lines
    settles(tree, "as it came")
    (shared,) = tree.lines
    path = Path(f"{tree.root}{shared.path}")
    as_wanted = path.read_text()
    assert as_wanted.startswith("" if shared.made else "# as it came\nOTHER=1\n")
    keys = cycle(shared.keys)
    for way, (alter, differs) in LINE_WAYS.items():
        path.write_text(as_wanted)
        path.chmod(0o644)
        os.chown(path, 0, 0)
        alter(path, next(keys))
        tree.start_anew(3600)
        named = settles(tree, way, differs=differs)
        assert {name for name in named if name.startswith("/")} == ({shared.path} if differs else set()), way


@pytest.mark.parametrize("with_lines", LINES, indirect=True)
def test_what_no_lines_can_be_set_in(with_lines: Tree) -> None:
    """A link is refused, so that nothing of another place is written; what is missing comes with its package, or is
    made."""
    tree = with_lines
    tree.apply(check=False)
    tree.start_anew(3600)
    (shared,) = tree.lines
    path = Path(f"{tree.root}{shared.path}")
    given = role_values([shared], "lines")["lines"]
    given[0]["path"] = str(path)
    path.rename(f"{path}.kept")
    path.symlink_to(f"{path}.kept")
    assert shared.path in tree.failing()[f"{tree.capability.name}.files"]
    assert "is a symbolic link" in ran(tree.capsys, "gpuprov_files", lines=given)["msg"]
    path.unlink()
    assert shared.path in tree.failing()[f"{tree.capability.name}.files"]
    done = ran(tree.capsys, "gpuprov_files", lines=given)
    assert done["changed"] if shared.made else "Fix: install what brings it" in done["msg"]
    path.write_text("x" * (64 << 10) + "\n")
    with pytest.raises(ProbeFailed, match="is larger than 64 KiB"):
        tree.failing()


STATES = (("enabled", "failed"), ("disabled", "active"), ("enabled-runtime", "inactive"), ("enabled", "active"))
"""UnitFileState and ActiveState; each unit is brought to two of them in turn, its neighbours to the others."""


@pytest.mark.install
@pytest.mark.parametrize("tree", rows(WITH_UNITS), indirect=True)
def test_units_in_every_state(tree: Tree) -> None:
    tree.apply(check=False)
    state = tree.root / "systemctl.json"
    names = [one.name for one in tree.resources if isinstance(one, Unit)]
    for number, name in enumerate(names):
        for file, active in (STATES[number % len(STATES)], STATES[(number + 1) % len(STATES)]):
            before = json.loads(state.read_text())
            before["file"][name], before["active"][name] = file, active
            state.write_text(json.dumps(before))
            settles(tree, f"{name} {file} {active}", differs=None, units=True)


def rewritten(path: Path) -> None:
    """Replace a file by one with another content, as package managers do."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(f"{path.read_text() if path.exists() else ''}\n# another\n")
    beside.replace(path)


def changed_mode(path: Path, mode: int) -> bool:
    path.chmod(mode)
    return True


READ_WAYS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "rewritten": (rewritten, True),
    "written in place": (lambda path: path.write_text("another\n"), True),
    "touched": (lambda path: path.touch(), False),
    "with another mode and back": (
        lambda path: [changed_mode(path, mode) for mode in (0o600, path.stat().st_mode)],
        False,
    ),
}
"""What happens to a file that a running unit reads, and whether it runs with another content then, if gpuprov wrote
it."""


@pytest.mark.parametrize("tree", rows(WITH_READS), indirect=True)
def test_units_that_have_read_what_is_not_there_any_more(tree: Tree) -> None:
    """Each file is changed in one way, the next in another. Of gpuprov's own files a touch is no change: it has noted
    their contents. Of others, as programs, it cannot be known."""
    ways = cycle(READ_WAYS)
    for _ in range(WITH_READS.index(tree.capability.name)):
        next(ways)
    tree.apply(check=False)
    files, own = (
        {one.path for one in tree.files},
        {*(one.path for one in tree.files), *(one.path for one in tree.lines)},
    )
    for unit in [one for one in tree.resources if isinstance(one, Unit) and one.active is not False and one.reads]:
        systemctl.answer("start", unit.name)  # one that is never started runs already
        for place in unit.reads:
            path, way = next((one for one in own if is_read(one, [place])), place), next(ways)
            alter, differs = READ_WAYS[way]
            if path not in own:
                tree.write(path, "as it came\n")
                tree.apply(check=False)
            elif path in files and way == "rewritten":
                continue  # its file differs, which another row covers
            tree.start_anew()
            assert tree.failing() == {}, f"{path}, as it is"
            alter(Path(f"{tree.root}{path}"))
            named = settles(tree, f"{path} {way}", differs=differs or path not in own, units=True)
            assert (unit.name in named) == (differs or path not in own), (unit.name, path, named)


@pytest.mark.parametrize("tree", rows(WITH_UNITS), indirect=True)
def test_units_of_packages_that_systemd_has_not_read(tree: Tree) -> None:
    """Of their own files, `test_all_files_altered_each_in_another_way` sees to it."""
    tree.apply(check=False)
    own = {one.path for one in tree.files}
    names = [
        one.name for one in tree.resources if isinstance(one, Unit) and one.enabled and not is_among(one.name, own)
    ]
    tree.contents()  # as systemd has read them
    for name in names:
        assert (tree.root / "usr/lib/systemd/system" / name).exists()
        tree.write(f"/usr/lib/systemd/system/{name}", "[Service]\nExecStart=/usr/bin/true --more\n")
    assert settles(tree, "another unit file", differs=bool(names), units=True) == set(names)


@pytest.mark.parametrize("tree", rows(WITH_RESOURCES), indirect=True)
def test_what_the_spec_asks_for_no_longer_is_named_and_goes(tree: Tree) -> None:
    tree.apply(check=False)
    brought = {one.path for one in tree.resources if isinstance(one, File)}
    tree.remember()
    found, values = tree.unmanaged()
    assert set(values["files"]) == brought, "every file of it is named, and nothing else"
    own = {path.rpartition("/")[2] for path in brought if path.startswith("/etc/systemd/system/")}
    on = [one.name for one in tree.resources if isinstance(one, Unit) and (one.enabled or one.active)]
    assert [one.name for one in found if one.kind == "unit"] == sorted(on, key=on.index)
    assert {one.name for one in found if one.kind == "unit" and one.stays} == {
        name for name in on if name not in own and f"{name.partition('@')[0]}@.service" not in own
    }
    removed = {f"{tree.root}{path}": digest for path, digest in values["files"].items()}
    tree.ran("gpuprov_files", disabled=values["units"], absent_if=removed)
    assert not [path for path in brought if Path(f"{tree.root}{path}").exists()]
    assert all(one.stays for one in tree.unmanaged()[0])


@pytest.mark.parametrize("way", ["another text", "a link"])
def test_a_file_that_others_changed_since_is_left_to_them(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree("readings", tmp_path, capsys, monkeypatch)
    tree.apply(check=False)
    tree.remember()
    changed = tree.files[0].path
    WAYS[way](Path(f"{tree.root}{changed}"))
    found, values = tree.unmanaged()
    assert changed not in values["files"]
    assert len(values["files"]) == len(tree.files) - 1
    assert [one.stays for one in found if one.name == changed] == ["changed by others since it was applied"]


@pytest.mark.install
def test_a_unit_is_switched_off_while_its_file_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the one way of persistence to the other and back: never both, and nothing of the first stays."""
    tree = Tree("persistence", tmp_path, capsys, monkeypatch)
    daemon, legacy = "nvidia-persistenced.service", "gpuprov-persistence.service"
    log = tmp_path / "systemctl.log"
    settles(tree, "legacy")
    for block, off, on in ((Persistence(mode="daemon"), legacy, daemon), (Persistence(mode="legacy"), daemon, legacy)):
        log.unlink()
        tree.ask(block)
        settles(tree, block.mode)
        assert log.read_text().splitlines() == [f"disable {off}", f"stop {off}", f"enable {on}", f"restart {on}"]


@pytest.mark.install
@pytest.mark.parametrize(("name", "unit"), [("pcie", "gpuprov-pcie"), ("gpu_settings", "gpuprov-gpu-settings")])
def test_what_is_asked_for_no_more_is_off_and_gone(
    name: str, unit: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(name, tmp_path, capsys, monkeypatch)
    settles(tree, "asked for")
    gone = [one.path for one in tree.files]
    tree.ask(BY_NAME[name].fragment())
    settles(tree, "not asked for")
    assert not [path for path in gone if Path(f"{tree.root}{path}").exists()]
    done = (tmp_path / "systemctl.log").read_text().splitlines()
    assert done[-2:] == [f"disable {unit}.service", f"stop {unit}.service"]


@pytest.mark.install
@pytest.mark.parametrize(
    ("name", "block", "unit"),
    [
        ("fabric_manager", FabricManager(), "nvidia-fabricmanager.service"),
        ("fabric_manager", FabricManager(imex=Imex(service="disabled")), "nvidia-imex.service"),
        ("dcgm", Dcgm(), "nvidia-dcgm.service"),
    ],
)
def test_other_blocks_that_decide_on_units(
    name: str,
    block: Fragment,
    unit: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = Tree(name, tmp_path, capsys, monkeypatch)
    tree.apply(check=False)
    tree.ask(block)
    tree.write(f"/usr/lib/systemd/system/{unit}", "[Service]\nExecStart=/usr/bin/true\n")
    for one in tree.lines:
        tree.write(one.path, as_it_came(one.path))
    settles(tree, "another block", differs=None)
    wanted = next(one for one in tree.resources if isinstance(one, Unit))
    assert wanted.name == unit
    state = json.loads((tmp_path / "systemctl.json").read_text())
    on = {True: ("enabled", "active"), False: ("disabled", "inactive")}[bool(wanted.enabled)]
    assert (state["file"].get(unit, "disabled"), state["active"].get(unit, "inactive")) == on


@pytest.mark.install
def test_another_fabric_takes_the_units_of_the_first_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree("rdma", tmp_path, capsys, monkeypatch)
    log = tmp_path / "systemctl.log"
    settles(tree, "roce")
    for block, off, on in ((Rdma(fabric="soft"), "roce", "rdma-soft"), (erdma_host.block(), "rdma-soft", "erdma")):
        log.unlink()
        tree.ask(block)
        settles(tree, block.fabric)
        gone, there = f"gpuprov-{off}.service", f"gpuprov-{on}.service"
        assert log.read_text().splitlines() == [
            f"disable {gone}",
            f"stop {gone}",
            f"enable {there}",
            f"restart {there}",
        ]


@pytest.mark.install
def test_a_unit_whose_file_went_while_it_ran_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree("persistence", tmp_path, capsys, monkeypatch)
    tree.ask(Persistence(mode="daemon"))
    tree.apply(check=False)
    state = tmp_path / "systemctl.json"
    known = json.loads(state.read_text())
    known["active"]["gpuprov-persistence.service"] = "active"
    state.write_text(json.dumps(known))
    assert tree.failing() == {"persistence.active": {"gpuprov-persistence.service"}}
    settles(tree, "it runs on without a file")


def of_gpudirect(block: GpudirectRdma, **texts: str) -> tuple[Context[Any], set[str]]:
    """Return the context of the good host with these outputs, and its failing checks of loaded modules."""
    ctx: Context[Any] = Context(
        HostSpec(name="gpu1", capabilities={"gpudirect_rdma": block}), block, facts(**{**good(), **MORE, **texts})
    )
    names = ("loaded", "parameters", "gdrcopy")
    checks = [one for one in BY_NAME["gpudirect_rdma"].checks if one.id.partition(".")[2] in names]
    return ctx, {one.id.partition(".")[2] for one in checks if one.run(ctx).status == "fail"}


@pytest.mark.parametrize("value", ["0", "1", None])
@pytest.mark.parametrize("loaded", [(), ("nvidia_peermem",), ("nv_peer_mem",), ("nvidia_peermem", "nv_peer_mem")])
def test_peer_modules_in_every_state(
    loaded: tuple[str, ...], value: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their checks fail exactly where the step changes something, which runs on a folder in place of /sys/module."""
    values = {} if value is None else {"peerdirect_support": value}
    for name in loaded:
        (tmp_path / name / "parameters").mkdir(parents=True)
        for key in values:
            (tmp_path / name / "parameters" / key).write_text(f"{value}\n")
    monkeypatch.setattr(on_host("peer_memory"), "MODULES", str(tmp_path))
    text = gpudirect_host.said(
        loaded=("nvidia", "ib_core", *loaded), holders=",".join(["ib_uverbs", *loaded, ""]), values=values
    )
    ctx, failing = of_gpudirect(GpudirectRdma(method="nvidia_peermem"), gpudirect=text)
    asked = make_gpudirect(ctx)["tasks"]["peer_memory"]
    differing = on_host("peer_memory").list_differences(asked["name"], asked["other"], asked["parameters"])
    assert bool(failing) == bool(differing), (failing, differing)


@run_each("node", ["", "237 666", "237 600", "236 666"])
@run_each("major", ["", "237"])
def test_gdrcopy_in_every_state(major: str, node: str) -> None:
    rows = [f"kernel|{gpudirect_host.K}|2.5.1", f"node|{node}", *(["loaded|", f"major|{major}"] if major else [])]
    ctx, failing = of_gpudirect(
        GpudirectRdma(method="nvidia_peermem", gdrcopy=Gdrcopy(install=True)),
        gdrcopy="".join(f"{row}\n" for row in rows),
        gdrcopy_packages=gpudirect_host.INSTALLED,
    )
    assert ("gdrcopy" in make_gpudirect(ctx)["tasks"]) == ("gdrcopy" in failing)
    assert bool(failing) == ((major, node) != ("237", "237 666"))


CARD: dict[str, Any] = {
    "ecc": (True, True),
    "power": (700000, 700000, 200000, 700000),
    "applications": (2619, 1980),
    "clocks": (345, 2619),
    "mode": "default",
}
"""A GPU as NVML tells it; the same as `gpu_settings_host.gpu` prints."""
CARDS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"ecc": (True, False)}, {"pending": "Disabled"}),
    ({"ecc": (False, True)}, {"ecc": "Disabled"}),
    ({"ecc": (False, False)}, {"ecc": "Disabled", "pending": "Disabled"}),
    ({"power": (400000, 700000, 200000, 700000)}, {"limit": "400.00 W"}),
    ({"power": (399999, 700000, 200000, 700000)}, {"limit": "400.00 W"}),
    ({"applications": (2619, 1755)}, {"app_graphics": "1755 MHz"}),
    ({"clocks": (1980, 2619)}, {"graphics": "1980 MHz"}),
    ({"clocks": (1300, 2619)}, {"graphics": "1300 MHz"}),
    ({"mode": "prohibited"}, {"mode": "Prohibited"}),
]
"""What differs from that, by NVML and by nvidia-smi."""
ASKED: list[dict[str, Any]] = [
    {"ecc": "enabled"},
    {"ecc": "disabled"},
    {"power_limit": 400},
    {"power_limit": "default"},
    {"application_clocks": {"memory": 2619, "graphics": 1755}},
    {"application_clocks": "default"},
    {"locked_clocks": {"graphics": [1200, 1755]}},
    {"locked_clocks": {"graphics": [1200, 1755], "memory": "default"}},
    {"compute_mode": "prohibited"},
    {"compute_mode": "default"},
]


@run_each("locks", [{}, {"graphics": [1200, 1755]}, {"graphics": "default"}], ids=["none", "span", "own"])
@run_each("plain", ASKED, ids=[json.dumps(one) for one in ASKED])
def test_settings_of_a_gpu_in_every_state(plain: dict[str, Any], locks: dict[str, Any]) -> None:
    """The program on a host has a step, or waits for a boot, exactly where the check on the controller fails: one reads
    NVML, the other nvidia-smi's text; both are stand-in values here."""
    planning, card, selection, limits = (
        on_host(f"gpu_settings.{name}") for name in ("plan", "card", "selection", "limits")
    )
    block, _ = convert(plain, GpuSettings)
    (name,) = plain
    check = next(one for one in BY_NAME["gpu_settings"].checks if one.id == f"gpu_settings.{name}")
    address, clocks = gpu_settings_host.FIRST, limits.Clocks([2619], lambda _memory: [1200, 1755, 1980])
    for by_nvml, by_smi in CARDS:
        own = {**CARD, **by_nvml}
        there = card.Card(
            *(selection.Gpu(0, address, ""), None, own["ecc"], card.Power(*own["power"]), own["applications"]),
            *((2619, 1980), "", own["clocks"], own["mode"], False, []),
        )
        need = planning.needs(there, plain, locks, lambda: clocks)
        ctx: Context[Any] = Context(
            HostSpec(name="gpu1", capabilities={"gpu_settings": block}),
            block,
            facts(
                **{
                    **good(),
                    "gpu_settings": gpu_settings_host.HEAD + gpu_settings_host.gpu(address, **by_smi),
                    "gpu_settings_kept": gpu_settings_host.kept(locks={address: locks}),
                }
            ),
        )
        outcome = check.run(ctx)
        assert need.problems == []
        differs = need.waits or any(not step.again for step in need.steps)
        assert (outcome.status == "fail") == differs, (by_smi, outcome, need.steps)
