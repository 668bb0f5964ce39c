"""The wheels that hosts need: checked, and copied beside the bundles."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from gpuprov import __version__
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.host_code.pull.bundle import is_wheel
from gpuprov.host_code.pull.limits import WHEEL, WHEELS
from gpuprov.pull.model import Wheel

FIX = (
    f'pip download --only-binary :all: --dest DIR "gpuprov=={__version__}", once for each Python of the hosts '
    "(--python-version)"
)
NEEDED = ("gpuprov", "ansible_core", "ansible_runner", "msgspec")


def read_wheels(folder: Path) -> list[Wheel]:
    """Read the wheels of a folder. Raises GpuprovError if they are not gpuprov of this version with its dependencies,
    or are too large."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".whl")
        wheels = [_make_wheel(path, safe_parse.read_contents(str(path), WHEEL)) for path in paths]
    except (OSError, safe_parse.Unreadable) as error:
        raise GpuprovError(f"--wheels {folder} cannot be read: {error}", FIX) from error
    names = [wheel.name.split("-")[0].lower() for wheel in wheels]
    if missing := [name for name in NEEDED if name not in names]:
        raise GpuprovError(f"--wheels {folder} has no wheel of {', '.join(missing)}", FIX)
    versions = {wheel.name.split("-")[1] for wheel in wheels if wheel.name.startswith("gpuprov-")}
    if versions != {__version__}:
        raise GpuprovError(f"--wheels {folder} has gpuprov {', '.join(sorted(versions))}; this is {__version__}", FIX)
    if sum(wheel.size for wheel in wheels) > WHEELS:
        raise GpuprovError(f"--wheels {folder} has more than {WHEELS >> 20} MiB", "take out what hosts do not need")
    return wheels


def _make_wheel(path: Path, data: bytes) -> Wheel:
    made = Wheel(name=path.name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))
    if not is_wheel({"name": made.name, "sha256": made.sha256, "size": made.size}):
        raise GpuprovError(f"{path} is empty, or its name is not a wheel's", FIX)
    return made


def copy_wheels(wheels: Sequence[Wheel], source: Path, out: Path) -> None:
    """Copy wheels that are not present yet. Those that older bundles name stay."""
    from gpuprov.pull.files import put

    for wheel in wheels:
        data = safe_parse.read_contents(str(source / wheel.name), WHEEL)
        if hashlib.sha256(data).hexdigest() != wheel.sha256:
            raise GpuprovError(f"{source / wheel.name} changed while it was read", "run it again")
        put(out / wheel.name, data)
