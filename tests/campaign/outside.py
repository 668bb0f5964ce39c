"""The judge: looks at a host from outside, and knows nothing of gpuprov (standard library; dpkg, files, /proc, exit
codes).

`plant` puts a site on a host, `look` reads it, `judge` compares two looks. What broke is a sentence that begins with
its invariant.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

INVARIANTS = {
    "driver": "the old driver works until the new one does: every kernel has a module of one of the two versions on "
    "disk; and where dpkg was not interrupted, its packages are of one version and nvidia-smi answers",
    "reboot": "no reboot without permission: the host's first process is the same",
    "process": "no process is killed that holds a GPU",
    "site": "nothing of the site is lost: its files, their modes and owners, its holds, its service",
    "completes": "the next apply completes",
    "idle": "the one after it changes nothing",
    "secret": "no secret in a file, log, process list, environment or packet that the run made",
    "same": "the end state equals that of an apply that nobody disturbed",
    "bounded": "every apply ends",
}
SITE = {
    "/etc/modprobe.d/site.conf": "options bonding mode=4\n",
    "/etc/sysctl.d/90-site.conf": "vm.swappiness = 17\n",
    "/etc/modules-load.d/site.conf": "# none\n",
    "/etc/apt/preferences.d/site": "Package: site-tool\nPin: version 1.*\nPin-Priority: 900\n",
    "/etc/cron.d/site": "# 0 3 * * * root /usr/local/bin/backup\n",
    "/etc/systemd/system/site.service": "[Service]\nExecStart=/bin/sleep "
    "infinity\n[Install]\nWantedBy=multi-user.target\n",
    "/home/alice/results.csv": "run,loss\n1,0.25\n",
    "/root/notes": "call Bob before the upgrade\n",
    "/srv/site/data": "x" * 4096,
    "/var/lib/site/state": "7\n",
    "/tmp/alice.sock.d/keep": "in use\n",
    "/boot/site.cfg": "set timeout=3\n",
}
HELD = "hostname"
PLANT = f"""
useradd --create-home alice 2>/dev/null || true
apt-mark hold {HELD} >/dev/null
chown -R alice /home/alice /tmp/alice.sock.d; chmod 0640 /home/alice/results.csv; chmod 0700 /tmp/alice.sock.d
systemctl enable --now --quiet site.service
systemctl is-active --quiet site-job ||
  systemd-run --quiet --unit site-job --uid alice --slice user.slice sh -c 'exec 3</dev/nvidia0; exec sleep 86399'
"""
LOOK = r"""
echo "#loaded $(sed -n 's/.*Kernel Module  *\([0-9.]*\).*/\1/p' /proc/driver/nvidia/version 2>/dev/null)"
for k in $(ls /lib/modules); do echo "#module $k $(modinfo -k $k -F version nvidia-current 2>/dev/null | head -n 1)"
  done
dpkg-query -W -f '#package ${Package} ${db:Status-Abbrev} ${Version} ${source:Package}\n' |
  grep ' nvidia-graphics-drivers$'
echo "#audit $(dpkg --audit 2>&1 | head -c 200 | tr '\n' ' ')"
echo "#boot $(cat /proc/sys/kernel/random/boot_id)"
nvidia-smi -L >/dev/null 2>&1; echo "#smi $?"
job=$(systemctl show --property=MainPID --value site-job 2>/dev/null)
echo "#job $job"
echo "#born $(cut -d' ' -f 22 /proc/"${job:-0}"/stat 2>/dev/null)"
echo "#service $(systemctl is-active site.service)"
for p in $(apt-mark showhold); do echo "#held $p"; done
while read -r f; do echo "#site $f $(sha256sum < "$f" 2>/dev/null | cut -c 1-64) $(stat -c '%a %U' "$f" 2>/dev/null)"
  done <<'FILES'
@FILES@
FILES
"""
# Names, modes and contents. Left out is what an engine writes when it makes a container, or what is drawn by chance.
STATE = r"""
find /etc /home /root /srv /var/lib/site -xdev -type f -not -path '*/mtab' -not -path '/root/.cache/*' -not -path /etc/hosts \
  -not -path /etc/hostname -not -path /etc/resolv.conf -not -path '/etc/shadow*' -exec sha256sum {} + | sort -k 2
find /etc /home /root -xdev -not -name mtab -printf '%M %u %p %l\n' | sort -k 3
find /boot /lib/modules /usr/src -xdev -type f -printf '%M %p\n' | sort -k 2
find /run/gpuprov /var/lib/gpuprov /tmp /var/tmp -mindepth 1 -maxdepth 1 -not -name 'systemd-private-*' -not -name written.json
find /home /root -path '*/.ansible/*'
dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\n' | sort
apt-mark showhold; apt-mark showmanual | sort
systemctl list-unit-files --no-legend --no-pager | sort
for k in $(ls /lib/modules); do echo "$k $(modinfo -k $k -F version nvidia-current 2>/dev/null)"; done
"""
# A lock is taken and given back by an apply that changes nothing, too.
TIMES = """
find /etc /boot /lib/modules /usr/src /var/lib -xdev -type f -not -name mtab -not -path '*/lock*' -not -path '/var/lib/systemd/*' \\
  -not -path '/var/lib/apt/*' -not -path '/var/lib/dbus/*' -printf '%p %s %T@\\n' | sort
