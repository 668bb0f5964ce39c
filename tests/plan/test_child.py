"""The process that becomes ansible-playbook: how often it looks whether a host has answered, and what it does once for
all tasks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuprov.plan import child, warm
from gpuprov.plan.playbook import environment

pytestmark = pytest.mark.install

PLAYBOOK = """
import time
from ansible.plugins import strategy
def main(arguments):
    print(arguments, strategy.time is not time)
"""
PARSING = """
from pathlib import Path
from ansible.executor import module_common
from ansible.module_utils import basic
def main(arguments):
    shared, other = Path(basic.__file__).read_bytes(), b"import os"
    print(*(module_common._compile_module_ast("x", one) is module_common._compile_module_ast("x", one) for one in (shared, other)))
"""
FILTERS = """
from ansible.executor.process.worker import WorkerProcess
from ansible.plugins.loader import filter_loader
def main(arguments):
    before = len(filter_loader._cached_non_collection_wrappers)
    try:
        WorkerProcess.start(None)  # what it starts is not a process; the filters come before
    except (AttributeError, TypeError):
        print(before, "quote" in filter_loader._cached_non_collection_wrappers)
"""
PACKING = """
import os
from ansible import constants
def main(arguments):
    place = os.path.join(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache")
    os.makedirs(place, exist_ok=True)
    print(sorted(os.listdir(place)))
    for name in ("ansible.legacy.gpuprov_unit-ZIP_DEFLATED-none", "ansible.legacy.gpuprov_unit-ZIP_DEFLATED-none.lock"):
        open(os.path.join(place, name), "w").write("packed")
"""
RUN = """
import sys, types
import ansible.cli
stand_in = types.ModuleType("ansible.cli.playbook")
exec({playbook!r}, stand_in.__dict__)
sys.modules["ansible.cli.playbook"] = stand_in
import os, runpy
sys.argv = ["child.py", sys.argv[1], str(os.getppid()), {site!r}]
runpy.run_path({file!r}, run_name="__main__")
"""


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    module = tmp_path / "project" / "library" / "gpuprov_unit.py"
    module.parent.mkdir(parents=True)
    module.write_text("import os\n", encoding="utf-8")


def run(folder: Path, config: str, playbook: str = PLAYBOOK) -> str:
    (folder / "ansible.cfg").write_text(f"[defaults]\n{config}\n", encoding="utf-8")
    program = RUN.format(playbook=playbook, file=child.__file__, site=str(folder / "project" / "site.yml"))
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(folder / "pid")],
        env=environment(folder, {**os.environ, "ANSIBLE_CONFIG": str(folder / "ansible.cfg")}, {}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "pid").read_text().isdigit()
    return done.stdout.strip()


def test_it_does_not_keep_a_core_busy_while_hosts_work(tmp_path: Path) -> None:
    assert run(tmp_path, "") == f"['ansible-playbook', '{tmp_path}/project/site.yml'] True"


def test_its_parent_can_end_it_in_the_background_of_a_shell_too(tmp_path: Path) -> None:
    """There SIGINT is ignored, and whatever a shell starts inherits that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        told = run(tmp_path, "", "import signal\ndef main(arguments):\n    print(signal.getsignal(signal.SIGINT))\n")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "default_int_handler" in told


def test_what_the_users_ansible_cfg_says_stays(tmp_path: Path) -> None:
    assert run(tmp_path, "internal_poll_interval = 0.02").endswith(" False")


def test_it_looks_less_often_the_longer_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 4))
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    patience = warm.Patience()
    for _ in range(400):
        patience.sleep(0.001)
    assert slept[0] == patience.SHORTEST
    assert slept == sorted(slept)
    assert slept[-1] == patience.LONGEST
    assert all(one <= max(patience.SHORTEST, 0.05 * sum(slept[:number])) for number, one in enumerate(slept))
    now[0] += 0.02  # something has come, and was worked on
    patience.sleep(0.001)
    assert slept[-1] == patience.SHORTEST
    assert patience.time


def test_what_every_module_imports_is_parsed_once_for_all_tasks(tmp_path: Path) -> None:
    assert run(tmp_path, "", PARSING) == "True False", "a module's own source is parsed when it is packed"


def test_filters_are_loaded_before_there_is_a_process_that_would_load_them(tmp_path: Path) -> None:
    assert run(tmp_path, "", FILTERS) == "0 True"


def test_what_was_packed_is_packed_for_the_next_run_of_the_same_modules(tmp_path: Path) -> None:
    module = tmp_path / "project" / "library" / "gpuprov_unit.py"
    packed = "['ansible.legacy.gpuprov_unit-ZIP_DEFLATED-none']"
    assert run(tmp_path, "", PACKING) == "[]"
    assert run(tmp_path, "", PACKING) == packed, "and nothing of Ansible's locks"
    module.write_text("import sys\n", encoding="utf-8")
    assert run(tmp_path, "", PACKING) == "[]", "another module"
    module.write_text("import os\n", encoding="utf-8")
    assert run(tmp_path, "", PACKING) == packed
    rendered = tmp_path / "another"
    rendered.mkdir()
    (tmp_path / "project").rename(rendered / "project")
    assert run(rendered, "", PACKING) == packed, "of a project that was rendered into another folder"
