"""The inventory to use, and Ansible's configuration file in force; without importing Ansible."""

import os
import stat
from collections.abc import Sequence

from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable, is_planted, judge_file
from gpuprov.spec.problem import Origin, Problem

MOST_FILES = 200
# Folders in an inventory folder that hold variables; Ansible never reads files in them as inventories.
BESIDE = ("group_vars", "host_vars", "vars_plugins")
SYSTEM = frozenset(
    "/ /etc /home /media /mnt /opt /root /run /srv /tmp /usr /usr/local /usr/share /var /var/lib /var/log "
    "/var/tmp".split()
)
SYSTEM_TREES = tuple(
    "/bin /boot /dev /lib /lib32 /lib64 /proc /sbin /sys /usr/bin /usr/lib /usr/lib32 /usr/lib64 /usr/libexec /usr/sbin"
    " /usr/local/bin /usr/local/lib /usr/local/sbin".split()
)
ONLY_FILES = "allowed: files and folders (pipes, sockets and devices are not read)"
ONLY_INVENTORY = (
    "name the inventory file, or a folder with nothing but the inventory in it (executable files in it are run)"
)

PLANTED = "not yours, in a folder that all may write to: whoever put it there would choose what runs here"


def refuse_nowhere() -> None:
    """Raise GpuprovError if the current folder was removed: Ansible looks there for its configuration, and fails
    without it."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise GpuprovError("the current folder no longer exists", "go to another: cd") from error


class NoInventoryError(GpuprovError):
    """No inventory was named, and none is where a command looks for one."""


def find_default_sources() -> tuple[str, ...]:
    """Return $GPUPROV_INVENTORY, else ./inventory.yaml, else the sources in $ANSIBLE_INVENTORY or ansible.cfg. Raises
    NoInventoryError if there are none."""
    refuse_nowhere()
    named = os.environ.get("GPUPROV_INVENTORY")
    if named:
        return (named,) if is_host_list(named) else tuple(part for part in named.split(os.pathsep) if part)
    if os.path.exists("inventory.yaml"):
        if is_planted(os.path.abspath("inventory.yaml")):
            raise GpuprovError(f"./inventory.yaml is {PLANTED}", "start gpuprov elsewhere, or name it if it is meant")
        return ("inventory.yaml",)
    listed = os.environ.get("ANSIBLE_INVENTORY")
    if listed:
        return split_paths(listed, os.getcwd())
    config = find_ansible_config()
    if config is not None:
        from configparser import ConfigParser, Error

        parser = ConfigParser(inline_comment_prefixes=(";",), interpolation=None, strict=False)
        try:
            parser.read(config, encoding="utf-8")
        except (Error, UnicodeDecodeError) as error:
            raise GpuprovError(f"{config}: cannot be read: {str(error).splitlines()[0]}") from error
        listed = parser.get("defaults", "inventory", fallback="")
        if listed:
            return split_paths(listed, os.path.dirname(config))
    raise NoInventoryError(
        "no inventory was named",
        "write its file at the end of the command, set GPUPROV_INVENTORY, write ./inventory.yaml,"
        " or set `inventory` under [defaults] in ansible.cfg (or ANSIBLE_INVENTORY)",
    )


def find_ansible_config() -> str | None:
    """Return the configuration file that Ansible would use: $ANSIBLE_CONFIG, ./ansible.cfg (unless the folder is
    world-writable), home, /etc. Raises GpuprovError unless it is a regular file: Ansible would read a device for ever,
    and wait for a pipe."""
    candidates = []
    named = os.environ.get("ANSIBLE_CONFIG")
    if named is not None:
        path = os.path.abspath(os.path.expandvars(os.path.expanduser(named)))
        candidates.append(os.path.join(path, "ansible.cfg") if os.path.isdir(path) else path)
    here = os.getcwd()
    if not os.stat(here).st_mode & stat.S_IWOTH:
        candidates.append(os.path.join(here, "ansible.cfg"))
    candidates += [os.path.expanduser("~/.ansible.cfg"), "/etc/ansible/ansible.cfg"]
    config = next((path for path in candidates if os.path.exists(path) and os.access(path, os.R_OK)), None)
    try:
        if config:
            judge_file(config)
    except Unreadable as error:
        fix = "name a file in ANSIBLE_CONFIG, an empty one for no configuration, or unset it"
        raise GpuprovError(f"{config} cannot be Ansible's configuration: {error.message}", fix) from error
    return config


def is_host_list(source: str) -> bool:
    """Return whether a source is a list of hosts (`gpu01,gpu02` or `gpu01,`) and not a path."""
    return "," in source and not os.path.exists(source)


def resolve_sources(sources: Sequence[str]) -> tuple[list[str], list[Problem]]:
    """Return the sources as absolute paths (host lists unchanged), and a problem for each path that does not exist."""
    paths: list[str] = []
    problems: list[Problem] = []
    if not sources:
        problems.append(Problem(message="no inventory was named", fix="name at least one inventory file or directory"))
    for source in sources:
        if is_host_list(source):
            paths.append(source)
            continue
        path = os.path.abspath(os.path.expandvars(os.path.expanduser(source)))
        if not source or not os.path.exists(path):
            problems.append(Problem(message="no such inventory", origin=Origin(source or '""'), fix=find_near(path)))
        elif not os.access(path, os.R_OK):
            problems.append(Problem(message="may not be read", origin=Origin(source), fix="check its owner and mode"))
        elif os.path.isdir(path) and (why := explain_wrong_folder(path)):
            message = f"this does not look like an inventory folder: {why}"
            problems.append(Problem(message=message, origin=Origin(source), fix=ONLY_INVENTORY))
        paths.append(path)
    return paths, problems


def explain_wrong_folder(path: str) -> str:
    """Return the reason why a folder is certainly a mistake; "" if it may be an inventory."""
    # Ansible reads every file below a folder and runs executable ones.
    real = os.path.realpath(path)
    if real in SYSTEM or any(real == tree or real.startswith(tree + "/") for tree in SYSTEM_TREES):
        return "it is a folder of the system"
    if real == os.path.realpath(os.path.expanduser("~")):
        return "it is the home folder"
    count = 0
    seen: set[str] = set()
    for place, folders, files in os.walk(path, followlinks=True):
        real = os.path.realpath(place)
        kept = [name for name in folders if not name.startswith(".") and name not in BESIDE]
        folders[:] = [] if real in seen else kept
        seen.add(real)
        count += sum(not name.startswith(".") for name in files)
        if count > MOST_FILES or len(seen) > MOST_FILES:
            return f"it holds more than {MOST_FILES} files or folders"
    return ""


def show_path(path: str) -> str:
    """Return a path for messages: relative to the current folder if it is below it."""
    here = os.getcwd()
    return os.path.relpath(path, here) if path.startswith(here.rstrip("/") + "/") else path


def find_near(path: str) -> str:
    from difflib import get_close_matches

    folder, name = os.path.split(path)
    try:
        names = sorted(entry for entry in os.listdir(folder) if not entry.startswith("."))
    except OSError:
        return f"there is no folder {show_path(folder)}" if folder else ""
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f'did you mean "{show_path(os.path.join(folder, close[0]))}"?'
    if name == "-":
        return "standard input is not read; give a file"
    return "" if "." in name else f"to name a host of an inventory: --limit {name}"


def split_paths(text: str, folder: str) -> tuple[str, ...]:
    parts = [part.strip().replace("{{CWD}}", os.getcwd()) for part in text.split(",")]
    expanded = [os.path.expandvars(os.path.expanduser(part)) for part in parts if part]
    return tuple(show_path(os.path.normpath(os.path.join(folder, part))) for part in expanded)
