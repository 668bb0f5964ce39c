"""NVIDIA's package repositories by distribution and architecture, and the keys that sign them."""

from functools import partial

from gpuprov.catalog.distributions import Signed, list_distributions
from gpuprov.catalog.reader import Fact, File, load
from gpuprov.host_code.sources import Source


class Key(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signing key. A key without a fingerprint is only known by its short id, and not trusted by default."""

    id: str
    file: str
    fingerprint: str = ""
    sha1: bool = False


class Retired(Fact, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key that its owner replaced."""

    id: str
    fingerprint: str
    since: str
    successors: tuple[str, ...]


class RepositoriesFile(File, frozen=True, kw_only=True, forbid_unknown_fields=True):
    keys: tuple[Key, ...]
    retired: tuple[Retired, ...]
    bases: dict[str, str]


# uname -m -> folder of NVIDIA's CUDA repository, and Debian's word, which the container toolkit's has
FOLDERS = {"x86_64": "x86_64", "aarch64": "sbsa"}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
TOOLKIT_KEY = "F796ECB0"


read_repositories_file = partial(load, "repositories", RepositoriesFile)


def get_key(identifier: str) -> Key:
    """The key with this short id."""
    return next(entry for entry in read_repositories_file().keys if entry.id == identifier)


def list_retired_keys() -> tuple[Retired, ...]:
    """Keys that must no longer be trusted."""
    return read_repositories_file().retired


def find_cuda_repository(distribution: str, machine: str = "x86_64") -> Source | None:
    """Return NVIDIA's CUDA repository, in the form of a spec's `repository` block; None if there is none.

    `fingerprint` is empty if no public source confirms it: the spec must then provide it.
    """
    folder = FOLDERS.get(machine, "")
    for row in list_distributions():
        if row.key == distribution and row.cuda and folder in row.cuda.architectures:
            url = read_repositories_file().bases["cuda"].format(folder=row.cuda.folder or row.key, architecture=folder)
            signer = get_key(row.cuda.signed_by)
            return build_block(url, url + signer.file, signer, row.cuda.signed)
    return None


def find_toolkit_repository(family: str, machine: str = "x86_64") -> Source | None:
    """Return the container toolkit's repository, in the same form; one for all distributions of a family."""
    names = DEBIAN if family == "debian" else {name: name for name in DEBIAN}
    if machine not in names:
        return None
    bases = read_repositories_file().bases
    url = bases[f"container_toolkit_{family}"].format(architecture=names[machine])
    return build_block(url, bases["container_toolkit_key"], get_key(TOOLKIT_KEY), "index")


def build_block(url: str, key_url: str, signer: Key, signed: Signed) -> Source:
    return {
        "url": url,
        "suite": "/",
        "components": [],
        "key_file": "",
        "key_url": key_url,
        "fingerprint": signer.fingerprint,
        "signed": signed,
    }
