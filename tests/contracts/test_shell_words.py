"""Roles pass values to a shell as single words, or as arguments: never as a piece of its text."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov.explain import all_checks

ROLES = Path(__file__).parents[2] / "roles"
SHELLS = ("ansible.builtin.shell", "ansible.builtin.raw")
QUOTED = re.compile(r"\| *(quote|int|b64encode|map\('quote'\) *\| *join\(' '\))\s*\}\}\Z")
CONSTANT = re.compile(
    r"\{\{ *(__\w+_known\.\w+(\.\w+)*( \| join\(' '\))?|'[^']*' if \w+ else "
    r"'[^']*'|__(persistence|fabric_manager)_(daemon|unit)) *\}\}\Z"
)
"""Expressions with constants of the catalogue or of the role itself."""


class Loader(yaml.CSafeLoader):
    """A loader that treats Ansible's tags as text."""


Loader.add_multi_constructor("!", lambda loader, _tag, node: loader.construct_scalar(node))


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    for task in value if isinstance(value, list) else []:
        yield task
        for inner in ("block", "rescue", "always"):
            yield from tasks(task.get(inner))


def every_task() -> Iterator[tuple[Path, dict[str, Any]]]:
    for file in sorted(ROLES.glob("*/*/**/*.yml")):
        if file.relative_to(ROLES).parts[1] == "tasks":
            for task in tasks(yaml.load(file.read_text(encoding="utf-8"), Loader=Loader)):
                yield file, task


def test_a_shell_gets_words() -> None:
    bad = []
    for file, task in every_task():
        for module in SHELLS:
            body = task.get(module, "")
            text = body if isinstance(body, str) else body["cmd"]
            for part in re.findall(r"\{\{.*?\}\}", text, re.DOTALL):
                if not (QUOTED.search(part) or CONSTANT.match(part)):
                    bad.append(f"{file.relative_to(ROLES)}: {task.get('name')}: {part}")
    assert bad == []


def test_a_script_is_not_made_of_values() -> None:
    """`sh -c` gets a file of the role or a probe's script; values come after it, as arguments."""
    script = re.compile(r"\{\{ *(lookup\('ansible.builtin.file', .*\)|\w+(\.scripts?)?[.\w]*(\[\w+\])?) *\}\}\Z")
    bad = []
    for file, task in every_task():
        body = task.get("ansible.builtin.command")
        argv = body.get("argv") if isinstance(body, dict) else None
        if isinstance(argv, list) and argv[:2] == ["sh", "-c"] and "{{" in argv[2] and not script.match(argv[2]):
            pieces = re.findall(r"\{\{.*?\}\}", argv[2])
            bad += [f"{file.relative_to(ROLES)}: {piece}" for piece in pieces if not CONSTANT.match(piece)]
        given = re.findall(r"'sh', '-c', (.{30})", argv) if isinstance(argv, str) else []
        bad += [f"{file}: {one}" for one in given if not one.startswith("lookup('ansible.builtin.file',")]
    assert bad == []


def test_what_hosts_say_names_no_file_of_this_machine() -> None:
    """`fetch` writes on the machine that runs this: only the step prebuilt does, under a name of its own making
    (tests/taint)."""
    assert not [str(file.relative_to(ROLES)) for file, task in every_task() if "ansible.builtin.fetch" in task]
    code = [*(ROLES.parent / "plugins" / "action").glob("*.py"), *(ROLES.parent / "gpuprov" / "play").glob("*.py")]
    fetching = {
        file.stem
        for file in code
        if re.search(r"action_loader|fetch_file|host\.fetch\(", file.read_text(encoding="utf-8"))
    }
    assert fetching == {"gpuprov_step", "prebuilt"}


def test_a_host_does_not_say_which_programs_this_machine_runs() -> None:
    """The play's environment has the PATH that the host named, and delegated tasks take it: an action has this
    machine's own."""
    assert not [task["name"] for _, task in every_task() if "delegate_to" in task]


def write_probes(folder: Path) -> list[str]:
    for probe in {probe.name: probe for check in all_checks() for probe in check.probes}.values():
        (folder / f"{probe.name}.sh").write_text(probe.script, encoding="utf-8")
    files = sorted(map(str, folder.iterdir()))
    assert len(files) > 100
    return files


def test_what_hosts_are_asked_is_shell(tmp_path: Path) -> None:
    each = ["sh", "-c", 'for file; do sh -n "$file"; done', "sh", *write_probes(tmp_path)]
    done = subprocess.run(each, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


FINE = ("SC2045", "SC2283")
"""Errors of shellcheck that are accepted: a loop over the output of `ls`, and `say = x`, where a word between is meant.
"""


@pytest.mark.install  # shellcheck takes 12 seconds
def test_shellcheck_finds_no_error_in_what_hosts_are_asked(tmp_path: Path) -> None:
    """As the files of roles are, which `make style` gives to shellcheck."""
    program = str(Path(sys.executable).with_name("shellcheck"))
    options = ["--shell=sh", "--severity=error", f"--exclude={','.join(FINE)}", "--format=gcc"]
    done = subprocess.run([program, *options, *write_probes(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == ""


def test_no_probe_asks_systemd_for_bare_values() -> None:
    """`systemctl show --value` came with systemd 230 (https://github.com/systemd/systemd/blob/main/NEWS); EL 7 has
    219."""
    probes = {probe.name: probe for check in all_checks() for probe in check.probes}
    assert [name for name, probe in probes.items() if "--value" in probe.script] == []
