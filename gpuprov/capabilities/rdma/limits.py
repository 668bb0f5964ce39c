"""Limits on the memory that programs may lock and register with an adapter: in login sessions, and in services and
their containers."""

from collections.abc import Iterator
from typing import Literal, TypedDict

import msgspec

from gpuprov.capabilities.answers import APPLY, HEADER
from gpuprov.capabilities.base import Context, Outcome, check, fail, not_asked, ok, skip
from gpuprov.capabilities.compared import Group, compared, list_changes
from gpuprov.capabilities.rdma.at_boot import UNITS
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.core.safe_parse import is_whole
from gpuprov.facts.probes.base import Facts, Output, Probe
from gpuprov.facts.probes.containers.container_engines import ENGINES
from gpuprov.facts.probes.host import systemd
from gpuprov.facts.probes.kernel import boot
from gpuprov.facts.probes.rdma.surroundings import HOST, SERVICES, RdmaHost
from gpuprov.host_code.settings import ENDLESS, LEAST, is_met
from gpuprov.resources import Setting
from gpuprov.rules import engines
from gpuprov.rules.engine_output import Engine
from gpuprov.rules.engine_runtimes import parse_toml

Ctx = Context[Rdma]
RAISE = 'prlimit --pid "$(systemctl show -p MainPID --value "$1")" --memlock="$2:$2"'


BOUND = "a container without CAP_SYS_RESOURCE, or in a user namespace"
OUTSIDE = "set it where the container is started: --ulimit memlock=-1"


def drop_in(unit: str) -> str:
    """Return the path of gpuprov's drop-in for such a service."""
    return f"{UNITS}/{unit}.d/50-gpuprov-rdma.conf"


def _parse_drop_ins(output: Output) -> tuple[str, ...]:
    if strange := set(output.text.split()) - set(PATHS):
        raise ValueError(f"no drop-in of gpuprov's: {min(strange)}")
    return tuple(output.text.split())


CONTAINER_LIMITS = {"crio": ("crio", "runtime", "default_ulimits"), "podman": ("containers", "default_ulimits")}
PATHS = tuple(map(drop_in, SERVICES))
# Drop-ins that gpuprov wrote: a unit that has one had too low a limit.
DROP_INS = Probe(
    "limits_drop_ins",
    f"for p in {' '.join(PATHS)}; do [ ! -e $p ] && [ ! -L $p ] || echo $p; done",
    _parse_drop_ins,
    "systemctl cat containerd",
)


def enough(actual: str, required: str, *, unit: int = 1) -> bool:
    """Return whether a limit (a number of `unit` bytes, or no limit) is at least the wanted value: `unlimited`, or
    KiB."""
    return is_met(in_bytes(required, 1024), in_bytes(actual, unit), LEAST)


def in_bytes(limit: str, unit: int = 1) -> str:
    """Return a limit in bytes; words as they are."""
    return str(int(limit) * unit) if is_whole(limit) else limit


@check(
    "rdma.memlock",
    boot.LOGIN_LIMITS,
    systemd.DEFAULT_LIMITS,
    HOST,
    fields=("memlock",),
    evidence="ulimit -l; systemctl show | grep MEMLOCK; grep locked /proc/$(pidof containerd)/limits",
)
def memlock(ctx: Ctx) -> Outcome:
    """Login sessions, services, and the services that start containers and jobs may now lock as much memory as the spec
    asks for."""
    limit = ctx.fragment.memlock
    if not limit:
        return not_asked()
    texts, fixes = list[str](), list[str]()
    logins = ctx.facts.get(boot.LOGIN_LIMITS)
    login = logins.get("memlock", "unset")
    if lower := logins.list_lower("memlock", limit):
        texts.append(f"login of {', '.join(lower)}")
        fixes.append("take memlock of a single user or group out of that file: it goes before that of everyone")
    if not all(enough(part, limit, unit=1024) for part in login.split(":")):
        texts.append(f"login sessions: {login}")
        later = logins.find_later("memlock")
        written = f"{APPLY} writes /etc/security/limits.d, which counts from the next login on"
        fixes.append(f"take memlock of * out of {later}" if later else written)
    default = ctx.facts.get(systemd.DEFAULT_LIMITS).get("memlock", "unset")
    if not enough(default, limit):
        texts.append(f"services: {default} bytes")
        fixes.append(f"{APPLY} sets DefaultLimitMEMLOCK: limits.conf counts for login sessions only")
    host = ctx.facts.get(HOST)
    low = [daemon for daemon in host.daemons if not enough(daemon.now, limit)]
    if low and host.bound and not texts:
        listed = ", ".join(f"{daemon.unit} {daemon.now} bytes" for daemon in low)
        return skip(f"root may lift no limit here ({BOUND}): {listed}; {OUTSIDE}")
    if not host.bound:
        for daemon in low:
            texts.append(f"{daemon.unit} now: {daemon.now} bytes")
            fixes.append(f"{APPLY} raises it with prlimit; a service keeps the limit that it was started with")
    if texts:
        changes = [] if host.bound else list_changes(daemon_limits(host, limit).compare())
        return fail(limit, "; ".join(texts), "; ".join(dict.fromkeys(fixes)), changes=changes)
    return ok(limit)


