"""A group of runs: an apply over some hosts, each with its fault; the next apply, the one after it, and the judge's
word on each."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gpuprov.core.errors import GpuprovError
from gpuprov.report.files import write_atomic
from gpuprov.simulate import container, hosts, image, inventory
from gpuprov.simulate.description import Description, Gpus
from gpuprov.simulate.host import SimulatedHost
from tests.campaign import classes, outside
from tests.campaign.classes import Fault, Target
from tests.campaign.disk import FREE, Disk, master
from tests.e2e.kills import send
from tests.e2e.lab import GPUPROV, descendants, podman, tail

HOST = Description(gpu=Gpus(model="L40S", count=2))
IMAGE = "localhost/gpuprov-campaign"
NAMES = "{{.Repository}}:{{.Tag}}"
ROOT = Path(__file__).parents[2]
LIMIT = 1800.0
"""Seconds that a disturbed apply may take, at most."""
SUDO = "gpuadmin ALL=(ALL) ALL\n"
KEYS = "-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={}"
ENDED = re.compile(r"(\S.*?): (?:failed|unreachable|locked|refused|blocked)\b")
"""A line of apply's report on hosts that it did not bring to their end."""
NOT_GREEN = re.compile(ENDED.pattern + r"|(\S.*?): (?:changed|unchanged)\b.*verify is not green")
"""Also of those that verify found not to be as they should."""
UNDO = (
    "rm -f /etc/modprobe.d/gpuprov.conf; "
    "find /var/lib/gpuprov -mindepth 1 -maxdepth 1 -not -name packages -exec rm -rf {} + 2>/dev/null || true"
)
"""What the small spec finds to do again. Packages that were kept to go back to stay: they are not fetched again by each
apply."""
BOOTED = {"upgrade"}
"""Specs whose hosts are booted once the next apply has completed: a new driver is loaded by a boot alone."""
KEPT = ("/var/lib/gpuprov/checkpoints/", "/var/lib/gpuprov/packages/")
"""What an apply that finds a host green for the first time keeps on it, to go back to: no change of what is there."""
JUDGED = 3
"""Hosts that the judge looks at at a time."""
STARTING = 3
"""Hosts that start at a time."""


@dataclass
class Reference:
    """What an apply that nobody disturbed does to a host: its exit code, its seconds, the state that it leaves."""

    code: int
    seconds: float
    state: str
    fresh: str


@dataclass
class Stage:
    """What all groups share: the prepared image, the specs, the secret, the references by spec."""

    versions: tuple[str, str]
    secret: str
    place: Path
    tag: str
    references: dict[str, Reference] = field(default_factory=dict)
    idle: dict[bool, list[SimulatedHost]] = field(default_factory=lambda: {False: [], True: []})
    """Hosts of the small spec that held, and are as they were: they serve again. By whether they have a disk of their
    own."""
    disks: dict[str, Disk] = field(default_factory=dict)
    watch: outside.Watch = field(init=False)
    """Reads all processes of this machine, once for all groups."""
    made: int = 0
    alone: threading.Lock = field(default_factory=threading.Lock)
    booting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(STARTING))
    mastering: threading.Lock = field(default_factory=threading.Lock)
    removing: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def __post_init__(self) -> None:
        self.watch = outside.Watch(self.secret)

    def spec(self, name: str) -> dict[str, Any]:
        driver = {} if name == "small" else {"nvidia_driver": {"version": self.versions[1]}, "persistence": {}}
        return {"nouveau": {}, **driver}

    def take(self, spec: str, *, disk: bool = False) -> SimulatedHost:
        """A host with the old driver and a site on it."""
        with self.alone:
            if spec == "small" and self.idle[disk]:
                return self.idle[disk].pop()
            self.made += 1
            name = f"camp{os.getpid()}x{self.made}"
        return self.up(name, spec, disk=disk)

    def up(self, name: str, spec: str, *, disk: bool = False) -> SimulatedHost:
        """That host, made now, under this name."""
        with self.booting:
            if disk:
                with self.mastering:
                    whole = master(self.tag, image.cache_dir() / f"campaign-{self.tag.rpartition(':')[2]}-{FREE}.img")
                self.disks[name] = Disk.copied(whole, self.place / f"{name}.img")
            host = hosts.up(name, HOST, tag=str(self.disks[name].root) if disk else self.tag)
        outside.plant(f"{container.PREFIX}{name}")
        undo = UNDO if spec == "small" else ""
        sync = "sync -f /" if disk else ""  # what a site has had for long is on its disk when the power is cut
        container.run(name, f"echo gpuadmin:{self.secret} | chpasswd; {undo}\n{sync}")
        return host

    def give(self, host: SimulatedHost, *, spec: str, held: bool) -> None:
        """Take a host back: one that is as an undisturbed apply leaves it needs no more than to forget that apply."""
        if spec == "small" and held:
            with suppress(GpuprovError):
                container.run(host.name, UNDO)
                with self.alone:
                    self.idle[host.name in self.disks].append(host)
                return
        self.removing.submit(self.down, host.name)

    def down(self, name: str) -> None:
        container.down(name)
        if disk := self.disks.pop(name, None):
            disk.close()

    def close(self) -> None:
        for host in (*self.idle[False], *self.idle[True]):
            self.removing.submit(self.down, host.name)
        self.removing.shutdown()


