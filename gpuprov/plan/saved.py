"""A plan in a file: `gpuprov apply FILE` does exactly what was read and approved, or refuses and names what has changed
since."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gpuprov import __version__
from gpuprov.core import safe_parse
from gpuprov.core.errors import GpuprovError
from gpuprov.core.sanitize import MASK
from gpuprov.facts.collect.settings import Settings
from gpuprov.plan import since
from gpuprov.plan.model import HostPlan
from gpuprov.plan.read import Pair, Reading
from gpuprov.render import digests
from gpuprov.render.spec_digest import SPEC
from gpuprov.spec.model import is_secret
from gpuprov.verify.evaluate import IN_SERVICE, Result
from gpuprov.verify.unmanaged import is_same

FORMAT = 1
# First bytes of the file, from any version: they distinguish it from an inventory.
MARK = b'{"gpuprov_plan":'
LARGEST = 256 << 20
Compare = Callable[[Sequence[HostPlan], Mapping[str, Reading]], Mapping[str, Sequence[str]]]
# Shorter secrets are not masked: that would blank out ordinary words.
SHORTEST = 4


class Judged(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The part of a check's result that decides anything. `expected` and `found` are set only if it failed: values of a
    passing check may differ each time, and the spec is bound separately."""

    check: str
    status: str
    expected: str = ""
    found: str = ""
    reboot: str = ""
    version: str = ""
    changes: tuple[str, ...] = ()


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions under which a host's plan is valid. `state` is a key of the file's `states`."""

    host: Annotated[str, msgspec.Meta(description="Its name in the inventory")]
    address: Annotated[str, msgspec.Meta(description="Where it was read: the address and port, or the connection")] = ""
    spec: Annotated[
        dict[str, str],
        msgspec.Meta(description="By capability: digest of what is asked, of the catalogue, of the role's code"),
    ] = {}
    state: Annotated[str, msgspec.Meta(description="Digest of what the checks said of the host")] = ""
    plan: Annotated[HostPlan, msgspec.Meta(description="What apply does, as plan --json has it")]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the plan: apply uses the same, and does not accept these options again."""

    inventory: tuple[str, ...]
    limit: str | None = None
    extra_vars: tuple[str, ...] = ()
    user: str | None = None
    only: tuple[str, ...] | None = None
    prune: bool = False


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A saved plan. It holds no secret of the inventory: passwords are prompted for, or read, again."""

    gpuprov_plan: Annotated[int, msgspec.Meta(description="Version of this format")] = FORMAT
    gpuprov_version: str = __version__
    made_at: Annotated[str, msgspec.Meta(description="When the hosts were read, in UTC")] = ""
    asked: Asked
    hosts: tuple[Bound, ...]
    states: Annotated[
        dict[str, tuple[Judged, ...]],
        msgspec.Meta(description="What the checks said, once for all hosts of which they say the same"),
    ]


def made(
    request: Asked, pairs: Sequence[Pair], readings: Mapping[str, Reading], plans: Iterable[HostPlan], made_at: str
) -> Saved:
    """Return the plans with the conditions under which they are valid."""
    by_name = {plan.host: plan for plan in plans}
    states: dict[str, tuple[Judged, ...]] = {}
    hosts = []
    for pair in pairs:
        raw, spec = pair
        judgement = judged(readings[raw.name].results)
        state = _compute_digest(judgement)
        states[state] = judgement
        hosts.append(
            Bound(host=raw.name, address=Settings(raw).address, spec=digests(spec), state=state, plan=by_name[raw.name])
        )
    return Saved(made_at=made_at, asked=request, hosts=tuple(hosts), states=states)


def text(saved: Saved, pairs: Sequence[Pair]) -> str:
    """Return the file's text. Secret values of the inventory are masked, wherever a diff may contain them."""
    return msgspec.json.encode(_remove_secrets(msgspec.to_builtins(saved), pairs)).decode() + "\n"


def masked(plans: Sequence[HostPlan], pairs: Sequence[Pair]) -> list[HostPlan]:
    """Return the plans with secret values of the inventory masked, for others to read."""
    return msgspec.convert(_remove_secrets(msgspec.to_builtins(list(plans)), pairs), list[HostPlan])


