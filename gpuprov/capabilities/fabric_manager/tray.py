"""Selection of the hosts that have nvidia-imex in place of Fabric Manager, and of the checks that apply to them."""

from collections.abc import Callable
from dataclasses import replace

from gpuprov.capabilities.base import Check, Outcome, not_asked


def list_members(block: object) -> tuple[str, ...]:
    """Return the members of the IMEX domain; empty if Fabric Manager is meant."""
    return tuple(getattr(getattr(block, "imex", None), "nodes", ()))


def of_tray(block: object) -> bool:
    """Return whether nvidia-imex is meant rather than Fabric Manager: with a domain of its own, or as a package for
    Kubernetes."""
    return bool(list_members(block)) or package_only(block)


def package_only(block: object) -> bool:
    """Return whether nvidia-imex is only installed."""
    # https://github.com/NVIDIA/cloud-native-docs/pull/453
    return getattr(getattr(block, "imex", None), "service", "enabled") == "disabled"


def on_trays(check: Check) -> Check:
    """Return a check of nvidia-imex, which does not apply to hosts with NVSwitches of their own."""
    return _make_check_conditional(
        check, lambda block: not_asked("no IMEX domain in the spec") if not of_tray(block) else None
    )


def in_domains(check: Check) -> Check:
    """Return a check of nvidia-imex as a daemon of the host."""
    off = "the daemon is Kubernetes' to start (imex.service: disabled)"
    return _make_check_conditional(on_trays(check), lambda block: not_asked(off) if package_only(block) else None)


def on_boards(check: Check) -> Check:
    """Return a check of Fabric Manager, which does not exist on a compute tray."""
    return _make_check_conditional(
        check, lambda block: not_asked("a compute tray of a rack has no Fabric Manager") if of_tray(block) else None
    )


def _make_check_conditional(check: Check, decide: Callable[[object], Outcome | None]) -> Check:
    return replace(check, run=lambda ctx: decide(ctx.fragment) or check.run(ctx))
