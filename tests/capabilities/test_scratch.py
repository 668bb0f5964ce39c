"""scratch: which disks may be used, what is refused with what is on it, and the file system as it is."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from gpuprov.capabilities import scratch
from gpuprov.capabilities.answers import STARTING
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.gds.fragment import Gds
from gpuprov.capabilities.scratch.desired import DESIRED, DROP_INS, desired
from gpuprov.capabilities.scratch.fragment import Engine, Scratch, parse_block
from gpuprov.capabilities.scratch.rules import rules
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.host.scratch import SCRATCH
from gpuprov.host_code.at_boot import scratch as onhost
from gpuprov.resources import Absent, File
from gpuprov.spec.build import convert
from gpuprov.spec.model import Fragment, HostSpec
from tests.capabilities.asking import Row, facts, judge
from tests.capabilities.contents_host import Also, unit
from tests.capabilities.scratch_host import (
    ARRAY,
    AWS,
    BLANK,
    EBS,
    FILESYSTEM,
    MOUNTED,
    OWN,
    PROBES,
    array,
    disk,
    members,
    said,
)
from tests.rows import run_each

DISKS, MOUNT, FILES, ENABLED, ACTIVE = (
    f"scratch.{name}" for name in ("disks", "mounted", "files", "enabled", "active")
)
UNIT = "gpuprov-scratch.service"
FIRST = f"/dev/nvme1n1 (3.49 TiB, {AWS}, AWS24BBF51AF55097008)"
NAMED = Scratch(disks=("nvme-QEMU_NVMe_Ctrl_*",), filesystem="ext4")
OTHER = "11111111-2222-3333-4444-555555555555"


def qemu(name: str, *more: str, transport: str = "pcie") -> str:
    link = f"link|nvme-QEMU_NVMe_Ctrl_{name}"
    return disk(name, link, *more, model="QEMU NVMe Ctrl", transport=transport, serial=name)


def refused(
    name: str, found: str, fix: str, *disks: str, block: Fragment | None = None, own: str = "", more: str = ""
) -> Row:
    return Row(name, DISKS, block, {"scratch": said(*disks, own=own, more=more)}, "fail", found, fix)


def holds(name: str, found: str, fix: str, *lines: str) -> Row:
    """A second disk that holds something, beside a blank one."""
    return refused(name, found, fix, disk("nvme1n1"), disk("nvme2n1", *lines))


ROWS = [
    Row("blank disks", DISKS, None, {"scratch": BLANK}, "pass",
        "blank: /dev/nvme1n1 (3.49 TiB, Amazon EC2 NVMe Instance Storage, AWS24BBF51AF55097008), /dev/nvme2n1"),
    Row("gpuprov's own array", DISKS, None, {}, "pass", "in use as the spec says: /dev/nvme1n1"),
    Row("one blank disk by its name", DISKS, NAMED, {"scratch": said(qemu("nvme1n1"))}, "pass",
        "not formatted: /dev/nvme1n1"),
    Row("Azure's second generation", DISKS, None,
        {"scratch": said(disk("nvme1n1", model="Microsoft NVMe Direct Disk v2"))}, "pass",
        "Microsoft NVMe Direct Disk v2"),
    Row("Google's local SSDs beside its persistent disk", DISKS, Scratch(count=2), {"scratch": said(*(
        disk(f"nvme{at}n1", model=model) for at, model in enumerate(("nvme_card0", "nvme_card15", "nvme_card-pd"),
                                                                    1)))},
        "pass", "nvme_card15"),
    refused("no local disk", "no NVMe disk has a model of a cloud's local disks; there are: /dev/nvme0n1 (200 GiB, "
                             "Amazon Elastic",
            "scratch.disks in the spec"),
    refused("no disk with that name", "no NVMe disk has nvme-QEMU_NVMe_Ctrl_*", "by-id", disk("nvme1n1"), block=NAMED),
    refused("one is missing", "1 of 2 disks are there", "scratch.count", disk("nvme1n1"), block=Scratch(count=2)),
    holds("a file system", "/dev/nvme2n1 (3.49 TiB, Amazon EC2 NVMe Instance Storage, AWS24BBF51AF55097008): ext4 "
                           f"\"home\" {OTHER}",
          "wipefs -a /dev/nvme2n1", f"signature|{OTHER},home,ext4"),
    holds("a label with commas", "ext4 \"my\\x20home,\\x20linux_raid_member\" 11", "wipefs",
          f"signature|{OTHER},my\\x20home,\\x20linux_raid_member,ext4"),
    holds("a partition table", "1 partition (nvme2n1p1), gpt", "wipefs -a /dev/nvme2n1", "part|nvme2n1p1",
          "signature|,,gpt"),
    holds("LVM in use", "used by dm-0 (vg-data), LVM2_member", "if nothing of it is needed", "holder|dm-0|vg-data",
          "signature|x1-y2,,LVM2_member"),
    holds("LVM not in use", "LVM2_member", "wipefs", "signature|x1-y2,,LVM2_member"),
    holds("multipath", "used by dm-1 (mpatha)", "if nothing", "holder|dm-1|mpatha"),
    holds("ZFS", "zfs_member", "wipefs -a", "signature|1234,tank,zfs_member"),
    holds("swap", "swap", "wipefs -a", "swap|", f"signature|{OTHER},,swap"),
    holds("mounted", "mounted on /data", "umount /data", "mount|/data", f"signature|{OTHER},,xfs"),
    holds("a raw database", "data without a signature in its first or last MiB",
          "blkdiscard -z -l 1048576 /dev/nvme2n1", "data|"),
    holds("it cannot be read", "it cannot be read: a read of its first and last MiB fails", "wipefs",
          "unreadable|a read of its first and last MiB fails"),
    holds("another's array", f"linux_raid_member \"kubernetes\" {OTHER}", "mdadm --stop /dev/md0", "holder|md0|",
          f"signature|{OTHER},kubernetes,linux_raid_member"),
    refused("gpuprov's array of another host", "linux_raid_member \"gpu1:gpuprov-scratch\"", "wipefs",
            *members("nvme1n1", "nvme2n1"), more=array()),
    refused("a remote disk", "a remote disk (tcp)", "leave it out", qemu("nvme1n1", transport="tcp"), block=NAMED),
    refused("EBS by its name", "a persistent disk of the cloud", "leave it out of scratch.disks",
            disk("nvme1n1", "link|nvme-vol1", model=EBS), block=Scratch(disks=("nvme-vol*",))),
    refused("not known how it is attached", "does not say how it is attached", "", qemu("nvme1n1", transport=""),
            block=NAMED),
    refused("one came back blank", "AWS24BBF51AF55097008): blank, and /dev/nvme1n1 has", "mdadm --stop /dev/md127",
            *members("nvme1n1"), disk("nvme2n1"), own=OWN, more="array|md127|0\nunreadable|md127|Input/output error\n"),
    refused("an array that does not run", "it cannot be read: Input/output error", "wipefs -a /dev/md127",
            *members("nvme1n1", "nvme2n1"), own=OWN, more="array|md127|0\nunreadable|md127|Input/output error\n"),
    refused("a member is gone", "made of 2 disks, and 1 are there", "nvme list", *members("nvme1n1"), own=OWN),
    refused("something else uses a member", "used by dm-3", "wipefs",
            *members("nvme1n1", "nvme2n1", more=("holder|dm-3|",)), own=OWN),
    refused("another file system on the array", f"ext4 {OTHER}", "wipefs -a /dev/md127",
            *members("nvme1n1", "nvme2n1"), own=OWN, more=array(OTHER, kind="ext4")),
    refused("LVM on the array", "used by dm-0 (vg-a)", "wipefs -a /dev/md127",
            *members("nvme1n1", "nvme2n1"), own=OWN, more=array("", "holder|md127|dm-0|vg-a")),
    refused("the spec asks for ext4 now", f"xfs {FILESYSTEM}", "wipefs -a /dev/md127", *members("nvme1n1", "nvme2n1"),
            own=OWN,
            more=array(), block=Scratch(filesystem="ext4")),
    refused("mounted elsewhere", "mounted on /old", "umount /old", *members("nvme1n1", "nvme2n1"), own=OWN,
            more=array() + "mount|md127|/old\n"),
    refused("something else is mounted there", "/scratch: nvme0n1p2 (ext4) is mounted there", "umount /scratch",
            disk("nvme1n1"), more="at|nvme0n1p2|ext4|755\n"),
    refused("files would be hidden", "/scratch holds files, which a mount would hide", "move it away", disk("nvme1n1"),
            more="under|holds files, which a mount would hide\n"),
    refused("a container", "this is a container", "apply it to the machine", disk("nvme1n1"), more="contained|\n"),
    Row("mounted", MOUNT, None, {}, "pass",
        "/scratch: xfs of 6.99 TiB on RAID 0 of 2 disks: nvme1n1 nvme2n1, mode 1777"),
    Row("a folder of it is bound elsewhere", MOUNT, None, {"scratch": said(*members("nvme1n1", "nvme2n1"), own=OWN,
        more=array() + "mount|md127|/var/lib/containerd\n" + MOUNTED)}, "pass", "/scratch: xfs"),
    Row("blank after a stop", MOUNT, None, {"scratch": BLANK.replace("read|", OWN + "read|")}, "fail",
        "blank: nvme1n1 nvme2n1",
        "gpuprov apply", change=f"setting {FIRST}: blank -> /scratch"),
    Row("not assembled", MOUNT, None, {"scratch": said(*members("nvme1n1", "nvme2n1", more=()), own=OWN)}, "fail",
        "not assembled"),
    Row("half made", MOUNT, None, {"scratch": said(*members("nvme1n1", "nvme2n1"), own=OWN, more=array(""))}, "fail",
        "not formatted"),
    Row("not mounted", MOUNT, None, {"scratch": said(*members("nvme1n1", "nvme2n1"), own=OWN, more=array())}, "fail",
        "not mounted"),
    Row("another mode", MOUNT, Scratch(mode="0755"), {}, "fail", "another mode"),
    Row("taken", MOUNT, None, {"scratch": said(disk("nvme1n1", "signature|,,gpt"))}, "fail", "gpt",
        "see scratch.disks"),
    Row("at the next boot", ENABLED, None, {}, "pass", f"{UNIT} enabled"),
    Row("switched off", ENABLED, None, {"contents": unit(UNIT, "active", "disabled")}, "fail", "is disabled", "enable"),
    Row("failed at boot", ACTIVE, None, {"contents": unit(UNIT, "failed", "enabled", "scratch: no NVMe disk has")},
        "fail",
        "no NVMe disk has", "free the disks that it names"),
    Row("another configuration", FILES, None, {"contents": Also("sum|0  /etc/gpuprov/scratch.conf\n")}, "fail",
        "another text"),
]  # fmt: skip


@run_each("row", ROWS, ids=lambda row: f"{row.check} {row.name}")
def test_checks(row: Row) -> None:
    judge(row)


def context(block: Scratch, text: str = PROBES["scratch"]) -> Context[Scratch]:
    return Context(HostSpec(name="gpu1", capabilities={"scratch": block}), block, facts(scratch=text))


def test_a_list_that_is_cut_off_is_no_list() -> None:
    with pytest.raises(ProbeFailed, match="cut off"):
        facts(scratch=BLANK.replace("read|\n", "")).get(SCRATCH)


def test_the_program_decides_by_the_same_configuration() -> None:
    block = Scratch(disks=("nvme-A*", "nvme-B*"), count=2)
    written = next(one.text for one in desired(context(block)) if isinstance(one, File) and one.path == onhost.CONFIG)
    rows = [line.split() for line in written.splitlines() if line[0] != "#"]
    assert onhost.parse_config(rows) == parse_block(block)


def test_services_that_require_it_do_not_start_without_it() -> None:
    files = {
        one.path: one
        for one in desired(context(Scratch(required_by=("containerd",))))
        if isinstance(one, File | Absent)
    }
    drop_in = files[DROP_INS["containerd"]]
    assert isinstance(drop_in, File)
    assert "AssertPathIsMountPoint=/scratch\n" in drop_in.text
    assert isinstance(files[DROP_INS["kubelet"]], Absent)
    assert {f"{engine}.service" for engine in get_args(Engine)} == {*STARTING} - {"podman-restart.service"}


def test_what_apply_does() -> None:
    blank = BLANK.replace("tool|mdadm\n", "").replace("tool|mkfs.xfs\n", "")
    values = DESIRED.make(context(Scratch(), blank))
    assert values["install"] == ["xfsprogs", "mdadm"]
    assert values["tasks"]["unit"]["differs"].startswith("blank -> /scratch: xfs of 6.99 TiB on RAID 0 of 2 disks")  # type: ignore[index]
    assert not DESIRED.make(context(Scratch()))["tasks"]["unit"]["differs"]  # type: ignore[index]


@run_each(
    ("values", "found"),
    [
        ({"mount": "/var/lib"}, "a folder of the system's"),
        ({"mount": "/usr/scratch"}, "a folder of the system's"),
        ({"mount": "/var/lib/containerd"}, ""),
        ({"gds": Gds(path="p2pdma")}, "reads no RAID 0"),
        ({"gds": Gds(path="p2pdma"), "count": 1}, ""),
    ],
)
def test_rules(values: dict[str, Any], found: str) -> None:
    blocks = {"gds": values.pop("gds")} if "gds" in values else {}
    block = Scratch(**values)
    problems = [*rules(HostSpec(name="gpu1", capabilities={"scratch": block, **blocks}), block)]
    assert [found in problem.message for problem in problems] == [True] * bool(found)


@run_each(
    "values",
    [
        {"mount": "scratch"},
        {"mount": "/a b"},
        {"disks": ["../nvme0n1"]},
        {"disks": ["*"]},
        {"mode": "1778"},
        {"raid": 5},
    ],
)
def test_values_that_are_refused(values: dict[str, Any]) -> None:
    assert convert(values, Scratch)[1]


def test_export() -> None:
    told = (
        PROBES["scratch"]
        + "config|mount /scratch\nconfig|filesystem xfs\nconfig|mode 1777\nconfig|count 2\nrequired|kubelet\n"
    )
    assert scratch.export(facts(scratch=told)) == Scratch(count=2, required_by=("kubelet",))
    assert scratch.export(facts(scratch=told.replace("mount|md127|/scratch\n", ""))) is None
    assert scratch.export(facts(**PROBES)) is None


def test_the_uuid_is_compared_as_both_programs_write_it() -> None:
    own = OWN.replace(ARRAY, "407b8d22:4e9fed01:aa2310cb:f9554f3b")
    state = facts(scratch=said(*members("nvme1n1", "nvme2n1"), own=own, more=array() + MOUNTED)).get(SCRATCH).state
    assert onhost.decide(state, parse_block(Scratch())).action == onhost.KEEP
