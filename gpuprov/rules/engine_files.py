"""Merges the files that nvidia-ctk wrote for an engine with the user's originals: comments and settings stay.

Nothing here touches a host.
"""

import json
import re
from collections.abc import Mapping

from gpuprov.rules import engine_runtimes
from gpuprov.rules.engine_runtimes import Table
from gpuprov.rules.engines import CRI as PLUGINS

NAME = "nvidia"
KEYS = {"containerd": ("default_runtime_name", "containerd"), "crio": ("default_runtime", "crio.runtime")}
LARGEST = 1 << 19  # characters; no engine's file is near it


def finished(
    produced: Mapping[str, str], name: str, originals: Mapping[str, str], default: bool, ordinary: str
) -> dict[str, str]:
    """Return the corrected contents of the files that nvidia-ctk wrote, by path; the drop-in file, if it wrote one,
    comes last.

    `originals`: the user's own texts of them; `default`: NVIDIA's runtime is to be the default; `ordinary`: the default
    runtime otherwise, if the user's files name NVIDIA's and should not.
    """
    keep = {"docker": with_features, "containerd": with_imports}.get(name, lambda original, text: text)
    files = {path: keep(originals.get(path, ""), text) for path, text in produced.items()}
    path = next(reversed(files), "")
    if name == "docker" and not default:
        files[path] = without_default(files[path])
    elif ordinary and not default and path:
        files[path] = with_default(files[path], name, ordinary)
    return files


def with_imports(original: str, produced: str) -> str:
    """Return containerd's main file: the user's own text, comments and all, if nvidia-ctk changed only `imports`."""
    old, new = _parse_table(original), _parse_table(produced)
    if old is None or new is None:
        return produced
    if not old and original.strip():  # comments only
        return f"{original.rstrip()}\n{produced}"
    if not old or _is_same(old, new):
        return original if old else produced
    line = f"imports = {json.dumps(new.get('imports'))}"
    pattern = re.compile(r"^[ \t]*imports[ \t]*=[ \t]*\[[^\]]*\]", re.MULTILINE)
    text = pattern.sub(lambda _: line, original, count=1) if pattern.search(original) else f"{line}\n{original}"
    return text if _is_same(_parse_table(text), new) else produced


def _is_same(first: object, other: object) -> bool:
    """True if two values are equal; values nested too deeply to compare count as different."""
    try:
        return first == other
    except RecursionError:
        return False


def _parse_table(text: str) -> Table | None:
    import tomllib

    try:
        return tomllib.loads(text) if len(text) <= LARGEST else None
    except (ValueError, RecursionError):
        return None


def with_features(original: str, produced: str) -> str:
    """Return daemon.json with the user's `features`, which nvidia-ctk before 1.20 drops when it writes features.cdi."""
    old = (json.loads(original) if original.strip() else {}).get("features")
    read = json.loads(produced)
    kept = {**old, **(read.get("features") or {})} if isinstance(old, dict) else None
    if kept is None or kept == read.get("features"):
        return produced
    return json.dumps({**read, "features": kept}, indent=4) + "\n"


def without_default(produced: str) -> str:
    """Return daemon.json with docker's own default runtime in place of NVIDIA's, which nvidia-ctk does not revert."""
    # The setting stays: docker applies its change on reload, but not its removal.
    read = json.loads(produced)
    is_own = read.get("default-runtime") == NAME
    return json.dumps({**read, "default-runtime": "runc"}, indent=4) + "\n" if is_own else produced


def with_default(text: str, name: str, runtime: str) -> str:
    """Return a TOML file with this default runtime; everything else, comments included, is unchanged. Unchanged if the
    setting has no place there."""
    read = _parse_table(text)
    if read is None:
        return text
    key = KEYS[name][0]
    path = ["crio", "runtime"] if name == "crio" else ["plugins", _find_plugin(read), "containerd"]
    if not path[1]:
        return text
    return with_value(text, path, key, runtime)


def with_needed(files: dict[str, str], name: str, first: bool, section: object) -> dict[str, str]:
    """Return the files with the settings that NVIDIA's runtime needs beside its program, if nvidia-ctk wrote that
    runtime: in the last of the files. `section`: the engine's runtimes before; `first`: it is containerd 1."""
    path = next(reversed(files), "")
    read = _parse_table(files[path]) if path else None
    place = ["crio", "runtime"] if name == "crio" else ["plugins", _find_plugin(read or {}), "containerd"]
    own_path = [*place, "runtimes", NAME]
    text = files.get(path, "")
    for folders, key, value in engine_runtimes.needed(name, first, section, engine_runtimes.at(read, *own_path)):
        text = with_value(text, [*own_path, *folders], key, value)
    return {**files, path: text} if path else files


def with_value(text: str, path: list[str], key: str, value: str | bool) -> str:
    """Return the text with this value; unchanged if the value has no place there."""
    expected = _put(_parse_table(text) or {}, path, key, value)
    line = f"{key} = {json.dumps(value)}"
    header = (
        r"[ \t]*\[[ \t]*" + r"[ \t]*\.[ \t]*".join(rf"""["']?{re.escape(part)}["']?""" for part in path) + r"[ \t]*\]"
    )
    tries = (
        re.sub(
            rf"^({header}.*(?:\n(?![ \t]*\[).*)*?\n[ \t]*){key}[ \t]*=.*$",
            lambda match: f"{match[1]}{line}",
            text,
            count=1,
            flags=re.MULTILINE,
        ),
        re.sub(rf"^([ \t]*){key}[ \t]*=.*$", lambda match: f"{match[1]}{line}", text, flags=re.MULTILINE),
        re.sub(rf"^{header}.*$", lambda match: f"{match[0]}\n{line}", text, count=1, flags=re.MULTILINE),
        f"{text.rstrip()}\n\n[{'.'.join(json.dumps(part) for part in path)}]\n{line}\n",
    )
    return next((attempt for attempt in tries if _is_same(_parse_table(attempt), expected)), text)


def _find_plugin(read: Table) -> str:
    """Return the name of the CRI plugin in a containerd file; empty if there is none."""
    plugins = read.get("plugins")
    return next((name for name in PLUGINS if isinstance(plugins, Mapping) and name in plugins), "")


def _put(table: Table, path: list[str], key: str, value: str | bool) -> Table:
    if not path:
        return {**table, key: value}
    return {**table, path[0]: _put(table.get(path[0]) or {}, path[1:], key, value)}
