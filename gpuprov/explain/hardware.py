"""Names of hardware: instance types of clouds, GPUs as the catalogue, nvidia-smi and labels write them, and MIG
profiles."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpuprov.catalog.chips import described, find_old_card, generation_of
from gpuprov.catalog.gpus import (
    Gpu,
    explain_unknown,
    find_gpu,
    find_nearest,
    find_stem,
    list_gpus,
    list_of_stem,
    split_count,
    strip_system,
)
from gpuprov.catalog.instances import find_instance, find_nearest_types, find_vendor, fold_type, read_instances_file
from gpuprov.catalog.mig import Profile, find_class, list_classes
from gpuprov.catalog.recipes import fitting_recipes

Lines = tuple[tuple[str, str], ...]
# Before the name of a profile as a resource of Kubernetes:
# https://github.com/NVIDIA/k8s-device-plugin#as-a-kubernetes-resource
_RESOURCE = re.compile(r"(?:nvidia\.com/)?mig-")


class Hardware(NamedTuple):
    """One answer: its kind, its name, and titled lines about it."""

    kind: str
    name: str
    lines: Lines


def explain_hardware(text: str) -> list[Hardware]:
    """Return what the catalogue knows of an instance type, a GPU, a family of GPUs or a MIG profile; empty if it is
    none."""
    if not _is_name(text):
        return []
    text = split_count(text)[0]
    gpu = find_gpu(text)
    bare = strip_system(text)
    family = list_of_stem(bare) if bare.casefold() == find_stem(bare) else []
    if instance := _explain_instance(text):
        return [instance]
    if gpu or family:
        return [_explain_gpu(gpu)] if gpu else [_explain_family(bare, family)]
    return [*_explain_profile(_RESOURCE.sub("", text.casefold())), *_explain_chip(text)]


def suggest(text: str) -> str:
    """Return a fix for a word that looks like a name of hardware and is not known; "" if it does not."""
    if " " in text or not _is_name(text):
        return ""
    if find_vendor(text):
        what, fix = explain_unknown(text)
        return f"it {what}; {fix}"
    if near := find_nearest_types(text):
        return f"did you mean {', '.join(near)}?"
    return f"did you mean {', '.join(near)}?" if find_stem(text) and (near := find_nearest(text)) else ""


def _is_name(text: str) -> bool:
    """Return whether a text has letters and figures, as all names of hardware do."""
    return bool(re.search(r"[^\W\d_]", text) and re.search(r"\d", text))


def _explain_instance(text: str) -> Hardware | None:
    row = find_instance(text)
    if row is None:
        return None
    sources = read_instances_file().sources
    fitting, name = fitting_recipes(row.model, row.count, row), fold_type(text)
    recipes = [recipe.key for recipe in fitting if name in map(fold_type, recipe.instances)]
    lines = (
        ("GPUs", f"{row.count} x {row.model} (gpuprov catalog gpus {row.model})"),
        ("fabric", row.fabric or "none, or not known"),
        ("init", f"gpuprov init --hosts HOST,... --gpu {row.model} --count {row.count}"),
        *(("or", f"gpuprov init --recipe {key} --hosts HOST,...") for key in recipes),
        *([] if row.confidence == "confirmed" else [("certainty", row.confidence)]),
        *(("source", sources[key].url or sources[key].description) for key in row.source),
    )
    return Hardware("instance type", text, lines)


def _explain_gpu(gpu: Gpu) -> Hardware:
    memory = f", {'/'.join(map(str, gpu.memory_gb))} GB" if gpu.memory_gb else ""
    lines = (
        ("is", f"{gpu.name} ({gpu.chip}, {gpu.arch}{memory})"),
        ("see", f"gpuprov catalog gpus {gpu.key}"),
        *([("MIG", f"gpuprov catalog mig {gpu.key}")] if find_class(gpu) else []),
        ("init", f"gpuprov init --hosts HOST,... --gpu {gpu.key}"),
    )
    return Hardware("GPU", gpu.key, lines)


def _explain_chip(text: str) -> Iterator[Hardware]:
    """Yield what is known of a PCI id that is of no model of the catalogue, or of a card that is older than all models:
    its chip, and the drivers that know it."""
    if old := find_old_card(text):
        said, fix = explain_unknown(text)
        yield Hardware("GPU", old[0].key, (("is", said.removeprefix("is ")), ("spec", fix)))
    if (generation := generation_of(text)) is None:
        return
    _, fix = explain_unknown(text)
    since = f", from branch {generation.first_branch} on" if generation.first_branch else ""
    yield Hardware("PCI id", text.casefold(), (("is", described(text.casefold())), ("spec", f"{fix}{since}")))


def _explain_family(text: str, gpus: list[Gpu]) -> Hardware:
    models = tuple(("model", f"{gpu.key}: {gpu.name}") for gpu in gpus)
    return Hardware("GPUs", text, (*models, ("see", f"gpuprov catalog gpus {text}")))


def _explain_profile(text: str) -> Iterator[Hardware]:
    classes = [(entry, profile) for entry in list_classes() if (profile := entry.find(text))]
    if not classes:
        return
    name = classes[0][1].name
    models = {
        entry.name: ", ".join(gpu.key for gpu in list_gpus() if gpu.mig.profile_class == entry.name)
        for entry, _ in classes
    }
    yield Hardware(
        "MIG profile",
        name,
        (
            *(("of", f"{models[entry.name] or entry.name}: {_describe(profile)}") for entry, profile in classes),
            ("see", f"gpuprov catalog mig {name}; gpuprov mig fit --gpu MODEL {name}=2"),
        ),
    )


def _describe(profile: Profile) -> str:
    sizes = [f"up to {profile.max_count} on a GPU"]
    sizes += [f"{profile.memory_gib} GiB"] if profile.memory_gib else []
    sizes += [f"{profile.sm} SMs"] if profile.sm else []
    return ", ".join(sizes)
