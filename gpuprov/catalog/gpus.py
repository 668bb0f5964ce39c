"""Facts about each GPU, and lookup of GPUs by key, product name or PCI ID."""

import re
from difflib import SequenceMatcher, get_close_matches
from functools import cache

from gpuprov.catalog.chips import cards, described, find_old_card, generation_of
from gpuprov.catalog.instances import (
    find_instance,
    find_labelled_model,
    find_nearest_types,
    find_vendor,
    is_type,
    parse_label,
)
from gpuprov.catalog.models import ARCHITECTURES, Architecture, Flavour, Gpu, GpusFile
from gpuprov.catalog.reader import choose_fix, load
from gpuprov.core.errors import GpuprovError

_VENDOR = "10de"
NEEDS = {
    "open-required": "open kernel modules only",
    "proprietary-required": "proprietary kernel modules only",
    "either": "open or proprietary kernel modules",
}
__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Flavour",
    "Gpu",
    "GpusFile",
    "explain_unknown",
    "find_by_pci_id",
    "find_gpu",
    "find_nearest",
    "find_stem",
    "index_by_nvml_id",
    "is_of",
    "list_gpus",
    "list_meant",
    "list_of_stem",
    "split_count",
    "strip_system",
]


@cache
def list_gpus() -> tuple[Gpu, ...]:
    """All GPUs by generation, those of gpus.yaml first."""
    listed = load("gpus", GpusFile).gpus
    return tuple(sorted((*listed, *cards()), key=lambda gpu: ARCHITECTURES.index(gpu.arch)))


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


@cache
def index_by_name() -> dict[str, Gpu]:
    by_name: dict[str, Gpu] = {}
    for gpu in list_gpus():
        for name in {_fold(gpu.key), *(_fold(alias.name) for alias in gpu.aliases)}:
            if name in by_name:
                message = (
                    f'gpuprov/catalog/data/gpus.yaml: gpus[{gpu.key}] has the name "{name}" of '
                    f"gpus[{by_name[name].key}]"
                )
                raise GpuprovError(message, choose_fix())
            by_name[name] = gpu
    return by_name


@cache
def index_by_id() -> dict[str, dict[str, Gpu]]:
    """Return GPUs by device, then by subsystem; an empty subsystem means any other."""
    by_id: dict[str, dict[str, Gpu]] = {}
    for gpu in list_gpus():
        for pci in gpu.pci_ids:
            models = by_id.setdefault(pci.id, {"": gpu})
            models.update(dict.fromkeys(pci.subsystems, gpu))
    return by_id


def normalize_subsystem(text: str) -> str:
    """Return '10de:227a' from itself or from '0x227A10DE'."""
    match = re.fullmatch(r"0x([0-9a-f]{4})([0-9a-f]{4})", text.strip().casefold())
    return f"{match[2]}:{match[1]}" if match else text.strip().casefold()


def find_by_pci_id(vendor_device: str, subsystem: str = "") -> Gpu | None:
    """Return the GPU with this PCI id: '10de:2330', '0x233010DE' (device, then vendor), '0x2330' or '2330'.

    The subsystem, in one of the first two forms, distinguishes models with the same id; as a suffix it is ignored. A16
    and A2 share an id and an entry.
    """
    text = vendor_device.strip().casefold()
    match = re.fullmatch(rf"(?:{_VENDOR}:)?(?:0x)?([0-9a-f]{{4}})", text) or re.fullmatch(
        rf"0x([0-9a-f]{{4}}){_VENDOR}(?::0x[0-9a-f]{{8}})?", text
    )
    models = index_by_id().get(f"{_VENDOR}:{match[1]}", {}) if match else {}
    return models.get(normalize_subsystem(subsystem)) or models.get("")


def find_gpu(text: str) -> Gpu | None:
    """Return the GPU with this key, product name (as in nvidia-smi or a label of Kubernetes), instance type or PCI id;
    case does not matter, nor do spaces and dashes of a key (RTX 3090). None if nothing matches exactly."""
    gpu = index_by_name().get(_fold(text)) or index_by_label().get(parse_label(text)) or find_by_pci_id(text)
    if not gpu:
        instance = find_instance(text)
        gpu = index_by_name().get(_fold(instance.model if instance else find_labelled_model(text)))
    return gpu or index_by_squeezed_key().get(squeeze_text(text))


