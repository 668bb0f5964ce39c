"""Checks of package sources, for every capability that has a `repository`, and for the host as a whole."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gpuprov.capabilities.base import Context, Outcome, check, fail, ok
from gpuprov.capabilities.compared import list_changes, move_packages
from gpuprov.catalog import find_distribution
from gpuprov.catalog import repositories as catalogue
from gpuprov.catalog.drivers.sets import pick_source
from gpuprov.facts.probes.base import Facts
from gpuprov.facts.probes.host import system
from gpuprov.facts.probes.host.family import Family, family
from gpuprov.facts.probes.software.repositories import REPOSITORIES
from gpuprov.host_code import checkpoints, openpgp, source_files, sources
from gpuprov.resources import Difference
from gpuprov.spec import repository as block

# Probes of `coming`.
COMING = (system.OS_RELEASE, system.PLATFORM, REPOSITORIES)
# gpuprov's names of the sources of the driver, and of the container toolkit.
DRIVER, CONTAINER_TOOLKIT = "nvidia", "container-toolkit"
# Defaults of a package source.
SOURCE: sources.Source = {"suite": "/", "components": [], "fingerprint": "", "signed": "packages"}
SHOWN = (
    "cat /etc/apt/sources.list.d/gpuprov-* /etc/yum.repos.d/gpuprov-* /etc/zypp/repos.d/gpuprov-*; "
    "gpg --show-keys /etc/apt/keyrings/gpuprov-*"
)


def judge(repo_state: sources.Host, requested: sources.Source, kind: Family) -> Outcome:
    """Return the outcome for the host's sources (the probe's facts), compared with the wanted block."""
    try:
        expected = block.list_fingerprints(requested)
    except (OSError, openpgp.NotAKey) as error:
        return fail("a public key", f"{requested['key_file']}: {error}", f"correct {requested['of']}.key_file")
    effective = standing(repo_state, requested, kind)
    place, key = sources.derive_path(effective["name"], kind), sources.get_key_path(effective["name"], kind)
    trust = ", ".join(expected) or "the given key"
    should = f"{effective['url']}, trusted by {trust}"

    def differ(difference: Difference, message: str) -> Outcome:
        return fail(should, message, "gpuprov apply writes it again", changes=list_changes([difference]))

    if place not in repo_state["files"]:
        return differ(Difference(place, "absent", effective["url"]), f"{place} is not there")
    if repo_state["files"][place] != sources.format_text(effective, kind):
        return differ(Difference(place, "changed", effective["url"]), f"{place} differs from what gpuprov writes")
    judged = openpgp.judge(repo_state["files"].get(key, ""), effective["fingerprint"] or ",".join(expected))
    if judged["problem"]:
        before = ", ".join(judged["fingerprints"]) or "no key"
        return differ(Difference(key, before, trust), f"{key}: {judged['problem']}")
    if repo_state["files"][key] != openpgp.armour_keys(repo_state["files"][key], each=kind != "debian"):
        return differ(Difference(key, "changed", trust), f"{key} holds more than the key, or in another form")
    if kind != "debian" and (missing := [f for f in judged["fingerprints"] if not sources.has_key(repo_state, f)]):
        return fail(should, f"rpm does not know the key {', '.join(missing)}", f"rpm --import {key}")
    if beside := sources.find_others(repo_state, effective, kind):
        message = "; ".join(f"{row.file} has {row.url}, {_describe_trust(row)}" for row in beside)
        return fail(should, message, f"remove it from {beside[0].file}: two sources of one repository have two keys")
    late = [warning for warning in judged["warnings"] if " expired " in warning]
    if late:
        return fail("a key that has not expired", late[0], f"get the renewed key for {requested['of']} from its owner")
    return ok(f"{effective['url']}, trusted by {', '.join(judged['fingerprints'])}", should)


def standing(repo_state: sources.Host, values: Mapping[str, Any], kind: Family) -> sources.Source:
    """Return the source under the name that another capability gave it."""
    requested = msgspec.convert(values, sources.Source)
    for row in sources.find_others(repo_state, requested, kind):
        name = sources.derive_own_name(row.file)
        if name and repo_state["files"][row.file] == sources.format_text({**requested, "name": name}, kind):
            return {**requested, "name": name}
    return requested


def driver_block(driver: Any, facts: Facts) -> sources.Source | None:
    """Return the source of the driver's packages that `nvidia_driver` adds to this host; None if the host's own are to
    be used."""
    release = facts.get(system.OS_RELEASE)
    distribution = find_distribution(release.id, release.version)
    if distribution is None:
        return None
    named: sources.Source = {"name": DRIVER, "of": "nvidia_driver.repository"}
    source = driver.source if driver.source != "auto" else pick_source(distribution)
    if source not in ("nvidia", "mirror"):
        return None
    if driver.repository.url:
        return {**named, **msgspec.to_builtins(driver.repository)}
    repository = catalogue.find_cuda_repository(distribution.key, facts.get(system.PLATFORM).machine)
    return {**named, **repository} if repository else None


def coming(driver: Any, facts: Facts) -> str:
    """Return the URL that the block `nvidia_driver` (or None) adds to the host's package sources, if they lack it;
    empty otherwise.

    Its packages can be resolved only then.
    """
    kind = family(facts.get(system.OS_RELEASE))
    requested = driver_block(driver, facts) if driver else None
    if requested is None or kind is None:
        return ""
    repo_state = facts.get(REPOSITORIES)
    effective = standing(repo_state, requested, kind)
    in_place = repo_state["files"].get(sources.derive_path(effective["name"], kind)) == sources.format_text(
        effective, kind
    )
    return (
        ""
        if in_place or (not driver.repository.url and sources.find_others(repo_state, requested, kind))
        else str(requested["url"])
    )


def later(what: str, url: str) -> Outcome:
    """Return the outcome if the package source is still to come: versions are known once apply has added it."""
    message = f"resolved when apply has added {url}"
    changes = tuple(move_packages({what: message}))
    return Outcome(status="skip", found=f"not among the package sources yet: {what} is {message}", changes=changes)


def _describe_trust(row: source_files.Row) -> str:
    return f"trusted by {row.signed_by}" if row.signed_by else "without a key of its own"


@check("host.package_sources", REPOSITORIES)
def package_sources(ctx: Context[Any]) -> Outcome:
    """Sources of NVIDIA's packages are signed and checked: no trusted=yes, no gpgcheck=0, no key over plain http, no
    retired key."""
    repo_state = ctx.facts.get(REPOSITORIES)
    ours: list[str] = []
    foreign: list[str] = []
    for row in repo_state["sources"]:
        for weakness in () if _is_kept(row) else sources.list_weaknesses(row):
            is_own = "nvidia" in row.url.casefold() or sources.derive_own_name(row.file)
            (ours if is_own else foreign).append(f"{row.file}: {weakness} for {row.url}")
    for retired in catalogue.list_retired_keys():
        old = retired.fingerprint
        holders = [file for file, data in repo_state["keys"].items() if old in _list_fingerprints(data)]
        holders += ["rpm's database"] * sources.has_key(repo_state, old)
        after = " and ".join(retired.successors)
        ours += [
            f"{holder} trusts {retired.id}, which NVIDIA replaced by {after} on {retired.since}" for holder in holders
        ]
    if ours:
        fix = (
            "Signed-By, or gpgkey=file:// and gpgcheck=1, with the owner's key; a retired key: remove its file, "
            "or rpm -e it"
        )
        return fail("signed package sources", "; ".join(dict.fromkeys(ours)), fix)
    number = len(repo_state["sources"])
    also = f"; not of NVIDIA's packages, and unproven: {'; '.join(dict.fromkeys(foreign))}" if foreign else ""
    return ok(f"{number} source{'' if number == 1 else 's'}{also}", "signed package sources")


def _is_kept(row: source_files.Row) -> bool:
    """Return whether it is the source of the files that the host itself keeps, whose digests rollback has compared."""
    return (row.file, row.url.rstrip("/")) in checkpoints.OFFERS


def _list_fingerprints(data: str) -> list[str]:
    try:
        return [key.fingerprint for key in openpgp.parse_keys(data)]
    except openpgp.NotAKey:
        return []
