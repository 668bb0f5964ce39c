"""Kernel modules that one host builds for others, handled where both meet: on the machine that runs Ansible.

`packed`, on the build host, makes a Debian package of the modules that DKMS has installed, which replaces the DKMS
package, and keeps it here; a package with the same modules is not made again. `judged` refuses a present or coming
package of the build host (of this run, or of an earlier one whose package is in the cache) if it does not fit this
host, and changes nothing. `brought` also refuses if the build host has provided no package in this run. Check mode
packs nothing, and does not refuse for a coming package.

state: packed, judged or brought.
driver: What gpuprov_judge has worked out of the modules of this host.
builder: The build host.
awaited: What `judged` returned by this name. (brought)
platform: The host's distribution and version, which distinguish packages.

Returns:
given: True if the package is available for other hosts. (packed)
needed: True if the package has to be installed. (judged, brought: these and what follows)
awaited: True if the build host takes part in this run, and packs before the package is brought.
package: Its path on this machine; sha256 is its checksum, place its path on the host.
record: The description that is kept on the host, its text by its path.
install: The packages requested from the package manager: the set and the package.
stop: True if services that hold the GPUs are stopped for it.
try_install: The packages installed in the trial of the transaction; try_remove are those removed.
"""

import os
from pathlib import Path
from typing import TypedDict

from gpuprov.core.safe_parse import TreeView
from gpuprov.host_code.driver import prebuilt
from gpuprov.play.host import Host, Result, StepFailed

# The registered variable of the build host's own task of this step.
GIVEN = "__nvidia_driver_pack"


class Arguments(TypedDict, total=False):
    """Those of the task."""

    state: str
    driver: prebuilt.Driver
    builder: str
    awaited: bool
    platform: str


class Modules(Result, prebuilt.Trial, total=False):
    """The results, by names as above."""

    given: bool
    needed: bool
    awaited: bool
    package: str
    sha256: str
    place: str
    record: dict[str, str]
    install: list[str]
    stop: bool


def run(host: Host, arguments: Arguments) -> Result:
    """Pack on the build host; judge, then bring to another. Raises StepFailed."""
    driver, builder = arguments["driver"], str(arguments["builder"])
    words = (arguments["platform"], host.variables["ansible_facts"]["architecture"], builder, driver["module"])
    cache = prebuilt.make_cache_path(os.environ, *map(str, words), prebuilt.make_version(driver))
    if arguments["state"] == "packed":
        return _pack_modules(host, arguments, cache)
    return Modules(**_judge(host, arguments, cache), changed=False)


def _pack_modules(host: Host, arguments: Arguments, cache: str) -> Result:
    if host.check_mode:
        return Modules(changed=False, given=False)
    answer = host.step("prebuilt", **{**arguments, "sums": prebuilt.check_sums(cache)})
    if answer.get("failed") or answer.get("unreachable"):
        return answer
    for ending in ("deb", "json") if answer.get("changed") else ():
        fetched = host.fetch(f"{prebuilt.place_of(arguments['driver'])}.{ending}", f"{cache}.{ending}")
        if fetched.get("failed") or fetched.get("unreachable"):
            return fetched
    return Modules(changed=bool(answer.get("changed")), given=True)


def _judge(host: Host, arguments: Arguments, cache: str) -> Modules:
    """Return what this host takes. A build host that is being rescued is still in ansible_play_hosts, and one that
    failed in act 1 is not: what counts is that it has packed."""
    driver, builder = arguments["driver"], str(arguments["builder"])
    checking, package = host.check_mode, prebuilt.read_description(cache)
    coming, given = _describe_for_builder(builder, host.variables)
    judging = arguments["state"] == "judged"
    early = judging and bool(coming)
    awaited = not judging and bool(arguments.get("awaited"))
    if early:
        package = coming
    elif (coming or awaited) and not (given or checking):
        raise StepFailed(prebuilt.describe_missing_builder(builder, host.name, failed=True))
    elif coming and not package and not checking:
        raise StepFailed(prebuilt.describe_missing_builder(builder, host.name, failed=False))
    if not (checking and coming and not early) and (why := prebuilt.find_problem(builder, host.name, driver, package)):
        raise StepFailed(why)
    lacking = not early and prebuilt.is_lacking(driver, package)
    place = prebuilt.place_of(driver)
    local = ["--reinstall", f"{place}.deb"] if lacking else []
    record = Path(f"{cache}.json").read_text(encoding="utf-8") if lacking and not checking else ""
    trial = prebuilt.plan_trial(driver, local, untried=checking or not local)
    return {
        "needed": lacking,
        "awaited": early,
        "package": f"{cache}.deb",
        "sha256": package.get("sha256", ""),
        "place": f"{place}.deb",
        "record": {f"{place}.json": record} if record else {},
        "install": [*driver["install"], *(() if checking else local)],
        "stop": bool(driver["reload"] and (lacking or driver["moves"])),
        "try_install": trial["try_install"],
        "try_remove": trial["try_remove"],
    }


def _describe_for_builder(builder: str, variables: TreeView) -> tuple[prebuilt.Description, bool]:
    """Return what the build host gets in this run, empty if it takes no part; and whether it has packed."""
    if builder not in variables["ansible_play_hosts"]:
        return {}, False
    own = variables["hostvars"][builder]
    judged = own.get("gpuprov_judged") or {}
    other: prebuilt.Driver = (judged.get("desired") or {}).get("nvidia_driver", {})
    if "module" not in other:
        return {}, False
    built: prebuilt.Description = {
        "version": prebuilt.make_version(other),
        "flavour": other["flavour"],
        "kernels": other["kernels"],
    }
    return built, bool((own.get(GIVEN) or {}).get("given"))