@cache
def index_by_squeezed_key() -> dict[str, Gpu]:
    """Return GPUs by key in letters and digits alone; keys that only differ beyond these are left out."""
    index: dict[str, list[Gpu]] = {}
    for gpu in list_gpus():
        index.setdefault(squeeze_text(gpu.key), []).append(gpu)
    return {name: gpus[0] for name, gpus in index.items() if len(gpus) == 1}


@cache
def index_by_label() -> dict[str, Gpu]:
    """Return GPUs by product name in words, with and without the prefix NVIDIA; single words are too ambiguous."""
    index: dict[str, Gpu] = {}
    several: set[str] = set()
    for gpu in list_gpus():
        for name in {parse_label(name.name) for name in gpu.aliases}:
            bare = name.removeprefix("nvidia ")
            for words in {name, *([bare] if " " in bare else [])}:
                if index.setdefault(words, gpu) is not gpu:
                    several.add(words)
    return {words: gpu for words, gpu in index.items() if words not in several}


# A model with a count before or behind it: 8xH100, H100:8.
_COUNTED = (
    re.compile(r"(?P<count>[0-9]{1,3}) ?[x\N{MULTIPLICATION SIGN}*] ?(?P<model>\S.*)"),
    re.compile(r"(?P<model>.*\S) ?: ?(?P<count>[0-9]{1,3})"),
)
# NVIDIA's systems on a chip, whose driver is a part of Jetson Linux:
# https://developer.nvidia.com/embedded/linux-tegra-r3272
_JETSON = re.compile(r"\b(?:jetson|tegra|(?:agx )?(?:orin|xavier|thor))\b", re.IGNORECASE)
_SYSTEM = re.compile(r"\A\s*(?:nvidia )?(?:dgx|hgx)[ _-]+", re.IGNORECASE)


def strip_system(text: str) -> str:
    """Return a name without the machine's before it: DGX H100 is H100."""
    return _SYSTEM.sub("", text)


def split_count(text: str) -> tuple[str, int | None]:
    """Split a model with a count (8xH100, H100:8); no count where the whole is a model, as the PCI id 10de:2330."""
    if find_gpu(text) is None:
        for match in filter(None, (pattern.fullmatch(text.strip()) for pattern in _COUNTED)):
            if ":" not in match["model"] or find_gpu(match["model"]):
                return match["model"], int(match["count"])
    return text, None


def explain_unknown(text: str) -> tuple[str, str]:
    """Describe a name that is not a GPU of the catalogue, with the fix."""
    if vendor := find_vendor(text):
        return f"is {vendor} hardware", "gpuprov manages NVIDIA GPUs: leave gpu out where the host has none"
    if _JETSON.search(text):
        return "is a Jetson", "gpuprov manages cards and boards: a Jetson's driver comes with Jetson Linux"
    model, count = split_count(text)
    if count is not None:
        return "is a count and a model", f'write model: "{model}" and count: {count}'
    if old := find_old_card(text):
        message = f"is {old[0].name} ({old[1].arch}), and branch {old[1].last_branch} is its last"
        return message, "leave gpu and nvidia_driver out of this host's spec: no driver that gpuprov installs knows it"
    if generation := generation_of(text):
        modules = NEEDS[generation.flavour]
        last = f", branch {generation.last_branch} is its last" if generation.last_branch else ""
        return f"is {described(text)}: no model of the catalogue", f"leave gpu out; its driver: {modules}{last}"
    named = text.rpartition("=")[2] if "/" in text else text  # nvidia.com/gpu.product=H100
    near = find_nearest_types(named) or find_nearest(strip_system(named))
    names = ", ".join(f'"{key}"' for key in near)
    if not near and is_type(text):
        return "is an instance type that is not in the catalogue", "write the model of its GPUs, and count"
    return "is not in the catalogue", f"did you mean {names}?" if near else "gpuprov catalog gpus lists all"


def is_of(gpu: Gpu, brand: str) -> bool:
    """Return whether a product name of the GPU has this brand: GeForce."""
    return any(brand in name.split() for name in (gpu.name, *(alias.name for alias in gpu.aliases)))


