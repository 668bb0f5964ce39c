"""Checks on made-up capabilities -> results, the next-boot verdict and the exit code."""

from __future__ import annotations

import msgspec

from gpuprov.capabilities.base import Capability, Change, Check, Context, Moment, Outcome, check, fail, ok, skip
from gpuprov.core.errors import UnreachableError
from gpuprov.facts.probes.base import Facts, Output, Probe, ProbeFailed
from gpuprov.spec.model import Fragment, HostSpec, RawHost
from gpuprov.verify import Registry, Result, evaluate, exit_code, next_boot, probes_of, unreachable, verify
from gpuprov.verify.evaluate import ResultStatus, caused, package_tools, shown_here
from tests.rows import run_each


class Paint(Fragment, frozen=True):
    colour: str = "green"


class House(Fragment, frozen=True):
    name: str = ""


def read_colour(output: Output) -> str:
    if output.status:
        raise ProbeFailed("the colour cannot be seen")
    return output.text.strip()


COLOUR = Probe("colour", "echo green", read_colour, "cat /etc/colour")
SHAPE = Probe("shape", "echo round", lambda output: output.text.strip(), "cat /etc/shape")


@check("paint.colour", COLOUR, SHAPE, fields=("colour",))
def colour_is(context: Context[Paint]) -> Outcome:
    """The colour is the one asked for."""
    found = context.facts.get(COLOUR)
    wanted = context.fragment.colour
    if found == wanted:
        return ok(found)
    change = Change(kind="file", name="/etc/colour")
    return fail(wanted, found, "paint it", changes=[change], reboot="paint dries at boot")


@check("paint.kept", moment="next-boot")
def colour_stays(_context: Context[Paint]) -> Outcome:
    return skip("no rain here")


@check("paint.broken")
def broken(_context: Context[Paint]) -> Outcome:
    raise KeyError("brush")


@check("paint.before", moment="preflight")
def before(_context: Context[Paint]) -> Outcome:
    return ok("dry")


@check("host.name", SHAPE)
def named(context: Context[House]) -> Outcome:
    return ok(context.fragment.name, evidence="hostname")


def registered(*checks: Check) -> Registry:
    paint = Capability("paint", "Paint", Paint, checks or (colour_is, colour_stays, broken, before))
    other = Capability("other", "Other", Paint, (before,))
    house = Capability("host", "House", House, (named,))
    return Registry((paint, other), house, lambda spec: House(name=spec.name))


SPEC = HostSpec(name="gpu01", capabilities={"paint": Paint()})
BEFORE: tuple[Moment, ...] = ("preflight",)
FACTS = Facts({"colour": Output("green\n"), "shape": Output("round\n")})


def by_check(results: list[Result]) -> dict[str, Result]:
    return {one.check: one for one in results}


def test_the_house_comes_first_then_apply_order() -> None:
    results = evaluate(SPEC, FACTS, registered=registered())
    assert [one.check for one in results] == ["host.name", "paint.colour", "paint.kept", "paint.broken"]
    assert {one.host for one in results} == {"gpu01"}


def test_moments_and_only() -> None:
    assert "paint.before" in by_check(evaluate(SPEC, FACTS, BEFORE, registered=registered()))
    assert list(by_check(evaluate(SPEC, FACTS, only=("other",), registered=registered()))) == ["host.name"]


def test_a_pass_carries_fields_and_the_probes_evidence() -> None:
    result = by_check(evaluate(SPEC, FACTS, registered=registered()))["paint.colour"]
    assert result == Result(
        host="gpu01",
        capability="paint",
        check="paint.colour",
        fields=("colour",),
        status="pass",
        expected="green",
        found="green",
        evidence="cat /etc/colour; cat /etc/shape",
    )


def test_a_failure_carries_changes_and_reboot_and_own_evidence_wins() -> None:
    results = by_check(evaluate(SPEC, Facts({"colour": Output("red")}), registered=registered()))
    failed = results["paint.colour"]
    assert (failed.status, failed.expected, failed.found, failed.fix) == ("fail", "green", "red", "paint it")
    assert failed.changes == (Change(kind="file", name="/etc/colour"),)
    assert failed.reboot == "paint dries at boot"
    assert results["host.name"].evidence == "hostname"


@run_each(
    ("facts", "found"),
    [(Facts({}), "colour was not read on the host"), (Facts({"colour": Output("", 1)}), "the colour cannot be seen")],
)
def test_a_probe_that_fails_is_an_error_and_never_a_pass(facts: Facts, found: str) -> None:
    result = by_check(evaluate(SPEC, facts, registered=registered()))["paint.colour"]
    assert (result.status, result.found) == ("error", found)
    assert result.fix


def test_a_bug_in_a_check_is_an_error_that_names_it() -> None:
    result = by_check(evaluate(SPEC, FACTS, registered=registered()))["paint.broken"]
    assert result.status == "error"
    assert result.found.startswith("the check paint.broken broke: KeyError: 'brush' at verify/evaluate.py:")
    assert result.fix.startswith("a defect of gpuprov, not of the host: report it with this line (gpuprov ")


