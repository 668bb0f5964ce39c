"""Steps of a play that decide on the machine that runs Ansible, and have the host do the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprov.play import drain, elsewhere, engines, fetch, give_up, prebuilt
from gpuprov.play.host import Host, StepFailed

STEPS: dict[str, Callable[[Host, dict[str, Any]], dict[str, Any]]] = {
    "drain": drain.run,
    "elsewhere": elsewhere.run,
    "engines": engines.run,
    "fetch": fetch.run,
    "give_up": give_up.run,
    "prebuilt": prebuilt.run,
}
"""The steps, by their names in gpuprov_step. Each takes the host and the task's arguments, and returns the task's result."""

__all__ = ("STEPS", "Host", "StepFailed")
