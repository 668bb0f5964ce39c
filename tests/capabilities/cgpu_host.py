"""cGPU on the good host, told as its probe prints it."""

from __future__ import annotations


def said(*gpus: str, version: str = "1.5.20", modules: tuple[str, ...] = ("cgpu_procfs",), more: str = "") -> str:
    """What the probe `cgpu` prints. Each of `gpus` is `max_inst policy prio_ratio`, with - for a node that is not
    there."""
    lines = [f"version|{version}"] * bool(version) + [f"module|{name}" for name in modules]
    for index, values in enumerate(gpus or ("20 1 80",)):
        rows = zip(("max_inst", "policy", "prio_ratio"), values.split(), strict=True)
        lines += [f"node|{index}|{name}|{value}" for name, value in rows if value != "-"]
    return "\n".join([*lines, *([more] if more else [])]) + "\n"


ABSENT = said("- - -", version="", modules=())
PROBES = {"cgpu": said()}
