"""Who answers on a host: the reader and the judge, the script in real shells, and the first task of every apply on this
machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuprov import __version__
from gpuprov.core import ended
from gpuprov.facts.probes.base import Output, ProbeFailed
from gpuprov.facts.probes.host.system import LOGIN, LOGIN_MARKER
from gpuprov.rules import reach
from tests.here import ROLES, play, program
from tests.rows import run_each

PLAYBOOKS = ROLES.parent / "playbooks"
TEMPLATE = "/x/{{7*7}}"
NOISE = (
    "bash: warning: setlocale: LC_ALL: cannot change locale (xx_XX.UTF-8)\n"
    "Linux gpu7 6.1.0 x86_64\nsudo: unable to resolve host gpu7: Name or service not known\nmark user 1000\n+ say "
    "system Linux\n"
)
SAID = ("system Linux", "user 0", "path /usr/bin:/bin:.:/usr/bin", "umask 0022", "python 3.11 /usr/bin/python3")
GOOD = "".join(f"reach-a {line}\n" for line in SAID)


def test_an_answer_is_read_out_of_all_noise() -> None:
    plain = reach.heard(GOOD, "reach-a")
    assert plain == reach.Heard(
        "Linux", "0", "/usr/bin:/bin", "0022", pythons=(reach.Python((3, 11), "/usr/bin/python3"),)
    )
    terminal = f"{NOISE}no line break{GOOD}{NOISE}".replace("\n", "\r\n")
    assert reach.heard(terminal, "reach-a") == plain
    assert reach.heard(NOISE, "reach-a") == reach.Heard()
    assert not reach.refusal(plain, "2.19.3")


def test_a_refusal_names_what_is_wrong_and_the_way_out() -> None:
    good = reach.heard(GOOD, "reach-a")
    for answer, printed, words in (
        (
            reach.Heard(),
            f"{NOISE}sh: \x1b[31mnot here\r\n",
            ("did not run the first command", "it printed: sh: [31mnot here", "Fix: see"),
        ),
        (reach.Heard(), "", ("did not run the first command. Fix: ",)),
        (good._replace(system="FreeBSD"), "", ("does not run Linux but FreeBSD", "take it out of the inventory")),
        (good._replace(user="1000"), "", ("user id 1000; wanted: root. Fix: set ansible_become: true",)),
        (good._replace(readonly=("/etc",)), "", ("read-only: /etc", "Fix: see why (dmesg, findmnt)")),
        (good._replace(pythons=()), "", ("no Python; wanted: Python 3.8 or newer", "Fix: install python3")),
    ):
        told = reach.refusal(answer, "2.19.3", printed)
        assert all(word in told for word in words), told
        assert "\x1b" not in told


@run_each(
    ("status", "told"),
    [
        (-9, "was asked who it is, and ssh was ended by SIGKILL, on this machine. Fix: apply again"),
        (137, "was asked who it is, and its shell there was killed (SIGKILL): for want of memory"),
        (143, "was asked who it is, and its shell there was ended by SIGTERM. Fix: apply again"),
        (255, "was asked who it is, and the connection was cut. Fix: apply again"),
        (1, "did not run the first command"),
        (254, "did not run the first command"),
        (None, "did not run the first command"),
    ],
)
def test_a_connection_that_was_cut_is_told_as_such(status: int | None, told: str) -> None:
    assert reach.refusal(reach.Heard(), "2.19.3", "", ended.connection(status)).startswith(told)


def test_the_python_is_the_distributions_own_or_the_newest_and_never_a_strange_word() -> None:
    def found(*pythons: tuple[tuple[int, int], str], named: str = "", ansible: str = "2.19.3") -> str:
        return reach.chosen(reach.Heard(named=named, pythons=tuple(reach.Python(*one) for one in pythons)), ansible)

    newer, own, old = ((3, 12), "/usr/bin/python3.12"), ((3, 11), "/usr/bin/python3"), ((3, 6), "/usr/bin/python3")
    assert found(newer, own) == "/usr/bin/python3"
    assert found(old, ((3, 9), "/usr/bin/python3.9"), newer) == "/usr/bin/python3.12"
    assert found(old) == ""
    assert found(((3, 8), "/usr/bin/python3")) == "/usr/bin/python3"
    assert found(((3, 8), "/usr/bin/python3"), ansible="2.20.1") == ""
    assert found(((3, 12), "/opt/{{ x }}/python3"), ((3, 12), "/opt/a b/python3")) == ""
    assert found(own, newer, named="/usr/bin/python3.12") == "/usr/bin/python3.12"
    assert found(own, named="/opt/python3") == ""


def test_silence_is_no_answer() -> None:
    with pytest.raises(ProbeFailed, match="uname printed nothing: 'sh: not found'"):
        LOGIN.parse(Output("", 127, "sh: not found\n"))


@pytest.mark.install
@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"], ["busybox", "sh"]], ids=lambda shell: shell[0])
def test_the_script_starts_pythons_and_passes_over_what_does_not_start(shell: list[str], tmp_path: Path) -> None:
    if not shutil.which(shell[0]):
        pytest.skip(f"no {shell[0]} here")
    program(tmp_path, "python3", "echo 'pyenv: python3: command not found' >&2; exit 127\n")
    program(tmp_path, "hangs", "sleep 60\n")

    def ask(named: str = "") -> reach.Heard:
        script = reach.script(LOGIN_MARKER, named).replace("timeout 20", "timeout 1")
        env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "v": "login 3.99"}
        done = subprocess.run(shell, input=script, env=env, capture_output=True, text=True, check=True, timeout=60)
        return LOGIN.parse(Output(done.stdout))

    found = ask()
    assert found.system == "Linux"
    assert found.user == str(os.geteuid())
    assert found.path.startswith(f"{tmp_path}:")
    assert set(reach.FOLDERS.split(":")) <= set(found.path.split(":"))
    assert found.release.split() == Path("/etc/os-release").read_text(encoding="utf-8").split()
    assert reach.chosen(found, "2.19.3").startswith("/")
    named = str(tmp_path / "python3")
    refused = reach.no_python(ask(named), "2.19.3")
    assert refused
    assert refused.problem == f"does not start: {named}: pyenv: python3: command not found (exit status 127)"
    assert refused.fix.startswith("ansible_python_interpreter: /")
    late = reach.no_python(ask(str(tmp_path / "hangs")), "2.19.3")
    assert late
    assert late.problem == f"does not start: {tmp_path}/hangs (exit status 124)"


REACH: list[dict[str, Any]] = yaml.safe_load((PLAYBOOKS / "site.yml").read_text(encoding="utf-8"))[0]["tasks"][-1][
    "block"
]


def reached(folder: Path, *more: dict[str, Any], **extra: Any) -> subprocess.CompletedProcess[str]:
    """What the first play of site.yml says of this machine, and then `more` tasks."""
    return play(folder, {"tasks": [*REACH, *more]}, extra=extra)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the host must be worked on as root")


@pytest.mark.install
@needs_root
def test_a_python_that_does_not_do_is_refused_with_the_way_out(tmp_path: Path) -> None:
    program(tmp_path, "python3.6", "printf '%s 3.6\\n' \"$(printf '%s' \"$*\" | grep -o 'reach-[a-z0-9]*')\"\n")
    done = reached(tmp_path, ansible_python_interpreter=str(tmp_path / "python3.6"))
    told = " ".join(done.stdout.split())
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{tmp_path}/python3.6 is Python 3.6; wanted: Python 3." in told
    assert "Fix: ansible_python_interpreter: /" in told


@pytest.mark.install
@needs_root
def test_acts_go_over_the_hosts_that_were_reached(tmp_path: Path) -> None:
    """A host that has nothing to do is not even asked who answers."""
    first, act = yaml.safe_load((PLAYBOOKS / "site.yml").read_text(encoding="utf-8"))[:2]
    second = {"hosts": act["hosts"], "tasks": [{"name": "Act", "ansible.builtin.debug": {"msg": "works"}}]}
    rendered = {"gpuprov_version": __version__, "gpuprov_capabilities": ["kernel"]}
    only = {**rendered, "gpuprov_only": {"gpu1": ["kernel"], "gpu2": []}}
    (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {"gpu1": {}, "gpu2": {}}}}))
    done = play(tmp_path, first, second, inventory="hosts.yml", extra=only)
    assert done.returncode == 0, done.stdout + done.stderr
    reached = done.stdout.partition("TASK [Reach the host]")[2].partition("TASK [")[0]
    assert sorted(re.findall(r"^(\w+): \[(\w+)\]", reached, re.MULTILINE)) == [("ok", "gpu1"), ("skipping", "gpu2")]
    assert re.findall(r"^(\w+): \[(\w+)\]", done.stdout.partition("TASK [Act]")[2], re.MULTILINE) == [("ok", "gpu1")]


@pytest.mark.install
@needs_root
def test_noise_and_a_shim_on_the_path_do_not_matter(tmp_path: Path) -> None:
    """A sudo that warns, a login that prints, interpreters first on the path that do not start, and a path without
    sbin."""
    for name in ("python3", "python3.13", "python3.12", "python3.11"):
        program(tmp_path, name, "echo 'pyenv: command not found' >&2; exit 127\n")
    noise = f"cat >&2 <<'END'\n{NOISE}END\necho Linux 0 /usr/bin/python3\n"
    program(
        tmp_path,
        "sudo",
        f'{noise}while [ "$1" != /bin/sh ]; do shift; done\nPATH={tmp_path}:{TEMPLATE}:/usr/bin:/bin exec "$@"\n',
    )
    become = {"ansible_become": True, "ansible_become_user": "daemon", "ansible_become_exe": str(tmp_path / "sudo")}
    show = {"ansible.builtin.debug": {"msg": "used {{ ansible_python_interpreter }}"}}
    path = {
        "ansible.builtin.command": {"argv": ["sh", "-c", "echo at $PATH in $LC_ALL"]},
        "environment": "{{ host_environment }}",
        "register": "seen",
    }
    tell = {"ansible.builtin.debug": {"var": "seen.stdout"}}
    done = reached(tmp_path, show, path, tell, ansible_python_interpreter=None, **become)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "used /usr/bin/python3" in done.stdout or "used /usr/local/bin/python3" in done.stdout
    assert "/usr/sbin:" in done.stdout
    assert f":{TEMPLATE}:" in done.stdout, "the path is the host's own: no template"
    assert "in C.UTF-8" in done.stdout
