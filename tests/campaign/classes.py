"""The classes of faults: what is drawn for a run, how it is done to a host, and how it is taken away again."""

from __future__ import annotations

import random
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign import outside
from tests.campaign.disk import Disk
from tests.e2e.logins import CHATTER

PROGRAMS = {"dpkg": "dpkg", "DKMS": "dkms|make|cc1", "initramfs": "update-initramfs|mkinitramfs"}
FULL = (
    "/boot",
    "/run/gpuprov",
    "/var/lib/gpuprov",
    "/tmp",
    "/var/cache/apt/archives",
    "/etc/modprobe.d",
    "/home/gpuadmin",
)
READ_ONLY = (
    "/",
    "/boot",
    "/etc",
    "/etc/modprobe.d",
    "/var/lib/gpuprov",
    "/var/lib/dpkg",
    "/lib/modules",
    "/usr",
    "/tmp",
    "/run/gpuprov",
)
FLOOD = "head -c 3000000 /dev/zero | tr '\\0' 'A'; printf '\\033]0;OWNED\\007\\033[2J\\n'\n"
ESCAPES = "printf '\\033]0;OWNED\\007\\033[2J{{ 7*7 }}%%s%%n\\n'\n"
RANDOM = "head -c 1000000 /dev/urandom\n"
SCRIPTS = {
    "a .bashrc that prints": CHATTER,
    "a .bashrc that floods": FLOOD,
    "a .bashrc with escape sequences": ESCAPES,
    "a .bashrc that prints random bytes": RANDOM,
}
BYTES = ("/etc/apt/sources.list.d/*", "/etc/os-release", "/var/lib/gpuprov/receipt.json", "/etc/default/grub")
"""Files that a probe or a role reads as text."""
LOCK = (
    "import fcntl, sys, time; f = open(sys.argv[1], 'a'); "
    "(fcntl.flock if sys.argv[3] == 'flock' else fcntl.lockf)(f, fcntl.LOCK_EX); time.sleep(float(sys.argv[2]))"
)
CLOCK = "/usr/local/lib/campaign-clock.so"
CLOCK_C = Path(__file__).with_name("clock.c").read_text(encoding="utf-8")
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/cache/apt/archives/lock", "/var/lib/apt/lists/lock")
REPLACED = "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A >/dev/null; systemctl restart ssh"


LOST = (
    "unreachable|lost|timed out|no answer|did not answer|refused|reset|closed|connection was cut|its shell there "
    "was|ssh was ended"
)
"""Of a host that answers no more."""


FULL_SAID = "no space left|full|no room|free space|MiB free"
READ_ONLY_SAID = "read-only|read only|mounted ro"


@dataclass
class Target:
    """One host of a group, as faults see it."""

    name: str
    address: str
    processes: Callable[[], list[int]]
    """Of the apply that works on it, on this machine."""
    fresh: Callable[[], None]
    """Puts another host in its place, with the same name and address."""
    disk: Disk | None = None
    over: threading.Event = field(default_factory=threading.Event)
    """The apply has ended."""
    log: list[str] = field(default_factory=list)

    @property
    def container(self) -> str:
        return f"gpuprov-sim-{self.name}"

    def sh(self, script: str) -> str:
        return outside.inside(self.container, script)

    def podman(self, *words: str) -> None:
        done = subprocess.run(
            ["podman", *words, self.container], capture_output=True, text=True, check=False, timeout=120
        )
        self.log += [done.stderr.strip()] if done.returncode and words[0] != "unpause" else []

    def net(self, *words: str) -> None:
        """A program of this machine, in the host's network namespace."""
        pid = outside.first(self.container)
        if pid:
            done = subprocess.run(
                ["nsenter", "-t", str(pid), "-n", *words], capture_output=True, text=True, check=False
            )
            self.log += [done.stderr.strip()] if done.returncode else []


@dataclass
class Fault:
    """One drawn fault: words for the table, and what is done."""

    kind: str
    what: str
    during: Callable[[Target], None]
    cause: str = LOST
    """What must be in the words of an apply that this fault ended (a regular expression)."""
    after: Callable[[Target], None] = lambda target: None
    before: Callable[[Target], None] = lambda target: None
    died: bool = False
    """The host died and booted by it."""
    replaced: bool = False
    disk: bool = False
    """The host needs a disk of its own."""