"""


class Silent(Exception):
    """The host does not answer the judge."""


@dataclass(frozen=True)
class Look:
    """A host at one moment."""

    lines: tuple[str, ...]
    boot: str
    job: str

    def rows(self, word: str) -> list[list[str]]:
        return [line.split()[1:] for line in self.lines if line.split()[:1] == [f"#{word}"]]

    def word(self, word: str) -> str:
        return " ".join(self.rows(word)[0]) if self.rows(word) else ""


Way = str | tuple[str, ...]
"""Into a host: a container's name, or the words of a command that leads a shell there."""


def inside(host: Way, script: str, seconds: float = 120) -> str:
    """What a script prints that runs as root in the host, past gpuprov."""
    words = entered(host) if isinstance(host, str) else host
    try:
        done = subprocess.run(
            words, input=script, text=True, errors="replace", capture_output=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise Silent(f"{host}: no answer within {seconds:g} s") from None
    if done.returncode in (125, 126, 127) or (done.returncode == 255 and not isinstance(host, str)):
        raise Silent(done.stderr.strip())
    return done.stdout


FIRST: dict[str, str] = {}
"""The first process of each host that was looked at, and when it started."""
STARTS = 15
"""Seconds that a host which does not run gets to come up: the engine starts it again where it has ended by itself."""
NEW = ("env", "-i", "HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")


def entered(container: str) -> tuple[str, ...]:
    """The words that lead a shell into a container by the kernel's own means: the engine's `exec` costs a hundred times
    as much."""
    over = time.monotonic() + STARTS
    while not (pid := first(container)):
        if time.monotonic() > over:
            raise Silent(f"{container} does not run")
        time.sleep(0.5)
    return ("nsenter", "--target", str(pid), "--all", *NEW, "bash")


def first(container: str) -> int:
    """The host's first process, as the machine below numbers it; 0 while it does not run."""
    known = FIRST.get(container, "").partition(" ")[0]
    if known and born(known) == FIRST[container]:
        return int(known)
    done = subprocess.run(
        ["podman", "inspect", "--format", "{{.State.Pid}}", container], text=True, capture_output=True, check=False
    )
    FIRST[container] = born(pid) if (pid := done.stdout.strip() or "0") != "0" else ""
    return int(pid)


def born(pid: int | str) -> str:
    """A process and when it started: no other process is called so; empty where it is gone."""
    try:
        return f"{pid} {Path(f'/proc/{pid}/stat').read_text(encoding='utf-8').rpartition(')')[2].split()[19]}"
    except (OSError, IndexError):
        return ""


def plant(host: Way) -> None:
    """Put a site's files, hold, service and GPU job on a host."""
    files = "".join(f"mkdir -p {os.path.dirname(path)}; printf %s '{text}' > {path}\n" for path, text in SITE.items())
    inside(host, files + PLANT)


def look(host: Way) -> Look:
    """The host as it is now. A container has its machine's kernel: its boot is told by its first process."""
    lines = tuple(inside(host, LOOK.replace("@FILES@", "\n".join(SITE))).splitlines())
    words = Look(lines, "", "")
    return Look(lines, born(first(host)) if isinstance(host, str) else words.word("boot"), words.word("born"))


def judge(before: Look, now: Look, versions: tuple[str, str], *, died: bool) -> list[str]:
    """What of the invariants does not hold. `died`: the fault was that the host died, and booted without its
    processes."""
    found = [f"driver: kernel {row[0]} has no module of {' or '.join(versions)} on disk ({' '.join(row[1:]) or 'none'})"
             for row in now.rows("module") if " ".join(row[1:]) not in versions]  # fmt: skip
    if not now.rows("module"):
        found.append("driver: no kernel is left in /lib/modules")
    if not now.word("audit"):
        installed = {row[2].split("-")[0] for row in now.rows("package") if row[1] in ("ii", "hi")}
        if len(installed) != 1 or not installed <= set(versions):
            found.append(f"driver: packages of {', '.join(sorted(installed)) or 'no version'} are installed together")
        elif installed == {now.word("loaded")} and now.word("smi") != "0":
            found.append(f"driver: nvidia-smi ends with {now.word('smi')}")
    if not died:
        if now.word("loaded") != before.word("loaded"):
            found.append(f"driver: loaded was {before.word('loaded')}, and is {now.word('loaded') or 'none'}")
        if now.boot != before.boot:
            found.append("reboot: the host's first process is another")
        if not now.job or (now.word("job"), now.job) != (before.word("job"), before.job):
            found.append(f"process: {before.word('job')}, which held a GPU, is gone")
    for row in before.rows("site"):
        if row not in now.rows("site") and not (died and row[0].startswith("/tmp/")):  # which a boot empties
            found.append(f"site: {row[0]} was changed")
    if [HELD] not in now.rows("held"):
        found.append(f"site: {HELD} is on hold no more")
    if now.word("service") != "active":
        found.append(f"site: site.service is {now.word('service')}")
    return found


def differences(
    one: str, other: str, most: int = 12, *, booted: bool = False, without: tuple[str, ...] = ()
) -> list[str]:
    """The lines that only one of two texts has. What a host that booted has no more below /run is not a difference.

    `without`: how lines begin that are left out.
    """
    left, right = ([line for line in text.splitlines() if not line.startswith(without)] for text in (one, other))
    lost, new = set(left) - set(right), set(right) - set(left)
    lost = {line for line in lost if not (booted and line.startswith("/run/"))}
    return [*(f"- {line}" for line in left if line in lost), *(f"+ {line}" for line in right if line in new)][:most]


def secret_in_files(secret: str, *places: Path) -> list[str]:
    """Files below these places that hold the secret."""
    found = []
    for file in (file for place in places for file in place.rglob("*") if file.is_file()):
        try:
            if secret.encode() in file.read_bytes():
                found.append(f"secret: in {file}")
        except OSError:
            continue
    return found


PLACES = "/etc /home /root /run /tmp /var /boot /srv /dev/shm"


def secret_on_host(secret: str, host: Way, places: str = PLACES) -> list[str]:
    """Files of the host that hold the secret, journal and process list included; it travels on standard input."""
    script = (
        f"IFS= read -r s <<'EOF'\n{secret}\nEOF\n"
        "mine() { printf '%s\\n' \"$s\"; }\n"
        f"grep -rlF --devices=skip -f <(mine) {places} 2>/dev/null </dev/null\n"
        "journalctl --no-pager --quiet 2>/dev/null | grep -cF -f <(mine) | sed -n 's/^[1-9].*/journal/p'\n"
    )
    return [f"secret: on the host in {line}" for line in inside(host, script).splitlines()]


class Watch:
    """Reads every process's arguments and environment again and again, for secrets."""

    def __init__(self, *secrets: str) -> None:
        self.secrets = {secret.encode() for secret in secrets}
        self.found: set[str] = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _read(self) -> None:
        while not self.over.wait(0.5):
            for number in filter(str.isdigit, os.listdir("/proc")):
                for name in ("cmdline", "environ"):
                    self._look(f"/proc/{number}/{name}", name)

    def _look(self, file: str, name: str) -> None:
        """By the kernel's own calls: of some hundred processes, twice a second."""
        try:
            opened = os.open(file, os.O_RDONLY)
        except OSError:
            return
        try:
            data = b"".join(iter(lambda: os.read(opened, 1 << 18), b""))
        except OSError:
            return
        finally:
            os.close(opened)
        if any(secret in data for secret in self.secrets):
            self.found.add(f"secret: in {name} of {data[:80].split(bytes(1))[0].decode(errors='replace')}")


def interface(address: str) -> str:
    """The interface of this machine that leads to an address."""
    words = subprocess.run(
        ["ip", "-oneline", "route", "get", address], text=True, capture_output=True, check=True
    ).stdout.split()
    return words[words.index("dev") + 1]


class Packets:
    """Reads every packet that passes an interface of this machine, for secrets; also one that two packets of a flow
    share."""

    def __init__(self, interface: str, *secrets: str) -> None:
        self.start(interface, *secrets)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        # linux/if_ether.h: ETH_P_ALL
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((interface, 0))
        self.socket.settimeout(0.5)

    def start(self, interface: str, *secrets: str) -> None:
        """Nothing seen yet."""
        self.secrets = [secret.encode() for secret in secrets]
        self.kept = max(map(len, self.secrets)) - 1
        self.found: set[str] = set()
        self.seen = 0
        self.interface = interface
        self.tails: dict[bytes, bytes] = {}

    def __enter__(self) -> Packets:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        self.socket.close()

    def _read(self) -> None:
        while not self.over.is_set():
            with suppress(TimeoutError):
                self.look(self.socket.recv(70000))

    def look(self, packet: bytes) -> None:
        """One packet: its payload behind the end of the one before it of the same flow (IPv4's addresses and ports)."""
        self.seen += 1
        head = 14 + 4 * (packet[14] & 15 if len(packet) > 14 else 5)
        flow, payload = packet[26 : head + 4], packet[head + 8 :]
        if len(packet) > 23 and packet[12:14] == b"\x08\x00" and packet[23] == socket.IPPROTO_TCP:
            payload = packet[head + 4 * (packet[head + 12] >> 4) :] if len(packet) > head + 12 else b""
        if not payload:
            return
        text = self.tails.get(flow, b"") + payload
        self.tails[flow] = text[-self.kept :]
        if any(secret in text for secret in self.secrets):
            self.found.add(f"secret: in a packet of {self.interface}")
