"""The files of a rendered project: `ansible-playbook -i DIR/inventory.yml DIR/site.yml` runs it, where gpuprov can be
imported."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from gpuprov.core import assets, unsafe_yaml
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Tree, is_planted
from gpuprov.render import checkout, readme
from gpuprov.render.carried import plugin_files, role_files
from gpuprov.render.variables import ROLES, fleet_variables, host_variables
from gpuprov.spec.connection import is_left_out, refuse_secrets
from gpuprov.spec.model import HostSpec, RawHost

HEADER = "# Rendered by gpuprov: change the inventory it came from, then render again.\n"
# Groups that hosts join while site.yml runs: its acts cover the reached hosts, and all acts but the first leave out
# those that are only prepared. Here they are declared, and empty.
GROUPS = ("gpuprov_reached", "gpuprov_prepared")
# The file that marks a folder as written by `render`, so that it may be overwritten.
MARK = ".gpuprov-rendered"
# Contents of the folder and commands to run; the folders that apply runs itself have no README.
README = "README.md"

# Folders of projects rendered by earlier versions of gpuprov.
EARLIER = ("filter_plugins",)
# Folders whose files are all ours: files that are no longer part of the project are deleted.
OWNED = ("host_vars", "group_vars", "roles", "library", "action_plugins", "module_utils", *EARLIER)


class Rendered(msgspec.Struct, frozen=True):
    """A project in memory: text by relative path, and the connection variables left out because they are secrets."""

    files: dict[str, str]
    left_out: tuple[str, ...] = ()


def render(pairs: Sequence[tuple[RawHost, HostSpec]], *, secrets: bool = False) -> Rendered:
    """Return the project for these hosts. Secret connection variables are left out unless `secrets`."""
    files: dict[str, str] = {MARK: "", "group_vars/all/gpuprov.yml": _format_data(fleet_variables())}
    left_out: list[str] = []
    connections: dict[str, Tree] = {}
    for raw, spec in pairs:
        if not secrets:
            refuse_secrets(raw.name, raw.values)
        kept = {k: v for k, v in raw.connection.items() if secrets or not is_left_out(k, v)}
        left_out += [f"{raw.name}: {key}" for key in raw.connection if key not in kept]
        connections[raw.name] = dict(sorted(kept.items()))
        files[f"host_vars/{raw.name}.yml"] = _format_data(host_variables(spec))
    files["inventory.yml"] = _format_data({"all": {"hosts": connections, "children": {name: {} for name in GROUPS}}})
    files["ansible.cfg"] = "[defaults]\nroles_path = roles\ninventory = inventory.yml\nretry_files_enabled = false\n"
    files["ansible.cfg"] += "inject_facts_as_vars = false\n"
    playbooks = assets.root() / "playbooks"
    for file in sorted(path for path in playbooks.rglob("*") if path.is_file()):
        files[str(file.relative_to(playbooks))] = file.read_text(encoding="utf-8")
    files |= checkout.acts({name for _, spec in pairs for name in spec.capabilities})
    for name, file in plugin_files().items():
        files[name] = file.read_text(encoding="utf-8")
    for role in ROLES:
        for name, file in role_files(role).items():
            files[f"roles/{role}/{name}"] = file.read_text(encoding="utf-8")
    if not secrets:
        files[README] = readme.text([raw.name for raw, _ in pairs], left_out)
    return Rendered(dict(sorted(files.items())), tuple(left_out))


def write(project: Rendered, folder: Path) -> None:
    """Write the tree, and delete files that are no longer part of it. Refuses a folder with anything in it that is not
    ours."""
    if folder.exists() and not folder.is_dir():
        raise GpuprovError(f"{folder} is a file", "name a folder with --out")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise GpuprovError(
            f"{folder} is not empty and was not rendered by gpuprov", "name a new or empty folder with --out"
        )
    if strange := _explain_strange(project, folder):
        raise GpuprovError(f"{folder} cannot be rendered into: {strange}", "name a new or empty folder with --out")
    try:
        for name, text in project.files.items():
            _write_file(folder / name, text)
        for stale in _list_ours(folder):
            if str(stale.relative_to(folder)) not in project.files:
                stale.unlink()
    except OSError as error:
        raise GpuprovError(
            f"cannot write {error.filename or folder}: {error.strerror}", "name another folder with --out"
        ) from error


def _explain_strange(project: Rendered, folder: Path) -> str:
    """Return the reason why writing or deleting would leave the folder, or the folder is another user's; "" if all is
    well."""
    if is_planted(os.path.abspath(folder)):
        return "it is another user's, who could change what is in it"
    ways = {parent for name in project.files for parent in Path(name).parents} | set(map(Path, OWNED))
    link = next((str(way) for way in sorted(ways - {Path()}) if (folder / way).is_symlink()), "")
    return f"{link} in it is a link" if link else ""


def _list_ours(folder: Path) -> Iterable[Path]:
    return [path for name in OWNED for path in sorted((folder / name).rglob("*")) if path.is_file()]


def _write_file(path: Path, text: str) -> None:
    if path.is_file() and not path.is_symlink() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if path.name == "inventory.yml" else 0o644)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(path)


def _format_data(value: object) -> str:
    """Return variables as data: templates of the inventory were resolved when it was read."""
    return HEADER + unsafe_yaml.document(value)
