"""What a unit of this host is brought to: each state that gpuprov_unit knows."""

from __future__ import annotations

from typing import Any, Mapping

from . import systemd, units, wanted_units

Asked = Mapping[str, Any]


class Failed(Exception):
    """Its message says what does not run, what its program said, and the fix. `found`: what was seen before."""

    def __init__(self, message: str, **found: str) -> None:
        super().__init__(message)
        self.found = found


def bring(asked: Asked, *, check: bool) -> tuple[dict[str, Any], str]:
    """What the module returns, and a warning. Raises Failed, and OSError for what systemd refuses."""
    name, state = asked["name"], asked["state"]
    enabled = asked["enabled"] and bool(wanted_units.ensure([wanted_units.Wanted(name, enabled=True)], check=check))
    if state in ("started", "restarted"):
        return {"changed": _started(asked, check=check) or enabled}, ""
    if state == "ran":
        return _ran(asked, enabled, check=check)
    daemon = units.daemon(name, asked["process"], asked["files"])
    if state == "observed":
        return {"changed": enabled, "daemon": daemon}, ""
    return _alive(asked, enabled, daemon, check=check)


def _started(asked: Asked, *, check: bool) -> bool:
    wanted = [wanted_units.Wanted(asked["name"], active=True)]
    if asked["state"] == "started" and not wanted_units.differences(wanted, wanted_units.look([asked["name"]])):
        return False
    if not check:
        status, lines = units.restart(asked["name"])
        if status:
            said = units.last_words(lines, asked["program"])
            raise Failed(f"{asked['name']} does not start: {said}. Fix: {asked['way_out']}")
    return True


def _ran(asked: Asked, enabled: bool, *, check: bool) -> tuple[dict[str, Any], str]:
    name, differs = asked["name"], asked["differs"].strip()
    ran = systemd.show(name, "ActiveState")
    if not differs and ran == "active":
        return {"changed": enabled}, ""
    would = f"would set {differs}" if differs else f"would run {name}, which is {ran or 'not there yet'}"
    if check:
        return {"changed": True, "msg": would}, ""
    status, lines = units.restart(name, "reload-or-restart")
    if status:
        said = units.last_words(lines, asked["program"])
        raise Failed(f"{name} failed: {said}. Fix: {asked['way_out']}; else journalctl -u {name}, on the host")
    return {"changed": True, "msg": would.replace("would ", "", 1)}, _unanswered(asked)


def _alive(asked: Asked, enabled: bool, before: str, *, check: bool) -> tuple[dict[str, Any], str]:
    name = asked["name"]
    if check or before == "alive":
        silent = "" if check or asked["unanswered"] else _unanswered(asked)
        return {"changed": enabled or before != "alive", "daemon": before}, silent
    lines = units.restart(name)[1]
    after = units.daemon(name, asked["process"], asked["files"])
    if after != "alive":
        said = f" ({' | '.join(lines[-12:])})" if lines else ""
        raise Failed(f"{name} does not stay alive, it is {after}{said}. Fix: {asked['way_out']}", daemon=before)
    return {"changed": True, "daemon": before}, _unanswered(asked)


def _unanswered(asked: Asked) -> str:
    """A warning where no answer came and that may be; raises Failed where it may not."""
    said = units.silence(asked["ask"], asked["answer"]) if asked["ask"] else ""
    words = " ".join(asked["ask"])
    if said and not asked["unanswered"]:
        raise Failed(f"{asked['name']} lives and does not answer {words}: {said}. Fix: {asked['way_out']}")
    return said and f"{asked['unanswered']}: {words} did not say so within half a minute"
