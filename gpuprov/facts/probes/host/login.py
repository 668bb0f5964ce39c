"""The user who answers on a host, writable folders, and a Python that starts."""

from gpuprov.facts.probes.base import Output, Probe, ProbeFailed
from gpuprov.rules import reach

MARKER = "login"


def parse(output: Output) -> reach.Heard:
    answer = reach.heard(output.text, MARKER)
    if not answer.system:
        raise ProbeFailed(f"uname printed nothing: {output.error.strip()[:200]!r}")
    return answer


def parse_python(output: Output) -> reach.Heard:
    return reach.heard(output.text, MARKER)


def build_python_probe(named: str = "") -> Probe[reach.Heard]:
    """Return the probe for a host whose inventory names this Python (none: any that works). The name of the probe stays
    the same."""
    return Probe("python", reach.pythons(MARKER, named), parse_python, "python3 --version")


LOGIN = Probe("login", reach.who(MARKER), parse, "id; findmnt --options ro", speaks=True)
PYTHON = build_python_probe()