def ssh_killed(chance: random.Random, seconds: float) -> Fault:
    at, times = chance.uniform(0.3, seconds), chance.randint(1, 3)

    def during(target: Target) -> None:
        time.sleep(at)
        for _ in range(times):
            for pid in target.processes():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    mine = any(target.address.encode() in word for word in words)
                    if mine and (words[0].rpartition(b"/")[2] == b"ssh" or words[0].startswith(b"ssh: ")):
                        subprocess.run(["kill", "-KILL", str(pid)], check=False)
            target.sh("pkill -KILL -f '^sshd: gpuadmin' || true")
            time.sleep(0.5)

    return Fault("ssh killed", f"ssh and its sshd are killed after {at:.1f} s, {times} times", during)


def host_killed(chance: random.Random, seconds: float) -> Fault:
    at, down = chance.uniform(0.3, seconds), chance.uniform(0, 12)

    def during(target: Target) -> None:
        time.sleep(at)
        die(target, down)

    return Fault(
        "host killed", f"the host is killed after {at:.1f} s, and is back {down:.0f} s later", during, died=True
    )


def die(target: Target, down: float) -> None:
    # --restart=always would start it at once: stopped is what podman leaves alone.
    target.podman("stop", "--time", "0")
    time.sleep(down)
    target.podman("start")


def power_cut(chance: random.Random, seconds: float) -> Fault:
    """In the middle of a program, or, of a small spec that has it not, at the end of its time."""
    name, later = chance.choice(list(PROGRAMS)), chance.uniform(0, 1.2)
    skipped = chance.randint(0, 5)

    def during(target: Target) -> None:
        pid, until, seen = outside.first(target.container), time.monotonic() + seconds, set()
        while time.monotonic() < until and not target.over.is_set():
            seen |= set(running(pid, PROGRAMS[name].split("|")))
            if len(seen) > skipped:
                time.sleep(later)
                break
            time.sleep(0.2)
        else:
            target.log.append(f"{name} was not seen: the power was cut at the end of its time")
        assert target.disk
        target.disk.cut()
        target.podman("stop", "--time", "0")
        target.disk.unmount()
        target.disk.mount()
        target.podman("start")

    return Fault(
        "power cut",
        f"the power is cut {later:.1f} s into {name} (process {skipped + 1} of it)",
        during,
        f"{LOST}|input/output error",
        died=True,
        disk=True,
    )


def root_full(chance: random.Random, seconds: float) -> Fault:
    at, left = chance.choice([0.0, chance.uniform(0.3, seconds)]), chance.choice([0, 0, 64, 4096])
    some = "fallocate -l $(($(df --output=avail -B1M / | tail -n 1) - 16))M /var/tmp/.campaign-fill 2>/dev/null"
    rest = "dd if=/dev/zero of=/var/tmp/.campaign-fill bs=64k oflag=append conv=notrunc 2>/dev/null"
    fill = f"{some}; {rest}; truncate -s -{left}K /var/tmp/.campaign-fill; sync"
    heal = "rm -f /var/tmp/.campaign-fill"
    fault = timed("root disk full", f"the root disk is full but for {left} KiB", at, fill, heal, FULL_SAID)
    fault.disk = True
    return fault


def root_fails(chance: random.Random, seconds: float) -> Fault:
    """As ext4 does where it meets an error (errors=remount-ro)."""
    at = chance.choice([0.0, chance.uniform(0.3, seconds)])
    made, heal = "mount -o remount,ro /", "mount -o remount,rw /"
    fault = timed("root disk read-only", "the root disk is read-only", at, made, heal, READ_ONLY_SAID)
    fault.disk = True
    return fault


def running(pid: int, names: list[str]) -> list[int]:
    """Processes of these names in the same pid namespace as this one."""
    space, found = Path(f"/proc/{pid}/ns/pid"), []
    with suppress(OSError):
        mine = space.readlink()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "comm").read_text().strip() in names and (folder / "ns" / "pid").readlink() == mine:
                    found.append(int(folder.name))
    return found


