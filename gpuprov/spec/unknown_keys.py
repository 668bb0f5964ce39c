"""Keys that a block does not have, with the likely intended key, and where it belongs."""

import difflib
import re
from collections.abc import Iterator

from msgspec import inspect as shape

from gpuprov.core.sanitize import is_hidden
from gpuprov.spec.fixes import fix_for
from gpuprov.spec.kinds import is_accepted, is_fitting, list_members, unwrap
from gpuprov.spec.problem import Path, format_path
from gpuprov.spec.shown import show
from gpuprov.spec.text_fixes import Unknown, format_as_typed, is_narrow
from gpuprov.spec.words import OUTSIDE, REMOVES, find_example

# Path, message, fix.
Finding = tuple[Path, str, str]


# Names that other tools, and people, use for a field, with our name, which counts if the block has it.
MEANT = {
    "branch": "version",
    "dscp": "tos",
    "driver_version": "version",
    "release": "version",
    "flavour": "kernel_modules",
    "flavor": "kernel_modules",
    "open": "kernel_modules",
    "open_kernel_modules": "kernel_modules",
    "engine": "runtimes",
    "engines": "runtimes",
    "runtime": "runtimes",
    "profile": "layout",
    "profiles": "instances",
    "devices": "gpus",
    "disk": "disks",
    "env": "settings",
    "environment": "settings",
    "server": "server_address",
    "type": "model",
    "product": "model",
    "number": "count",
    "quantity": "count",
    "autodetect": "gres",
    "hca": "devices",
    "hcas": "devices",
    "ids": "gpus",
    "interval": "every",
    "mig_devices": "instances",
    "mig_enabled": "mode",
    "mountpoint": "mount",
    "mount_point": "mount",
    "mrrs": "max_read_request",
    "path": "mount",
    "schedule": "every",
    "speed": "rate",
    "xid": "ignored_xids",
}


# Keys by which other tools switch on what a block of ours switches on by being there.
SWITCHES = ("enable", "enabled", "present", "state", "ensure")


# Advice on keys that other tools have, by block and key.
ADVICE = {
    ("fabric_manager", "version"): "take it out: Fabric Manager has the driver's version, nvidia_driver.version",
    ("hpc", "openmpi"): "write mpi: openmpi",
    ("hpc", "ucx"): "take it out: UCX comes with Open MPI or HPC-X, whichever mpi names",
    ("", "mig_configs"): "leave it in its file, and write mig: {config_file: /PATH/OF/THE/FILE, selected: LABEL}",
    ("gpu_settings", "graphics_clock"): "write locked_clocks: {graphics: [1980, 1980]} (least and most, in MHz)",
    ("mig", "instances"): "write layout: [{gpus: all, instances: {1g.10gb: 7}}] (the profiles and their numbers)",
    ("mig", "strategy"): "it is Kubernetes': write kubernetes: {device_plugin: {mig_strategy: mixed}}",
    ("mig", "mig_configs"): "leave it in its file, and write mig: {config_file: /PATH/OF/THE/FILE, selected: LABEL}",
    ("rdma.roce", "mlnx_qos"): "take it out: trust, pfc, dscp2prio and ecn are what mlnx_qos sets",
    ("scratch", "devices"): "write disks",
    ("scratch", "level"): "take it out: several disks are a RAID 0",
    ("rdma.nccl", "nccl_ib_hca"): "take it out: it follows from the devices; rdma.devices chooses them",
    ("nvidia_driver", "checksum"): "it is a field of runfile: write runfile: {sha256: ...}",
    ("nouveau", "blacklist"): "take it out: nouveau: {} alone keeps nouveau out",
    ("nouveau", "disabled"): "take it out: nouveau: {} alone keeps nouveau out",
    ("nouveau", "enabled"): "take it out: nouveau: {} keeps nouveau out, and nouveau: false leaves it alone",
}
# Levels of blocks inside a block in which a misplaced field is looked for.
DEPTH = 3
MOST_PLACES = 3


def report_unknown_key(
    path: Path, key: object, known: list[str], kind: shape.StructType | None = None, value: object = None
) -> Finding:
    """Return the finding for a key that is not in the model, with the likely intended key, or where it belongs. `kind`:
    the block's type, for fields of blocks in it."""
    name, colon, rest = str(key).partition(":")
    if colon and name in known:
        return (*path, str(key)), f"unknown key {show(str(key))}", f"put a space after the colon: {name}: {rest}"
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(key)).replace("-", "_").casefold()
    fix = ADVICE.get((format_path(path), plain), "")
    if not fix and kind and path and key not in SWITCHES:
        fix = "" if find_close(plain, known, 0.65) else suggest_inside(str(key), plain, value, kind)
    place = f" in {format_path(path)}" if path else ""
    fix = fix or (suggest_pair(plain, value, kind) if kind and path else "") or suggest_key(path, key, plain, known)
    return (*path, str(key)), f"unknown key {show(str(key))}{place}", fix


