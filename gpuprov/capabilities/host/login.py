"""Checks of the login and the basic system, which must pass before anything else of a host can be judged or changed."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from gpuprov.capabilities.base import Context, Outcome, check, fail, ok, skip
from gpuprov.facts.probes.host.system import CONTAINER, LOGIN, PYTHON
from gpuprov.facts.probes.host.systemd import BOOT_TARGET
from gpuprov.facts.probes.kernel.boot import BOOT_ENTRIES, BootEntry
from gpuprov.host_code.first_boot_tools import KEPT
from gpuprov.rules import reach

WORKS = "multi-user.target"
# Targets that start none of the services of multi-user.target: systemd.special(7).
NO_SERVICES = frozenset(
    {"rescue", "emergency", "sysinit", "basic", "halt", "poweroff", "reboot", "kexec", "exit", "shutdown"}
)
REPAIRS = {"single", "s", "S", "1", "emergency", "rescue", "-b"}
MASKED = re.compile(r"systemd\.mask=(?:nvidia|gpuprov|docker|containerd|crio|openibd|slurmd|kubelet)")
Ctx = Context[Any]


@check("host.root", LOGIN, gate=True)
def root(ctx: Ctx) -> Outcome:
    """gpuprov works as root on the host: it logs in as root or becomes root. Another user cannot see everything."""
    return _judge_unless(reach.not_root(ctx.facts.get(LOGIN)), "root")


@check("host.writable", LOGIN, gate=True, evidence="findmnt --options ro")
def writable(ctx: Ctx) -> Outcome:
    """Root can write where packages and gpuprov write: a file system that had an error is mounted read-only."""
    answer = ctx.facts.get(LOGIN)
    if answer.user != "0":
        return skip(f"user id {answer.user} may not write there: see host.root")
    return _judge_unless(reach.not_writable(answer), "writable")


@check("host.systemd", LOGIN, gate=True, evidence="cat /proc/1/comm; systemctl is-system-running")
def systemd_runs(ctx: Ctx) -> Outcome:
    """systemd runs the host: after a boot, its units restore what gpuprov sets up."""
    init = ctx.facts.get(LOGIN).init
    if init in ("", "systemd"):
        return ok("systemd") if init else skip("the first process is unknown")
    return fail(
        "systemd",
        f"{init} is the first process",
        "gpuprov reads such a host (health, export, topology), and changes none",
    )


@check(
    "host.boot_target",
    *(BOOT_TARGET, BOOT_ENTRIES, CONTAINER),
    moment="next-boot",
    evidence=f"{BOOT_TARGET.evidence}; grep -E 'systemd[.](unit|mask)' /boot/grub*/grub.cfg /boot/loader/entries/*",
)
def boot_target(ctx: Ctx) -> Outcome:
    """A boot goes on to the services of a host that works: the default target is not one for repairs or for the end,
    none of the units is masked that load modules, set sysctls and apply udev's rules, and no boot entry asks otherwise,
    or masks a unit of GPUs or containers."""
    if wrong := _list_overriding_words(ctx.facts.known(BOOT_ENTRIES) or ()):
        return fail(WORKS, f"{' '.join(wrong)} (boot entries)", f"take {' '.join(wrong)} out of the boot entries")
    boot = ctx.facts.get(BOOT_TARGET)
    target = boot.name
    if boot.masked and not ctx.facts.get(CONTAINER):  # a container leaves these to its machine
        units = " ".join(boot.masked)
        return fail("no boot unit masked", f"masked: {units}", f"systemctl unmask {units}")
    if not target:
        return skip("systemd does not report its default target")
    if target.removesuffix(".target") in NO_SERVICES:
        return fail(WORKS, target, f"systemctl set-default {WORKS}; nothing that a boot should start, starts without")
    return ok(target, WORKS)


def _list_overriding_words(entries: Sequence[BootEntry]) -> list[str]:
    """Return the words by which every entry, but those for repairs, starts no services, or not those of GPUs:
    kernel-command-line(7)."""
    usual = [entry for entry in entries if "recovery" not in entry and KEPT not in entry]
    each = [{f"{key}={value}" if value else key for key, value in entry.items()} for entry in usual]
    common = set.intersection(*each) if each else set()
    stops = {f"systemd.unit={name}.target" for name in NO_SERVICES} | REPAIRS
    return sorted(word for word in common if word in stops or MASKED.match(word))


@check("host.python", PYTHON, moment="preflight", evidence="python3 --version")
def python(ctx: Ctx) -> Outcome:
    """Ansible has a Python on the host that starts and is new enough: the one that the inventory names, if it names
    one. Read-only use needs none."""
    answer = ctx.facts.get(PYTHON)
    return _judge_unless(
        reach.no_python(answer, ansible_version()), f"{reach.chosen(answer, ansible_version())} starts"
    )


def _judge_unless(refused: reach.Refusal | None, good: str) -> Outcome:
    return fail(refused.expected, refused.problem, refused.fix) if refused else ok(good)


@cache
def ansible_version() -> str:
    """Return the version of the ansible-core that apply runs."""
    from importlib.metadata import version

    return version("ansible-core")


CHECKS = (root, writable, systemd_runs, boot_target, python)