def program_killed(chance: random.Random, seconds: float) -> Fault:
    at, names = (
        chance.uniform(0.3, seconds),
        ["python3", "dpkg", "apt-get", "make", "dkms", "mkinitramfs", "update-initramf", "sh"],
    )

    def during(target: Target) -> None:
        time.sleep(at)
        over, pid, spared = time.monotonic() + seconds, outside.first(target.container), set()
        with suppress(outside.Silent):
            spared = set(target.sh("systemctl show --property=MainPID --value site-job gpuprov-sim-repository").split())
        while time.monotonic() < over:
            for found in running(pid, names):
                with suppress(OSError):
                    cgroup = Path(f"/proc/{found}/cgroup").read_text()
                    inner = Path(f"/proc/{found}/status").read_text().split("NSpid:")[1].split("\n")[0].split()[-1]
                    if inner not in spared and ("session-" in cgroup or "user@" in cgroup or "ssh" in cgroup):
                        name = Path(f"/proc/{found}/comm").read_text().strip()
                        subprocess.run(["kill", "-KILL", str(found)], check=False)
                        target.log.append(f"killed {name}")
                        return
            time.sleep(0.1)

    return Fault(
        "program killed",
        f"a program of the apply is killed on the host after {at:.1f} s, as for want of memory",
        during,
        "kill|signal|SIGKILL|status (137|-9)|ended|broke off|lost",
    )


def disk_full(chance: random.Random, seconds: float) -> Fault:
    place, at = chance.choice(FULL), chance.choice([0.0, chance.uniform(0.3, seconds)])
    fill = (
        f"mkdir -p {place}; cp -a {place} /var/tmp/.campaign-copy\n"
        f"mount -t tmpfs -o size=64M,mode=$(stat -c %a {place}) campaign {place}\n"
        f"cp -a /var/tmp/.campaign-copy/. {place}/; dd if=/dev/zero of={place}/.campaign-fill bs=64k 2>/dev/null; true"
    )
    heal = (
        f"rm -f {place}/.campaign-fill; if mountpoint -q {place}; then\n"
        f"mkdir /var/tmp/.campaign-now; cp -a {place}/. /var/tmp/.campaign-now/; umount -l {place}\n"
        f"find {place} -mindepth 1 -maxdepth 1 -exec rm -rf {{}} +; cp -a /var/tmp/.campaign-now/. {place}/; fi\n"
        "rm -rf /var/tmp/.campaign-now /var/tmp/.campaign-copy"
    )
    return timed("disk full", f"{place} is full", at, fill, heal, FULL_SAID)


def read_only(chance: random.Random, seconds: float) -> Fault:
    place, at = chance.choice(READ_ONLY), chance.choice([0.0, chance.uniform(0.3, seconds)])
    made = f"mkdir -p {place}; mount --bind {place} {place} && mount -o remount,bind,ro {place}"
    if place == "/":  # the mount alone: what the machine keeps below it is written on
        made, heal = "mount -o remount,bind,ro /", "mount -o remount,bind,rw /"
    else:
        heal = f"umount -l {place}"
    return timed("disk read-only", f"{place} is read-only", at, made, heal, READ_ONLY_SAID)


def timed(kind: str, what: str, at: float, script: str, heal: str, cause: str) -> Fault:
    """A script from the start on, or after so many seconds."""
    when = f"after {at:.1f} s" if at else "from the start on"

    def during(target: Target) -> None:
        if at:
            time.sleep(at)
            target.sh(script)

    def before(target: Target) -> None:
        if not at:
            target.sh(script)

    return Fault(kind, f"{what} {when}", during, cause, lambda target: void(target.sh(heal)), before)


def void(_: object) -> None:
    """Of a call whose result does not matter."""


