"""The steps of the role that a host needs, in order; what is held after its transaction, and which kernels are held with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuprov.capabilities.nvidia_driver import decision as deciding
from gpuprov.capabilities.nvidia_driver.decision import Ctx
from gpuprov.capabilities.nvidia_driver.fragment import Decision, served
from gpuprov.capabilities.nvidia_driver.transaction import Transaction, images, installed
from gpuprov.probe.driver.driver_packages import HELD_KERNELS, KERNELS_HELD
from gpuprov.probe.kernel.signing import SITE_KEY
from gpuprov.probe.software.prebuilt import SUFFIX


def asserting(ctx: Ctx, moves: Transaction) -> list[str]:
    """Return the steps of act 1, which changes nothing."""
    elsewhere = served(ctx.host, ctx.fragment)
    return _those(
        ("spare", deciding.spare(ctx)),
        ("prebuilt", elsewhere),
        ("transaction", elsewhere or moves.before or moves.install or moves.remove),
        ("runfile", deciding.installs_runfile(ctx, decision=deciding.decided(ctx))),
    )


def installing(ctx: Ctx, decision: Decision, moves: Transaction) -> list[str]:
    """Return the steps of act 2, in order."""
    driver, elsewhere = ctx.fragment, served(ctx.host, ctx.fragment)
    reload, moving = deciding.reload_reasons(ctx, decision), moves.install or moves.remove
    signs = driver.signing.key_file and not elsewhere
    put: tuple[tuple[str, object], ...]
    key = (("key", signs), ("no_key", not signs and ctx.facts.get(SITE_KEY)))
    forget = ("forget_kernels", ctx.facts.get(KERNELS_HELD) and not holds_kernels(ctx))
    if driver.source == "runfile":
        wanted = deciding.installs_runfile(ctx, decision)
        freed = (("hold", forget[1]), forget, ("tools", moves.before))
        put = (
            ("unload_first", reload and wanted),
            ("runfile", wanted),
            ("registered", True),
            ("unload", reload and not wanted),
        )
        return _those(*key, *freed, *put)
    if elsewhere:
        put = (("prebuilt", True), forget)
    else:
        kernels = holds_kernels(ctx)
        built = driver.build == "dkms"
        put = (
            *(("tools", moves.before), ("aside", moves.builds), ("stop", reload and moving), ("kernels", kernels)),
            *(
                ("packages", True),
                ("new_kernels", kernels and moving),
                forget,
                ("dkms", built),
                ("precompiled", not built),
            ),
            ("pack", driver.build_host == ctx.host.name),
        )
    return _those(*key, *put, ("leave", deciding.leaving(driver, ctx.facts)), ("unload", reload))


BEFORE = frozenset(("key", "no_key", "tools", "aside", "stop"))
AFTER = frozenset(("pack", "prebuilt", "forget_kernels", "leave", "unload"))


def stages(steps: Iterable[str]) -> dict[str, Any]:
    """Return the steps before the driver is installed, and those after it. `key`: the step that settles the site's key, if one does.
    `of`: what the driver is installed from here (precompiled, dkms or runfile), if it is. A build host packs before another host takes
    the modules, since both do so last."""
    each = list(steps)
    of = next((name for name in ("precompiled", "dkms") if name in each), "runfile" if "registered" in each else "")
    key = next((name for name in ("key", "no_key") if name in each), "")
    before, after = ([one for one in each if one in part] for part in (BEFORE, AFTER))
    return {"before": before, "key": key, "of": of, "after": after}


def _those(*steps: tuple[str, object]) -> list[str]:
    return [name for name, needed in steps if needed]


def holds_kernels(ctx: Ctx) -> bool:
    """Return whether new kernels are held: the spec says so, or a new kernel would boot without modules, as nothing builds them
    there."""
    elsewhere = served(ctx.host, ctx.fragment) or ctx.fragment.build == "precompiled"
    return (
        ctx.fragment.hold and (elsewhere or ctx.fragment.kernel_upgrades == "hold") and ctx.fragment.source != "runfile"
    )


def holding(ctx: Ctx, moves: Transaction, module: str) -> dict[str, Any]:
    """Return `hold` and `release` of packages; `record`: the file that lists the kernels held for the modules' sake. Packages that the
    admin held are not among them, and are not released."""
    known, ours = images(ctx.facts), list(ctx.facts.get(KERNELS_HELD))
    keeps = holds_kernels(ctx)
    kernels = sorted(known) if keeps else ours
    theirs = {name for name, held in known.items() if held and name not in ours}
    record = "".join(f"{name}\n" for name in sorted(known) if name not in theirs)
    mine = list(moves.whole)
    if served(ctx.host, ctx.fragment):
        mine = [*(name for name in moves.whole if name not in moves.source_packages), module + SUFFIX]
    every = [*moves.whole, *mine, *moves.present, *moves.remove, *kernels, *_signatures(ctx, moves.remove)]
    return {
        "hold": list(dict.fromkeys([*mine, *(kernels if keeps else [])])) if ctx.fragment.hold else [],
        "release": list(dict.fromkeys(every)),
        "record": {HELD_KERNELS: record} if keeps else {},
        "record_file": HELD_KERNELS,
    }


def _signatures(ctx: Ctx, remove: Iterable[str]) -> list[str]:
    """Return Ubuntu's packages that hold the signatures of precompiled modules: they are released when those modules are removed."""
    leave = any(name.startswith("linux-modules-nvidia-") for name in remove)
    return [name for name in installed(ctx) if leave and name.startswith("linux-signatures-nvidia-")]
