"""containerd in any release, built from its Go module: the real daemon, even without a package of it. Cached."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from gpuprov.simulate import golang, image, tools

WHAT = "containerd"
MODULE = "github.com/containerd/containerd"
TAGS = "no_btrfs no_devmapper no_zfs"  # snapshotters that need headers or devices
# The last line of containerd 1, and two of 2 with configuration versions 3 and 4.
RELEASES = ("1.7.27", "2.1.4", "2.3.0")


def containerd(version: str) -> Path:
    """Return the containerd program of this release."""
    made = image.cache_dir() / f"containerd-{version}"
    with image.alone(made.with_name(f"{made.name}.lock")):
        if not made.is_dir():
            tools.say(f"building containerd {version} from its Go module (1 to 4 minutes)")
            with tempfile.TemporaryDirectory(prefix=".containerd-", dir=image.cache_dir()) as temporary:
                folder = Path(temporary) / "containerd"
                folder.mkdir()
                _build(folder, version)
                os.replace(folder, made)
    return made / "containerd"


def _build(folder: Path, version: str) -> None:
    # Not `go install`: the module's go.mod excludes versions of others, which go heeds in a main module only.
    module = MODULE if version.startswith("1.") else f"{MODULE}/v2"
    sources = folder.with_name("sources")
    shutil.copytree(golang.sources(WHAT, module, version), sources)
    for path in (sources, *sources.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    flags = f"-s -w -X {module}/version.Version={version}"
    command = [golang.go(WHAT), "build", "-C", str(sources), "-mod=mod", "-tags", TAGS, "-ldflags", flags]
    environment = {**os.environ, **golang.ENVIRONMENT}
    tools.run([*command, "-o", f"{folder}/", "./cmd/containerd"], environment=environment)
