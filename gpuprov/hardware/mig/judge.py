"""Rules for instances on a GPU model, and for the driver that they need."""

from collections.abc import Iterator, Sequence

from gpuprov.core.safe_parse import is_whole
from gpuprov.hardware.mig.model import ANY_GRID, Model
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig.layout import Instance
from gpuprov.rules import resolve

# 3g beside 4g: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/concepts.html
SPLIT_3G_4G = "510"


def judge(model: Model, requested: Sequence[Instance]) -> mig_fit.Fit:
    """Find out whether instances fit. If placements are unknown, a Fit without a reason means only that nothing known
    speaks against it."""
    if model.grid is not None:
        return mig_fit.fit(model.profiles, model.grid, requested)
    known = {profile.name: profile for profile in model.profiles}
    if not known:
        return mig_fit.Fit(())
    reason = mig_fit.count_reason(known, requested) or mig_fit.explain_slices(known, ANY_GRID, requested)
    return mig_fit.Fit((), reason)


def of_model(model: Model, driver: str) -> Iterator[tuple[str, str]]:
    """Report if a driver (a branch or a version; empty: unknown) is too old for MIG on the GPU: the problem and its
    fix."""
    least = model.gpu.mig.min_driver
    if too_old(driver, least):
        message = f"MIG on {model.gpu.key} needs driver {least} or newer, and the driver is {driver}"
        branch = f"a branch from {least.partition('.')[0]} on"
        yield message, f"nvidia_driver.version: {f'{least} or newer' if '.' in driver else branch}"


def of_driver(model: Model, requested: Sequence[Instance], driver: str) -> Iterator[tuple[str, str]]:
    """Report what a driver (a branch or a version; empty: unknown) is too old for: the problem and its fix."""
    used = {instance.profile for instance in requested}
    for profile in model.known:
        if profile.name in used and too_old(driver, profile.since_branch):
            needed = f"{profile.name} needs driver branch {profile.since_branch} or newer, and the driver is {driver}"
            yield needed, f"nvidia_driver.version: a branch from {profile.since_branch} on"
    slices = {profile.slices for profile in model.profiles if profile.name in used}
    if {3, 4} <= slices and too_old(driver, SPLIT_3G_4G):
        message = f"3g beside 4g needs driver branch {SPLIT_3G_4G} or newer, and the driver is {driver}"
        yield message, f"nvidia_driver.version: a branch from {SPLIT_3G_4G} on"


def too_old(driver: str, least: str) -> bool:
    """Return whether a driver is older than needed; a branch counts as its newest version."""
    actual, needed = resolve.order(driver), resolve.order(least)
    return bool(driver and least and is_whole(driver[0])) and actual < needed[: len(actual)]


def instead(model: Model, requested: Sequence[Instance], fit: mig_fit.Fit) -> str:
    """Describe what fits instead."""
    same = sorted(instance.profile for instance in requested)
    sets = [
        "these without their placements" if sorted(profiles) == same else mig_fit.format_profiles(profiles)
        for profiles in fit.instead
    ]
    fits = f"fits: {' | '.join(sets)}; " if sets else ""
    return f"{fits}gpuprov mig layouts --gpu {model.gpu.key}"