def network(chance: random.Random, seconds: float) -> Fault:
    kind = chance.choice(["loses", "stops", "resets", "is slow", "delays", "floods"])
    at, lasts = chance.uniform(0, seconds), chance.uniform(2, 25)
    share, rate = chance.choice([2, 5, 10, 20, 30]), chance.choice(["64kbit", "256kbit", "1mbit"])
    delay, many = chance.choice([50, 200, 800, 2500]), chance.choice([30, 150, 400])
    nft = [["nft", "add", "table", "inet", "campaign"],
           ["nft", "add chain inet campaign faulty { type filter hook input priority 0; }"]]  # fmt: skip
    rule = {"loses": f"iif != lo numgen random mod 100 < {share} drop", "stops": "iif != lo drop",
            "resets": "iif != lo meta l4proto tcp reject with tcp reset"}.get(kind, "")  # fmt: skip
    what = {"loses": f"{share} % of packets are lost", "stops": "no packet passes", "resets": "connections are reset",
            "is slow": f"{rate} pass", "delays": f"new connections are delayed by up to {delay} ms each way",
            "floods": f"{many} connections that say nothing keep sshd busy"}[kind]  # fmt: skip

    def during(target: Target) -> None:
        time.sleep(at)
        if rule:
            for words in [*nft, ["nft", f"add rule inet campaign faulty {rule}"]]:
                target.net(*words)
        elif kind == "floods":
            with flood(target.address, many):
                time.sleep(lasts)
            return
        elif kind == "delays":
            with proxy(target, delay):
                time.sleep(lasts)
            return
        else:
            target.net(
                "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms"
            )
        time.sleep(lasts)
        after(target, quiet=False)

    def after(target: Target, *, quiet: bool = True) -> None:
        kept = len(target.log)
        target.net(
            *(("nft", "delete", "table", "inet", "campaign") if rule else ("tc", "qdisc", "del", "dev", "eth0", "root"))
        )
        if quiet:
            del target.log[kept:]

    if kind in ("delays", "floods"):
        return Fault("network", f"{what} from {at:.1f} s on, for {lasts:.0f} s", during)
    return Fault("network", f"{what} from {at:.1f} s on, for {lasts:.0f} s", during, after=after)


@contextmanager
def flood(address: str, many: int) -> Iterator[None]:
    """Connections to sshd that say nothing: it drops others by chance (MaxStartups)."""
    with ExitStack() as opened:
        for _ in range(many):
            with suppress(OSError):
                opened.enter_context(socket.create_connection((address, 22), timeout=1))
        yield


@contextmanager
def proxy(target: Target, delay: int) -> Iterator[None]:
    """A proxy in the host's network, through which new connections to sshd are led (few kernels have netem)."""
    pid = outside.first(target.container)
    words = ["nsenter", "-t", str(pid), "-n", sys.executable, str(Path(__file__).with_name("delay.py")), str(delay)]
    with subprocess.Popen(words) as child:
        target.net("nft", "add", "table", "ip", "campaign")
        target.net("nft", "add chain ip campaign in { type nat hook prerouting priority -100; }")
        target.net("nft", "add rule ip campaign in tcp dport 22 redirect to :2022")
        try:
            yield
        finally:
            target.net("nft", "delete", "table", "ip", "campaign")
            child.kill()


def frozen(chance: random.Random, seconds: float) -> Fault:
    at, lasts, forever = chance.uniform(0.3, seconds), chance.uniform(2, 45), chance.random() < 0.3

    def during(target: Target) -> None:
        time.sleep(at)
        target.podman("pause")
        since = time.monotonic()
        if forever:
            target.over.wait()
            target.log.append(f"given up after {time.monotonic() - since:.0f} s")
        else:
            time.sleep(lasts)
        target.podman("unpause")

    return Fault(
        "host frozen",
        f"the host freezes after {at:.1f} s, {'for good' if forever else f'for {lasts:.0f} s'}",
        during,
        after=lambda target: target.podman("unpause"),
    )


def clock(chance: random.Random, seconds: float) -> Fault:
    by = chance.choice(["-3650d", "-400d", "-2d", "-3h", "-90s", "+90s", "+3h", "+2d", "+400d"])
    at = chance.choice([0.0, chance.uniform(0.3, seconds)])
    # ld.so(8): every program that starts from now on reads this clock, sshd's children, sudo, Python, apt and dpkg too.
    made = f"gcc -shared -fPIC -D'OFF={seconds_of(by)}' -x c -o {CLOCK} -"
    script = f"{made} <<'EOF' && echo {CLOCK} >/etc/ld.so.preload\n{CLOCK_C}EOF\n"
    return timed("clock", f"the clock is off by {by}", at, script, f"rm -f /etc/ld.so.preload {CLOCK}",
                 "clock|not valid yet|expired|in the future|date")  # fmt: skip


def seconds_of(by: str) -> int:
    """`-400d` in seconds."""
    return int(by[:-1]) * {"s": 1, "h": 3600, "d": 86400}[by[-1]]


def locked(chance: random.Random, seconds: float) -> Fault:
    place, lasts, kind = chance.choice(LOCKS), chance.uniform(3, 40), chance.choice(["fcntl", "fcntl", "flock"])
    at = chance.choice([0.0, chance.uniform(0.3, seconds)])
    words = shlex.join(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            "--unit",
            "campaign-lock",
            "python3",
            "-c",
            LOCK,
            place,
            f"{lasts:.0f}",
            kind,
        ]
    )
    return timed(
        "locks",
        f"{place} is locked ({kind}) for {lasts:.0f} s",
        at,
        words,
        "systemctl stop campaign-lock 2>/dev/null; true",
        "lock",
    )


