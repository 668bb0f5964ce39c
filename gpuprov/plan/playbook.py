"""One run of a rendered project by ansible-runner: events as they come, the exit status at the end.

Ansible runs in the user's folder and reads the user's ansible.cfg and environment, so that it connects to hosts as it
does by hand (ssh options, proxies, keys, become); their other settings are left out
(`gpuprov.facts.collect.environment`). This module sets what the project requires, and, where the user set nothing,
faster defaults.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

import msgspec

from gpuprov.core import unsafe_yaml
from gpuprov.core.safe_parse import make_all_well_formed
from gpuprov.facts.collect.environment import FORCED, in_utf8, is_kept
from gpuprov.facts.collect.settings import ansible_config
from gpuprov.plan.interrupt import GRACE, interruptible
from gpuprov.render.checkout import acts_of

if TYPE_CHECKING:
    from ansible_runner.config.runner import RunnerConfig

MOST_FORKS = 50
# Ansible's folder on a host, used by gpuprov alone, so that leftovers of a killed run can be recognised (role host,
# clear).
REMOTE_TEMP = "~/.ansible/tmp/gpuprov"
PIPELINING = ("connection.pipelining", "ssh_connection.pipelining", "defaults.pipelining")
CONTROL_PATH = ("ssh_connection.control_path", "ssh_connection.control_path_dir")


class Answer(TypedDict, total=False):
    """A task's result, as far as it is read; a host chooses what is in it."""

    changed: bool
    failed: bool
    unreachable: bool
    rc: int
    msg: str
    stdout: str
    stderr: str
    warnings: list[str]
    results: list[Answer]
    censored: str
    timedout: object
    step: str
    gpuprov_locked: bool


class Data(TypedDict, total=False):
    """The data of an event."""

    host: str
    play: str
    task: str
    role: str
    task_action: str
    task_path: str
    res: Answer
    ignore_errors: bool
    processed: dict[str, int]
    rescued: dict[str, int]
    failures: dict[str, int]


class Event(TypedDict, total=False):
    """An event of ansible-runner: https://ansible.readthedocs.io/projects/runner/en/stable/intro/#artifactevents"""

    event: str
    event_data: Data
    stdout: str


class Ended(msgspec.Struct, frozen=True):
    """Result of Ansible: ansible-playbook's exit status (0: no host failed; 2: a host failed; 4: a host was
    unreachable)."""

    how: Literal["ended", "interrupted"]
    status: int


def run(
    folder: Path,
    hosts: Sequence[str],
    extra: Mapping[str, object],
    *,
    on_event: Callable[[Event], None],
    check: bool = False,
    forks: int = 0,
    grace: float = GRACE,
    on_interrupt: Callable[[], None] | None = None,
) -> Ended:
    """Run `folder`/project/site.yml on these hosts. `folder` is a workspace. An exception in `on_event` ends Ansible.

    extra: variables on top of the inventory; its `gpuprov_only` limits the acts to those of this run. on_interrupt:
    called at once when a user or a signal ends it.
    """
    from ansible_runner import Runner

    private = _write_request(folder / "runner", hosts, unsafe_yaml.document(msgspec.to_builtins(extra)))
    config = _configure(folder, private, check=check)
    narrow(folder / "project", extra.get("gpuprov_only"))
    config.command = _build_command(folder, private, forks or min(max(len(hosts), 1), MOST_FORKS), check=check)
    failure: list[BaseException] = []

    def handler(event: Event) -> bool:
        try:
            if not failure:
                on_event(make_all_well_formed(event))
        except Exception as error:
            failure.append(error)
            interrupt.handle(0, None)
        return False

    with interruptible(private / "pid", grace, on_interrupt) as interrupt:
        runner = Runner(config=config, event_handler=handler)
        runner.run()
    if failure:
        raise failure[0]
    code = 250 if runner.rc is None else int(runner.rc)
    return Ended("interrupted", 130) if interrupt.requested else Ended("ended", code)


def _write_request(runs: Path, hosts: Sequence[str], variables: str) -> Path:
    """Make the next run's private folder, with the names of its hosts and its variables."""
    private = runs / str(len(list(runs.iterdir())) + 1)
    private.mkdir(mode=0o700)
    (private / "hosts").write_text("".join(f"{name}\n" for name in hosts), encoding="utf-8")
    (private / "extra.yml").write_text(variables, encoding="utf-8")
    return private