def test_probes_are_those_of_the_checks_each_once() -> None:
    assert [probe.name for probe in probes_of(SPEC, registered=registered())] == ["shape", "colour"]
    assert probes_of(SPEC, BEFORE, registered=registered()) == ()


def test_a_fleet_in_its_order_with_one_host_down() -> None:
    local = RawHost(name="gpu01", connection={"ansible_connection": "local"})
    down = RawHost(name="down", connection={"ansible_ssh_executable": "/no/such/ssh"})
    fleet = [(down, HostSpec(name="down", capabilities={"paint": Paint()})), (local, SPEC)]
    told: list[str] = []
    found = verify(fleet, registered=registered(colour_is), on_done=lambda name, _facts: told.append(name))
    assert [(one.host, one.check, one.status) for one in found] == [
        ("down", "host.reachable", "unreachable"),
        ("gpu01", "host.name", "pass"),
        ("gpu01", "paint.colour", "pass"),
    ]
    assert sorted(told) == ["down", "gpu01"]
    assert exit_code(found) == 4


def result(status: ResultStatus, moment: Moment = "now", reboot: str = "") -> Result:
    return Result(
        host="h", capability="c", check=f"c.{status}", status=status, found="why", moment=moment, reboot=reboot
    )


@run_each(
    ("results", "verdict"),
    [
        ([result("pass", "next-boot")], "right: a reboot leaves it as it is"),
        ([result("pass", "next-boot"), result("skip")], "right: a reboot leaves it as it is"),
        ([result("pass", "next-boot"), result("fail", reboot="module")], "right: a reboot leaves it as it is"),
        ([result("pass", "next-boot"), result("fail")], "unknown: c.fail fails now and a reboot does not fix it"),
        ([result("fail", "next-boot"), result("error")], "NOT right: c.fail: why"),
        ([result("pass", "next-boot"), result("skip", "next-boot")], "unknown: c.skip: why"),
        ([result("pass", "next-boot"), result("error")], "unknown: c.error: why"),
        ([result("pass")], "unknown: no check of the next boot concerns this host"),
        ([unreachable("h", UnreachableError("h: gone"))], "unknown: host.reachable: gone"),
    ],
)
def test_next_boot(results: list[Result], verdict: str) -> None:
    assert str(next_boot(results)["h"]) == verdict


@run_each(
    ("statuses", "code"),
    [
        ((), 1),
        (("skip", "n/a"), 1),
        (("n/a",), 1),
        (("pass", "skip"), 0),
        (("pass", "n/a"), 0),
        (("pass", "fail"), 1),
        (("error",), 1),
        (("unreachable",), 4),
        (("unreachable", "fail"), 4),
    ],
)
def test_exit_code(statuses: tuple[ResultStatus, ...], code: int) -> None:
    assert exit_code([result(status) for status in statuses]) == code


def test_instances_that_a_unit_makes_at_boot_leave_the_next_boot_right() -> None:
    gone = Result(host="h", capability="mig", check="mig.instances", status="fail", found="none")
    unit = Result(host="h", capability="mig", check="mig.enabled", status="pass", moment="next-boot")
    assert next_boot([gone, unit])["h"].verdict == "right"
    assert next_boot([gone, msgspec.structs.replace(unit, status="fail")])["h"].verdict == "wrong"
    assert next_boot([gone, msgspec.structs.replace(unit, host="other")])["h"].verdict == "unknown"


def test_what_follows_from_a_failure_says_so() -> None:
    statuses: dict[str, ResultStatus] = {
        "nvidia_driver.loaded": "fail",
        "mig.mode": "error",
        "mig.instances": "fail",
        "mig.cdi": "pass",
        "mig.enabled": "fail",
    }
    rows = [Result(host="h", capability="x", check=name, status=status) for name, status in statuses.items()]
    followers = {one.check: one.follows for one in caused(rows) if one.follows}
    assert followers == {"mig.mode": "nvidia_driver.loaded", "mig.instances": "nvidia_driver.loaded"}


@run_each(
    ("release", "shown"),
    [
        ("ID=debian", "dpkg -l x; apt-mark showhold; uname -r"),
        ("ID=ubuntu\nID_LIKE=debian", "dpkg -l x; apt-mark showhold; uname -r"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "rpm -q x; dnf versionlock list; uname -r"),
        ('ID="amzn"\nID_LIKE="fedora"', "rpm -q x; dnf versionlock list; uname -r"),
        ('ID="sles"\nID_LIKE="suse"', "rpm -q x; zypper locks; uname -r"),
        ("ID=gentoo", "dpkg -l x; rpm -q x; apt-mark showhold; dnf versionlock list; zypper locks; uname -r"),
    ],
)
def test_what_shows_a_finding_are_commands_that_the_host_has(release: str, shown: str) -> None:
    tools = package_tools(Facts({"os_release": Output(release)}))
    assert (
        shown_here("dpkg -l x; rpm -q x; apt-mark showhold; dnf versionlock list; zypper locks; uname -r", tools)
        == shown
    )
    assert package_tools(Facts({})) == ()
