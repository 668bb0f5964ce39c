"""Causes of failures: which failure follows from which other, by what the capabilities declare that their checks
presuppose."""

from collections.abc import Collection, Mapping

from gpuprov.capabilities import BY_NAME

PRESUPPOSES: Mapping[str, tuple[str, ...]] = {
    f"{capability.name}.{check}": before
    for capability in BY_NAME.values()
    for check, before in capability.presupposes.items()
}
AT_BOOT: Mapping[str, str] = {
    f"{capability.name}.{check}": boot for capability in BY_NAME.values() for check, boot in capability.at_boot.items()
}
# Without it nobody can say what units do, and much else is not there to be read: what is not known then follows from
# it.
READABLE = "host.systemd"


def cause(check: str, failing: Collection[str], *, unknown: bool = False) -> str:
    """The failing check from which a failing one follows, through failing ones only; empty where it is a cause itself.
    `unknown`: what the check asks of could not be read."""
    for before in PRESUPPOSES.get(check, ()):
        if before in failing:
            return cause(before, failing) or before
    return READABLE if unknown and READABLE in failing else ""