def daemon_limits(host: RdmaHost, least: str, moment: Literal["now", "next-boot"] = "now") -> Group:
    """Return the limit of each running service that starts containers or jobs: as it runs, or by its unit."""
    now = moment == "now"
    setting = Setting(kind="memlock", key="LimitMEMLOCK", value=in_bytes(least, 1024), how="least", moment=moment)
    actual = {daemon.unit: daemon.now if now else daemon.unit_limit for daemon in host.daemons}
    resources = [
        msgspec.structs.replace(
            setting,
            device=unit,
            name=f"memlock of {unit}",
            file="" if now else drop_in(unit),
            shown=least,
            words=f"{unit}: {{key}}={limit}",
            before=limit,
            fix=f"{APPLY} writes a drop-in; systemctl cat {unit}",
        )
        for unit, limit in actual.items()
    ]
    values = {(unit, "LimitMEMLOCK"): limit for unit, limit in actual.items()}
    right = ", ".join(f"{unit}: {limit}" for unit, limit in actual.items()) or "none of these services runs"
    return Group(tuple(resources), values, expected=least, right=right)


def list_container_limits(facts: Facts, least: str) -> dict[str, str]:
    """Return the engines' own limits of containers that are too low, in words, each with the file that sets it."""
    low: dict[str, str] = {}
    for name, engine in (facts.known(ENGINES) or {}).items():
        for path, limits in _find_container_limits(name, engine):
            bad = [limit for limit in limits if not enough("unlimited" if limit == "-1" else limit, least)]
            if bad:
                low[f"{path} gives containers of {name} {bad[0]} bytes"] = path
    return low


def _find_container_limits(name: str, engine: Engine) -> Iterator[tuple[str, list[str]]]:
    """Yield the file and the limits of memlock that an engine gives containers: daemon.json(5), crio.conf(5),
    containers.conf(5)."""
    try:
        if name == "docker":
            own = engines.at(engines.configuration(name, engine), "default-ulimits", "memlock")
            yield engines.MAIN[name], [str(own[key]) for key in ("Soft", "Hard") if key in (own or {})]
        for path, file in engine.files.items() if name in CONTAINER_LIMITS else ():
            for word in engines.at(parse_toml(file.text, path), *CONTAINER_LIMITS[name]) or ():
                if isinstance(word, str) and word.startswith("memlock="):
                    yield path, word.partition("=")[2].split(":")
    except ValueError:  # container_toolkit.configured says so
        return


@compared(
    "rdma.memlock_boot",
    *(HOST, ENGINES),
    fields=("memlock",),
    moment="next-boot",
    evidence="systemctl show -p LimitMEMLOCK containerd; grep -r ulimits /etc/docker/daemon.json /etc/containers "
    "/etc/crio",
)
def memlock_boot(ctx: Ctx) -> Group | Outcome:
    """No running service that starts containers or jobs has a lower limit in its unit, which the default does not
    raise; and no container engine gives containers a lower one."""
    limit = ctx.fragment.memlock
    if not limit:
        return not_asked()
    group, low = daemon_limits(ctx.facts.get(HOST), limit, "next-boot"), list_container_limits(ctx.facts, limit)
    ways = f"take memlock out of the ulimits in {', '.join(dict.fromkeys(low.values()))}"
    return msgspec.structs.replace(group, beside=tuple(low), fix=ways) if low else group


class Limits(TypedDict):
    """Files with limits of services, and commands that raise those of running ones."""

    files: dict[str, str]
    commands: list[list[str]]


def plan_limits(ctx: Ctx) -> Limits:
    """Return `files`: limits of units that have a lower limit of their own, which DefaultLimitMEMLOCK does not raise,
    or had a lower one until gpuprov raised it. `commands`: for each service that runs with a lower limit, the command
    that raises it without a restart; processes that it starts from then on inherit it. If root may not raise limits,
    there is no command, as it would fail."""
    limit = ctx.fragment.memlock
    daemons = ctx.facts.get(HOST).daemons if limit else ()
    written = ctx.facts.get(DROP_INS) if daemons else ()
    value = "" if limit in ENDLESS else str(int(limit or 0) * 1024)
    text = f"""{HEADER}[Service]
# A container that registers memory with an adapter has the limit of the service that started it.
LimitMEMLOCK={value or "infinity"}
"""
    host = ctx.facts.get(HOST)
    low = [daemon.device for daemon in daemon_limits(host, limit).compare()] if daemons and not host.bound else []
    lower = {daemon.device for daemon in daemon_limits(host, limit, "next-boot").compare()} if daemons else set()
    return {
        "files": {
            path: text for daemon in daemons if (path := drop_in(daemon.unit)) in written or daemon.unit in lower
        },
        "commands": [["sh", "-c", RAISE, "sh", unit, value or "unlimited"] for unit in low],
    }


CHECKS = (memlock, memlock_boot)
