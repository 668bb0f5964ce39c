"""The names that the roles request from a host are those that the probes read: no package of the driver escapes the
checks."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from gpuprov.catalog.distributions import list_managed
from gpuprov.facts.probes.software import packages
from tests.catalog.driver_packages import list_driver_packages
from tests.rows import run_each

SETS = {(key, source): found for key, sources in list_driver_packages().items() for source, found in sources.items()}


@run_each("where", SETS, ids="-".join)
def test_every_name_that_is_asked_for_is_read(where: tuple[str, str]) -> None:
    names = [*SETS[where]["ask"], *SETS[where]["dkms"]]
    if next(one for one in list_managed() if one.key == where[0]).family == "redhat":
        installed = [name for name in names if re.fullmatch(packages.INSTALLED_RPM, name)]
        offered = [name for name in names if any(fnmatchcase(name, glob) for glob in packages.OFFERED_RPM)]
    else:
        installed = [name for name in names if any(fnmatchcase(name, glob) for glob in packages.INSTALLED)]
        offered = [name for name in names if re.match(packages.OFFERED, name)]
    assert (installed, offered) == (names, names)


@run_each(
    "name", ["libxnvctrl0", "libnvoptix1", "libglx-nvidia0", "libegl-nvidia0", "xserver-xorg-video-nvidia-580", "dkms"]
)
def test_what_comes_along_with_a_driver_is_read_too(name: str) -> None:
    assert any(fnmatchcase(name, glob) for glob in packages.INSTALLED)
    assert re.match(packages.OFFERED, name)


def test_the_probes_ask_by_these_names() -> None:
    assert all(f"'{glob}'" in packages.PACKAGES.script for glob in packages.INSTALLED)
    assert f"({packages.INSTALLED_RPM})" in packages.PACKAGES.script
    assert f"({packages.OFFERED})" in packages.INDEX.script
    assert all(f"'{glob}'" in packages.INDEX.script for glob in packages.OFFERED_RPM)
