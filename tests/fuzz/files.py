"""Files that people, machines and servers hand on: plans, fleets, jobs, results, policies, records, bundles, and what a
host keeps."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from gpuprov.bundle import opened, placed, resolve
from gpuprov.bundle.model import Manifest as Packages
from gpuprov.checkpoints import Back, back, trusted
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable
from gpuprov.core.safe_parse.tar_headers import Member
from gpuprov.facts.captures import reader
from gpuprov.facts.probes.host.checkpoints import Checkpoint, Checkpoints
from gpuprov.fleet.drain.slurm import node
from gpuprov.fleet.policy import planned, policy
from gpuprov.fleet.specs import build_spec
from gpuprov.host_code import archives as installers
from gpuprov.host_code.failed import Failed
from gpuprov.host_code.pull import bundle as pulled
from gpuprov.host_code.pull import config, signed, state, wheels
from gpuprov.host_code.pull.refused import Refused
from gpuprov.init import kubernetes, slurm
from gpuprov.jobs import cut, fold, frozen, shown, stored
from gpuprov.jobs.model import Fleet, Host, Job, digest_of
from gpuprov.jobs.results import file_name
from gpuprov.plan import saved
from gpuprov.plan.model import HostPlan
from gpuprov.pull.model import Manifest, Wheel
from gpuprov.spec.model import RawHost
from tests.bundle.carried import REPOSITORY
from tests.fuzz import corpus, mutate
from tests.jobs.fleet import FAILURE, SKIPPED, result

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

NAMES = ("gpu1", "gpu2")
SPEC: dict[str, Any] = {"nvidia_driver": {"version": "535.261.03"}, "kernel": {"sysctl": {"vm.swappiness": 1}}}
POLICY = """gpuprov_rollout: 1
domain: rack
canary: {hosts: 1, soak: 10m}
batches: {size: 10%, per_domain: 1}
limits: {draining: 2}
budget: {failures: 5%}
windows: {zone: Europe/Berlin, open: ["mon-fri 09:00-17:00"], freeze: ["2026-12-20..2027-01-03"]}
approvals: [{before: canary, by: [ann, bob], count: 2}]
drain: {adapter: command, command: "true", timeout: 12h}
"""


def _plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


@cache
def _fleet() -> Fleet:
    hosts = tuple(
        Host(name=name, groups=("all",), spec="one", connection={"ansible_host": "192.0.2.1"}, domains={"rack": "r1"})
        for name in NAMES
    )
    made = Fleet(specs={"one": SPEC}, groups={"all": ()}, hosts=hosts)
    return msgspec.structs.replace(made, digest=digest_of(made))


@cache
def _plan() -> Any:
    judged = saved.Judged("nvidia_driver.version", "fail", "580", "535")
    hosts = tuple(saved.Bound(host=name, state="s", plan=HostPlan(host=name, run={"kernel": "x"})) for name in NAMES)
    return _plain(saved.Saved(asked=saved.Asked(inventory=("i.yaml",)), hosts=hosts, states={"s": (judged,)}))


@cache
def _result() -> Any:
    boot = {"verdict": "wrong", "reasons": ["x"]}
    told = result("gpu1", failures=(FAILURE,), unproven=(SKIPPED,), counts={"fail": 1, "skip": 1})
    return {**_plain(told), "next_boot": boot}


@cache
def _manifest() -> Any:
    made = Manifest(
        host="gpu1", identity={"declared": "a1b2"}, serial=7, made_at="2026-01-01T00:00:00Z",
        expires_at="2199-01-01T00:00:00Z", mode="apply", reboot=True, services=("docker",), job="j", fleet="f",
        python=(3, 11), wheels=(Wheel(name="a-1-py3-none-any.whl", sha256="0" * 64, size=9),),
    )  # fmt: skip
    return _plain(made)


@cache
def _packages() -> Any:
    made = Packages(
        made_at="2026-01-01T00:00:00Z", expires_at="2199-01-01T00:00:00Z", key="A" * 40, specs=("s",),
        repositories=(REPOSITORY,), files={"bom.json": {"sha256": "0" * 64, "size": 1}},  # type: ignore[dict-item]
    )  # fmt: skip
    return _plain(made)


def documents(base: Callable[[], Any]) -> Callable[[Random], bytes]:
    """The document with a value changed, or its text."""

    def make(random: Random) -> bytes:
        if random.random() < 0.3:
            return mutate.text(random, (json.dumps(base()),)).encode(errors="replace")
        made = base()
        for _ in range(random.choice((1, 1, 2, 4))):
            made = mutate.data(random, made)
        try:
            return json.dumps(made, allow_nan=False).encode(errors="replace")
        except ValueError:
            return b"{}"

    return make


def _damaged(random: Random, data: bytes) -> bytes:
    """The bytes, with some of them changed, left out, or there again."""
    made = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 5, 20))):
        at, length = random.randrange(len(made) + 1), random.choice((1, 1, 2, 8, 100, 512))
        how = random.randrange(5)
        if how == 0:
            made[at : at + length] = random.randbytes(length)
        elif how == 1:
            del made[at : at + length]
        elif how == 2:
            made[at:at] = made[at : at + length]
        elif how == 3:
            made = made[:at]
        elif made:
            made[at % len(made)] ^= 1 << random.randrange(8)
    return bytes(made)


MEMBERS = (
    "a", "a/b", "../a", "/etc/x", "a/../../b", ".", "", "a\0b", "\x1b[2J", "x" * 90, "Packages", "a_1_all.deb",
    "manifest.json", "job.json",
)  # fmt: skip
KINDS = (*[tarfile.REGTYPE] * 3, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE)
STANZA = "Package: a\nVersion: 1\nArchitecture: all\nFilename: ./a_1_all.deb\nSize: 3\nSHA256: 0\n\n"


def _tar(random: Random, kind: str, files: dict[str, bytes] | None = None) -> bytes:
    """An archive with these files, or with members of all types and names; then damaged, or not."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=f"w:{kind}", format=random.choice((0, 1, 2))) as archive:  # type: ignore[call-overload]
        for name, data in (files or {}).items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        for _ in range(random.randrange(0 if files else 1, 5)):
            member = tarfile.TarInfo(random.choice(MEMBERS))
            member.type = random.choice(KINDS)
            member.linkname, member.mode = random.choice(MEMBERS), random.choice((0o644, 0o6777))
            data = random.randbytes(3) if member.isreg() else b""
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return _damaged(random, made.getvalue()) if random.random() < 0.7 else made.getvalue()


