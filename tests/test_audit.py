"""The audit of the lock file against stored advisories, and the lock file itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import audit
from tests.rows import run_each

ROOT = Path(__file__).parents[1]

LOCK = """\
# via pip
ansible-core==2.19.1 ; python_full_version < '3.12' \\
    --hash=sha256:00
ansible-core==2.21.5 ; python_full_version >= '3.12'
Jinja2==3.1.4
pyyaml==6.0.2
"""
LISTED = "id: PYSEC-1\naliases: [CVE-1]\naffected:\n- package: {name: ansible-core}\n  versions: ['2.19.0', '2.19.1']\n"
RANGE = (
    "id: PYSEC-2\naffected:\n- package: {name: jinja2, ecosystem: PyPI}\n  ranges:\n"
    "  - {type: GIT, events: [{introduced: '0'}]}\n  - {type: ECOSYSTEM, events: [{introduced: '0'}, {fixed: 3.1.5}]}\n"
)
WITHDRAWN = "id: PYSEC-3\nwithdrawn: '2024-01-01'\naffected:\n- package: {name: pyyaml}\n  versions: [6.0.2]\n"


def test_a_vulnerable_version_is_found_by_list_and_by_range(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text(LOCK, encoding="utf-8")
    folder = tmp_path / "vulns"
    for number, text in enumerate((LISTED, RANGE, WITHDRAWN)):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "advisory.yaml").write_text(text, encoding="utf-8")
    assert audit.main([str(lock), str(folder)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ansible-core 2.19.1: PYSEC-1 CVE-1",
        "jinja2 3.1.4: PYSEC-2",
        "3 packages, 2 advisories, 2 known vulnerabilities",
    ]
    lock.write_text(LOCK.replace("2.19.1", "2.19.2").replace("3.1.4", "3.1.5"), encoding="utf-8")
    assert audit.main([str(lock), str(folder)]) == 0


def test_a_folder_without_advisories_is_no_clean_bill(tmp_path: Path) -> None:
    assert audit.main([str(ROOT / "requirements.lock"), str(tmp_path)]) == 2


@run_each(("version", "hit"), [("1.0", False), ("1.1", True), ("1.2", True), ("1.3", False), ("odd", True)])
def test_the_last_affected_version_is_affected(version: str, hit: bool) -> None:
    entry = {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "1.1"}, {"last_affected": "1.2"}]}]}
    assert audit.affects(entry, version) is hit


def test_the_lock_has_every_dependency_in_an_allowed_version_with_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    versions = audit.locked(text)
    for line in (*project["dependencies"], *project["optional-dependencies"]["dev"]):
        wanted = Requirement(line)
        found = versions.get(canonicalize_name(wanted.name), set())
        assert found, f"{wanted.name} is not locked: make lock"
        assert all(wanted.specifier.contains(version) for version in found), f"{line} is locked as {found}: make lock"
    blocks = text.split("\n    # via")  # what stands before each `# via` is a package with its hashes
    assert all("--hash=sha256:" in block for block in blocks[:-1])
    assert "--index-url" not in text


def test_tools_are_locked_too_in_versions_that_go_with_the_others() -> None:
    ours = audit.locked((ROOT / "requirements.lock").read_text(encoding="utf-8"))
    asked = sorted(path.stem for path in (ROOT / "locks").glob("*.in"))
    assert asked == sorted(path.stem for path in (ROOT / "locks").glob("*.txt"))
    for tool in asked:
        text = (ROOT / f"locks/{tool}.txt").read_text(encoding="utf-8")
        versions = audit.locked(text)
        assert tool in versions
        assert {name: found for name, found in versions.items() if not found <= ours.get(name, found)} == {}
        assert all("--hash=sha256:" in block for block in re.split(r"\n(?=[a-z])", text)[1:]), tool


def test_the_makefile_installs_nothing_without_its_hashes() -> None:
    """But this project itself, and the peer that the benchmarks measure."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^pinned = (.*)$", makefile, re.MULTILINE)
    assert "--require-hashes" in pinned
    others = [line.strip() for line in makefile.splitlines() if "pip install" in line and "pinned =" not in line]
    assert [line for line in others if "--no-deps --no-build-isolation --editable ." not in line] == [
        "$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]'"
    ]


def test_it_is_asked_every_night_and_changes_nothing() -> None:
    found = yaml.safe_load((ROOT / ".github/workflows/audit.yml").read_text(encoding="utf-8"))
    (trigger,) = found[True]["schedule"]  # `on` is a word for true in YAML 1.1
    assert re.fullmatch(r"\d+ \d+ \* \* \*", trigger["cron"])
    assert found["permissions"] == {"contents": "read"}
    assert found["jobs"]["audit"]["steps"][-1] == {"run": "make audit"}
    assert re.search(r"^audit:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    \d+ \d+ \* \* \*  .*make --silent audit .*$", page, re.MULTILINE)
    assert "ADVISORIES=" in line, "and by cron where there is no internet"
