"""What a plan says, and how hosts with equal plans are told once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from gpuprov import plan as planning
from gpuprov.capabilities.mig.partitions import Partition
from gpuprov.facts.collect.unreached import Unreached
from gpuprov.facts.probes.base import Facts, Output
from gpuprov.plan import HostPlan
from gpuprov.plan import page as plan_page
from gpuprov.plan.collect import host_plan, last_apply, merged
from gpuprov.plan.decide import Decision
from gpuprov.plan.fold import groups, sign
from gpuprov.plan.model import Item
from gpuprov.plan.planning import plans_of
from gpuprov.plan.read import Reading
from gpuprov.report.document import as_json
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec, RawHost
from gpuprov.verify.evaluate import Result
from tests import documents
from tests.rows import run_each

NOW = datetime(2026, 1, 3, 1, 0, tzinfo=UTC)
PACKAGE = Item(capability="nvidia_driver", kind="package", name="nvidia-driver", before="535.1-1", after="550.2-1")
RUN = {"nvidia_driver": "fails: packages"}
FULL = HostPlan(
    host="gpu001",
    run=RUN,
    skipped={"kernel": "every check passes"},
    changes=(
        PACKAGE,
        Item(capability="nvidia_driver", kind="service", name="nvidia-persistenced.service", after="enabled"),
    ),
    diffs=(
        Item(capability="kernel", kind="file", name="/etc/x", after="kernel: Write", diff="--- before\n+++ after\n+a"),
    ),
    reboot=True,
    reboot_reasons=("the loaded module is 535.1",),
    last_apply="2 days ago (2026-01-01T00:00:00Z)",
    unpredicted=("host.gpu (gpu): podman container: no GPU", "nvidia_driver: no apt"),
    differs=True,
)


def test_a_plan_in_full() -> None:
    assert planning.as_text([FULL]).splitlines() == [
        "gpu001: 1 of 2 capabilities to apply (last apply: 2 days ago (2026-01-01T00:00:00Z))",
        "  reboot: yes, but it needs permission (reboot: if-needed, or apply --reboot): the loaded module is",
        "    535.1",
        "  nvidia_driver: fails: packages",
        "    ~ 535.1-1 -> 550.2-1: nvidia-driver",
        "    + nvidia-persistenced.service: enabled",
        "  kernel",
        "    + /etc/x: 1 line added",
        "      +a",
        "  not predicted",
        "    nvidia_driver: no apt",
        "    host.gpu (gpu) (-v says why)",
        "1 host: 1 package, 1 file, 1 unit, a reboot that needs permission; nothing was changed",
    ]


def test_files_of_one_folder_are_one_line() -> None:
    """A program has a dozen; the number of files counts each."""
    paths = ("/usr/local/lib/gpuprov/mig/act.py", "/usr/local/lib/gpuprov/mig/plan.py", "/etc/a.conf")
    changes = tuple(Item(kind="file", name=path, before="absent", after="written") for path in paths)
    told = planning.as_text([msgspec.structs.replace(FULL, changes=changes, diffs=())], width=0)
    assert "    + /usr/local/lib/gpuprov/mig/{act.py,plan.py}: absent -> written\n" in told
    assert "1 host: 3 files, " in told
    many = tuple(msgspec.structs.replace(changes[0], name=f"/usr/local/lib/gpuprov/mig/{n}.py") for n in range(9))
    told = planning.as_text([msgspec.structs.replace(FULL, changes=many, diffs=())], width=80)
    assert "    + 9 files in /usr/local/lib/gpuprov/mig: absent -> written\n" in told
    assert max(map(len, told.splitlines())) <= 80


def test_a_file_is_told_by_its_diff_and_holds_in_a_line() -> None:
    """What a diff shows is not said again by the checks."""
    held = [Item(kind="hold", name=name, before="not held", after="held") for name in ("libcuda1", "nvidia-smi")]
    plan = msgspec.structs.replace(
        FULL,
        changes=(
            *(Item(kind="file", name=name, before="a", after="b") for name in ("/etc/x", "/etc/y")),
            *held,
            Item(kind="hold", name="old", before="held", after="not held"),
        ),
    )
    told = planning.as_text([plan])
    assert "  host\n    + held: libcuda1, nvidia-smi\n    - not held: old\n    ~ /etc/y: a -> b\n" in told
    assert told.count("/etc/x") == 1


def test_what_fails_on_all_machines_is_one_group() -> None:
    failing = Result(host="", capability="health", check="health.firmware_baseline", status="fail")
    names = ("a", "b")
    plans = [
        HostPlan(host=name, unmended=(msgspec.structs.replace(failing, host=name, machine=f"{name} pid:[1]"),))
        for name in names
    ]
    assert [len(group.hosts) for group in groups(plans)] == [2]


def test_what_is_equal_is_one_line_and_what_is_long_is_folded() -> None:
    """Ports and GPUs that change alike, packages of a set with their holds, packages with versions of their own; all of
    it with -v."""
    ports = [
        Item(capability="pcie", kind="setting", name=f"0000:{n:02x}:00.0 ACSCtl", before="001d", after="0000")
        for n in range(24)
    ]
    power = [
        Item(capability="pcie", kind="setting", name=f"GPU {n} (0{n}:00.0): power limit", before="700 W", after="600 W")
        for n in (0, 1, 2, 4)
    ]
    moved = [
        Item(capability="pcie", kind="package", name=f"libnvidia-{n}", before="570", after="580") for n in range(5)
    ]
    held = [Item(capability="pcie", kind="hold", name=f"{one.name}:amd64", after="held") for one in moved]
    pulled = [Item(capability="pcie", kind="package", name=name, after=f"{name}.0") for name in ("dkms", "make")]
    lines = "".join(f"+line {n}\n" for n in range(30))
    text = Item(capability="pcie", kind="file", name="/etc/long", after="written", diff=f"--- a\n+++ b\n-old\n{lines}")
    plan = HostPlan(
        host="a", run={"pcie": "fails: acs"}, changes=(*ports, *power, *moved, *held, *pulled), diffs=(text,)
    )
    told = planning.as_text([plan], width=0)
    assert told.splitlines()[2:] == [
        "  pcie: fails: acs",
        "    ~ 570 -> 580: libnvidia-0, libnvidia-1, libnvidia-2, libnvidia-3, libnvidia-4",
        "    + 2 packages: dkms dkms.0, make make.0",
        "    + held: the 5 packages of 580",
        "    ~ 24 ports: ACSCtl 001d -> 0000",
        "    ~ GPUs 0, 1, 2, 4: power limit 700 W -> 600 W",
        "    + /etc/long: 30 lines added, 1 removed (-v shows them)",
        "1 host: 7 packages, 5 holds, 1 file, 28 settings; nothing was changed",
    ]
    whole = planning.as_text([plan], width=0, verbose=True)
    for words in ("0000:17:00.0", "GPU 4 (04:00.0)", "libnvidia-4:amd64", "      +line 29\n"):
        assert words in whole
    assert "the 5 packages" not in planning.as_text([msgspec.structs.replace(plan, changes=(*moved, *held[:4]))]), (
        "a hold of fewer packages names them"
    )
    page = plan_page.render([plan])
    assert "<summary>5 packages: 570 \u2192 580</summary>" in page
    assert "<summary>24 ports: ACSCtl 001d \u2192 0000</summary>" in page
    assert "<li>0000:17:00.0</li>" in page


def test_two_devices_or_other_values_stay_apart() -> None:
    def port(number: int, before: str) -> Item:
        return Item(capability="pcie", kind="setting", name=f"0{number}:00.0 ACSCtl", before=before, after="0000")

    plan = HostPlan(host="a", run={"pcie": "x"}, changes=(port(1, "001d"), port(2, "001d"), port(3, "001f")))
    told = planning.as_text([plan], width=0)
    assert all(f"    ~ 0{n}:00.0 ACSCtl: " in told for n in (1, 2, 3))


def test_what_another_host_has_too_names_it() -> None:
    other = msgspec.structs.replace(FULL, host="gpu002", run={**RUN, "mig": "never applied"})
    lines = planning.as_text([FULL, other]).splitlines()
    at = lines.index("gpu002: 2 of 3 capabilities to apply (last apply: 2 days ago (2026-01-01T00:00:00Z))")
    assert lines[at + 3 : at + 5] == ["  mig: never applied", "  nvidia_driver, kernel: as on gpu001"]


def test_a_gpus_settings_are_shown_beside_its_new_layout() -> None:
    """Only what the picture of a layout shows is left out."""
    gpu = Partition(index=0, gpu="GPU 0 (01:00.0)", model="A100", grid=8, enabled_before=False, enabled_after=True)
    changes = (
        Item(capability="mig", kind="setting", name=f"{gpu.gpu}: MIG mode", before="disabled", after="enabled"),
        Item(capability="gpu_settings", kind="setting", name=f"{gpu.gpu}: power limit", before="400 W", after="300 W"),
    )
    told = planning.as_text([HostPlan(host="a", run={"mig": "x", "gpu_settings": "x"}, mig=(gpu,), changes=changes)])
    assert "    ~ GPU 0 (01:00.0): power limit: 400 W -> 300 W" in told
    assert "MIG mode" not in told


def test_equal_plans_are_told_once_and_idle_hosts_are_one_line() -> None:
    hosts = [msgspec.structs.replace(FULL, host=f"gpu{n:03}") for n in (1, 2, 3)]
    idle = [HostPlan(host=f"cpu{n}", last_apply="never") for n in (9, 10, 11)]
    lines = planning.as_text([*idle, *hosts], width=120).splitlines()
    assert lines[0].startswith("gpu[001:003] (3 hosts): 1 of 2 capabilities to apply"), (
        "what has something to do is first"
    )
    assert lines[-2] == "cpu[9:11] (3 hosts): nothing to do (last apply: never)"
    assert lines[-1].startswith(
        "3 of 6 hosts: 1 package, 1 file, 1 unit, a reboot that needs permission; 3 with nothing to do"
    )


def test_times_and_process_ids_do_not_keep_equal_plans_apart() -> None:
    def host(number: int) -> HostPlan:
        job = Item(kind="client", name=f"python3 (pid {number * 7}, job-{9}.scope)", after="stopped")
        daemon = Item(kind="client", name=f"dcgm (nvidia-dcgm.service {number * 11})", after="stopped")
        run = {"nvidia_driver": f"the spec changed since it was applied (2026-01-0{number}T00:00:00Z)"}
        skipped = {
            "kernel": f"every check passes, nothing differs, and the same was applied 2026-01-0{number}T00:00:00Z"
        }
        return msgspec.structs.replace(
            FULL,
            host=f"gpu{number:03}",
            run=run,
            skipped=skipped,
            changes=(job, daemon),
            last_apply=f"{number} days ago",
        )

    (group,) = groups([host(number) for number in (1, 2, 3)])
    assert group.where == "gpu[001:003]"
    assert group.plan.run == {"nvidia_driver": "the spec changed since it was applied"}
    assert [one.name for one in group.plan.section("client")] == ["python3 (job-9.scope)", "dcgm (nvidia-dcgm.service)"]
    (alone,) = groups([host(1)])
    assert alone.plan == host(1), "a host by itself is told whole"


@run_each(
    ("before", "after", "kind", "expected"),
    [
        ("", "1.0", "package", "+"),
        ("absent", "written", "file", "+"),
        ("1.0", "", "package", "-"),
        ("1.0", "removed", "package", "-"),
        ("enabled", "disabled", "service", "-"),
        ("", "stopped", "client", "-"),
        ("1.0", "2.0", "package", "~"),
        ("inactive", "active", "service", "~"),
        ("", "rebuilt", "initramfs", "~"),
    ],
)
def test_signs_are_those_of_git(before: str, after: str, kind: Any, expected: str) -> None:
    assert sign(Item(kind=kind, name="x", before=before, after=after)) == expected


def test_colours_are_those_of_git_and_no_host_brings_its_own() -> None:
    evil = "x\x1b[2J\x1b[31m"
    changes = (*FULL.changes, Item(kind="package", name=evil, before="1"))
    told = planning.as_text([msgspec.structs.replace(FULL, changes=changes)], colour=True, width=80)
    assert "    \x1b[33m~\x1b[0m 535.1-1 -> 550.2-1: nvidia-driver" in told
    assert "    \x1b[32m+\x1b[0m nvidia-persistenced.service: enabled" in told
    assert "    \x1b[32m+a\x1b[0m" in told
    assert "    \x1b[31m-\x1b[0m 1 -> removed: x\\u001b[2J\\u001b[31m" in told
    assert "\x1b" not in planning.as_text([FULL])


def test_a_pipe_gets_whole_lines() -> None:
    why = " ".join(["word"] * 60)
    told = planning.as_text([msgspec.structs.replace(FULL, run={"nvidia_driver": why})], width=0)
    assert f"  nvidia_driver: {why}\n" in told, "so that grep finds what it is asked for"


@run_each("width", [40, 80])
def test_no_word_is_broken(width: int) -> None:
    names_ = [f"libnvidia-{part}-580-server" for part in ("cfg1", "compute", "decode", "encode", "extra", "gl")]
    changes = tuple(Item(kind="package", name=name, before="580.1-1", after="570.2-1") for name in names_)
    told = planning.as_text([msgspec.structs.replace(FULL, changes=changes)], width=width)
    words = {word.strip(",") for word in told.split()}
    assert {*names_} <= words
    assert max(map(len, told.splitlines())) <= width


def test_mixed_hosts_list_their_exact_versions() -> None:
    def hosts(first: int, last: int, version: str) -> list[HostPlan]:
        plan = msgspec.structs.replace(FULL, versions={"nvidia_driver": version})
        return [msgspec.structs.replace(plan, host=f"gpu{n:03}") for n in range(first, last + 1)]

    older, newer = "570.124.06 (open)", "580.95.05 (open)"
    lines = planning.as_text([*hosts(1, 60, newer), *hosts(61, 99, older), *hosts(100, 100, newer)]).splitlines()
    assert lines[-5:-2] == [
        "versions after apply",
        "  nvidia_driver 570.124.06 (open): gpu[061:099] (39 hosts)",
        "  nvidia_driver 580.95.05 (open): gpu[001:060], gpu100 (61 hosts)",
    ]
    assert "versions after apply" not in planning.as_text(hosts(1, 60, newer))


def test_blocked_and_unreachable_hosts() -> None:
    obstacle = Result(
        host="b", capability="host", check="host.root", status="fail", expected="root", found="user id 1", fix="become"
    )
    plans = [
        HostPlan(host="a", unreachable="no route", unreachable_fix="see its power"),
        HostPlan(host="b", run=RUN, blocked=(obstacle,)),
    ]
    lines = planning.as_text(plans).splitlines()
    assert lines[:2] == ["b: blocked by host.root: user id 1; wanted: root", "  fix: become"]
    assert lines[-3:] == [
        "a: cannot be reached: no route",
        "  fix: see its power",
        "2 hosts: 1 blocked by host.root, 1 cannot be reached; nothing was changed",
    ]
    assert planning.as_text(plans, ahead=True).endswith("1 cannot be reached"), "before an apply"
    assert planning.build_document(plans).exit_code == 4
    assert planning.build_document(plans[1:]).exit_code == 1


def test_a_refusal_names_the_place_in_the_spec_that_asked() -> None:
    """Hosts that differ only in the place are still one line: each may have a file of its own."""
    refused = Result(host="a", capability="kernel", check="kernel.boot", fields=("sysctl",), status="fail", found="no")
    plans = [
        HostPlan(host=f"gpu{n}", blocked=(refused,), places={"kernel.boot": f"gpu{n}.yaml:5:24"}) for n in (1, 2, 3)
    ]
    assert planning.as_text(plans[:1]).startswith("gpu1: blocked by kernel.boot: no (gpu1.yaml:5:24)\n")
    same = [msgspec.structs.replace(plan, places=plans[0].places) for plan in plans]
    assert "gpu[1:3] (3 hosts): blocked by kernel.boot: no (gpu1.yaml:5:24)\n" in planning.as_text(same, width=0)
    line = "gpu[1:3] (3 hosts): blocked by kernel.boot: no (gpu1.yaml:5:24 and 2 other places)\n"
    assert line in planning.as_text(plans, width=0)
    assert "<dt>spec</dt><dd>gpu1.yaml:5:24 and 2 other places</dd>" in plan_page.render(plans)
    assert planning.build_document(plans).hosts[1].places == {"kernel.boot": "gpu2.yaml:5:24"}
    assert "<dt>spec</dt>" not in plan_page.render([HostPlan(host="a", blocked=(refused,))])


def test_a_package_without_a_known_version_is_installed_or_removed() -> None:
    changes = (
        Item(kind="package", name="perftest"),
        Item(kind="package", name="old", before="1", after=""),
        Item(kind="package", name="new", after="2"),
    )
    plan = msgspec.structs.replace(FULL, changes=changes)
    told = planning.as_text([plan], width=0)
    for line in ("    + installed: perftest\n", "    - 1 -> removed: old\n", "    + 2: new\n"):
        assert line in told
    page = plan_page.render([plan])
    assert '<li class="add"><b>+</b> installed: perftest</li>' in page
    assert '<li class="remove"><b>-</b> 1 \u2192 removed: old</li>' in page


def test_an_outage_is_told_once_with_the_command_of_one_host() -> None:
    pairs = [(RawHost(name=f"gpu{n}"), HostSpec(name=f"gpu{n}")) for n in range(1, 33)]
    lost = {
        raw.name: Reading(
            facts=Facts({}),
            results=(),
            lost=Unreached(
                raw.name,
                "ssh: no route",
                "try it by hand",
                place=f"10.0.0.{raw.name[3:]}",
                command=f"ssh {raw.name} true",
            ),
        )
        for raw, _ in pairs
    }
    told = planning.as_text(plans_of(pairs, lost), width=0).splitlines()
    assert told == [
        "gpu[1:32] (32 hosts): cannot be reached: ssh: no route",
        "  fix: try it by hand: ssh gpu1 true",
        "32 hosts: 32 cannot be reached; nothing was changed",
    ]


def test_what_fails_although_nothing_is_to_do_is_named() -> None:
    root = Result(
        host="b",
        capability="host",
        check="host.root",
        status="fail",
        expected="root",
        found="user id 1",
        fix="become",
        gate=True,
    )
    clock = msgspec.structs.replace(root, check="host.clock", moment="preflight", gate=False, found="9 s ahead")
    decision = Decision({}, {"kernel": "every check passes"})
    spec = HostSpec(name="b")
    unread = msgspec.structs.replace(clock, status="error", found="nobody knows")
    plans = [host_plan(spec, results, Facts({}), decision, NOW) for results in ([root], [clock], [unread])]
    first, second, third = (planning.as_text([one], width=200).splitlines() for one in plans)
    assert first[0].startswith("b: nothing to do, but host.root fails, and apply cannot fix that (last apply:")
    assert first[1:3] == ["  host.root: user id 1; wanted: root", "    fix: become"]
    assert second[0].startswith("b: nothing to do (last apply:")
    assert second[1] == "  would stop an apply: host.clock: 9 s ahead; wanted: root"
    assert third[1] == "  host.clock: nobody knows; wanted: root", "apply goes on where something cannot be read"
    assert [planning.build_document([one]).exit_code for one in plans] == [1, 0, 0]
    busy = host_plan(spec, [root], Facts({}), Decision({"kernel": "--full"}, {}), NOW)
    assert [one.check for one in busy.blocked] == ["host.root"]
    assert busy.unmended == ()


def test_a_failure_without_a_change_says_what_is_wrong_and_what_mends_it() -> None:
    """A unit that a site's drop-in leaves idle: apply runs its role, and has nothing to change."""
    idle = Result(
        host="b",
        capability="persistence",
        check="persistence.enabled",
        status="fail",
        found="nvidia-persistenced.service is made idle by /etc/x.conf, whose ExecStart is /bin/true",
        fix="systemctl cat nvidia-persistenced.service, and take that setting out",
    )
    stopped = msgspec.structs.replace(
        idle, check="persistence.mode_on", found="not Enabled: GPU 0", fix="gpuprov apply"
    )
    decision = Decision({"persistence": "fails: enabled, mode_on"}, {})
    planned = host_plan(HostSpec(name="b"), [idle, stopped], Facts({}), decision, NOW)
    assert planning.as_text([planned], width=0).splitlines()[2:7] == [
        "  persistence: fails: enabled, mode_on",
        f"    persistence.enabled: {idle.found}",
        f"      apply has no change to make for it; fix: {idle.fix}",
        "    persistence.mode_on: not Enabled: GPU 0",
        "      fix: gpuprov apply",
    ]
    moves = msgspec.structs.replace(stopped, changes=(PACKAGE,))
    assert host_plan(HostSpec(name="b"), [idle, moves], Facts({}), decision, NOW).unmended == (idle,)


