"""RPM packages that stand in for unavailable ones."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuprov.simulate import debs, tools
from gpuprov.simulate.standins.model import Standin

# Suffix of each source package's name; without it the source package would appear as another package.
STAND_INS = "gpuprov-stand-ins"
SCRIPTS = {"post": "%post", "preun": "%preun", "postun": "%postun"}
DEFINES = {
    "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    "debug_package": "%{nil}",
    "__os_install_post": "%{nil}",
    "_build_id_links": "none",
    "source_date_epoch_from_changelog": "0",
    "use_source_date_epoch_as_buildtime": "1",
    # gzip's lowest level: the packages are installed far more often than they are kept.
    "_binary_payload": "w1.gzdio",
}


def build(target: Path, packages: Sequence[Standin]) -> list[Path]:
    """Build the packages in the folder `target`, each marked in its summary as a stand-in for the real one."""
    target.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    for together in _without_doubles(packages):
        made += _build(target, together)
    return made


def _without_doubles(packages: Iterable[Standin]) -> list[list[Standin]]:
    """Group packages for rpmbuild: a run makes many packages, but each name and file only once, and all from one source
    package."""
    runs: list[list[Standin]] = []
    for package in packages:
        for run in runs:
            if not any(_apart(package, other) for other in run):
                run.append(package)
                break
        else:
            runs.append([package])
    return runs


def _apart(package: Standin, other: Standin) -> bool:
    same = package.name == other.name or package.source != other.source
    return same or bool(package.files.keys() & other.files.keys())


def _build(target: Path, packages: Sequence[Standin]) -> list[Path]:
    with tempfile.TemporaryDirectory(prefix="gpuprov-") as temporary:
        root, content = Path(temporary), Path(temporary) / "content"
        content.mkdir()
        lines = [
            *(
                f"Name: {'-'.join(filter(None, (packages[0].source, STAND_INS)))}",
                "Version: 1",
                "Release: 1",
                "Summary: none",
                "License: none",
                "AutoReqProv: no",
            ),
            *("%description", "None.", "%install", f"mkdir -p %{{buildroot}} && cp -a {content}/. %{{buildroot}}/"),
        ]
        for package in packages:
            debs.put(content, package.files)
            lines += _section(package)
        spec = root / "stand-ins.spec"
        spec.write_text("\n".join(lines) + "\n", encoding="utf-8")
        defines = {**DEFINES, "_topdir": root, "_rpmdir": target}
        flags = [word for key, value in defines.items() for word in ("--define", f"{key} {value}")]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": debs.EPOCH}
        tools.run(["rpmbuild", "-bb", "--quiet", "--target", "x86_64", *flags, str(spec)], environment=environment)
    return [target / f"{package.name}-{package.version}.x86_64.rpm" for package in packages]


def _section(package: Standin) -> list[str]:
    name, (version, _, release) = package.name, package.version.partition("-")
    relations = [
        ("Requires", package.requires),
        ("Provides", package.provides),
        ("Conflicts", package.conflicts),
        ("Obsoletes", package.replaces),
    ]
    lines = [
        *(f"%package -n {name}", f"Version: {version}", f"Release: {release}"),
        *([f"Epoch: {package.epoch}"] if package.epoch else []),
        *(f"Summary: {package.summary} ({debs.MARK})", "AutoReqProv: no"),
        *(f"{key}: {value}" for key, values in relations for value in values),
        *(
            f"%description -n {name}",
            f"{package.summary}.",
            "A stand-in made by gpuprov for simulated hosts; never for a real one.",
        ),
        f"%files -n {name}",
    ]
    for path, file in package.files.items():
        kind = "%config(noreplace) " if path.startswith("/etc/") else ""
        lines.append(f"{kind}%attr({file.mode:o}, root, root) {path}")
    for script, text in package.scripts.items():
        # What rpm would take for a macro is none.
        lines += [f"{SCRIPTS[script]} -n {name}", text.replace("%", "%%")]
    return lines