@dataclass
class Run:
    """One run: its number, its fault, what was broken."""

    number: int
    spec: str
    fault: Fault
    broken: list[str] = field(default_factory=list)
    told: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """Of the disturbed apply."""
    named: bool | None = None
    """Whether the apply said what was wrong; nothing where the host came through it."""
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds that its group took for each step."""


class Group:
    """An inventory of some hosts, with a home of its own for gpuprov."""

    def __init__(self, stage: Stage, spec: str, disks: list[bool]) -> None:
        """A host for each, with a disk of its own or not."""
        self.stage, self.spec, self.code = stage, spec, ROOT
        self.place = Path(tempfile.mkdtemp(prefix="g", dir=stage.place))
        self.inventory = self.place / "inventory"
        for folder in (self.inventory, self.place / "tmp", self.place / "other"):
            folder.mkdir()
        self.hosts: list[SimulatedHost] = []
        with ThreadPoolExecutor(STARTING) as pool:
            made = [pool.submit(stage.take, spec, disk=disk) for disk in disks]
        self.hosts += (one.result() for one in made if not one.exception())
        if failed := next((error for one in made if (error := one.exception())), None):
            self.close()
            raise failed
        self.names = [host.name for host in self.hosts]
        inventory.write(self.hosts, self.inventory / "hosts.yaml")
        written = (self.inventory / "hosts.yaml").read_text(encoding="utf-8")
        strict = KEYS.format(self.place / "known_hosts")
        (self.inventory / "hosts.yaml").write_text(written.replace(inventory.SSH_ARGS, strict), encoding="utf-8")
        text = {"all": {"vars": {"gpuprov": stage.spec(spec), "ansible_become_password": stage.secret}}}
        (self.inventory / "spec.yaml").write_text(f"{text!r}\n".replace("'", '"'), encoding="utf-8")
        (self.inventory / "spec.yaml").chmod(0o600)

    def start(
        self, *more: str, home: str = "tmp", surroundings: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        mine = {"TMPDIR": str(self.place / home), "XDG_STATE_HOME": str(self.place / f"state-{home}"),
                "XDG_CACHE_HOME": str(self.place / f"cache-{home}")}  # fmt: skip
        mine |= surroundings or {}
        if "TMPDIR" in (surroundings or {}):
            mine["TMPDIR"] = str(self.place / mine["TMPDIR"])
            Path(mine["TMPDIR"]).mkdir(exist_ok=True)
        words = [sys.executable, "-m", "gpuprov", "apply", str(self.inventory), "--yes", *more]
        return subprocess.Popen(words, cwd=self.code, env={**os.environ, **mine}, text=True, errors="replace",
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                start_new_session=True)  # fmt: skip

    def wait(self, child: subprocess.Popen[str]) -> tuple[int | None, str]:
        """Its exit code and what it said; no code for one that did not end, and was killed."""
        try:
            told = child.communicate(timeout=LIMIT)[0]
            return child.returncode, f"{told}(exit code {child.returncode})\n"
        except subprocess.TimeoutExpired:
            for pid in [child.pid, *descendants(child.pid)]:
                send(pid, signal.SIGKILL)
            return None, f"{child.communicate()[0]}(killed after {LIMIT:g} s)\n"

    def apply(self, *more: str) -> tuple[int | None, str]:
        return self.wait(self.start(*more))

    def boot(self) -> None:
        """Boot the hosts, as their admin does, where the spec asks for something that only a boot brings."""
        if self.spec in BOOTED:

            def boot(name: str) -> None:
                with self.stage.booting:
                    container.reboot(name)

            with ThreadPoolExecutor(STARTING) as pool:
                list(pool.map(boot, self.names))

    def secrets(self) -> list[str]:
        """Where the secret is on this machine, but for the inventory that has it."""
        places = [path for path in self.place.iterdir() if path != self.inventory and path.is_dir()]
        return outside.secret_in_files(self.stage.secret, *places)

    def close(self, held: list[bool] | None = None) -> None:
        for place, host in enumerate(self.hosts):
            self.stage.give(host, spec=self.spec, held=bool(held and held[place]))
        shutil.rmtree(self.place, ignore_errors=True)


@contextmanager
def staged(place: Path, specs: tuple[str, ...]) -> Iterator[Stage]:
    """The image of a host with the old driver, loaded; and the references. They are kept for the next campaign of the
    same code."""
    key = prepared()
    tag, kept = f"{IMAGE}:{key}", image.cache_dir() / f"campaign-{key}.json"
    stage = Stage(("", ""), secrets.token_hex(12), place, tag)
    known = (
        json.loads(kept.read_text(encoding="utf-8"))
        if kept.exists() and tag in podman("images", "--format", NAMES)
        else {}
    )
    try:
        if not known:
            known = {"versions": prepare(stage, f"campaign{os.getpid()}"), "references": {}}
        stage.versions = (known["versions"][0], known["versions"][1])
        for spec in specs:
            if spec not in known["references"]:
                known["references"][spec] = asdict(reference(stage, spec))
            stage.references[spec] = Reference(**known["references"][spec])
            write_atomic(kept, json.dumps(known))  # another campaign may read it
        with stage.watch:
            yield stage
    finally:
        stage.close()


def prepared() -> str:
    """A hash of what makes the prepared host: the product itself, and the host."""
    files = (file for folder in ("gpuprov", "plugins", "roles", "playbooks") for file in (ROOT / folder).rglob("*"))
    read = [file for file in sorted(files) if file.is_file() and "__pycache__" not in file.parts]
    parts = [
        repr((HOST, outside.STATE)).encode(),
        *(str(file.relative_to(ROOT)).encode() + file.read_bytes() for file in read),
    ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def prepare(stage: Stage, name: str) -> tuple[str, str]:
    """Make the image: a host on which gpuprov brought the old driver. The versions that are offered, the old one
    first."""
    container.down(name)
    try:
        host = hosts.up(name, HOST)
        container.run(name, "apt-get -qq update")
        offered = container.run(
            name, "apt-cache madison nvidia-kernel-dkms | cut -d'|' -f2 | tr -d ' ' | sort -uV"
        ).split()
        versions = (offered[-2].split("-")[0], offered[-1].split("-")[0])
        folder = stage.place / "old"
        folder.mkdir()
        old = {"nouveau": {}, "nvidia_driver": {"version": versions[0]}, "persistence": {}}
        (folder / "hosts.yaml").write_text(inventory.text([host], old), encoding="utf-8")
        done = subprocess.run(
            [GPUPROV, "apply", str(folder), "--yes"], text=True, capture_output=True, check=False, timeout=1800
        )
        assert done.returncode == 0, done.stdout + done.stderr
        container.run(name, "grep -rl '^gpuadmin' /etc/sudoers.d /etc/sudoers | xargs sed -i "
                            f"'s/^gpuadmin.*/{SUDO.strip()}/'\n"
                      "apt-get -qq install -y --no-install-recommends libfaketime >/dev/null 2>&1\n"
                      "apt-get clean; rm -rf /var/log/journal/*; sync")  # fmt: skip
        container.freeze(name, stage.tag)
        return versions
    finally:
        container.down(name)


def reference(stage: Stage, spec: str) -> Reference:
    """Apply once without a fault, and once more: the second changes nothing, or nothing could be compared with it."""
    group = Group(stage, spec, [False])
    try:
        box = f"{container.PREFIX}{group.names[0]}"
        fresh = outside.inside(box, outside.STATE)
        before, started = outside.look(box), time.monotonic()
        code, told = group.apply()
        seconds = time.monotonic() - started
        assert code in (0, 1), told
        broken = outside.judge(before, outside.look(box), stage.versions, died=False)
        broken += group.secrets() + outside.secret_on_host(stage.secret, box)
        assert not broken, f"an undisturbed apply of {spec}: {broken}\n{told}"
        group.boot()
        times = outside.inside(box, outside.TIMES)
        again, told = group.apply()
        changed = outside.differences(times, outside.inside(box, outside.TIMES), without=KEPT)
        assert (again, changed) == (0, []), f"{changed}\n{told}"
        return Reference(code, seconds, outside.inside(box, outside.STATE), fresh)
    finally:
        group.close()


def disturbed(stage: Stage, runs: list[Run], seed: str, *, way: str = "") -> list[Run]:
    """These runs, a host each, of one spec; with a `way`, one run whose hosts feel what is done to the apply itself."""
    spec, known = runs[0].spec, stage.references[runs[0].spec]
    whose = runs if not way else runs * 2
    steps: dict[str, float] = {}
    with _timed(steps, "hosts"):
        group = Group(stage, spec, [run.fault.disk for run in whose])
    held: list[bool] = []
    try:
        bridge = outside.interface(group.hosts[0].address)
        seen = set(stage.watch.found)
        with outside.Packets(bridge, stage.secret) as packets:
            _disturb(group, runs, whose, seed, way, known, steps)
            _complete(group, whose, known, steps)
        for run in runs:
            run.steps = {name: round(seconds, 1) for name, seconds in steps.items()}
            run.broken += sorted((stage.watch.found - seen) | packets.found)
            run.notes.append(f"{packets.seen} packets of {bridge} were read")
        whose[0].broken += group.secrets()
        held = [not run.broken for run in whose]
        return runs
    finally:
        for run in runs:
            run.broken = list(dict.fromkeys(run.broken))
        group.close(held)


@contextmanager
def _timed(steps: dict[str, float], name: str) -> Iterator[None]:
    started = time.monotonic()
    try:
        yield
    finally:
        steps[name] = steps.get(name, 0) + time.monotonic() - started


def _of_each(act: Callable[[str], str], boxes: list[str]) -> list[str]:
    """What each host answers; of one that is silent why, which is not a state of a host that is well."""

    def heard(box: str) -> str:
        try:
            return act(box)
        except outside.Silent as error:
            return f"bounded: silent: {error}"

    with ThreadPoolExecutor(JUDGED) as pool:
        return list(pool.map(heard, boxes))


def _disturb(
    group: Group, runs: list[Run], whose: list[Run], seed: str, way: str, known: Reference, steps: dict[str, float]
) -> None:
    stage, chance = group.stage, random.Random(f"{seed}:{runs[0].number}:apply")
    with _timed(steps, "judge"), ThreadPoolExecutor(JUDGED) as pool:
        before = list(pool.map(outside.look, (f"{container.PREFIX}{name}" for name in group.names)))
    child: list[subprocess.Popen[str]] = []
    over = threading.Event()
    targets = [
        Target(
            host.name,
            host.address,
            lambda: descendants(child[0].pid),
            partial(_replace, stage, host.name, group.spec),
            stage.disks.get(host.name),
            over,
        )
        for host in group.hosts
    ]
    if not way:
        for target, run in zip(targets, runs, strict=True):
            run.fault.before(target)
    started = time.monotonic()
    around = classes.surroundings(random.Random(f"{seed}:{runs[0].number}:surroundings"))
    runs[0].notes += [f"around it: {around}"] if around else []
    child.append(group.start(surroundings=around))
    threads = []
    if not way:
        threads = [
            threading.Thread(target=_guarded, args=(run, run.fault.during, target))
            for target, run in zip(targets, runs, strict=True)
        ]
    else:
        threads = [
            threading.Thread(target=_to_apply, args=(group, child[0], way, chance.uniform(0.5, known.seconds), runs[0]))
        ]
    for thread in threads:
        thread.start()
    ended, told = group.wait(child[0])
    seconds = steps["disturbed"] = time.monotonic() - started
    over.set()
    for thread in threads:
        thread.join()
    for target, run in zip(targets, whose, strict=True):
        if not way:
            _guarded(run, run.fault.after, target)
        run.notes += [line for line in target.log if line]
        run.told += f"--- disturbed ---\n{tail(told)}"
        run.seconds = seconds
        if not way and (mine := failures(told, target.name)):
            run.named = bool(re.search(run.fault.cause, mine, re.IGNORECASE))
        if ended is None:
            run.broken.append(f"bounded: the apply did not end within {LIMIT:g} s")
        if "Traceback" in told:
            run.broken.append("bounded: the apply ended with a traceback")
        with suppress(subprocess.SubprocessError):
            if run.fault.died:
                target.podman("start")
    with _timed(steps, "judge"), ThreadPoolExecutor(JUDGED) as pool:
        list(pool.map(partial(_seen, group, known), group.names, whose, before))


def _seen(group: Group, known: Reference, name: str, run: Run, before: outside.Look) -> None:
    """What the judge sees on a host once its fault is gone."""
    if run.fault.died:
        with suppress(Exception):
            hosts.up(name, HOST)  # waits until it answers
    try:
        now = outside.look(f"{container.PREFIX}{name}")
        if run.fault.replaced:
            state = outside.inside(f"{container.PREFIX}{name}", outside.STATE)
            run.broken += [f"site: on a host that is another: {line}" for line in differences(known.fresh, state)]
        run.broken += outside.judge(before, now, group.stage.versions, died=run.fault.died)
        if run.fault.died:
            outside.plant(f"{container.PREFIX}{name}")  # the user comes back, and starts the job again
    except outside.Silent as error:
        run.broken.append(f"bounded: {error}")


def differences(one: str, other: str, *, booted: bool = False) -> list[str]:
    """Of two states; the keys of sshd are drawn by each host."""
    return [line for line in outside.differences(one, other, 99, booted=booted) if "/etc/ssh/ssh_host_" not in line][
        :12
    ]


def folded(names: str) -> set[str]:
    """The hosts of a line that is about several: `a0, b[1:3] (4 hosts)`."""
    found = set()
    for name in re.sub(r" \(\d+ hosts\)$", "", names).split(", "):
        if span := re.fullmatch(r"(.*)\[(\d+):(\d+)\]", name):
            found |= {f"{span[1]}{number}" for number in range(int(span[2]), int(span[3]) + 1)}
        else:
            found.add(name)
    return found


def failures(told: str, host: str, how: re.Pattern[str] = ENDED) -> str:
    """What an apply says of a host that failed or was not reached, to its last line; empty for one that came
    through."""
    found, of_host = [], False
    for line in told.splitlines():
        if not line.startswith(" "):
            of_host = bool((of := how.match(line)) and host in folded(of[1] or of[2]))
        if of_host:
            found.append(line)
    return "\n".join(found)


def _guarded(run: Run, act: Any, target: Target) -> None:
    try:
        act(target)
    except (outside.Silent, GpuprovError, subprocess.SubprocessError, OSError) as error:
        run.notes.append(str(error))


def _to_apply(group: Group, child: subprocess.Popen[str], way: str, after: float, run: Run) -> None:
    """Do to the apply itself what this way says."""
    time.sleep(after)
    if way == classes.OPERATORS:
        code, told = group.wait(group.start(home="other"))
        if code not in (5, group.stage.references[group.spec].code):
            run.broken.append(f"completes: the second operator's apply ended with {code}")
        run.told += f"--- the other operator ---\n{tail(told)}"
    elif way == "all-killed":
        for pid in [child.pid, *descendants(child.pid)]:
            send(pid, signal.SIGKILL)
    else:
        send(child.pid, {"killed": signal.SIGKILL, "terminated": signal.SIGTERM, "interrupted": signal.SIGINT}[way])


def _replace(stage: Stage, name: str, spec: str) -> None:
    container.down(name)
    stage.up(name, spec)
    container.run(name, classes.REPLACED)


def _complete(group: Group, whose: list[Run], known: Reference, steps: dict[str, float]) -> None:
    """The next apply completes, the one after it changes nothing, and the end is that of an undisturbed apply."""
    (group.place / "known_hosts").unlink(missing_ok=True)
    with _timed(steps, "next"):
        code, told = group.apply()
    # A host that died boots what is installed, which an upgrade on a host that nobody boots waits for.
    well = {known.code, 0}
    boxes = [f"{container.PREFIX}{name}" for name in group.names]
    with _timed(steps, "boot"):
        group.boot()
    with _timed(steps, "judge"):
        times = _of_each(lambda box: outside.inside(box, outside.TIMES), boxes)
    with _timed(steps, "third"):
        third, idle = group.apply()
    with _timed(steps, "judge"):
        then = _of_each(lambda box: outside.inside(box, outside.TIMES), boxes)
        states = _of_each(lambda box: outside.inside(box, outside.STATE), boxes)
        found = _of_each(lambda box: "\n".join(outside.secret_on_host(group.stage.secret, box)), boxes)
    blamed = {name for name in group.names if code not in well and failures(told, name)}
    red = {name for name in group.names if third != 0 and code in well and failures(idle, name, NOT_GREEN)}
    for name, run, was, now, state, secret in zip(group.names, whose, times, then, states, found, strict=True):
        run.told += f"--- next ---\n{tail(told)}--- third ---\n{tail(idle)}"
        differs = differences(known.state, state, booted=run.fault.died)
        run.broken += [f"same: {line}" for line in differs]
        if code not in well and (differs or name in blamed or not blamed):
            why = " ".join(failures(told, name).split()) or tail(told, 300)
            run.broken.append(f"completes: the next apply ended with {code}, not {known.code}: {why[:300]}")
        changed = outside.differences(was, now, 4, without=KEPT)
        run.broken += [f"idle: {line}" for line in changed]
        if third != 0 and code in well and (name in red or not red):
            run.broken.append(f"idle: the third apply ended with {third}")
        run.broken += secret.splitlines()