def test_json_has_a_list_for_each_kind_of_change() -> None:
    read = documents.read_document(planning.build_document([FULL], 1.5))
    assert (read["exit_code"], read["seconds"]) == (1, 1.5)
    assert documents.read_document(planning.build_document([]))["summary"]["sentence"] == "no host"
    host = read["hosts"][0]
    assert host["packages"] == [
        {
            "kind": "package",
            "name": "nvidia-driver",
            "before": "535.1-1",
            "after": "550.2-1",
            "diff": "",
            "capability": "nvidia_driver",
        }
    ]
    assert (host["files"], host["clients"], host["reboot"], read["summary"]["to_apply"]) == ([], [], True, 1)


def test_changes_come_from_failing_checks_and_from_preflight_of_what_runs() -> None:
    spec = HostSpec(name="gpu1", capabilities={"nvidia_driver": Kernel(), "kernel": Kernel()})
    shared: dict[str, Any] = {"host": "gpu1", "capability": "nvidia_driver"}
    results = [
        Result(**shared, check="nvidia_driver.resolvable", status="pass", moment="preflight", changes=(PACKAGE,)),
        Result(
            **shared, check="nvidia_driver.packages", status="fail", changes=(PACKAGE, Item(kind="package", name="x"))
        ),
        Result(**shared, check="nvidia_driver.loaded", status="fail", reboot="the loaded module is 535.1"),
        Result(**shared, check="nvidia_driver.clients", status="skip", found="no driver"),
        Result(
            host="gpu1",
            capability="kernel",
            check="kernel.sysctl",
            status="pass",
            changes=(Item(kind="file", name="no"),),
        ),
    ]
    found = host_plan(spec, results, Facts({"receipt": Output("")}), Decision(RUN, {"kernel": "passes"}), NOW)
    assert found.section("package") == (
        Item.of("nvidia_driver", PACKAGE),
        Item(kind="package", name="x", capability="nvidia_driver"),
    )
    assert not found.section("file")
    assert (found.reboot, found.reboot_reasons) == (True, ("the loaded module is 535.1",))
    assert found.unpredicted == ("nvidia_driver.clients: no driver",)
    assert found.last_apply == "never"


