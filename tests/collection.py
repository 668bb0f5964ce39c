"""Usage: python tests/collection.py OUT. gpuprov's roles, playbooks and plugins as the Ansible collection
gpuprov.gpuprov.

The tree is written to OUT/gpuprov, and built by ansible-galaxy beside it. It consists of roles/, playbooks/ and
plugins/, with full names for our modules, and imports from within the collection. The same tree gives the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]
from links import link_to_repository, rewrite  # type: ignore[import-not-found]  # noqa: E402

from gpuprov.core.assets import files  # noqa: E402
from gpuprov.render.carried import plugin_files, role_files  # noqa: E402

NAME = "gpuprov.gpuprov"
FOLDERS = {"library": "modules", "action_plugins": "action", "module_utils": "module_utils"}
"""Folders of plugins in a collection, by their folder beside a playbook."""
SHARED = (
    "ansible.module_utils.gpuprov_host_code",
    f"ansible_collections.{NAME}.plugins.module_utils.gpuprov_host_code",
)
PATH = re.compile(
    r"(?m)^(?:# Ansible finds module_utils.*|import ansible\.module_utils|ansible\.module_utils\.__path__.*)\n"
)
"""Lines of an action plugin that let it find module_utils outside of a collection."""


def read_project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project


def list_files() -> dict[str, str]:
    """Return the text of every file of the collection, by its path."""
    plugins = {_place(name): path.read_text(encoding="utf-8") for name, path in plugin_files().items()}
    modules = {Path(name).stem for name in plugins if name.startswith("plugins/modules/")}
    tree = {name: qualify_python(text, modules) for name, text in plugins.items()}
    for role in sorted(path.name for path in (ROOT / "roles").iterdir() if path.is_dir()):
        found = role_files(role)
        tree |= {f"roles/{role}/{name}": path.read_text(encoding="utf-8") for name, path in found.items()}
    playbooks = files(ROOT / "playbooks")
    tree |= {f"playbooks/{name}": path.read_text(encoding="utf-8") for name, path in playbooks.items()}
    tree = {name: qualify_yaml(text, modules) if name.endswith(".yml") else text for name, text in tree.items()}
    return {**tree, **list_metadata()}


def _place(name: str) -> str:
    folder, _, rest = name.partition("/")
    return f"plugins/{FOLDERS[folder]}/{rest}"


def qualify_yaml(text: str, modules: set[str]) -> str:
    """Replace keys that are our modules with their full names: tasks, and defaults of modules."""
    return re.sub(
        r"(?m)^(\s*(?:- )?)(\w+)(?=:(?:\s|$))",
        lambda found: f"{found[1]}{NAME}.{found[2]}" if found[2] in modules else found[0],
        text,
    )


def qualify_python(text: str, modules: set[str]) -> str:
    """Replace modules that actions run, or documentation names, with their full names, and imports with those of the
    collection."""
    text = PATH.sub("", text).replace(*SHARED)
    text = re.sub(r'"(\w+)"', lambda found: f'"{NAME}.{found[1]}"' if found[1] in modules else found[0], text)
    text = re.sub(r"\bM\((\w+)\)", lambda found: f"M({NAME}.{found[1]})" if found[1] in modules else found[0], text)
    before, mark, rest = text.partition('EXAMPLES = r"""')
    examples, end, after = rest.partition('"""')
    return before + mark + qualify_yaml(examples, modules) + end + after


def list_metadata() -> dict[str, str]:
    """Return the collection's metadata, from pyproject.toml."""
    project = read_project()
    [core] = [one for one in project["dependencies"] if one.startswith("ansible-core")]
    page = ROOT / "docs/how-to/ansible.md"
    about = rewrite(page.read_text(encoding="utf-8"), lambda target: link_to_repository(ROOT, page, target))
    namespace, _, name = NAME.partition(".")
    galaxy = {
        "namespace": namespace,
        "name": name,
        "version": project["version"],
        "readme": "README.md",
        "authors": [one["name"] for one in project["authors"]],
        "description": project["description"],
        "license": [project["license"]],
        "tags": [re.sub(r"\W", "", word) for word in project["keywords"]],
        "repository": project["urls"]["Repository"],
        "documentation": project["urls"]["Documentation"],
        "issues": project["urls"]["Issues"],
    }
    needs = {"version": 3, "dependencies": {"python": "requirements.txt"}}
    return {
        "README.md": about,
        "LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
        "galaxy.yml": yaml.safe_dump(galaxy, sort_keys=False),
        "requirements.txt": f"gpuprov=={project['version']}\n",
        "meta/execution-environment.yml": yaml.safe_dump(needs),
        "meta/runtime.yml": yaml.safe_dump({"requires_ansible": core.removeprefix("ansible-core")}),
    }


def write_tree(folder: Path) -> None:
    """Write the collection into a folder, replacing its contents."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in list_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def build(out: Path, at: int = 0) -> Path:
    """Build the collection into a folder; `at` is the time of all its files. Returns the archive."""
    write_tree(out / "gpuprov")
    galaxy = Path(sys.executable).with_name("ansible-galaxy")
    command = [str(galaxy), "collection", "build", "--force", "--output-path", str(out.absolute()), "."]
    subprocess.run(command, cwd=out / "gpuprov", check=True, stdout=subprocess.DEVNULL)
    archive = out / f"{NAME.replace('.', '-')}-{read_project()['version']}.tar.gz"
    make_reproducible(archive, at)
    return archive


def make_reproducible(archive: Path, at: int) -> None:
    """Repack it in the order of names, with one time for all files."""
    with tarfile.open(archive) as old:
        packed = [(member, member.isfile() and old.extractfile(member)) for member in old.getmembers()]
        content = {member.name: (member, data.read() if data else b"") for member, data in packed}
    listed = json.loads(content["FILES.json"][1])
    listed["files"].sort(key=lambda entry: entry["name"])
    manifest = json.loads(content["MANIFEST.json"][1])
    files_text = json.dumps(listed, indent=1).encode()
    manifest["file_manifest_file"]["chksum_sha256"] = hashlib.sha256(files_text).hexdigest()
    content["FILES.json"] = (content["FILES.json"][0], files_text)
    content["MANIFEST.json"] = (content["MANIFEST.json"][0], json.dumps(manifest, indent=1).encode())
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=at) as packer,
        tarfile.open(fileobj=packer, mode="w") as new,
    ):
        for name in sorted(content):
            member, data = content[name]
            member.size, member.mtime, member.pax_headers = len(data), at, {}
            new.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(build(Path(sys.argv[1]), int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))
