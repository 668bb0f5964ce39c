"""Readings of a host: for `gpuprov drift`, the files, units, modules and packages that changed between two readings;
for `gpuprov health`, the error counters of RDMA devices' ports over the last day.

Usage: readings.py DAYS. Each call takes one reading. It is compared with the previous one, and the changes are kept for
DAYS days in /var/lib/gpuprov/readings, which root alone can read. Of files only a digest, the time and the owner are
kept.

Managed by gpuprov.
"""

from __future__ import annotations

import datetime
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from typing import Any, Iterator, TypedDict

ROOT = os.environ.get("GPUPROV_ROOT", "")
FOLDER = ROOT + "/var/lib/gpuprov/readings"
LAST, CHANGES, COUNTERS = "last.json", "changes.jsonl", "counters.jsonl"
# Counters of a port, in /sys/class/infiniband/DEVICE/ports/PORT/counters, whose growth is judged.
COUNTED = (
    "symbol_error",
    "link_error_recovery",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
DIGITS = "0123456789"
# Days for which counters are kept.
COUNTER_DAYS = 2
# Days between two readings beyond which the clock may have been set wrong, however few days are kept.
GAP = 31
# Maximum number of lines, however many days they cover.
MOST = 5000
# Maximum number of readings whose counters are kept.
MOST_COUNTED = 200
# Size of a file in bytes beyond which its size and time represent its contents.
LARGEST = 4 << 20
FILES = """
    /etc/modprobe.d/*.conf /etc/modules-load.d/*.conf /etc/modules /etc/sysctl.conf /etc/sysctl.d/*.conf
    /etc/default/grub /etc/default/grub.d/* /etc/kernel/cmdline /boot/grub*/grub.cfg /boot/loader/entries/*.conf
    /etc/dracut.conf.d/*.conf /etc/initramfs-tools/modules /etc/initramfs-tools/conf.d/* /etc/systemd/system/*
    /etc/systemd/system/*.d/* /etc/systemd/system/*.wants/* /etc/udev/rules.d/* /etc/nvidia/* /etc/nvidia-*/*
    /etc/nvidia-*/*/* /usr/share/nvidia/nvswitch/* /etc/dcgm-exporter/* /etc/nccl.conf /etc/docker/daemon.json
    /etc/containerd/*.toml /etc/containerd/conf.d/* /etc/crio/crio.conf /etc/crio/crio.conf.d/* /etc/cdi/*
    /etc/gpuprov/* /usr/local/lib/gpuprov/* /etc/security/limits.d/* /etc/dkms/framework.conf* /etc/apt/sources.list
    /etc/apt/sources.list.d/* /etc/apt/preferences.d/* /etc/yum.repos.d/* /etc/zypp/repos.d/*
    /var/lib/dkms/nvidia*/*/*/*/module/* /lib/modules/*/updates/dkms/nvidia* /lib/modules/*/extra/nvidia*
""".split()
MODULES = ("nvidia", "nvidia_peermem", "nv_peer_mem", "mlx5_core", "ib_core", "erdma", "nouveau")
UNITS = (
    "nvidia* gpuprov* dcgm* docker.service containerd.service crio.service kubelet.service slurmd.service "
    "openibd.service"
)
PACKAGES = (
    ("/usr/bin/dpkg-query", "-W", "-f", "${db:Status-Abbrev}\\t${Package}\\t${Version}\\n"),
    ("/usr/bin/rpm", "-qa", "--qf", "ii \\t%{NAME}\\t%{EVR}\\n"),
)


def look() -> dict[str, list[Any]]:
    """Return the current state by `file:PATH`, `unit:NAME`, `module:NAME`, `package:NAME` and `kernel`; for a file also
    its time and owner."""
    state: dict[str, list[Any]] = {"kernel": [os.uname().release]}
    for pattern in FILES:
        for path in glob.iglob(ROOT + pattern):
            value = read_file(path)
            if value:
                state["file:" + path[len(ROOT) :]] = value
    for name in MODULES:
        folder = f"{ROOT}/sys/module/{name}"
        if os.path.isdir(folder):
            state["module:" + name] = [read_text(folder + "/version") or "loaded"]
    state.update(read_units())
    state.update(read_packages())
    return state


def read_file(path: str) -> list[Any]:
    """Read a file; never follows a link, whose target may be anybody's."""
    try:
        state = os.lstat(path)
        stamp, owner = int(state.st_mtime), state.st_uid
        if os.path.islink(path):
            return ["-> " + os.readlink(path), stamp, owner]
        if not os.path.isfile(path):
            return []
        if state.st_size > LARGEST:
            return [f"{state.st_size} bytes of {stamp}", stamp, owner]
        with open(path, "rb") as file:
            return [hashlib.sha256(file.read(LARGEST + 1)).hexdigest()[:16], stamp, owner]
    except OSError:
        return []


def read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(200).strip()
    except OSError:
        return ""


def read_units() -> Iterator[tuple[str, list[Any]]]:
    shown = _run("systemctl", "show", "--all", "-p", "Id", "-p", "ActiveState", "-p", "UnitFileState", *UNITS.split())
    for block in shown.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        name = values.get("Id", "")
        if name and not name.endswith("gpuprov-readings.service"):
            active = values.get("ActiveState", "")
            active = "active" if active in ("activating", "reloading", "refreshing") else active
            yield "unit:" + name, [" ".join(word for word in (values.get("UnitFileState"), active) if word)]


def read_packages() -> Iterator[tuple[str, list[Any]]]:
    for words in PACKAGES:
        if not os.path.exists(words[0]):
            continue
        versions: dict[str, list[str]] = {}
        for line in _run(*words).splitlines():
            cells = line.split("\t")
            if len(cells) == 3 and cells[0][:2] in ("ii", "hi"):
                versions.setdefault(cells[1], []).append(cells[2])
        for name, several in versions.items():
            yield "package:" + name, [" ".join(sorted(set(several)))]
        return


def _run(*words: str) -> str:
    """Run a program. Raises if it fails: a truncated list would report missing packages."""
    done = subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise OSError(f"{words[0]} ended with {done.returncode}: {lines[-1] if lines else 'it said nothing'}")
    return done.stdout.decode("utf-8", "replace")


def compare_readings(before: dict[str, list[Any]], now: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return what changed: the old state, the new state (empty: it does not exist), and for a file its time and its
    owner's number."""
    changed: dict[str, list[Any]] = {}
    for key in sorted({*before, *now}):
        old, new = before.get(key, [""]), now.get(key, [""])
        if old[0] != new[0]:
            changed[key] = [old[0], new[0], *new[1:]]
    return changed


def take(days: int, at: str) -> str:
    """Take a reading, store it, and return its result in one line."""
    now = look()
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    last, lost = read_last()
    lines = select_complete(str(last.get("at", "")))
    changed = compare_readings(last["values"], now) if last else {}
    if changed or (last and last["at"] < format_earliest(at, max(days, GAP))):
        lines.append({"from": last["at"], "to": at, "changed": changed})
    elif lost:
        lines.append({"from": "", "to": at, "changed": {}, "lost": lost})
    _write(CHANGES, "".join(json.dumps(line, sort_keys=True) + "\n" for line in select_young(lines, days, at)[-MOST:]))
    keep_counters(at)
    _write(LAST, json.dumps({"at": at, "values": now}, sort_keys=True) + "\n")
    if not last:
        return f"the first reading: {len(now)} values" + (f" ({lost})" if lost else "")
    return f"{len(changed)} of {len(now)} values changed since {last['at']}"


def read_counters() -> dict[str, dict[str, int]]:
    """Return the counters of each port, by DEVICE/PORT and name."""
    ports: dict[str, dict[str, int]] = {}
    for folder in glob.iglob(ROOT + "/sys/class/infiniband/*/ports/*/counters"):
        device, port = folder.split("/")[-4], folder.split("/")[-2]
        values = {name: read_text(f"{folder}/{name}") for name in COUNTED}
        ports[f"{device}/{port}"] = {
            name: int(text) for name, text in values.items() if text and not text.strip(DIGITS)
        }
    return ports


def keep_counters(at: str) -> None:
    """Store the counters beside those of the last days; a host without RDMA devices keeps none."""
    ports, lines = read_counters(), []
    try:
        with open(f"{FOLDER}/{COUNTERS}", encoding="utf-8", errors="replace") as file:
            lines = file.readlines()
    except FileNotFoundError:
        pass
    if not ports and not lines:
        return
    young = []
    for line in lines:
        try:
            entry = json.loads(line)
            if format_earliest(at, COUNTER_DAYS) <= entry["at"] < at:
                young.append(entry)
        except (ValueError, KeyError, TypeError):
            continue
    young += [{"at": at, "ports": ports}] * bool(ports)
    _write(COUNTERS, "".join(json.dumps(entry, sort_keys=True) + "\n" for entry in young[-MOST_COUNTED:]))


class Reading(TypedDict, total=False):
    """A reading of all values."""

    at: str
    values: dict[str, list[Any]]


# The changes between two readings.
Line = TypedDict("Line", {"from": str, "to": str, "changed": object, "lost": str}, total=False)


def read_last() -> tuple[Reading, str]:
    """Return the last reading, or the reason why it was lost."""
    try:
        with open(f"{FOLDER}/{LAST}", encoding="utf-8") as file:
            last: Reading = json.load(file)
        if not isinstance(last["at"], str) or not isinstance(last["values"], dict):
            raise ValueError("other fields than expected")
        return last, ""
    except FileNotFoundError:
        return {}, ""
    except (ValueError, KeyError, TypeError) as error:
        return {}, f"the last reading was damaged: {error}"


def select_complete(last: str) -> list[Line]:
    """Return the complete lines. A line that continues from the last reading is from a call that was interrupted."""
    kept = []
    try:
        with open(f"{FOLDER}/{CHANGES}", encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    format_earliest(entry["to"], 0)
                    if isinstance(entry["from"], str) and not (last and entry["from"] == last):
                        kept.append(entry)
                except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
                    continue
    except FileNotFoundError:
        pass
    return kept


def select_young(lines: list[Line], days: int, at: str) -> list[Line]:
    """Return the lines of these days, by their latest time that is not in the future. After a gap that may come from a
    wrong clock, nothing is dropped until the gap itself is as old."""
    oldest, latest, jumped = format_earliest(at, days), "", False
    young = []
    for line in lines:
        begin, end = (time if time <= at else "" for time in (line["from"], line["to"]))
        latest = max(latest, begin)
        jumped = jumped or (end >= oldest and "" < latest < format_earliest(end, max(days, GAP)))
        latest = max(latest, end)
        if max(begin, end) >= oldest or not (begin or end):
            young.append(line)
    return lines if jumped else young


def _write(name: str, text: str) -> None:
    handle, temporary = tempfile.mkstemp(prefix=".new-", dir=FOLDER)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, f"{FOLDER}/{name}")
    except BaseException:
        os.unlink(temporary)
        raise


def format_earliest(at: str, days: int) -> str:
    return format_moment(datetime.datetime.fromisoformat(at.replace("Z", "+00:00")) - datetime.timedelta(days=days))


def format_moment(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    os.umask(0o077)
    try:
        print(take(int(sys.argv[1]), format_moment(datetime.datetime.now(datetime.timezone.utc))))
    except (OSError, ValueError, IndexError, subprocess.SubprocessError) as error:
        sys.exit(f"readings: no reading was taken: {error}")


if __name__ == "__main__":
    main()
