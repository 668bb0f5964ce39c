"""Folders in which engines, and NVIDIA's runtime, look for CDI specifications: by their settings, and by docker's own
report."""

from collections.abc import Iterator, Mapping

from gpuprov.capabilities.container_toolkit.fragment import ContainerToolkit, specification_file
from gpuprov.capabilities.container_toolkit.readers import read_report, readers
from gpuprov.catalog import container_toolkit as catalogue
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.containers.container_toolkit import GPU_KIND, TOOLKIT
from gpuprov.rules import engines as files
from gpuprov.rules.engine_output import Engine
from gpuprov.rules.engine_runtimes import parse_toml

# https://docs.docker.com/reference/cli/dockerd/#daemon-configuration-file,
# https://github.com/containerd/containerd/blob/main/docs/cri/config.md,
# https://github.com/cri-o/cri-o/blob/main/docs/crio.conf.5.md,
# https://github.com/containers/common/blob/main/docs/containers.conf.5.md
KEYS = {
    "docker": ("cdi-spec-dirs",),
    "containerd": ("cdi_spec_dirs",),
    "crio": ("crio", "runtime", "cdi_spec_dirs"),
    "podman": ("engine", "cdi_spec_dirs"),
}
# https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/config/config.go
RUNTIME = ("nvidia-container-runtime", "modes", "cdi")


def list_misses(fragment: ContainerToolkit, facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield why an engine does not find the specification where it is written, and the setting that makes it so."""
    folder = _resolve(specification_file(fragment).rpartition("/")[0])
    for name, engine in facts.get(ENGINES).items():
        if name in KEYS and (name in readers(fragment, facts) or name in fragment.runtimes):
            for source, folders in _find_folders(name, engine):
                if folder not in map(_resolve, folders):
                    where = " ".join(folders) or "no folder"
                    yield f"{name} looks for CDI specifications in {where} alone", f"{KEYS[name][-1]} ({source})"
    own = files.at(facts.get(TOOLKIT).settings, *RUNTIME)
    folders = files.at(own, "spec-dirs")
    if isinstance(folders, list) and folder not in map(_resolve, map(str, folders)):
        where = " ".join(map(str, folders)) or "no folder"
        yield f"NVIDIA's runtime looks for CDI specifications in {where} alone", f"spec-dirs ({catalogue.CONFIG})"
    if (kind := files.at(own, "default-kind")) not in (None, "", GPU_KIND):
        yield f"NVIDIA's runtime takes devices of kind {kind}, not {GPU_KIND}", f"default-kind ({catalogue.CONFIG})"


def _find_folders(name: str, engine: Engine) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders that an engine's files name, and those that docker reports, each with its source."""
    if name == "podman":
        yield from _find_last(engine)
        return
    try:
        config = files.configuration(name, engine)
    except ValueError:  # container_toolkit.configured says so
        return
    table = files.get_cri(config) if name == "containerd" else config
    if isinstance(folders := files.at(table, *KEYS[name]), list):
        yield files.get_main(name), list(map(str, folders))
    elif name == "docker" and isinstance(folders := read_report(engine).get("CDISpecDirs"), list) and folders:
        yield "docker info", list(map(str, folders))


def _find_last(engine: Engine) -> Iterator[tuple[str, list[str]]]:
    """Yield podman's folders: the last file that names some counts, unless it only adds to them."""
    folders_set: list[tuple[str, list[str]]] = []
    for path, file in engine.files.items():
        try:
            folders = files.at(parse_toml(file.text, path), *KEYS["podman"])
        except ValueError:
            continue
        if isinstance(folders, list) and not any(isinstance(each, Mapping) and each.get("append") for each in folders):
            folders_set = [(path, [str(each) for each in folders if not isinstance(each, Mapping)])]
    yield from folders_set


def _resolve(folder: str) -> str:
    """Return a folder's path without the link that /var/run is."""
    plain = folder.rstrip("/")
    return plain.removeprefix("/var") if plain.startswith("/var/run/") else plain
