"""Install a doca-host package that is already on the host, and update the lists of the package source it adds.

The step `fetch` has verified the package's checksum. A package of another name is refused before it is installed.
A file beside the package records that it was installed.
Check mode only reports the change.

package: Path of the deb or rpm on the host. If empty, nothing is done.
named: The package's name in the spec, for messages.

Returns:
msg: The change made, or in check mode pending. (changed)
"""

from __future__ import annotations

import os
from functools import partial
from typing import Iterator

from ..failed import Failed
from ..files import read, write
from ..module import AnsibleModule
from ..packages import apt_files
from ..packages.commands import Ran, shorten_end
from ..packages.commands import run as run_program
from ..packages.dnf import makecache
from ..packages.model import Settings

OPTIONS = {"package": {"type": "str", "default": ""}, "named": {"type": "str", "default": ""}}
NAME = "doca-host"
APT, DNF = "/etc/apt/sources.list.d", "/etc/yum.repos.d"
# Suffix of the file beside a package that marks it as installed.
DONE = ".done"


def run(module: AnsibleModule) -> None:
    package, named = module.params["package"], module.params["named"]
    if not package:
        module.exit_json(changed=False)
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would add the package source of {named}")
    try:
        add(package, named)
    except (Failed, OSError) as error:
        fix = "the doca-host package of this distribution; what dpkg, rpm, apt or dnf complain of, on the host"
        module.fail_json(msg=f"rdma.ofed: {named}: {error}. Fix: {fix}")
    module.exit_json(changed=True, msg=f"added the package source of {named}")


def add(package: str, named: str) -> None:
    """Install the package at this path; `named` is its name in the spec. Raises Failed."""
    (install_deb if package.endswith(".deb") else install_rpm)(package)
    write(package + DONE, f"{named}\n")


def install_deb(package: str) -> None:
    _check(run_program(["dpkg-deb", "-f", package, "Package"]), "it is not a Debian package")
    _must(run_program(["dpkg", "-i", package], {"DEBIAN_FRONTEND": "noninteractive"}), "dpkg -i")
    sources = [path for path in list_files(APT) if NAME in read(path)]
    if not sources:
        raise Failed("it brought no package source for apt")
    for source in () if os.environ.get("GPUPROV_BUNDLE") else sources:
        update = partial(apt_files.update, source, "-o", "APT::Get::List-Cleanup=0")
        if problem := apt_files.wait_and_fetch(update, Settings().lock_timeout):
            raise Failed(f"apt-get update of {source}: {shorten_end(problem, 400)}")


def install_rpm(package: str) -> None:
    _check(run_program(["rpm", "-qp", "--qf", "%{NAME}", package]), "it is not an rpm package")
    _must(run_program(["rpm", "-U", "--replacepkgs", "--oldpackage", package]), "rpm -U")
    if not any("doca" in os.path.basename(path) for path in list_files(DNF)):
        raise Failed("it brought no package source for dnf")
    if os.environ.get("GPUPROV_BUNDLE"):
        return
    if problem := makecache("--disablerepo=*", "--enablerepo=doca*", patience=Settings().lock_timeout):
        raise Failed(f"dnf makecache: {shorten_end(problem, 400)}")


def _check(ran: Ran, otherwise: str) -> None:
    """Refuse a file that is not a package, or another package, before any of it runs."""
    if ran.status:
        raise Failed(otherwise)
    name = ran.out.strip()
    if not name.startswith(NAME):
        raise Failed(f"it is {name}, not {NAME}")


def _must(ran: Ran, what: str) -> None:
    if ran.status:
        raise Failed(f"{what}: {shorten_end(ran.message[-400:], 400) or f'status {int(ran.status)}'}")


def list_files(folder: str) -> Iterator[str]:
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return (path for path in (os.path.join(folder, name) for name in names) if os.path.isfile(path))
