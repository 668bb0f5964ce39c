"""A new capability takes nine files at most, its own and the registry's line: one is made in a copy of the tree, and
works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprov.simulate import hosts
from gpuprov.simulate.description import Description
from gpuprov.simulate.inventory import text

pytestmark = pytest.mark.install
ROOT = Path(__file__).parents[2]
PARTS = (
    "gpuprov",
    "roles",
    "playbooks",
    "plugins",
    "docs",
    "molecule",
    "inventories",
    "tests",
    "pyproject.toml",
    "ansible.cfg",
    ".ansible-lint",
)
MOST = 9
HOST = "tenth"
REGISTRY = "gpuprov/capabilities/__init__.py"
SPEC = "all: {vars: {gpuprov: {login_notice: {text: Hello}}}}\n"
OWN: dict[str, str] = {
    "gpuprov/facts/probes/login_notice.py": '''\
"""What users of a host read as they log in."""

from __future__ import annotations

from gpuprov.facts.probes.base import Output, Probe

FILE = "/etc/motd.d/50-gpuprov"


def parse(output: Output) -> str:
    return output.text.rstrip("\\n")


LOGIN_NOTICE = Probe("login_notice", f"cat {FILE} 2>/dev/null; true", parse, f"cat {FILE}")
''',
    "gpuprov/capabilities/login_notice.py": '''\
"""`login_notice`: a line that users of a host read as they log in."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gpuprov.capabilities.base import Capability, Change, Context, Outcome, check, fail, ok
from gpuprov.facts.probes.login_notice import FILE, LOGIN_NOTICE
from gpuprov.spec.model import Fragment


class LoginNotice(Fragment, frozen=True):
    """A line in /etc/motd.d."""

    text: Annotated[
        str, msgspec.Meta(pattern=r"^[A-Za-z0-9 ,.-]{1,70}$", description="one line of letters, digits, spaces, commas, dots, dashes")
    ] = "This host is managed by gpuprov"


@check("login_notice.written", LOGIN_NOTICE, fields=("text",))
def written(ctx: Context[LoginNotice]) -> Outcome:
    """Users read the text as they log in."""
    found = ctx.facts.get(LOGIN_NOTICE)
    if found != ctx.fragment.text:
        change = Change(kind="file", name=FILE, before=found, after=ctx.fragment.text)
        return fail(ctx.fragment.text, found or "no notice", f"gpuprov apply writes {FILE}", changes=[change])
    return ok(found)


CAPABILITY = Capability(
    name="login_notice",
    summary="a line that users of a host read as they log in",
    fragment=LoginNotice,
    checks=(written,),
    driverless=True,
    presupposes={"written": ("host.writable",)},
    taken_away={"text": "Nobody manages this host"},
)
''',
    "roles/login_notice/tasks/configure.yml": """\
---
- name: Have the folder of notices
  ansible.builtin.file:
    path: /etc/motd.d
    state: directory
    owner: root
    group: root
    mode: "0755"

- name: Write the notice
  ansible.builtin.copy:
    content: "{{ login_notice_text }}\\n"
    dest: /etc/motd.d/50-gpuprov
    owner: root
    group: root
    mode: "0644"
""",
    "molecule/login_notice/inventory.yaml": """\
all:
  vars:
    gpuprov: {login_notice: {}}
    simulated_host: {kind: container, distribution: debian12}
    simulated_faults:
      - {script: rm /etc/motd.d/50-gpuprov, check: login_notice.written}
  hosts:
    molecule-login-notice:
""",
    "tests/capabilities/test_login_notice.py": '''\
"""login_notice: the text is what users read."""

from __future__ import annotations

import pytest

from tests.capabilities.asking import Row, judge

WRITTEN = "login_notice.written"
TEXT = "This host is managed by gpuprov"
ROWS = [
    Row("as asked for", WRITTEN, None, {"login_notice": f"{TEXT}\\n"}, "pass", TEXT),
    Row("nothing there", WRITTEN, None, {"login_notice": ""}, "fail", "no notice", "gpuprov apply writes"),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_login_notice(row: Row) -> None:
    judge(row)
''',
}
"""The files that a person writes."""


def edited(text: str) -> str:
    """Return the registry with one more capability: its import, and its place in apply order."""
    text = text.replace("    kubernetes,\n", "    kubernetes,\n    login_notice,\n", 1)
    last = "    acceptance.CAPABILITY,\n"
    assert last in text
    return text.replace(last, f"{last}    login_notice.CAPABILITY,\n", 1)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, folder / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / part)
    files = {**OWN, "molecule/login_notice/molecule.yml": (ROOT / "molecule/default/molecule.yml").read_text()}
    files[REGISTRY] = edited((ROOT / REGISTRY).read_text())
    assert len(files) <= MOST
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    run(folder, "docs/generate.py")
    return folder


def run(tree: Path, *command: str, expected: int = 0) -> str:
    """Run Python in the tree, with the tree's gpuprov."""
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_it_is_checked_explained_and_rendered(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC.replace("vars", "hosts: {gpu1: {}}, vars"))
    spec = str(tmp_path / "spec.yaml")
    run(tree, "-m", "gpuprov", "check", spec)
    assert "one line of letters" in run(tree, "-m", "gpuprov", "explain", "login_notice.text").lower()
    run(tree, "-m", "gpuprov", "render", spec, "--out", str(tmp_path / "out"))
    assert "login_notice_text: Hello" in (tmp_path / "out" / "host_vars" / "gpu1.yml").read_text()
    assert (tmp_path / "out" / "login_notice.yml").is_file()
    bad = tmp_path / "bad.yaml"
    bad.write_text(SPEC.replace("vars", "hosts: {gpu1: {}}, vars").replace("Hello", '"{{ evil }}"'))
    run(tree, "-m", "gpuprov", "check", str(bad), expected=2)


def test_the_contracts_take_it(tree: Path) -> None:
    names = ("rooms", "registry", "generated", "argument_specs", "imports")
    files = [f"tests/contracts/test_{name}.py" for name in names]
    own = ("tests/capabilities/test_login_notice.py", "tests/verify/test_causes.py")
    run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files, *own)


def test_other_rooms_know_of_it_what_its_fields_say(tree: Path) -> None:
    asked = (
        "from gpuprov.verify.causes import cause; from gpuprov.plan.no_way_back import stays; "
        "print(cause('login_notice.written', ['host.writable']), stays('login_notice'))"
    )
    assert run(tree, "-c", asked) == "host.writable False\n"


@pytest.mark.e2e
def test_its_role_runs_on_a_simulated_host(tree: Path, tmp_path: Path) -> None:
    hosts.down(HOST)
    try:
        host = hosts.up(HOST, Description())
        (tmp_path / "hosts.yaml").write_text(text([host]))
        (tmp_path / "spec.yaml").write_text(SPEC)
        given = [str(tmp_path / "hosts.yaml"), str(tmp_path / "spec.yaml")]
        run(tree, "-m", "gpuprov", "plan", *given, expected=1)
        run(tree, "-m", "gpuprov", "apply", *given, "--yes")
        again = run(tree, "-m", "gpuprov", "apply", *given, "--yes")
        assert f"{HOST}: unchanged" in again
        assert "login_notice" not in again, "proven, and nothing of it is wrong"
        assert hosts.run(HOST, "cat /etc/motd.d/50-gpuprov") == "Hello\n"
    finally:
        hosts.down(HOST)