def noisy(chance: random.Random, seconds: float) -> Fault:
    what = chance.choice([*SCRIPTS, "a banner of 60 kB", "sudo that warns"])
    at = chance.choice([0.0, chance.uniform(0.3, seconds)])
    if what in SCRIPTS:
        script = (
            f"cp /home/gpuadmin/.bashrc /root/.campaign-bashrc; printf %s {shlex.quote(SCRIPTS[what])} > "
            "/home/gpuadmin/.bashrc"
        )
        heal = "cp /root/.campaign-bashrc /home/gpuadmin/.bashrc; rm -f /root/.campaign-bashrc"
    elif what.startswith("a banner"):
        script = (
            "head -c 60000 /dev/urandom > /run/campaign-banner; cp -a /etc/ssh/sshd_config /root/.campaign-sshd\n"
            "sed -i '1i Banner /run/campaign-banner' /etc/ssh/sshd_config; systemctl reload ssh"
        )
        heal = (
            "cp -a /root/.campaign-sshd /etc/ssh/sshd_config; rm -f /root/.campaign-sshd /run/campaign-banner; "
            "systemctl reload ssh"
        )
    else:
        script, heal = "hostname nameless", "hostname $(cat /etc/hostname)"
    return timed("hostile output", what, at, script, heal, "banner|login|prints|output|sudo|host name|too much")


def no_text(chance: random.Random, seconds: float) -> Fault:
    """A site's own comment in Latin-1, a bit that has flipped."""
    files, at = chance.choice(BYTES), chance.choice([0.0, chance.uniform(0.3, seconds)])
    kept = "/root/.campaign-bytes"
    each = f'for f in {files}; do f=$(readlink -f "$f"); [ -f "$f" ] || continue'
    script = f'mkdir -p {kept}; {each}; cp -a --parents "$f" {kept}; printf \'# caf\\351\\n\' >>"$f"; done'
    heal = f"cp -a {kept}/. / 2>/dev/null; rm -rf {kept} /var/lib/gpuprov/receipt.json.damaged"
    return timed("no UTF-8", f"{files} has a byte that is not UTF-8", at, script, heal, "not UTF-8")


def replaced(chance: random.Random, seconds: float) -> Fault:
    at = chance.uniform(0.3, seconds)

    def during(target: Target) -> None:
        time.sleep(at)
        target.fresh()

    return Fault("host replaced", f"another host with the same name and address is in its place after {at:.1f} s",
                 during,
                 "host key|identification|another host|unreachable|lost|sudo "
                 "password", died=True, replaced=True)  # fmt: skip


HOSTS: tuple[Callable[[random.Random, float], Fault], ...] = (
    host_killed, ssh_killed, power_cut, network, program_killed, disk_full, read_only, locked, noisy, no_text, frozen,
    clock,
    root_full,
    root_fails,
    replaced,
)  # fmt: skip
"""Faults of one host: several hosts of an apply have one each."""
CONTROLLERS = ("all-killed", "killed", "terminated", "interrupted")
"""Ways to end the apply itself (tests/e2e/kills.py), which all its hosts feel."""
OPERATORS = "two operators"
SURROUNDINGS: tuple[dict[str, str], ...] = (
    {"ANSIBLE_STDOUT_CALLBACK": "debug"},
    {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"},
    {"ANSIBLE_STRATEGY": "free", "ANSIBLE_ANY_ERRORS_FATAL": "true", "ANSIBLE_RUN_TAGS": "other"},
    {"ANSIBLE_NO_LOG": "true", "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false", "ANSIBLE_VERBOSITY": "3"},
    {"TMPDIR": "l" * 90},
    {"TMPDIR": "a b{{ 1 }}"},
    {"LC_ALL": "C"},
)
"""What an operator's environment may hold, and a run is the same with."""


def surroundings(chance: random.Random) -> dict[str, str]:
    """Those of an apply, or, of most, none."""
    return chance.choice(SURROUNDINGS) if chance.random() < 0.3 else {}


def drawn(make: Callable[..., Fault], seed: Any, seconds: float) -> Fault:
    """The fault of this seed: the same each time, but for how long an apply takes."""
    return make(random.Random(seed), seconds)
