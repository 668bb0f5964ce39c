"""Usage: python tests/release.py OUT [KEY]. A release of the last commit: wheel, sdist, Ansible collection, container
image, SBOM, release notes and SHA256SUMS, signed by an ssh key.

Only committed files are built, whatever else is in the tree; the commit's time is the time of every file, so that
anybody who builds the same commit gets the same bytes; not of the image, whose Debian packages are those of the day.
Without podman and docker it is left out. The SBOM (CycloneDX 1.6) has every package of requirements.lock with its hashes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.image import build_image, find_engine, select_requirements

ROOT = Path(__file__).parents[1]
NAMESPACE, WHO = "gpuprov-release", "release@gpuprov"
"""The namespace of a release's signature, and its signer's name in allowed_signers."""
SUMS = "SHA256SUMS"
ENTRY = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?: ; (?P<marker>[^\\]+?))?(?: \\)?$")
HASH = re.compile(r"    --hash=sha256:([0-9a-f]{64})")
VIA = re.compile(r"    #(?: via)? +(?!via$)([A-Za-z0-9._-]+)( \(pyproject\.toml\))?$")


def commit(root: Path, *words: str) -> bytes:
    """Return git's data about the last commit."""
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout


def built(root: Path, out: Path) -> int:
    """Build wheel, sdist and collection of the last commit into the folder. Returns the commit's time."""
    at = int(commit(root, "log", "-1", "--format=%ct"))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(at), "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(commit(root, "archive", "HEAD"))) as archive:
            archive.extractall(folder, filter="data")
        pages = [sys.executable, "docs/generate.py", "--pages"]
        subprocess.run(pages, cwd=folder, env={**environment, "PYTHONPATH": folder}, check=True)
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out.absolute()), "."]
        subprocess.run(build, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        collection = [sys.executable, "tests/collection.py", f"{folder}/build/collection"]
        done = subprocess.run(collection, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        shutil.copy(done.stdout.strip(), out)
    return at


def refuse_other_tag(root: Path, version: str) -> None:
    """Refuse a commit whose version tag (v1.2.3) is not its version."""
    tags = commit(root, "tag", "--points-at", "HEAD", "v*").decode().split()
    if tags and f"v{version}" not in tags:
        sys.exit(f"the commit is tagged {', '.join(tags)}, and pyproject.toml says {version}. Fix: tag it v{version}")


def sbom(lock: str, project: Mapping[str, Any], files: Mapping[str, str], at: int) -> dict[str, Any]:
    """Return the document. `files`: digests of the released files, by name. Packages that only development needs have
    the scope excluded."""
    rows: dict[str, dict[str, Any]] = {}
    needs: dict[str, set[str]] = {}
    by_name: dict[str, list[str]] = {}
    here = ""
    for line in lock.splitlines():
        if entry := ENTRY.match(line):
            name = canonicalize_name(entry["name"])
            here = f"pkg:pypi/{name}@{entry['version']}"
            rows[here] = {"type": "library", "bom-ref": here, "name": name, "version": entry["version"], "purl": here}
            if entry["marker"]:
                rows[here]["properties"] = [{"name": "gpuprov:marker", "value": entry["marker"]}]
            place = {
                "type": "distribution",
                "url": f"https://pypi.org/project/{name}/{entry['version']}/",
                "hashes": [],
            }
            rows[here]["externalReferences"] = [place]
            by_name.setdefault(name, []).append(here)
        elif found := HASH.match(line):
            rows[here]["externalReferences"][0]["hashes"].append({"alg": "SHA-256", "content": found[1]})
        elif (found := VIA.match(line)) and not found[2]:
            needs.setdefault(canonicalize_name(found[1]), set()).add(here)
    direct = {extra: _names(listed) for extra, listed in project["optional-dependencies"].items()}
    own = _closure(_names(project["dependencies"]), needs, by_name)
    optional = _closure(direct.get("fleet", set()), needs, by_name)
    for reference, row in rows.items():
        row["scope"] = "required" if reference in own else "optional" if reference in optional else "excluded"
    me = f"pkg:pypi/gpuprov@{project['version']}"
    released = [
        {"type": "distribution", "url": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in sorted(files.items())
    ]
    links = {me: sorted(ref for name in _names(project["dependencies"]) for ref in by_name.get(name, ()))}
    links |= {ref: sorted(needs.get(row["name"], ())) for ref, row in rows.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([me, files, sorted(rows)], sort_keys=True))}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)),
            "component": {
                "type": "application",
                "bom-ref": me,
                "name": "gpuprov",
                "version": project["version"],
                "purl": me,
                "licenses": [{"license": {"id": project["license"]}}],
                "externalReferences": released,
            },
        },
        "components": [rows[reference] for reference in sorted(rows)],
        "dependencies": [{"ref": reference, "dependsOn": links[reference]} for reference in sorted(links)],
    }


