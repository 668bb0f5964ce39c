"""Run a script on a host over the inventory's connection, and report a failure in one line."""

import os
import shlex
from collections.abc import Callable

from gpuprov.core import ended as how
from gpuprov.core.errors import GpuprovError, UnreachableError, defect
from gpuprov.core.time_limits import HOST_LIMIT
from gpuprov.facts.collect import script as frames
from gpuprov.facts.collect.children import Child, Ended, Job, Process, run_all
from gpuprov.facts.collect.command import SILENCE, build, keep_alive, ssh_arguments
from gpuprov.facts.collect.reason_rules import BY_HAND
from gpuprov.facts.collect.reasons import LOGGED_IN, Login, Reason, reason
from gpuprov.facts.collect.settings import Settings
from gpuprov.facts.collect.unreached import Unreached, without_host
from gpuprov.host_code.json_members import Json
from gpuprov.spec.model import RawHost

Answer = bytes | UnreachableError


def run(raw: RawHost, script: str, timeout: float = HOST_LIMIT) -> str:
    """Run a composed script on the host; returns its standard output, then standard error. Raises UnreachableError."""
    answers: list[Answer] = []
    run_all([job(raw, script, timeout, answers.append)], workers=1)
    if isinstance(answers[0], UnreachableError):
        raise answers[0]
    return answers[0].decode(errors="replace")


def job(raw: RawHost, script: str, timeout: float, done: Callable[[Answer], None]) -> Job:
    """Return the job that runs a composed script on the host and hands over both streams, or the error."""
    settings = Settings(raw)

    def start() -> Process:
        if settings.kind == "paramiko":
            from gpuprov.facts.collect.with_paramiko import Worker

            return Worker(settings, script)
        return Child(command.argv, command.environment)

    stdin = b""
    if settings.kind != "paramiko":
        command = build(settings, script)
        stdin = command.stdin
    elif settings.text("common_args") or settings.text("extra_args"):
        raise GpuprovError(
            f"{settings.name}: a password and ansible_ssh_common_args or ansible_ssh_extra_args do not go together",
            "log in with a key, or write the options (ProxyJump as ProxyCommand) into ~/.ssh/config",
        )
    return Job(start, stdin, frames.complete, timeout, lambda ended: done(_judge_safely(settings, ended, timeout)))


def _judge_safely(settings: Settings, ended: Ended, timeout: float) -> Answer:
    """Return the answer; an exception while interpreting one host's output does not end the reading of the others."""
    try:
        return _build_answer(settings, ended, timeout)
    except Exception as error:
        return Unreached(settings.name, *defect("the reader of what the host printed", error))


def _build_answer(settings: Settings, ended: Ended, timeout: float) -> Answer:
    both = ended.out + b"\n" + ended.error
    if ended.reason == "timeout":
        where = "the script did not end" if frames.begun(both) else "no answer"
        waits = not frames.begun(both) and LOGGED_IN.encode() in ended.error
        return _build_unreached(settings, f"{where} {'of sudo ' if waits else ''}within {timeout:g} s", become=waits)
    if ended.reason:
        return _build_unreached(settings, ended.reason)
    if frames.split(both) is not None:
        return both
    # Ssh's own words for a question without an answer.
    if frames.begun(both) and b"not responding" in ended.error[-300:]:
        return _build_unreached(settings, f"it stopped answering while it was read: silent for {SILENCE} s")
    if frames.begun(both):
        why = how.connection(ended.status) if how.by_signal(ended.status) else "the connection was lost"
        return _build_unreached(settings, f"{why} while reading", "run it again", by_hand=False)
    return _explain_not_begun(settings, reason(_build_login(settings), ended.out, ended.error, ended.status))


def _build_login(settings: Settings) -> Login:
    method = settings.text("become_method", "sudo").rpartition(".")[2]
    key = os.path.expanduser(settings.text("key"))
    return Login(
        user=settings.text("user"),
        become_user=settings.become_user,
        sudo=settings.text("become_exe", method),
        key=key,
        key_trouble=_explain_unreadable(key) if key else "",
        kind=settings.kind,
    )


