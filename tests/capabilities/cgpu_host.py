"""cGPU on the good host, told as its probe prints it."""

from __future__ import annotations


def said(
    *gpus: str,
    version: str = "1.5.20",
    modules: tuple[str, ...] = ("cgpu_procfs",),
    config: tuple[str, ...] | None = ("* policy 1",),
    unit: tuple[str, str, str] = ("loaded", "active", "enabled"),
    log: str = "",
    more: str = "",
) -> str:
    """What the probe `cgpu` prints. Each of `gpus` is `max_inst policy prio_ratio`, with - for a node that is not there."""
    lines = [f"version|{version}"] * bool(version) + [f"module|{name}" for name in modules]
    for index, values in enumerate(gpus or ("20 1 80",)):
        rows = zip(("max_inst", "policy", "prio_ratio"), values.split(), strict=True)
        lines += [f"node|{index}|{name}|{value}" for name, value in rows if value != "-"]
    lines += ["config|", *(f"config|{line}" for line in config)] if config is not None else []
    lines += [f"LoadState|{unit[0]}", f"ActiveState|{unit[1]}", f"UnitFileState|{unit[2]}"]
    return "\n".join([*lines, *([f"log|{log}"] if log else []), *([more] if more else [])]) + "\n"


ABSENT = said("- - -", version="", modules=(), config=None, unit=("not-found", "inactive", ""))
PROBES = {"cgpu": said()}
