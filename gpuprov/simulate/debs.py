"""Debian packages: unpacked, changed, packed again, or made as a stand-in for one that is not available."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuprov.simulate import tools
from gpuprov.simulate.parts.base import File
from gpuprov.simulate.standins.model import Standin

MAINTAINER = "gpuprov <gpuprov@localhost>"
# Text in the Description of every package that is not the vendor's own.
MARK = "gpuprov stand-in"
NOTICE = (
    " .\n This is a stand-in that gpuprov made for simulated hosts. What would touch a GPU is simulated;\n"
    " it must never be installed on a real host.\n"
)
EPOCH = "1735689600"  # one time stamp for all files, so that the same content gives the same package


def unpack(deb: Path, folder: Path, *, without: Sequence[str] = ()) -> None:
    """Unpack a package's files, and its control files in `DEBIAN`. `without`: patterns of paths (`./usr/src`) to
    skip."""
    folder.mkdir(parents=True)
    tools.run(["dpkg-deb", "--control", str(deb), str(folder / "DEBIAN")])
    script = 'deb=$1 folder=$2; shift 2; set -o pipefail; dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$folder" "$@"'
    patterns = [f"--exclude={pattern}" for pattern in without]
    tools.run(["bash", "-ec", script, "unpack", str(deb), str(folder), *patterns])


def control(folder: Path) -> dict[str, str]:
    """Return the control fields of an unpacked package; multi-line fields keep their lines."""
    fields: dict[str, str] = {}
    key = ""
    for line in (folder / "DEBIAN/control").read_text(encoding="utf-8").splitlines():
        if line[:1].isspace():
            fields[key] += f"\n{line}"
        elif line:
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    return fields


def write_control(folder: Path, fields: Mapping[str, str]) -> None:
    """Write the control fields."""
    text = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
    (folder / "DEBIAN/control").write_text(text, encoding="utf-8")


def mark(folder: Path, also: str = "") -> None:
    """Mark the package as a stand-in in its Description, and add the sentence `also`."""
    fields = control(folder)
    short, _, long = fields["Description"].partition("\n")
    if MARK not in short:
        short, long = f"{short} ({MARK})", f"{long}\n{NOTICE}".strip("\n")
    fields["Description"] = "\n".join([short, long, *([f" {also}"] if also else [])])
    write_control(folder, fields)


def rename(folder: Path, old: str, new: str) -> None:
    """Rewrite an unpacked package to another version: `old` becomes `new` in control files, text files, names and
    links."""
    for path in sorted(folder.rglob("*"), key=lambda entry: len(entry.parts), reverse=True):
        if path.is_symlink():
            target = os.readlink(path)
            if old in target:
                path.unlink()
                path.symlink_to(target.replace(old, new))
        elif path.is_file() and b"\0" not in (content := path.read_bytes()) and old.encode() in content:
            path.write_bytes(content.replace(old.encode(), new.encode()))
        if old in path.name:
            path.rename(path.with_name(path.name.replace(old, new)))


def pack(folder: Path, target: Path) -> Path:
    """Pack the package into the folder `target`, with its archive file name."""
    fields = control(folder)
    sums, size = [], 0
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and "DEBIAN" not in path.relative_to(folder).parts[:1]:
            content = path.read_bytes()
            size += len(content)
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
            sums.append(f"{digest}  {path.relative_to(folder)}\n")
    (folder / "DEBIAN/md5sums").write_text("".join(sums), encoding="utf-8")
    write_control(folder, {**fields, "Installed-Size": str(size // 1024 + 1)})
    made = target / f"{fields['Package']}_{fields['Version'].replace(':', '%3a')}_{fields['Architecture']}.deb"
    # gzip's lowest level: the packages are installed far more often than they are kept.
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(folder), str(made)]
    tools.run(command, environment={**os.environ, "SOURCE_DATE_EPOCH": EPOCH})
    return made


def put(folder: Path, files: Mapping[str, File]) -> None:
    """Write files into an unpacked package, by their path on the host."""
    for name, file in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if isinstance(file.content, Path):
            shutil.copyfile(file.content, path)
        else:
            path.write_bytes(file.content)
        path.chmod(file.mode)


def standin_deb(
    target: Path,
    name: str,
    version: str,
    *,
    description: str,
    files: Mapping[str, File] | None = None,
    depends: str = "",
    architecture: str = "amd64",
    scripts: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> Path:
    """Build a package of this name and version whose Description marks it as a stand-in for the real one.

    `scripts`: maintainer scripts by name (`postinst`). `fields`: further control fields (`Provides`, `Conflicts`, ...).
    """
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        folder = Path(temporary) / name
        (folder / "DEBIAN").mkdir(parents=True)
        write_control(
            folder,
            {
                "Package": name,
                "Version": version,
                "Architecture": architecture,
                "Maintainer": MAINTAINER,
                "Depends": depends,
                **(fields or {}),
                "Description": description,
            },
        )
        mark(folder)
        put(folder, files or {})
        for script, text in (scripts or {}).items():
            put(folder, {f"DEBIAN/{script}": File(text.encode(), 0o755)})
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
        return pack(folder, target)


def build(target: Path, packages: Iterable[Standin]) -> list[Path]:
    """Build the packages in the folder `target`, each marked in its Description as a stand-in for the real one."""
    target.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda package: _build(target, package), packages))


def _build(target: Path, package: Standin) -> Path:
    relations = {"Provides": package.provides, "Conflicts": package.conflicts, "Replaces": package.replaces}
    fields = {"Source": package.source} | {key: ", ".join(values) for key, values in relations.items()}
    version = f"{package.epoch}:{package.version}" if package.epoch else package.version
    return standin_deb(
        target,
        package.name,
        version,
        description=package.summary,
        files=package.files,
        depends=", ".join(package.requires),
        scripts=package.scripts,
        fields=fields,
    )
