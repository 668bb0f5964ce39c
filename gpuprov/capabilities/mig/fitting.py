"""Rules on whether the instances of a `mig` block fit the GPUs that it names, as far as the catalogue knows them."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gpuprov.capabilities.driver import find_requested_version
from gpuprov.capabilities.mig import host
from gpuprov.capabilities.mig.fragment import Mig
from gpuprov.catalog import gpus
from gpuprov.catalog.gpus import Gpu
from gpuprov.hardware.mig import model_of
from gpuprov.hardware.mig.judge import instead, judge, of_driver
from gpuprov.host_code.mig import layout as mig_layout
from gpuprov.spec.model import HostSpec
from gpuprov.spec.problem import Path, Problem, report_under

HERE = "mig"
_problem = report_under(HERE)


def entry_problems(spec: HostSpec, gpu: Gpu | None, block: Mig) -> Iterable[Problem]:
    """Yield what does not fit the GPUs that each entry names, as far as their model is known."""
    try:
        entries = host.entries(block)
    except mig_layout.LayoutError:
        return  # told already
    met = 0
    for number, entry in enumerate(entries):
        path: Path = (HERE, "selected") if entry.parted else (HERE, "layout", number, "instances")
        label = f"mig.selected: {entry.place}" if entry.parted else f"mig.layout[{number}].instances"
        for model in models(entry, gpu):
            met += 1
            if entry.enabled and entry.instances:
                for problem in fit_problems(path, label, model, entry.instances, find_requested_version(spec)):
                    yield msgspec.structs.replace(problem, path=_find_profile_path(block, problem.path))
    if gpu and entries and entries[0].parted and not met:
        name = block.selected or "the configuration"
        ids = ", ".join(f"0x{pci_id.id.partition(':')[2].upper()}10DE" for pci_id in gpu.pci_ids)
        message = f": no entry of {name} is for {gpu.key}: its device-filter has other PCI ids"
        yield _problem("selected", message, f"an entry without device-filter, or with {ids}")


def _find_profile_path(block: Mig, path: Path) -> Path:
    """Return the path of a GPU instance's profile in a layout: its key, if the instances are written as counts."""
    if path[1] != "layout":
        return path[:2]
    if len(path) < 5:
        return path
    instances = block.layout[int(path[2])].instances
    keys = (
        [key for key in instances if mig_layout.parse_profile(str(key)).gpu_instance == path[4]]
        if isinstance(instances, dict)
        else []
    )
    return (*path[:4], str(keys[0])) if keys else path[:4]


def models(entry: mig_layout.Entry, gpu: Gpu | None) -> list[Gpu]:
    """Return the models that an entry is for; without a model in the spec, those that it names itself."""
    if entry.parted:
        pci_ids = [ids[0] for text in entry.filters if (ids := mig_layout.filter_ids(text))]
        return [model for model in (gpu,) if model and (not entry.filters or {*pci_ids} & _list_ids(model))]
    named = [known for name in entry.gpus or () if isinstance(name, str) and (known := gpus.find_gpu(name))]
    others = entry.gpus is None or len(named) < len(entry.gpus)
    if gpu:
        return [gpu] if others or gpu in named else []
    return list({known.key: known for known in named}.values())


def _list_ids(gpu: Gpu) -> set[int]:
    return {int(f"{pci_id.id.partition(':')[2]}10de", 16) for pci_id in gpu.pci_ids}


def fit_problems(
    path: Path, label: str, gpu: Gpu, instances: Sequence[mig_layout.Instance], driver: str
) -> Iterable[Problem]:
    """Yield profiles that the model or its driver does not have, and sets that do not fit."""
    model = model_of(gpu)
    known = [profile.name for profile in model.profiles]
    unknown = [name for name in dict.fromkeys(instance.profile for instance in instances) if name not in known]
    for name in unknown if known else ():
        message = f"{label}: {gpu.key} has no profile {name}"
        yield Problem(path=(*path, name), message=message, fix=_suggest_profile(name, known))
    if unknown:
        return
    fit = judge(model, instances)
    if fit.reason:
        severity: Any = "warning" if model.grid is not None and model.sure == "unconfirmed" else "error"
        message = f"{label} does not fit on {gpu.key}: {fit.reason}"
        yield Problem(path=path, message=message, fix=instead(model, instances, fit), severity=severity)
        return
    for message, fix in of_driver(model, instances, driver):
        yield Problem(path=path, message=f"{label}: {message}", fix=fix)
    if model.grid is None:
        message = f"{label}: where MIG instances can be on {gpu.key} is not known; the host decides"
        yield Problem(path=path, message=message, fix="gpuprov plan asks the host", severity="warning")


def _suggest_profile(name: str, known: list[str]) -> str:
    """Return the profile with as many slices and the same attributes; else those that resemble it; else all."""
    profile = mig_layout.parse_profile(name)
    alike = [
        candidate
        for candidate in known
        if (other := mig_layout.parse_profile(candidate)).slices == profile.slices
        and other.attributes == profile.attributes
    ]
    close = alike or difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f'did you mean "{close[0]}"? it has {", ".join(known)}' if close else f"it has {', '.join(known)}"