def _explain_unreadable(file: str) -> str:
    """Explain why this machine cannot read a file; ssh does not report it."""
    try:
        with open(file, "rb"):
            return ""
    except OSError as error:
        return error.strerror or "unreadable"


def _explain_not_begun(settings: Settings, why: Reason) -> Unreached:
    return _build_unreached(settings, why.message, why.advice, become=why.become, dropped=why.dropped)


def _build_unreached(
    settings: Settings,
    why: str,
    advice: str = BY_HAND,
    *,
    by_hand: bool = True,
    become: bool = False,
    dropped: bool = False,
) -> Unreached:
    message = without_host(why, (settings.host, settings.name))
    command = _build_manual_command(settings, become=become) if by_hand else ""
    return Unreached(settings.name, message, advice, place=settings.address, command=command, dropped=dropped)


def _build_manual_command(settings: Settings, *, become: bool = False) -> str:
    """Return the command that shows the same failure: ssh alone if the login fails, sudo over ssh if becoming root
    does."""
    words = ["sudo", "-u", settings.become_user, "true"] if become else ["true"]
    if settings.kind == "ssh":
        ssh, *options = [word for word in ssh_arguments(settings) if word not in ("-T",)]
        terminal = ["-t"] if become else []
        shown = shlex.join([ssh, *terminal, *options, settings.host, *words]).replace("-o BatchMode=yes ", "")
        return shown.replace(shlex.join(keep_alive([])) + " ", "")
    if settings.kind in ("podman", "docker"):
        options = [*(["-it"] if become else []), *(["-u", settings.text("user")] if settings.text("user") else [])]
        return shlex.join([settings.kind, "exec", *options, settings.host, *words])
    if settings.kind == "local":
        return shlex.join(words)
    if settings.kind == "chroot":
        return shlex.join(["chroot", settings.host, *words])
    return f"ansible -i INVENTORY {settings.name} -m ansible.builtin.raw -a true"


def site_host(raw: RawHost, control_path: str = "") -> object:
    """Return the host as testinfra's `Host`, for site tests. `control_path`: a socket name, so that many commands share
    one ssh connection."""
    import testinfra

    settings = Settings(raw)
    kind = settings.kind
    if kind == "ansible" or (settings.sudo and settings.text("become_password")):
        raise GpuprovError(
            f"{settings.name}: testinfra cannot reach it with this connection, become method or become password",
            "use ssh, paramiko, local, podman or docker, and sudo without a password, for site tests",
        )
    options: dict[str, Json] = {"sudo": settings.sudo, "sudo_user": settings.become_user if settings.sudo else None}
    return testinfra.get_host(
        _build_testinfra_address(settings), **options, **_build_testinfra_ssh(settings, control_path)
    )


def close_shared(control_path: str) -> None:
    """End the ssh connections that `site_host` shared under this name, and remove their folder."""
    import shutil
    import subprocess
    from pathlib import Path

    folder = Path(control_path).parent
    for socket in folder.iterdir():
        command = ["ssh", "-O", "exit", "-o", f"ControlPath={socket}", "shared"]
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _build_testinfra_address(settings: Settings) -> str:
    from urllib.parse import quote

    if settings.kind == "local":
        return "local://"
    user, password, port = (settings.text(option) for option in ("user", "password", "port"))
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    end = f":{port}" if port and settings.kind in ("ssh", "paramiko") else ""
    return f"{settings.kind}://{login}@{host}{end}" if login else f"{settings.kind}://{host}{end}"


def _build_testinfra_ssh(settings: Settings, control_path: str) -> dict[str, Json]:
    if settings.kind == "paramiko":
        return {"ssh_identity_file": settings.text("key") or None}
    if settings.kind != "ssh":
        return {}
    arguments = shlex.join(ssh_arguments(settings)[1:])
    return {"ssh_extra_args": arguments, "controlpath": control_path.replace("%", "%%") or None}
