"""The states that gpuprov_unit can bring a unit to."""

from __future__ import annotations

from typing import TypedDict

from . import reads, systemd, units, wanted_units


class Asked(TypedDict, total=False):
    """The options of gpuprov_unit."""

    name: str
    state: str
    enabled: bool
    process: str
    files: list[str]
    written: list[str]
    differs: str
    program: str
    ask: list[str]
    answer: str
    unanswered: str
    fix: str


class Result(TypedDict, total=False):
    """The module's result."""

    changed: bool
    daemon: str
    msg: str


class Failed(Exception):
    """Its message says what does not run, the output of its program, and the fix. `details`: earlier findings."""

    def __init__(self, message: str, **details: str) -> None:
        super().__init__(message)
        self.details = details


def bring(params: Asked, *, check: bool) -> tuple[Result, str]:
    """Bring the unit to its state; return the module's result and a warning. Raises Failed, and OSError if systemd
    refuses."""
    name, state = params["name"], params["state"]
    enabled = params["enabled"] and bool(wanted_units.ensure([wanted_units.Wanted(name, enabled=True)], check=check))
    if state in ("started", "restarted"):
        return {"changed": start_unit(params, check=check) or enabled}, ""
    if state == "ran":
        return run_unit(params, enabled, check=check)
    daemon = units.judge_daemon(name, params["process"], params["files"])
    if state == "observed":
        return {"changed": enabled, "daemon": daemon}, ""
    written = any(reads.is_read(path, params["files"]) for path in params["written"])
    if state == "renewed" and daemon == "dead":
        return {"changed": enabled, "daemon": daemon}, ""
    if daemon == "alive" and (params["differs"] or written):
        daemon = "old"
    return keep_alive(params, enabled, daemon, check=check)


def start_unit(params: Asked, *, check: bool) -> bool:
    desired = [wanted_units.Wanted(params["name"], active=True)]
    if params["state"] == "started" and not wanted_units.list_differences(desired, wanted_units.look([params["name"]])):
        return False
    if not check:
        status, lines = units.restart(params["name"])
        if status:
            message = units.find_last_words(lines, params["program"])
            raise Failed(f"{params['name']} does not start: {message}. Fix: {params['fix']}")
    return True


def run_unit(params: Asked, enabled: bool, *, check: bool) -> tuple[Result, str]:
    name, differs = params["name"], params["differs"].strip()
    ran = systemd.show(name, "ActiveState")
    if not differs and ran == "active":
        return {"changed": enabled}, ""
    would = f"would set {differs}" if differs else f"would run {name}, which is {ran or 'not there yet'}"
    if check:
        return {"changed": True, "msg": would}, ""
    status, lines = units.restart(name, "reload-or-restart")
    if status:
        message = units.find_last_words(lines, params["program"])
        raise Failed(f"{name} failed: {message}. Fix: {params['fix']}; else journalctl -u {name}, on the host")
    return {"changed": True, "msg": would.replace("would ", "", 1)}, warn_unanswered(params)


def keep_alive(params: Asked, enabled: bool, before: str, *, check: bool) -> tuple[Result, str]:
    name = params["name"]
    if check or before == "alive":
        silent = "" if check or params["unanswered"] else warn_unanswered(params)
        return {"changed": enabled or before != "alive", "daemon": before}, silent
    lines = units.restart(name)[1]
    after = units.judge_daemon(name, params["process"], params["files"])
    if after != "alive":
        message = f" ({' | '.join(lines[-12:])})" if lines else ""
        raise Failed(f"{name} does not stay alive, it is {after}{message}. Fix: {params['fix']}", daemon=before)
    return {"changed": True, "daemon": before}, warn_unanswered(params)


def warn_unanswered(params: Asked) -> str:
    """Return a warning for a permitted lack of an answer; raise Failed if it is not permitted."""
    error = units.wait_for_answer(params["ask"], params["answer"]) if params["ask"] else ""
    words = " ".join(params["ask"])
    if error and not params["unanswered"]:
        raise Failed(f"{params['name']} lives and does not answer {words}: {error}. Fix: {params['fix']}")
    return error and f"{params['unanswered']}: {words} did not say so within half a minute"
