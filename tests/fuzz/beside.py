"""Readers that stand outside of `gpuprov.facts.probes`: what people paste, schedulers answer, engines and package
managers keep, and the lock of a host. Some have a property beside the answer: what is masked stays masked, what is
written reads the same."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from gpuprov.apply import aftermath
from gpuprov.capabilities.mig import config_file
from gpuprov.capabilities.vgpu_guest import token
from gpuprov.catalog.drivers import Version
from gpuprov.catalog.symptoms import list_symptoms
from gpuprov.core import masking, safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.safe_parse import Unreadable
from gpuprov.explain import in_text
from gpuprov.facts.probes.base import Output
from gpuprov.fleet.drain.kubernetes import adapter, cluster, pods
from gpuprov.host_code import command_line, fence, lock
from gpuprov.host_code.mig import layout
from gpuprov.host_code.packages import lists, zypper_locks
from gpuprov.init import slurm
from gpuprov.inventory import ranges
from gpuprov.render.spec_digest import is_comparable
from gpuprov.rules import engine_files, nccl_topology, reach
from tests.fuzz import corpus, mutate

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

SECRET = "hunter2-Hunter2"
MARKER = "0123456789abcdef"
PASTED = (
    "NVRM: Xid (PCI:0000:19:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n",
    "Nov 24 02:42:01 gpu1 kernel: [ 1.0] nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM "
    "Fault Up\n",
    "RuntimeError: CUDA error: system not yet initialized\n    Fabric State : In Progress\n",
)
KEPT = (
    "https://user:pass@mirror.example/a\npassword = 'x y'\napi_key: abc\nAuthorization: Bearer abcdefgh12345\n",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n-----END OPENSSH PRIVATE KEY-----\nprogram --proxy-password abc\n",
)
NCCL = (
    '<system version="1"><cpu numaid="0" arch="x86_64"><pci busid="0000:19:00.0" class="0x030200"/>'
    '<pci busid="0000:1a:00.0" class="0x020000" vendor="0x15b3"/></cpu></system>',
)
TOML = (
    "# ours\nversion = 2\nimports = "
    '["/etc/containerd/conf.d/*.toml"]\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = '
    '"nvidia"  # not by us\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = '
    '"io.containerd.runc.v2"\n',
    '[crio.runtime]\n# the site\'s\ndefault_runtime = "crun"\n[crio.runtime.runtimes.nvidia]\nruntime_path = '
    '"/usr/bin/x"\n',
)
MADISON = ("nvidia-driver | 535.261.03-1 | http://deb.debian.org/debian bookworm/non-free amd64 Packages\n",)
ROWS = ("ii |libc6|2.36-9|glibc|amd64|Debian\nhi |nvidia-driver|535.261.03-1|nvidia-graphics-drivers|amd64|Debian\n",)
LOCKS = (
    "type: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: nvidia-*\n\nsolvable_name: "
    "kernel\nversion: 1\n",
)
OWNER = (
    '{"run": "a1b2c3d4", "user": "ann", "host": "m", "pid": 1, "since": "x", "boot": "b 1.00", "at": 1.5, "lease": 60}',
)
GRUB = ("GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX=\"quiet iommu=pt\"\nexport GRUB_CMDLINE_LINUX='a b' # c\n",)
NAMES = ("gpu[01-04,07],login1", "rack[1-2]n[001-128]", "gpu[001:032:2]", "gpu[a:f]")
HEARD = (
    f"motd\r\n{MARKER} system Linux\r\n{MARKER} python 3.11 /usr/bin/python3\n{MARKER} failed /x: Traceback\tE: a "
    "(1)\n",
)
MIG = (
    "version: v1\nmig-configs:\n  all-1g:\n  - devices: all\n    mig-enabled: true\n    mig-devices: {1g.10gb: 7}\n"
    "  custom:\n  - {device-filter: [0x233010DE], devices: [0], mig-enabled: true, mig-devices: {3g.40gb+me: 1, "
    "1c.2g.20gb: 1}}\n",
)
TOKEN = ("eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjE4MDAwMDAwMDB9.c2lnbmF0dXJl",)


@cache
def _spoken() -> tuple[str, ...]:
    """What `explain -` is given: whole logs, and each message that it knows."""
    return (*PASTED, *(f"x: {said} y\n" for one in list_symptoms() for said in one.signatures))


def _pods() -> dict[str, Any]:
    owners = [{"kind": "Job", "controller": True}]
    meta = {"name": "a", "namespace": "b", "labels": {"app": "x"}, "annotations": {}, "ownerReferences": owners}
    return {"items": [{"metadata": meta, "spec": {"volumes": [{"emptyDir": {}}]}, "status": {"phase": "Running"}}]}


def _node() -> dict[str, Any]:
    note = '{"run": "r1", "was": false, "labels": {}, "by": "ann"}'
    return {"metadata": {"name": "n1", "labels": {"a": "b"}, "annotations": {adapter.NOTE: note}}, "spec": {}}


def _budget() -> dict[str, Any]:
    rules = [{"key": "app", "operator": "In", "values": ["x"]}]
    spec = {"selector": {"matchLabels": {"app": "x"}, "matchExpressions": rules}}
    return {
        "metadata": {"name": "p", "generation": 1},
        "spec": spec,
        "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
    }


class _Budgets:
    """A cluster that has these budgets."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def budgets(self, _namespace: str) -> list[Any]:
        return self._found


def _judge_pods(data: bytes) -> None:
    for pod in safe_parse.parse_typed_json(data, cluster.Pods).items:
        str((pod.shown, pod.owner, pod.stays))
        pods._explain_kept(pod, empty_dir=False)
    pods.list_operands(safe_parse.parse_typed_json(data, cluster.Pods).items, ("a",))