def _remove_secrets(plain: Any, pairs: Sequence[Pair]) -> Any:
    secrets = {
        str(value)
        for raw, _ in pairs
        for key, value in raw.connection.items()
        if is_secret(key) and isinstance(value, str)
    }
    for secret in sorted((secret for secret in secrets if len(secret) >= SHORTEST), key=len, reverse=True):
        plain = _mask_secrets(plain, secret)
    return plain


def is_saved_plan(path: str) -> bool:
    """True if a file is a saved plan."""
    try:
        return os.path.isfile(path) and safe_parse.read_beginning(path, len(MARK)) == MARK
    except OSError:
        return False


def load(path: Path) -> Saved:
    """Load a saved plan of this gpuprov. Raises GpuprovError if it cannot be read, or is from another version."""
    try:
        data = safe_parse.read_own_contents(str(path), LARGEST)
        first = safe_parse.parse_typed_json(data, Head, largest=LARGEST)
        if first.gpuprov_plan != FORMAT or first.gpuprov_version != __version__:
            whose = f"gpuprov {first.gpuprov_version}, format {first.gpuprov_plan}"
            raise GpuprovError(f"{path} is a plan of {whose}; this is {__version__}, format {FORMAT}", AGAIN)
        loaded = safe_parse.parse_typed_json(data, Saved, largest=LARGEST)
        if lost := {host.host for host in loaded.hosts if host.state not in loaded.states}:
            raise safe_parse.Unreadable(f"it does not say what was found on {min(lost)}")
        return loaded
    except OSError as error:
        raise GpuprovError(f"{path} cannot be read: {error.strerror}") from error
    except safe_parse.NotOwn as error:
        raise GpuprovError(
            f"{path} belongs to another user, or others may write it: it says what is run on the hosts",
            "chmod go-w FILE, or make a plan of your own",
        ) from error
    except safe_parse.Unreadable as error:
        raise GpuprovError(f"{path} is not a plan that gpuprov wrote: {error}", AGAIN) from error


class Head(msgspec.Struct, frozen=True):
    """Header, read before the rest, whose format may differ in another version."""

    gpuprov_plan: int
    gpuprov_version: str


AGAIN = "look at a new plan, and apply that: gpuprov plan -o FILE"


def left_out(saved: Saved) -> list[str]:
    """Return hosts that were unreachable for the plan: nothing was approved for them."""
    return [host.host for host in saved.hosts if host.plan.unreachable]


