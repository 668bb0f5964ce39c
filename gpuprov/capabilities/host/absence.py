"""What contradicts `nvidia_absent` in a spec."""

from collections.abc import Collection, Iterable

from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Problem


def find_contradictions(host: HostSpec, driverless: Collection[str]) -> Iterable[Problem]:
    """Yield a problem for each block that needs what `nvidia_absent` removes. driverless: names of those that do not."""
    if "nvidia_absent" not in host.capabilities:
        return
    for name in host.capabilities:
        if name not in driverless:
            message = f"{name} needs NVIDIA's driver, and nvidia_absent removes it from this host"
            hint = f"{name}: false for this host, or nvidia_absent: false"
            yield Problem(path=(name,), message=message, hint=hint)
