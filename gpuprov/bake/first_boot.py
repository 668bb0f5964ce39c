"""Files that the image carries for its first boot: gpuprov without Ansible, the spec, and a unit."""

import io
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuprov import __version__
from gpuprov.bake import files, place
from gpuprov.bake.model import Options
from gpuprov.capabilities import BY_NAME
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.fleet.specs import Fleet
from gpuprov.host_code.pull.limits import FILES, UNPACKED, WHEEL
from gpuprov.host_code.pull.refused import Refused
from gpuprov.host_code.pull.wheels import CANDIDATES, PROBE, Python, choose, unpack
from gpuprov.jobs import cut, frozen, stored
from gpuprov.pull.bundles import OLDEST_PYTHON, list_files, make_local_job
from gpuprov.spec.model import HostSpec

# Packages that reading and judging a host needs.
NEEDED = ("gpuprov", "msgspec", "pyyaml", "markupsafe")
FIX = (
    f'pip download --only-binary :all: --dest DIR "gpuprov=={__version__}", with --python-version of the '
    "image's Python"
)
PYTHON, AFTER = "@PYTHON@", "@AFTER@"
# A path that is a single word of a unit and of a shell: the image says it.
PATH = re.compile(r"/[\w./+-]+", re.ASCII)


class Prepared(msgspec.Struct, frozen=True):
    """Contents to write into the image: files by path, each with its mode."""

    written: dict[str, tuple[bytes, int]]
    # The interpreter that runs it.
    python: str


def prepare(fleet: Fleet, options: Options) -> Prepared:
    """Choose a Python of the image and the wheels for it. Raises GpuprovError if there is none, or the spec names
    files."""
    ((raw, spec),) = fleet.pairs
    absent = [path for path in sorted(set(list_files(spec))) if not os.path.isfile(place.inside(options.root, path))]
    if absent:
        message = f"{raw.name}: its spec names {absent[0]}, which the first boot reads, and which is not in the image"
        raise GpuprovError(message, "copy it into the image, to the same place")
    python = find_python(options.root)
    wheels = {name: safe_parse.read_contents(str(path), WHEEL) for name, path in _find_wheels(options.wheels).items()}
    chosen, missing = choose([{"name": name, "sha256": "", "size": len(data)} for name, data in wheels.items()], python)
    if missing:
        version = ".".join(map(str, python.version))
        raise GpuprovError(
            f"--wheels {options.wheels} has no wheel of {', '.join(missing)} for the image's Python {version}", FIX
        )
    written = dict(_unpack_wheels({wheel["name"]: wheels[wheel["name"]] for wheel in chosen}))
    job = make_local_job(cut.cut(frozen.freeze(fleet), size=1)[0], spec)
    written[files.JOB] = (stored.text(job).encode(), 0o600)
    unit = (Path(__file__).parent / "units" / files.UNIT).read_text(encoding="utf-8")
    unit = unit.replace(PYTHON, python.program).replace(AFTER, " ".join(units_of(spec)) or "basic.target")
    written[files.UNIT_FILE] = (unit.encode(), 0o644)
    return Prepared(written, python.program)


def units_of(spec: HostSpec) -> list[str]:
    """Return the units that the first boot judges, which start before it."""
    names: dict[str, None] = {}
    for name, block in spec.capabilities.items():
        if (resources := BY_NAME[name].resources) and resources.units:
            names |= dict.fromkeys(resources.units(spec, block))
    return list(names)


def find_python(root: Path) -> Python:
    """Return the first Python of the image that is new enough. Raises GpuprovError if it has none."""
    rejected = []
    for name in CANDIDATES:
        script = f"p=$(command -v {name}) && printf '%s\n' \"$p\" && exec \"$p\" -I -c '{PROBE}' || true"
        lines = place.run(root, script).splitlines()
        if len(lines) != 2 or not PATH.fullmatch(lines[0]):
            continue
        try:
            version, machine, libc = safe_parse.parse_typed_json(lines[1], tuple[tuple[int, int], str, str])
        except safe_parse.Unreadable:
            continue
        numbers = re.fullmatch(r"glibc (\d{1,3})\.(\d{1,3}).*", libc)
        glibc = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
        python = Python(lines[0], version, machine, glibc)
        if python.version >= OLDEST_PYTHON:
            return python
        rejected.append(f"{name} is {version[0]}.{version[1]}")
    oldest = ".".join(map(str, OLDEST_PYTHON))
    message = (
        f"the image has no Python {oldest} or newer, which its first boot needs: {', '.join(rejected) or 'it has none'}"
    )
    raise GpuprovError(message, "install one in the image (python3 on Debian and Ubuntu, python3.12 on EL 9)")


def install(root: Path, prepared: Prepared) -> None:
    """Write all of it into the image, in place of an earlier one, and enable the unit."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, (data, mode) in prepared.written.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    script = f"rm -rf {files.LIBRARY} {files.FOLDER}; tar -x --no-same-owner -f - -C /; chmod 0700 {files.FOLDER}"
    starts = f"PYTHONPATH={files.LIBRARY} {prepared.python} -B -P -c 'import gpuprov.bake.finish'"
    place.run(root, f"umask 022; {script}; {starts}; systemctl enable {files.UNIT} 2>&1", packed.getvalue())


def _find_wheels(folder: Path) -> dict[str, Path]:
    """Return the wheels of the needed packages, by name of the file. Raises GpuprovError if one is missing or of
    another version."""
    try:
        paths = {path.name: path for path in sorted(folder.iterdir()) if path.suffix == ".whl"}
    except OSError as error:
        raise GpuprovError(f"--wheels {folder} cannot be read: {error.strerror}", FIX) from error
    needed = {name: path for name, path in paths.items() if name.split("-")[0].lower().replace("_", "-") in NEEDED}
    names = {name.split("-")[0].lower() for name in needed}
    if missing := [name for name in NEEDED if name not in names]:
        raise GpuprovError(f"--wheels {folder} has no wheel of {', '.join(missing)}", FIX)
    versions = {name.split("-")[1] for name in needed if name.startswith("gpuprov-")}
    if versions != {__version__}:
        raise GpuprovError(f"--wheels {folder} has gpuprov {', '.join(sorted(versions))}; this is {__version__}", FIX)
    return needed


def _unpack_wheels(wheels: dict[str, bytes]) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield the files of these wheels, by their path in the image."""
    with tempfile.TemporaryDirectory(prefix="gpuprov-bake-") as folder:
        room, count = UNPACKED, FILES
        try:
            for name, data in wheels.items():
                room, count = unpack(data, folder, name, room, count)
        except Refused as error:
            raise GpuprovError(str(error), FIX) from error
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                yield f"{files.LIBRARY}/{path.relative_to(folder)}", (path.read_bytes(), 0o644)
