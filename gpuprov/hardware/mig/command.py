"""`gpuprov mig fit` and `gpuprov mig layouts`: their results and output formats."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gpuprov.core import terminal
from gpuprov.core.errors import GpuprovError
from gpuprov.core.locales import is_plain
from gpuprov.core.sanitize import hanging
from gpuprov.hardware.mig.judge import judge, of_driver, of_model
from gpuprov.hardware.mig.model import Model, find
from gpuprov.hardware.mig.text import as_picture, as_strips
from gpuprov.host_code.mig import fit as mig_fit
from gpuprov.host_code.mig.layout import Instance, LayoutError, normalize_layout

NO = 2
WORD = re.compile(r"(?P<profile>[^@=]+)(?:@(?P<start>\d+))?(?:=(?P<count>\d+))?")
HOW = "write PROFILE, PROFILE=COUNT or PROFILE@SLICE: 1g.10gb=2 3g.40gb@4 1c.3g.40gb=3"
ASK = "on the host: nvidia-smi mig -lgipp"


def show_fit(gpu: str, words: Sequence[str], driver: str, *, as_json: bool) -> int:
    """Print the placement of the instances (returns 0), or the reason why they do not fit (2)."""
    if driver and not re.fullmatch(r"\d+(\.\d+)*", driver):
        raise GpuprovError(f'"{driver}" is not a driver', "give a branch or a version: 570, 570.133.20")
    model, requested = find(gpu), instances(words)
    fit = judge(model, requested)
    against = [] if fit.reason else [*of_model(model, driver), *of_driver(model, requested, driver)]
    reason, fix = (fit.reason, "") if fit.reason else against[0] if against else ("", "")
    if not reason and model.grid is None:
        reason, fix = "it is not known where its profiles start", ASK
    if as_json:
        terminal.result(json.dumps(_build_fit_data(model, requested, fit, reason), indent=2))
    elif reason:
        width = terminal.room(sys.stdout)
        lines = _explain_refusal(model, requested, fit, reason, fix)
        terminal.result("\n".join(piece for line in lines for piece in hanging(line, width)))
    else:
        terminal.result(as_picture(model, requested, fit.placed, width=terminal.width(), plain=is_plain()))
    return NO if reason else 0


def show_layouts(gpu: str, *, as_json: bool) -> int:
    """Print every complete layout of the GPU, to which no instance can be added."""
    model = find(gpu)
    if model.grid is None:
        raise GpuprovError(f"the placements of {model.gpu.key}'s profiles are unknown", ASK)
    layouts = mig_fit.list_layouts(model.profiles, model.grid)
    if as_json:
        sizes = {profile.name: profile.size for profile in model.profiles}
        rows = [
            [{"profile": placed.profile, "start": placed.start, "size": sizes[placed.profile]} for placed in layout]
            for layout in layouts
        ]
        terminal.result(json.dumps(_build_head(model) | {"layouts": rows}, indent=2))
    else:
        terminal.result(as_strips(model, layouts, width=terminal.width(), plain=is_plain()))
    return 0


def instances(words: Sequence[str]) -> tuple[Instance, ...]:
    """Parse instances from arguments such as "1g.10gb=2", "1c.3g.40gb=3" and "3g.40gb@4"."""
    counted: dict[str, int] = {}
    listed: list[dict[str, Any]] = []
    for word in words:
        match = WORD.fullmatch(word)
        if not match:
            raise GpuprovError(f'"{word}" names no instances', HOW)
        profile, count = match["profile"], int(match["count"] or 1)
        if not match["start"]:
            counted[profile] = counted.get(profile, 0) + count
            continue
        size, _, gpu_profile = profile.partition(".") if re.match(r"\d+c\.", profile) else ("", "", profile)
        listed.append({"profile": gpu_profile, "placement": int(match["start"])})
        listed[-1] |= {"compute": {size: count}} if size else {"count": count}
    try:
        entries = [
            entry for group in (counted, listed) for entry in normalize_layout("enabled", [{"instances": group}])
        ]
    except LayoutError as error:
        raise GpuprovError(re.sub(r"^layout\[0\]\.instances(\[\d+\])?(\.profile)?:? ?", "", str(error)), HOW) from error
    return tuple(instance for entry in entries for instance in entry.instances)


def _build_head(model: Model) -> dict[str, Any]:
    return {"gpu": model.gpu.key, "memory_slices": model.grid, "placements": model.sure}


def _build_fit_data(model: Model, requested: Sequence[Instance], fit: mig_fit.Fit, reason: str) -> dict[str, Any]:
    if reason:
        fits = None if model.grid is None and not fit.reason else False
        return _build_head(model) | {
            "fits": fits,
            "reason": reason,
            "instead": [list(profiles) for profiles in fit.instead],
        }
    sizes = {profile.name: profile for profile in model.profiles}
    rows = [
        {
            "profile": placed.profile,
            "start": placed.start,
            "size": sizes[placed.profile].size,
            "compute": list(requested[n].compute or (sizes[placed.profile].slices,)),
        }
        for n, placed in enumerate(fit.placed)
    ]
    return _build_head(model) | {"fits": True, "instances": rows, "create": list(fit.order)}


def _explain_refusal(
    model: Model, requested: Sequence[Instance], fit: mig_fit.Fit, reason: str, fix: str
) -> Iterator[str]:
    yield f"{'does not fit on ' if fit.reason else ''}{model.gpu.key}: {reason}"
    if fix:
        yield fix
    if not fit.reason:
        return
    if fit.instead:
        yield "fits instead:"
    for profiles in fit.instead:
        same = sorted(profiles) == sorted(instance.profile for instance in requested)
        yield f"  {mig_fit.format_profiles(profiles)}" + (" (where there is room)" if same else "")
    yield f"all layouts: gpuprov mig layouts --gpu {model.gpu.key}"