def _build_command(folder: Path, private: Path, forks: int, *, check: bool) -> list[str]:
    """Return the command of ansible-playbook, below child.py, which notes its process ID."""
    # -P: the folder of child.py is not a place to import from.
    child = [sys.executable, "-P", str(Path(__file__).with_name("child.py")), str(private / "pid"), str(os.getpid())]
    options = ["-i", str(folder / "project" / "inventory.yml"), "--limit", f"@{private / 'hosts'}"]
    options += ["-e", f"@{private / 'extra.yml'}", "--forks", str(forks)]
    options += ["--check", "--diff"] if check else []
    return [*child, *options, str(folder / "project" / "site.yml")]


def _configure(folder: Path, private: Path, *, check: bool) -> RunnerConfig:
    from ansible_runner.config.runner import RunnerConfig

    config = RunnerConfig(
        private_data_dir=str(private),
        playbook="site.yml",
        envvars={},
        settings={"pexpect_timeout": 1, "suppress_output_file": True},
        quiet=True,
    )
    config.prepare()
    config.cwd = os.getcwd()
    config.env = environment(folder, config.env, check=check) | _find_event_callback()
    return config


def narrow(project: Path, only: object) -> None:
    """Limit the project to the acts of this run. `only`: what is applied by host, if that is known."""
    # Removes specifications of roles' arguments: Ansible reads and copies them for each act, and validates only those
    # of `main`.
    for file in project.glob("roles/*/meta/argument_specs.yml"):
        file.unlink()
    if isinstance(only, Mapping):
        for name, text in acts_of(only.values()).items():
            (project / name).write_text(text, encoding="utf-8")


def _find_event_callback() -> dict[str, str]:
    """Return the callback that reports events to ansible-runner, and its folder."""
    import ansible_runner

    folder = Path(str(ansible_runner.__file__)).parent / "display_callback" / "callback"
    return {"ANSIBLE_STDOUT_CALLBACK": "awx_display", "ANSIBLE_CALLBACK_PLUGINS": str(folder)}


def environment(
    folder: Path, prepared: Mapping[str, str], config: Mapping[str, str] | None = None, *, check: bool = False
) -> dict[str, str]:
    """Return the environment of Ansible, based on the one ansible-runner prepared. `config`: the user's ansible.cfg."""
    settings = ansible_config() if config is None else config
    env = {name: value for name, value in in_utf8(prepared).items() if is_kept(name)} | FORCED
    if "ANSIBLE_HOST_KEY_CHECKING" not in os.environ:
        env.pop("ANSIBLE_HOST_KEY_CHECKING", None)  # ansible-runner switches host key checking off
    project = folder / "project"
    env |= {
        "ANSIBLE_RETRY_FILES_ENABLED": "false",
        "ANSIBLE_ROLES_PATH": str(project / "roles"),
        "ANSIBLE_LIBRARY": str(project / "library"),
        "ANSIBLE_ACTION_PLUGINS": str(project / "action_plugins"),
        "ANSIBLE_MODULE_UTILS": str(project / "module_utils"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_INVENTORY_ENABLED": "ansible.builtin.yaml",
        "ANSIBLE_VARS_ENABLED": "ansible.builtin.host_group_vars",
    }
    configured = {name for name in prepared if is_kept(name)} | set(settings)
    if not {"ANSIBLE_PIPELINING", "ANSIBLE_SSH_PIPELINING", *PIPELINING} & configured:
        env["ANSIBLE_PIPELINING"] = "true"
    if not {"ANSIBLE_PYTHON_INTERPRETER", "defaults.interpreter_python"} & configured:
        env["ANSIBLE_PYTHON_INTERPRETER"] = "auto_silent"
    if not {"ANSIBLE_SSH_CONTROL_PATH", "ANSIBLE_SSH_CONTROL_PATH_DIR", *CONTROL_PATH} & configured:
        env["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str((folder / "control").resolve())
    if not {"ANSIBLE_REMOTE_TEMP", "ANSIBLE_REMOTE_TMP", "defaults.remote_tmp"} & configured:
        env["ANSIBLE_REMOTE_TEMP"] = f"{REMOTE_TEMP}-plan" if check else REMOTE_TEMP
    return env
