"""Variables of a site beside `gpuprov` for checks that must pass before any change: defaults, and allowed values."""

from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from gpuprov.core.safe_parse import is_whole
from gpuprov.core.sanitize import has_login
from gpuprov.spec.model import Fragment, Site
from gpuprov.spec.problem import Problem
from gpuprov.spec.shown import show
from gpuprov.spec.url import has_query, hide_queries

# Folders whose free space is read on a host.
FOLDERS = ("/boot", "/var")


class Room(Fragment, frozen=True):
    """Free space required before any change."""

    path: str
    mib: Annotated[int, msgspec.Meta(ge=0)]


# Seconds: apt refuses an index from the future, and TLS a certificate that is not valid yet.
MAX_CLOCK_SKEW = 300

# Overrides that are numbers of seconds, each with an example.
SECONDS = {
    "cgpu_module_timeout": 60,
    "host_max_clock_skew": 600,
    "host_package_lists_max_age": 3600,
    "host_package_lock_timeout": 900,
    "host_reboot_timeout": 3600,
}

COMPONENTS = "nvidia_driver_manage_repository"
SERVICES = "host_gpu_services"
ROOM = "host_free_space"
# Words as Ansible reads them.
YES, NO = frozenset(("y", "yes", "on", "1", "true", "t")), frozenset(("n", "no", "off", "0", "false", "f"))


def can_add_components(site: Site) -> bool:
    """True if the components of Debian with its driver may be added."""
    return format_word(site.get(COMPONENTS, True)) in YES


def format_word(value: object) -> str:
    return str(value).strip().lower()


def get_max_clock_skew(site: Site) -> int:
    """Return how far a host's clock may be off, in seconds."""
    return int(str(site.get("host_max_clock_skew", MAX_CLOCK_SKEW)))


def get_package_settings(site: Site) -> dict[str, int]:
    """Return the site's settings, in seconds: `lock_timeout`, for another package manager; `max_age`, of package
    lists."""
    named = {"lock_timeout": "host_package_lock_timeout", "max_age": "host_package_lists_max_age"}
    return {option: int(str(site[name])) for option, name in named.items() if name in site}


def free_space(site: Site, usual: Mapping[str, Room]) -> Mapping[str, Room]:
    """Return the free space that each capability requires, by default the usual; capabilities without an entry require
    none."""
    given = site.get(ROOM)
    return usual if given is None else msgspec.convert(given, dict[str, Room])


def find_problems(site: Site, capabilities: Iterable[str]) -> Iterable[Problem]:
    """Yield mistakes in the site's variables; the path of each is the variable's name."""
    for name in ("container_toolkit_repository", "container_toolkit_repository_key"):
        hide_queries(value := str(site.get(name, "")))
        if has_login(value) or has_query(value):
            message = f"{name} is {show(site[name])}; allowed: an address without user name, password and query"
            yield Problem(path=(name,), message=message, fix="they belong in /etc/apt/auth.conf.d, or in dnf.conf")
    for name, example in SECONDS.items():
        if name in site and not is_whole(str(site[name])):
            message = f'{name} is "{site[name]}"; allowed: seconds, a whole number'
            yield Problem(path=(name,), message=message, fix=f"such as {name}: {example}")
    if COMPONENTS in site and format_word(site[COMPONENTS]) not in YES | NO:
        message = f'{COMPONENTS} is "{site[COMPONENTS]}"; allowed: true, false'
        yield Problem(path=(COMPONENTS,), message=message, fix=f"such as {COMPONENTS}: false")
    services = site.get(SERVICES, "")
    units = services if isinstance(services, list | tuple) else [services]
    if not all(isinstance(unit, str) for unit in units):
        message = f'{SERVICES} is "{services}"; allowed: a list of units'
        yield Problem(path=(SERVICES,), message=message, fix=f"such as {SERVICES}: [lightdm.service]")
    fix = f"such as host_free_space: {{kernel: {{path: /boot, mib: 200}}}}; {' or '.join(FOLDERS)}, in MiB"
    for message in _find_problems_of_rooms(site, list(capabilities)):
        yield Problem(path=(ROOM,), message=message, fix=fix)


def _find_problems_of_rooms(site: Site, capabilities: list[str]) -> Iterable[str]:
    try:
        rooms = free_space(site, {})
    except msgspec.ValidationError as error:
        yield f'host_free_space is "{site[ROOM]}": {error}'
        return
    for name, room in rooms.items():
        if name not in capabilities:
            yield f'host_free_space has "{name}"; allowed: {", ".join(capabilities)}'
        if room.path not in FOLDERS:
            yield f'host_free_space.{name}.path is "{room.path}"; allowed: {", ".join(FOLDERS)}'
