"""Packages held after the driver's transaction, and the kernels held with them."""

from collections.abc import Iterable

from gpuprov.capabilities.nvidia_driver.decision import Ctx
from gpuprov.capabilities.nvidia_driver.fragment import served
from gpuprov.capabilities.nvidia_driver.transaction import Transaction, images, installed
from gpuprov.facts.probes.driver.driver_packages import HELD_KERNELS, KERNELS_HELD
from gpuprov.facts.probes.software.prebuilt import SUFFIX
from gpuprov.host_code.json_members import Json


def holds_kernels(ctx: Ctx) -> bool:
    """Return whether new kernels are held: the spec says so, or a new kernel would boot without modules, as nothing
    builds them there."""
    elsewhere = served(ctx.host, ctx.fragment) or ctx.fragment.build == "precompiled"
    return (
        ctx.fragment.hold and (elsewhere or ctx.fragment.kernel_upgrades == "hold") and ctx.fragment.source != "runfile"
    )


def forgets_kernels(ctx: Ctx) -> bool:
    """Return whether kernels that were held for the modules' sake are released."""
    return bool(ctx.facts.get(KERNELS_HELD)) and not holds_kernels(ctx)


def holding(ctx: Ctx, moves: Transaction, module: str) -> dict[str, Json]:
    """Return `hold` and `release` of packages; `record`: the file that lists the kernels held for the modules' sake;
    `forget`: that file, once it is not needed. Packages that the admin held are not among them, and are not
    released."""
    known, ours = images(ctx.facts), list(ctx.facts.get(KERNELS_HELD))
    keeps = holds_kernels(ctx)
    kernels = sorted(known) if keeps else ours
    held_by_admin = {name for name, held in known.items() if held and name not in ours}
    record = "".join(f"{name}\n" for name in sorted(known) if name not in held_by_admin)
    packages = list(moves.whole)
    if served(ctx.host, ctx.fragment):
        packages = [*(name for name in moves.whole if name not in moves.source_packages), module + SUFFIX]
    every = [
        *moves.whole,
        *packages,
        *moves.present,
        *moves.remove,
        *kernels,
        *_list_signature_packages(ctx, moves.remove),
    ]
    return {
        "hold": list(dict.fromkeys([*packages, *(kernels if keeps else [])])) if ctx.fragment.hold else [],
        "release": list(dict.fromkeys(every)),
        "record": {"files": {HELD_KERNELS: record}} if keeps else {},
        "forget": {"absent": [HELD_KERNELS]} if forgets_kernels(ctx) else {},
    }


def _list_signature_packages(ctx: Ctx, remove: Iterable[str]) -> list[str]:
    """Return Ubuntu's packages that hold the signatures of precompiled modules: they are released when those modules
    are removed."""
    leave = any(name.startswith("linux-modules-nvidia-") for name in remove)
    return [name for name in installed(ctx) if leave and name.startswith("linux-signatures-nvidia-")]
