"""Settings that dockerd's command line and daemon.json both have: dockerd refuses to start then, at the next boot.

The names were tried with dockerd 20.10.24, which has all of these conflicts; runtimes of both are merged.
https://docs.docker.com/engine/daemon/troubleshoot/#resolve-conflicts-between-the-daemonjson-and-startup-scripts
"""

from collections.abc import Collection, Iterable, Mapping

# Options whose keys in daemon.json have other names.
KEYS = {
    "-H": "hosts",
    "--host": "hosts",
    "-D": "debug",
    "-l": "log-level",
    "-G": "group",
    "-s": "storage-driver",
    "-b": "bridge",
    "-p": "pidfile",
    "--label": "labels",
    "--insecure-registry": "insecure-registries",
    **{f"--{name}": f"{name}s" for name in ("registry-mirror", "storage-opt", "exec-opt", "log-opt", "default-ulimit")},
    "--dns-opt": "dns-opts",
    "--dns-option": "dns-opts",
}
# Keys with a message of their own.
ELSEWHERE = ("default-runtime",)


def find_conflicts(keys: Iterable[str], flags: Collection[str]) -> dict[str, str]:
    """Return the keys of daemon.json that dockerd is given on its command line, too, each with the option."""
    by_key = {KEYS.get(flag, flag.removeprefix("--")): flag for flag in flags}
    return {key: by_key[key] for key in keys if key in by_key and key not in ELSEWHERE}


def explain_conflicts(path: str, conflicts: Mapping[str, str]) -> str:
    given = f"docker.service gives dockerd {', '.join(conflicts.values())}"
    return f"{path} has {', '.join(conflicts)}, and {given}: it does not start with both"