def of_plan(saved: Saved, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the hosts of the plan among those of the inventory. Raises GpuprovError if the inventory has changed
    since."""
    known = {raw.name: (raw, spec) for raw, spec in pairs}
    wrong = []
    for host in saved.hosts:
        if host.host not in known:
            wrong.append(f"{host.host} is not in the inventory any more")
            continue
        raw, spec = known[host.host]
        if (now := Settings(raw).address) != host.address:
            wrong.append(f"{host.host}: is reached at {now}, was at {host.address}")
        if spec.reboot != host.plan.permission and not host.plan.unreachable:
            wrong.append(f"{host.host}: reboot is {spec.reboot}, was {host.plan.permission}")
        wrong += [f"{host.host}: {line}" for line in _list_spec_changes(host.spec, digests(spec))]
    named = {host.host for host in saved.hosts}
    wrong += [f"{name} is new in the inventory" for name in known if name not in named]
    _refuse(wrong)
    away = {*left_out(saved)}
    return [known[host.host] for host in saved.hosts if host.host not in away]


def agree(
    saved: Saved, readings: Mapping[str, Reading], run: Mapping[str, Mapping[str, str]], compare: Compare
) -> dict[str, HostPlan]:
    """Return the plans by host. Raises GpuprovError if a host has changed since the plan, or if something else would be
    done. A host that is unreachable now is left alone, and reports that itself. compare: asks hosts again about
    settings that plans put back."""
    moved = compare([host.plan for host in saved.hosts], readings)
    wrong: list[str] = []
    already: dict[str, str] = {}
    idle = True
    for host in saved.hosts:
        reading_ = readings.get(host.host)
        if reading_ is None or reading_.lost or host.plan.unreachable:
            continue
        changes = list(_list_changes(host, saved.states[host.state], reading_, run.get(host.host, {})))
        changes = changes or [f"{host.host}: {line}" for line in moved.get(host.host, ())]
        by = since.applied(host.plan.run, host.spec, saved.made_at, reading_) if changes else ""
        if by:
            already[host.host] = by
            idle = idle and not run.get(host.host)
        else:
            wrong += changes
    if already and idle and not wrong:
        lines = "\n  ".join(since.describe(already))
        raise GpuprovError(f"nothing to do, and nothing was changed\n  {lines}", DONE)
    _refuse([*since.describe(already), *wrong])
    return {host.host: host.plan for host in saved.hosts}


def _list_changes(bound: Bound, before: Iterable[Judged], now: Reading, to_run: Mapping[str, str]) -> Iterable[str]:
    """Return how a host differs from the one that the plan was made for."""
    state = judged(now.results)
    if _compute_digest(state) != bound.state:
        return [f"{bound.host}: {line}" for line in _list_state_changes(before, state)]
    if not bound.plan.blocked and {*to_run} != {*bound.plan.run}:
        was, is_ = ", ".join(bound.plan.run) or "nothing", ", ".join(to_run) or "nothing"
        return [f"{bound.host}: to apply was {was}; is {is_}"]
    if bound.plan.prunes and (left := now.foreseen) and not is_same(left.unmanaged, bound.plan.unmanaged):
        return [f"{bound.host}: what is no longer asked for is not the same any more"]
    return []


def judged(results: Iterable[Result]) -> tuple[Judged, ...]:
    """Return the results' outcomes in a fixed order. A plan stays valid for a host that was drained for it since."""
    return tuple(sorted(_judge(result) for result in results if result.status != "n/a" and result.check != IN_SERVICE))


def _judge(result: Result) -> Judged:
    changes = tuple(sorted(f"{c.kind} {c.name}: {c.before} -> {c.after}" for c in result.changes))
    words = (result.expected, result.found) if result.status == "fail" else ("", "")
    return Judged(result.check, result.status, *words, result.reboot, result.version, changes)


def _compute_digest(value: object) -> str:
    import hashlib

    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:20]


def _list_spec_changes(before: Mapping[str, str], now: Mapping[str, str]) -> Iterable[str]:
    for name in dict.fromkeys([*before, *now]):
        if name not in now:
            yield f"{name} is not in the spec any more"
        elif name not in before:
            yield f"{name} is new in the spec"
        elif before[name] != now[name]:
            yield f"{name}: {SPEC} changed"


def _list_state_changes(before: Iterable[Judged], now: Iterable[Judged]) -> Iterable[str]:
    was, is_ = {result.check: result for result in before}, {result.check: result for result in now}
    for check in dict.fromkeys([*was, *is_]):
        old, other = was.get(check), is_.get(check)
        if old != other:
            yield f"{check}: was {_describe(old)}; is {_describe(other)}"


def _describe(judged: Judged | None) -> str:
    if judged is None:
        return "not asked"
    more = "; ".join(filter(None, (judged.found, *judged.changes, judged.version)))
    return f"{judged.status} ({more})" if more else judged.status


MOST = 12
STALE = "saved plan is stale: it can no longer be applied, because something has changed since it was made"
DONE = "see whether it still holds: gpuprov verify"


def _refuse(wrong: Sequence[str]) -> None:
    if wrong:
        more = [f"and {len(wrong) - MOST} more"] if len(wrong) > MOST else []
        details = "\n  ".join([*wrong[:MOST], *more])
        raise GpuprovError(f"{STALE}; nothing was changed\n  {details}", AGAIN)


def _mask_secrets(value: Any, secret: str) -> Any:
    if isinstance(value, str):
        return value.replace(secret, MASK)
    if isinstance(value, dict):
        return {key: _mask_secrets(item, secret) for key, item in value.items()}
    return [_mask_secrets(item, secret) for item in value] if isinstance(value, list | tuple) else value