def _zip(random: Random) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name in {random.choice(MEMBERS) or "x" for _ in range(random.randrange(1, 4))}:
            one = zipfile.ZipInfo(name)
            one.external_attr = random.choice((0o100644, 0o120777, 0o020666, 0)) << 16
            archive.writestr(one, random.randbytes(20))
    return _damaged(random, made.getvalue()) if random.random() < 0.7 else made.getvalue()


def _pull(random: Random) -> bytes:
    if random.random() < 0.3:
        return _tar(random, "")
    manifest = documents(_manifest)(random)
    files = {pulled.MANIFEST: manifest, pulled.JOB: b"{}"}
    return _tar(random, "", files) if random.random() < 0.5 else _whole_tar(files)


def _handed_over(random: Random) -> bytes:
    index = mutate.text(random, (STANZA,)).encode(errors="replace")
    return _tar(random, "", {"Packages": index, "a_1_all.deb": b"abc"})


def _whole_tar(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


@cache
def _records() -> tuple[tuple[str, bytes], ...]:
    """A bug report, and what of a sosreport and a capture may be read."""
    report = next(iter(sorted((corpus.TESTS / "real").rglob("nvidia-bug-report*.log*"))), None)
    text = report.read_bytes()[:60_000] if report else b"nvidia-bug-report.sh will now collect information\n"
    capture = (
        b'{"gpuprov_capture":2,"gpuprov_version":"1","host":"a","made_at":"x","outputs":{"platform":{"text":"x"}}}'
    )
    return (("nvidia-bug-report.log", text), ("a.capture.json", capture), ("sosreport-a/sos_commands/x", b"x"))


def _record(random: Random) -> bytes:
    name, data = random.choice(_records())
    changed = mutate.text(random, (data.decode(errors="replace"),)).encode(errors="replace")
    if random.random() < 0.4:
        return changed
    return _tar(random, random.choice(("", "gz", "xz", "bz2")), {name: changed, "sosreport-a/version.txt": b"x"})


def _in_a_file(name: str, judge: Callable[[Path], object]) -> Callable[[bytes], object]:
    def write(data: bytes) -> object:
        path = Path(name)
        path.write_bytes(data)
        path.chmod(0o600)
        return judge(path)

    return write


def _judge_plan(path: Path) -> None:
    found = saved.load(path)
    pairs = [
        (RawHost(name=name, values=SPEC), spec)
        for name in NAMES
        if (spec := build_spec(RawHost(name=name, values=SPEC))[0])
    ]
    saved.left_out(found)
    saved.of_plan(found, pairs)


def _judge_fleet(kind: type[Fleet] | type[Job]) -> Callable[[bytes], None]:
    """With a digest that fits, so that what is behind it is read."""

    def judge(data: bytes) -> None:
        path = Path(f"{kind.__name__}.json")
        try:
            made = msgspec.json.decode(data, type=kind)
            made = msgspec.structs.replace(made, digest=digest_of(made))
            data = stored.text(made).encode()
        except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
            pass
        path.write_bytes(data)
        path.chmod(0o600)
        found: Fleet | Job = stored.load_fleet(path) if kind is Fleet else stored.load_job(path)
        frozen.raw_hosts(found.hosts, found.specs)
        if isinstance(found, Fleet):
            for by in ("", "rack", "all"):
                cut.cut(found, size=1, by=by)

    return judge


def _judge_results(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for name in ("gpu1", "gpu2"):
            (Path(folder) / file_name(name)).write_bytes(data)
        folded = fold.fold([Path(folder)])
        list(fold.sentence(folded))
        json.loads("".join(shown.lines(folded)))


def _judge_policy(data: bytes) -> None:
    found = policy.read(data, "policy.yaml")
    members = [planned.Member(f"gpu{n}", ("all",), "r1", "") for n in range(5)]
    planned.planned(found, members)


def _judge_pull(data: bytes) -> None:
    found = pulled.read(data)
    told = config.Config(name="gpu1", source="/srv", declared="a1b2")
    pulled.judge(found.manifest, told, state.State(serial=3), time.time())
    wheels.choose(found.manifest["wheels"], wheels.Python("python3", (3, 11), "x86_64", (2, 36)))


def _judge_wheel(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=".") as place:
        inner = Path(place) / "in" / "here"
        inner.mkdir(parents=True)
        try:
            wheels.unpack(data, str(inner), "a.whl", 1 << 20, 100)
        finally:
            _stays(Path(place), inner)


def _judge_installer(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=".") as place:
        inner = Path(place) / "in" / "here"
        inner.mkdir(parents=True)
        (Path(place) / "in" / "archive").write_bytes(data)
        try:
            installers.unpack(str(Path(place) / "in" / "archive"), str(inner))
        finally:
            (Path(place) / "in" / "archive").unlink()
            _stays(Path(place), inner)


def _stays(place: Path, inner: Path) -> None:
    """Nothing was written beside the folder, and no link in it leads out."""
    out = [path for path in place.rglob("*") if path not in (inner, inner.parent) and inner not in path.parents]
    assert not out, f"written beside the folder: {out}"
    for path in inner.rglob("*"):
        assert os.path.realpath(path).startswith(os.path.realpath(inner)), f"{path} leads out of the folder"
        assert path.is_symlink() or not path.lstat().st_mode & 0o7022, f"{path} has mode {path.lstat().st_mode:o}"


def _judge_handed_over(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=".") as place:
        inner = Path(place) / "in"
        inner.mkdir()
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=Member) as archive:
            texts, files = resolve._unpack_archive(archive, inner, "gpu1")
        assert {path.name for path in Path(place).rglob("*")} == {"in", *files}
        resolve.judged(texts.get(resolve.INDEX, ""), files)


def _judge_manifest(data: bytes) -> None:
    found = opened.read(data, Path("bundle"))
    placed.identifier(found)
    opened.of(found, "gpu1", ("debian", "12", "amd64"), frozenset(REPOSITORY.kernels))


def _judge_checkpoint(data: bytes) -> None:
    raw = RawHost(name="gpu1", values=SPEC)
    found = safe_parse.parse_typed_json(data, Checkpoint)
    chosen = back(Checkpoints(all=(found,), last=found), None)
    told = trusted(raw, chosen) if isinstance(chosen, Back) else chosen
    if isinstance(told, Back):
        build_spec(msgspec.structs.replace(raw, values=told.values))


def _seeds(folder: str, pattern: str) -> tuple[str, ...]:
    found = [path.read_text(errors="replace")[:20_000] for path in sorted((corpus.TESTS / folder).rglob(pattern))]
    return tuple(found)


def files() -> tuple[Target, ...]:
    """The targets; the weights keep their time in proportion."""
    from tests.fuzz.targets import Target, allowing

    def text(name: str, seeds: tuple[str, ...], judge: Callable[[bytes], object], *errors: type[Exception]) -> Target:
        def make(random: Random) -> bytes:
            return mutate.text(random, seeds).encode(errors="replace")

        return Target(name, make, allowing(judge, *errors), 0.5)

    def document(
        name: str, base: Callable[[], Any], judge: Callable[[bytes], object], *errors: type[Exception]
    ) -> Target:
        return Target(name, documents(base), allowing(judge, *errors), 0.5)

    def archive(
        name: str, make: Callable[[Random], bytes], judge: Callable[[bytes], object], *errors: type[Exception]
    ) -> Target:
        return Target(name, make, allowing(judge, *errors), 0.5)

    def checkpoint() -> Any:
        return {"run": "one", "at": "2026-11-11T09:00:00Z", "spec": SPEC, "digests": [{"kernel": "a"}]}

    def pull_config() -> Any:
        return {"name": "gpu1", "source": "/srv", "results": "https://x/y", "state": "/var/lib/gpuprov/pull"}

    return (
        document("file.plan", _plan, _in_a_file("x.plan", _judge_plan), GpuprovError),
        document("file.fleet", lambda: _plain(_fleet()), _judge_fleet(Fleet), GpuprovError),
        document("file.job", lambda: _plain(cut.cut(_fleet())[0]), _judge_fleet(Job), GpuprovError),
        document("file.results", _result, _judge_results, GpuprovError),
        text("file.policy", (POLICY, *_seeds("rollout", "*.yaml")), _judge_policy, GpuprovError),
        archive("file.record", _record, _in_a_file("record", reader.read), GpuprovError),
        text("file.gres", _seeds("init/samples", "*.conf"), _in_a_file("gres.conf", lambda path: slurm.draft([path])),
             GpuprovError),
        text("file.nodes", _seeds("init/samples", "*.json"), _in_a_file("nodes.json", kubernetes.draft), GpuprovError),
        document("host.checkpoint", checkpoint, _judge_checkpoint, Unreadable),
        document("pull.config", pull_config, _in_a_file("pull.json", lambda path: config.read(str(path))), Refused),
        document("pull.state", lambda: state.State()._asdict(), _in_a_file("state.json", lambda _: state.read(".")),
                 Refused),
        text("pull.signed", ("-----BEGIN SSH SIGNATURE-----\nx\n-----END SSH SIGNATURE-----\nabc",),
             signed.split_signature, Refused),
        archive("pull.bundle", _pull, _judge_pull, Refused),
        archive("pull.wheel", _zip, _judge_wheel, Refused, OSError),
        archive("host.installer", lambda random: _tar(random, "gz"), _judge_installer, Failed),
        document("bundle.manifest", _packages, _judge_manifest, GpuprovError),
        archive(
            "bundle.handed_over",
            _handed_over,
            _judge_handed_over, tarfile.TarError, ValueError, EOFError,
        ),
        text("drain.slurm", _seeds("fleet/drain/data", "*.txt"), lambda data: node.of_text(data.decode(), "n1"),
             Unreadable),
        text("drain.slurm_json", _seeds("fleet/drain/data", "*.json"), lambda data: node.of_json(data, "n1"),
             Unreadable),
    )  # fmt: skip