def _judge_node(data: bytes) -> None:
    node = safe_parse.parse_typed_json(data, cluster.Node)
    adapter.noted(node)
    adapter.others(node)
    adapter.shown(node)


def _judge_budget(data: bytes) -> None:
    found = safe_parse.parse_json(data.decode())
    if isinstance(found, dict):
        pod = cluster.Pod(metadata=cluster.Metadata(name="a", labels={"app": "x"}))
        pods._find_budget(_Budgets([found]), pod)  # type: ignore[arg-type]


def _judge_masked(text: str) -> None:
    """A value that is known to be secret is nowhere, and masking again masks nothing more."""
    once, _ = masking.masked(text, [SECRET])
    assert SECRET not in once, "a secret that is known is still there"
    assert masking.masked(once, [SECRET])[0] == once, "masked again it is another text"


def _read(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _judge_engine_file(text: str) -> None:
    """What is written anew is the same file but for one value, with every comment of the site's."""
    for name in ("containerd", "crio"):
        before, after = _read(text), engine_files.with_default(text, name, "runc")
        engine_files.with_imports(text, after)
        if after == text:
            continue
        read = _read(after)
        assert before is not None, "what is not TOML was changed"
        assert read is not None, "what was TOML is none any more"
        assert engine_files.with_default(after, name, "runc") == after, "a second time it is changed again"
        lost = {line.rstrip() for line in text.splitlines() if line.lstrip().startswith("#")} - {
            line.rstrip() for line in after.splitlines()
        }
        assert not lost, f"comments are lost: {lost}"


def _judge_lists(text: str) -> None:
    for read in (lists.parse_madison, lists.parse_places, lists.parse_rows, lists.parse_installed):
        read(text)


def _judge_locks(text: str) -> None:
    found = zypper_locks.split_blocks(text)
    str([zypper_locks.name_of(one) for one in found])
    zypper_locks.list_held(found, ["nvidia-open", "kernel"])


def _judge_lock(text: str) -> None:
    lock.parse_owner(text)
    lock.name_of(text)
    lock.is_mine(text, {"run": "a1b2c3d4"})
    lock.count_left(text)
    fence.parse_taker(text)
    aftermath._describe_left(Output(text))


def _judge_layout(text: str) -> None:
    config_file.read(_written("mig.yaml", text), "")
    for entry in config_file.read(_written("mig.yaml", text), "all-1g").entries:
        layout.normalize_layout("enabled", (), [entry])


def _judge_token(text: str) -> None:
    found = token.read(_written("token", text))
    if found.expires:
        token.day(found.expires)


def _written(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8", errors="replace")
    return name


def beside() -> tuple[Target, ...]:
    """The targets."""
    return tuple(_of_texts()) + tuple(_of_documents())


def _of_texts() -> Iterator[Target]:
    from tests.fuzz.targets import Target, allowing

    def text(name: str, seeds: tuple[str, ...], judge: Callable[[str], object], *errors: type[Exception]) -> Target:
        return Target(name, lambda random: mutate.text(random, seeds), allowing(judge, *errors), 0.5)

    def secret(random: Random) -> str:
        made = mutate.text(random, KEPT)
        at = random.randrange(len(made) + 1)
        return made[:at] + SECRET + made[at:]

    yield text("beside.explain", _spoken(), lambda said: in_text(said, "a log"), GpuprovError)
    yield Target("beside.masked", secret, _judge_masked, 0.5)
    yield text("beside.nccl_topology", NCCL, nccl_topology.parse, nccl_topology.TopologyError)
    yield text("beside.engine_file", (*TOML, *_engines()), _judge_engine_file)
    yield text("beside.package_lists", (*MADISON, *ROWS, *corpus.seeds("packages")), _judge_lists)
    yield text("beside.zypper_locks", LOCKS, _judge_locks)
    yield text("beside.lock", (*OWNER, '{"held": true, "running": ["x"]}', "3-0123abcd r u h t"), _judge_lock)
    yield text("beside.grub_defaults", GRUB, command_line.setting, OSError)
    yield text("beside.slurm_names", NAMES, slurm.expanded, Unreadable)
    yield text("beside.ranges", NAMES, ranges.judge, Unreadable)
    yield text("beside.heard", HEARD, lambda said: reach.heard(said, MARKER))
    yield text(
        "beside.profile", ("1c.3g.40gb+me", "MIG 1g.10gb", "1g.5gb-me,gfx"), layout.parse_profile, layout.LayoutError
    )
    yield text("beside.version", ("535.261.03", "3:535.261.03-1~deb12u1"), Version.parse, GpuprovError)
    yield text("beside.digest", ("2:a:b:c", "sha256:x"), is_comparable)
    yield text("beside.mig_parted", MIG, _judge_layout, layout.LayoutError)
    yield text("beside.token", TOKEN, _judge_token)


def _of_documents() -> Iterator[Target]:
    from tests.fuzz.files import documents
    from tests.fuzz.targets import Target, allowing

    for name, base, judge in (
        ("beside.pods", _pods, _judge_pods),
        ("beside.node", _node, _judge_node),
        ("beside.budget", _budget, _judge_budget),
    ):
        yield Target(name, documents(base), allowing(judge, Unreadable), 0.5)


@cache
def _engines() -> tuple[str, ...]:
    return tuple(path.read_text(encoding="utf-8") for path in sorted((corpus.TESTS / "engines/data").glob("*.toml")))