def test_a_loaded_driver_whose_packages_move_leaves_the_reboot_unknown() -> None:
    loaded = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1.2  Thu Jan 1 00:00:00 UTC 2026\n"
    spec = HostSpec(name="gpu1", capabilities={"nvidia_driver": Kernel()})
    results = [
        Result(
            host="gpu1", capability="nvidia_driver", check="nvidia_driver.packages", status="fail", changes=(PACKAGE,)
        )
    ]
    facts = Facts({"receipt": Output(""), "loaded_driver": Output(loaded)})
    found = host_plan(spec, results, facts, Decision(RUN, {}), NOW)
    assert found.reboot == "unknown"
    assert "a loaded driver would be replaced" in found.reboot_reasons[0]
    beside = [Result(host="gpu1", capability="dcgm", check="dcgm.version", status="fail", changes=(PACKAGE,))]
    decision = Decision({"dcgm": "a check fails"}, {})
    assert host_plan(spec, beside, facts, decision, NOW).reboot is False


@run_each(
    ("text", "told", "seconds"),
    [
        ("", "never", None),
        ('{"applied_at": "2026-01-02T23:00:00Z"}', "2 hours ago (2026-01-02T23:00:00Z)", 7200),
        ('{"applied_at": "2026-01-03T00:59:30Z"}', "30 s ago (2026-01-03T00:59:30Z)", 30),
        ('{"applied_at": "soon"}', "unknown: the receipt has no time", None),
    ],
)
def test_last_apply(text: str, told: str, seconds: int | None) -> None:
    assert last_apply(Facts({"receipt": Output(text)}), NOW) == (told, seconds)


def test_one_thing_is_told_once_and_with_the_most_that_is_known() -> None:
    bare = Item(kind="package", name="nvidia-driver")
    assert merged([bare, PACKAGE, PACKAGE]) == (PACKAGE,)


def test_a_host_that_nobody_has_given_back_is_told_also_where_nothing_is_to_be_done() -> None:
    out = "drained by gpuprov since 2026-11-26 07:40 UTC (Slurm, run fri): it gets no jobs; gpuprov undrain"
    for plan in (HostPlan(host="gpu1", out=out), HostPlan(host="gpu1", run=RUN, out=out)):
        assert f"\n  {out}" in planning.as_text([plan], width=0)
    assert as_json(planning.build_document([HostPlan(host="gpu1", out=out)])).count(out) == 1