def _names(listed: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in listed}


def _closure(names: set[str], needs: Mapping[str, set[str]], by_name: Mapping[str, list[str]]) -> set[str]:
    """Return these packages with all their dependencies."""
    found: set[str] = set()
    left = [reference for name in names for reference in by_name.get(name, ())]
    while left:
        reference = left.pop()
        if reference not in found:
            found.add(reference)
            left += needs.get(reference.removeprefix("pkg:pypi/").rpartition("@")[0], ())
    return found


def hash_file(path: Path) -> str:
    """Return the file's SHA-256."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_notes(changelog: str, version: str) -> str:
    """Return what the changelog says of the version, without its heading; exit where it says nothing."""
    found = re.search(rf"(?ms)^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog)
    if found is None or not found[1].strip():
        sys.exit(f"CHANGELOG.md has nothing under a heading ## {version}. Fix: write what this version brings")
    return found[1].strip() + "\n"


def save_image(root: Path, out: Path, version: str, made: Mapping[str, Any]) -> str | None:
    """Build the image and save it into the folder. Returns its file's name, None where no engine is here."""
    engine = find_engine()
    if engine is None or os.environ.get("IMAGE") == "no":
        print("the container image is left out: IMAGE=no, or neither podman nor docker answers", file=sys.stderr)
        return None
    requirements = select_requirements(commit(root, "show", "HEAD:requirements.lock").decode(), made)
    labels = {"VERSION": version, "REVISION": commit(root, "rev-parse", "HEAD").decode().strip()}
    recipe = commit(root, "show", "HEAD:Containerfile").decode()
    image = build_image(
        [engine], recipe, next(out.glob("*.whl")), requirements, labels, *shlex.split(os.environ.get("IMAGE_FLAGS", ""))
    )
    name = f"gpuprov-{version}-image.tar"
    subprocess.run([engine, "save", "--output", str(out / name), image], check=True)
    return name


def release(root: Path, out: Path, key: Path | None = None, *, image: bool = False) -> list[str]:
    """Write the whole release into an empty folder; return the names of its files."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        sys.exit(f"{out} is not empty: name another folder")
    project = tomllib.loads(commit(root, "show", "HEAD:pyproject.toml").decode())["project"]
    version = project["version"]
    refuse_other_tag(root, version)
    notes = read_notes(commit(root, "show", "HEAD:CHANGELOG.md").decode(), version)
    at = built(root, out)
    digests = {path.name: hash_file(path) for path in out.iterdir()}
    made = sbom(commit(root, "show", "HEAD:requirements.lock").decode(), project, digests, at)
    more = {f"gpuprov-{version}.cdx.json": json.dumps(made, indent=1) + "\n", f"gpuprov-{version}.md": notes}
    for name, text in more.items():
        (out / name).write_text(text, encoding="utf-8")
    saved = save_image(root, out, version, made) if image else None
    digests |= {name: hash_file(out / name) for name in (*more, *filter(None, (saved,)))}
    (out / SUMS).write_text("".join(f"{digests[one]}  {one}\n" for one in sorted(digests)), encoding="utf-8")
    if key:
        subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(out / SUMS)], check=True)
    return sorted(path.name for path in out.iterdir())


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    print("\n".join(release(ROOT, Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else None, image=True)))
