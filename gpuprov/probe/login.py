"""Who answers on a host: user, what can be written, and a Python that starts."""

from __future__ import annotations

from gpuprov import reach
from gpuprov.probe.base import Output, Probe, ProbeFailed

MARKER = "login"


def parse(output: Output) -> reach.Heard:
    answer = reach.heard(output.text, MARKER)
    if not answer.system:
        raise ProbeFailed(f"uname printed nothing: {output.error.strip()[:200]!r}")
    return answer


def login(named: str = "") -> Probe[reach.Heard]:
    """The probe for a host whose inventory names this Python (none: any that will do). All have one name."""
    return Probe("login", reach.script(MARKER, named), parse, "id; python3 --version; findmnt --options ro")


LOGIN = login()