def index_by_nvml_id() -> dict[str, str]:
    """The catalogue's key of each GPU by device and vendor as NVML writes them: "0x233010DE"."""
    by_id: dict[str, str] = {}
    for gpu in list_gpus():
        for vendor, device in (entry.id.upper().split(":") for entry in gpu.pci_ids):
            by_id.setdefault(f"0x{device}{vendor}", gpu.key)
    return dict(sorted(by_id.items()))


def squeeze_text(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold().removeprefix("nvidia"))


def find_stem(text: str) -> str:
    """Return the model in a name: `h200` of `H200-SXM5-141GB` and of `NVIDIA H200 NVL`; "" if no word is a model."""
    plain = re.sub(r"^(nvidia|tesla)\s+", "", text.strip().casefold())
    match = re.match(r"(?:(?:quadro|rtx|pro|geforce|titan)[\s_-]*)*[a-z]{0,2}\d+[a-z]*", plain)
    return squeeze_text(match[0]) if match else ""


def list_of_stem(text: str) -> list[Gpu]:
    """The models of one family: all A100 for `A100`."""
    sought = find_stem(text)
    names = {gpu.key: {find_stem(gpu.key), *(find_stem(alias.name) for alias in gpu.aliases)} for gpu in list_gpus()}
    return [gpu for gpu in list_gpus() if sought and sought in names[gpu.key]]


def list_meant(text: str) -> list[Gpu]:
    """Return the models that an external name may mean: Slurm and Kubernetes write `nvidia_a100-sxm4-80gb`,
    `NVIDIA-H100-80GB-HBM3` or plain `a100`, which is each A100. Empty if it is no such name."""
    sought, plain = squeeze_text(text), text.replace("_", " ")
    if text.strip().casefold() == find_stem(plain):
        return list_of_stem(plain)
    exact = {gpu.key: gpu for name, gpu in index_by_name().items() if sought and squeeze_text(name) == sought}
    family = list_of_stem(plain)
    return list(exact.values()) or (family if len(family) > 1 else [])


def is_misspelled(text: str, name: str) -> bool:
    """Return whether a squeezed text may be a misspelled name: an RTX 5090 is no misspelled RTX 4090, but an RTX490 may
    be."""
    letters, number = split_series(text)
    series, other = split_series(name)
    return number == other or (letters == series and len(number) != len(other))


def is_begun_like(text: str, name: str) -> bool:
    """Return whether a squeezed text begins like a name, up to its model number: an A100X is not a P100, a B20O may be
    a B200."""
    letters, number = split_series(text)
    series, other = split_series(name)
    return letters == series and other.startswith(number)


def split_series(squeezed: str) -> tuple[str, str]:
    """Return the letters at the beginning of a squeezed name, and its first number."""
    number = re.search(r"\d+", squeezed)
    return (squeezed[: number.start()], number[0]) if number else (squeezed, "")


def find_nearest(text: str) -> list[str]:
    """Return keys that resemble the text, best first: the key with one typing error, every key of the model that it
    names, or up to three. Empty for a PCI id; never one with another model number: a GPU that is not listed is not
    another one."""
    if re.fullmatch(rf"({_VENDOR}:|0x)[0-9a-f]{{4,}}|[0-9]{{1,2}}", text.strip().casefold()) or find_vendor(text):
        return []  # neither a PCI id nor an index is a misspelled name
    sought = squeeze_text(text)
    squeezed = {squeeze_text(name): gpu.key for name, gpu in index_by_name().items()}
    family = [gpu.key for gpu in list_of_stem(text)]
    alike = [name for name in squeezed if is_misspelled(sought, name)]
    typo = get_close_matches(sought, alike, n=1, cutoff=0.85) if sought != find_stem(text) or not family else []
    if typo and (not family or squeezed[typo[0]] in family):
        return [squeezed[typo[0]]]
    if family:
        order = {key: SequenceMatcher(None, sought, squeeze_text(key)).ratio() for key in family}
        return sorted(family, key=lambda key: -order[key]) if sought != find_stem(text) else family
    inside = [gpu.key for gpu in list_gpus() if sought and sought in squeeze_text(gpu.key)]
    close = get_close_matches(sought, [name for name in squeezed if is_begun_like(sought, name)], n=6, cutoff=0.5)
    return list(dict.fromkeys([*inside, *(squeezed[name] for name in close)]))[:3]