def suggest_pair(plain: str, value: object, kind: shape.StructType) -> str:
    """Return the field that a key means, with its value, if the field takes another form of it; else nothing."""
    fields = {field.encode_name: field.type for field in kind.fields}
    close = find_close(plain, list(fields), 0.8)
    if not close or not isinstance(value, str | int | float) or is_accepted(value, fields[close[0]]):
        return ""
    fix = fix_for(value, fields[close[0]])
    return f"write {close[0]}: {format_as_typed(fix.value)}" if fix and fix.value is not Unknown else ""


def suggest_key(path: Path, key: object, plain: str, known: list[str]) -> str:
    close = find_close(plain, known, 0.8) or (list_related(plain, known) if path else [])
    close = close or find_close(plain, known, 0.65)
    names = " or ".join(f'"{name}"' for name in close)
    if close:
        return f"did you mean {names}?"
    if key in SWITCHES:
        fix = "take it out: a block that is there is managed, one that is false is switched off"
        return fix + f"; {REMOVES}" * (key in ("state", "ensure"))
    example = find_example(str(key)) if path else ""
    own = f"{path[0]}: {{" if path else ""
    if example and not example.startswith(own):
        return f"it is not a field of {path[0]}: write {example}"
    if inner := example.removeprefix(own).removesuffix("}"):
        return f"write {inner}"
    if str(key).casefold() in OUTSIDE:
        return f"it is not a {'field' if path else 'block'} of gpuprov's; gpuprov explain {key} says what it is"
    return "allowed: " + (", ".join(sorted(known)) or "nothing")


def find_close(plain: str, known: list[str], cutoff: float) -> list[str]:
    """Return the field that people mean by another name, or that is written almost like this."""
    meant = MEANT.get(plain, "")
    names = {name.casefold(): name for name in known}
    return (
        [meant] if meant in known else [names[n] for n in difflib.get_close_matches(plain, names, n=1, cutoff=cutoff)]
    )


def list_related(plain: str, known: list[str]) -> list[str]:
    """List the fields, three at most, of whose words a key is one (locked_clocks for clocks), or the one that is a word
    of the key (nccl for nccl_tests)."""
    longer = [name for name in known if plain in name.split("_")]
    if longer:
        return longer if len(longer) <= MOST_PLACES else []
    inside = [name for name in known if name in plain.split("_")]
    return inside if len(inside) == 1 else []


def suggest_inside(key: str, plain: str, value: object, kind: shape.StructType) -> str:
    """Return where in a block a key belongs: below a field with such keys (settings: {NCCL_DEBUG: INFO}), or in a block
    that has it. Empty if unknown, or if there are too many places."""
    for field in kind.fields:
        if any(isinstance(m, shape.DictType) and _is_key_of(key, m) for m in list_members(field.type)):
            return f"write it below {field.encode_name}: {field.encode_name}: {{{key}: {_format_typed(value)}}}"
    fields = {place: found for place, found in find_fields(plain, kind, DEPTH) if len(place) > 1}
    places = [*fields]
    if not 0 < len(places) <= MOST_PLACES:
        return ""
    if len(places) == 1 and "[]" not in "".join(places[0]):
        *outer, name = places[0]
        kinds = fields[places[0]]
        switch = "true" if value == {} and is_accepted(True, kinds) else "..."
        typed = _format_typed(value) if is_accepted(value, kinds) else switch
        written = "".join(f"{part}: {{" for part in outer) + f"{name}: {typed}" + "}" * len(outer)
        return f"it is a field of {'.'.join(outer)}: write {written}"
    return f"it is a field of {' and '.join('.'.join(place[:-1]) for place in places)}".replace(".[]", "[]")


def _format_typed(value: object) -> str:
    """Return a value as it is typed; three dots for one that is long, or a secret."""
    short = isinstance(value, str | int | float) and not is_hidden(str(value)) and len(str(value)) <= 40
    return format_as_typed(value) if short else "..."


def _is_key_of(key: str, kind: shape.DictType) -> bool:
    """True if a mapping has such keys. A word in lower case might be a key of most mappings."""
    name = unwrap(kind.key_type)
    special = isinstance(name, shape.LiteralType) or "." in key or key[:1].isupper()
    return special and is_narrow(name) and is_fitting(key, name)


def find_fields(name: str, kind: shape.Type, depth: int) -> Iterator[tuple[tuple[str, ...], shape.Type]]:
    """Yield the paths of fields with a name inside a block, through lists too, each with its type."""
    for member in list_members(kind):
        if isinstance(member, shape.VarTupleType | shape.ListType):
            yield from ((("[]", *place), found) for place, found in find_fields(name, member.item_type, depth))
        for field in member.fields if isinstance(member, shape.StructType) else ():
            if field.encode_name == name:
                yield (name,), field.type
            elif depth:
                inner = find_fields(name, field.type, depth - 1)
                yield from (((field.encode_name, *place), found) for place, found in inner)
