"""`repository`: a package repository of the site's own, and its signing key. One block, used by several
capabilities."""

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path as File
from typing import Annotated, Literal, TypeVar

import msgspec

from gpuprov.core import safe_parse
from gpuprov.core.safe_parse import Tree, TreeView
from gpuprov.host_code import openpgp
from gpuprov.host_code.sources import Source
from gpuprov.spec.model import Fragment
from gpuprov.spec.problem import Origin, Path, Problem, Say, report_under
from gpuprov.spec.url import build_pattern

FINGERPRINT = r"([0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}|([0-9A-Fa-f]{4} +){9}[0-9A-Fa-f]{4})"
F = TypeVar("F", bound=Fragment)


class Repository(Fragment, frozen=True):
    """A package repository."""

    ONE_OF = ("url",)

    url: Annotated[
        str,
        msgspec.Meta(
            pattern=build_pattern(r"(/[^\s]*)?") + r"|^file:///[^\s]*$",
            description="https://HOST/PATH, http://HOST/PATH or file:///PATH, without query, user name and password "
            "(these belong in /etc/apt/auth.conf.d, or in dnf.conf)",
        ),
    ] = ""
    suite: Annotated[
        str, msgspec.Meta(pattern=r"^[^\s]+$", description='apt: a suite such as "bookworm"; "/" for a flat repository')
    ] = "/"
    components: Annotated[
        tuple[Annotated[str, msgspec.Meta(pattern=r"^[^\s]+$")], ...],
        msgspec.Meta(description="apt: the suite's components, such as [main]; a flat repository has none"),
    ] = ()
    key_file: Annotated[
        str, msgspec.Meta(description="the repository's public key (.asc or .gpg), beside the inventory; or key_url")
    ] = ""
    key_url: Annotated[
        str,
        msgspec.Meta(
            pattern=build_pattern(schemes="https"),
            description="https://HOST/PATH of the public key, without user name, password and query, which the "
            "machine that runs gpuprov fetches; it needs a fingerprint",
        ),
    ] = ""
    fingerprint: Annotated[
        str,
        msgspec.Meta(
            pattern=rf"^$|^{FINGERPRINT}( *, *{FINGERPRINT})*$",
            description="the 40 (or 64) hexadecimal digits of gpg --show-keys; several are separated by commas",
        ),
    ] = ""
    signed: Annotated[
        Literal["packages", "index", "both"],
        msgspec.Meta(description="dnf: what carries signatures; apt always checks the index"),
    ] = "packages"


def find_problems(block: Repository, path: Path) -> Iterable[Problem]:
    """Yield what cannot work, known without any host. `key_file` must be absolute here (see `locate_files`)."""
    problem = report_under(*path)
    if not block.url:
        if block != Repository():
            yield problem("", "has no url", "name the repository's URL, or leave the block out")
        return
    yield from find_key_problems(block, problem)
    flat = block.suite.endswith("/")
    if flat and block.components:
        message = f'of a flat repository (suite "{block.suite}")'
        yield problem("components", message, "name the suite, or leave components out")
    if not flat and not block.components:
        yield problem("suite", f'is "{block.suite}", and there are no components', "components: [main], for instance")


def find_key_problems(block: Repository, problem: Say) -> Iterable[Problem]:
    if bool(block.key_file) == bool(block.key_url):
        given = "both key_file and key_url" if block.key_file else "no key"
        fix = "key_file: a file beside the inventory; or key_url: https://... with its fingerprint"
        yield problem("", f"has {given}", fix)
        return
    if block.key_url and not block.fingerprint:
        fix = "fingerprint: what gpg --show-keys says of the key, compared with its owner's own page"
        yield problem("key_url", "without a fingerprint: whoever answers there would be trusted", fix)
    if not block.key_file:
        return
    try:
        judged = openpgp.judge(safe_parse.read_named(block.key_file), block.fingerprint)
    except OSError as error:
        message = f"{block.key_file} cannot be read: {error.strerror}"
        yield problem("key_file", message, "put the repository's public key there, .asc or .gpg")
        return
    if judged["problem"]:
        fix = "the right key, or the right fingerprint (gpg --show-keys FILE)"
        yield problem("key_file", f"{block.key_file}: {judged['problem']}", fix)
    for warning in judged["warnings"]:
        yield problem("key_file", f": {warning}", "get the renewed key from the repository's owner", warning=True)


def locate_files(fragment: F, name: str, origins: Mapping[Path, Origin]) -> F:
    """Return the fragment with absolute paths of its blocks' files on this machine, relative to the file that names
    them."""
    changes: Tree = {}
    for field in fragment.__struct_fields__:
        block = getattr(fragment, field)
        files = {key: value for key, value in select_files(block) if value and not value.startswith("/")}
        for key, value in files.items():
            files[key] = make_absolute(value, (name, field, key), origins)
        if files:
            changes[field] = msgspec.structs.replace(block, **files)
    return msgspec.structs.replace(fragment, **changes) if changes else fragment


def locate_values(values: TreeView, origins: Mapping[Path, Origin]) -> Tree:
    """Return the same for a merged, still untyped spec: its meaning no longer depends on where it was written."""
    located: Tree = {}
    for name, block in values.items():
        located[name] = {**block} if isinstance(block, Mapping) else block
        for field, inner in block.items() if isinstance(block, Mapping) else ():
            if isinstance(inner, Mapping):
                located[name][field] = {
                    key: make_absolute(value, (name, field, key), origins)
                    if key in FILES and isinstance(value, str) and value and not value.startswith("/")
                    else value
                    for key, value in inner.items()
                }
    return located


def list_block_files(fragment: Fragment) -> list[str]:
    """Return the absolute paths of files on this machine that the blocks of a located fragment name."""
    return [
        value for field in fragment.__struct_fields__ for _, value in select_files(getattr(fragment, field)) if value
    ]


def make_absolute(value: str, path: Path, origins: Mapping[Path, Origin]) -> str:
    origin = origins.get(path) or origins.get(path[:2]) or Origin("")
    folder = File(origin.file).absolute().parent if origin.file else File.cwd()
    return str(folder / File(value).expanduser())


# Fields of a block in a fragment that name a file on this machine, beside the inventory.
FILES = ("key_file", "certificate_file", "file", "topo_source")


def select_files(block: object) -> list[tuple[str, str]]:
    if not isinstance(block, Fragment):
        return []
    return [(key, getattr(block, key)) for key in block.__struct_fields__ if key in FILES]


def list_fingerprints(block: Source) -> list[str]:
    """Return the fingerprints of keys that the host may trust for it: the listed ones, or that of the only key in
    `key_file`.

    Raises OSError and openpgp.NotAKey.
    """
    fingerprints = openpgp.parse_fingerprints(block["fingerprint"])
    if fingerprints or not block["key_file"]:
        return fingerprints
    text = base64.b64encode(safe_parse.read_named(block["key_file"])).decode()
    return [key.fingerprint for key in openpgp.parse_keys(text)]
