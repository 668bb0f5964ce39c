"""Build the driver's kernel modules in a staging area, or put them in place for every kernel.

`aside` downloads the packages that modules are built from and builds them for every kernel without touching the
system, so that a failed build leaves the old driver untouched. The transaction that follows then builds nothing.
`dkms` lets DKMS build and install the modules of a package for each kernel that lacks them, using and then removing
the staged build.
`runfile` does the same with the source that NVIDIA's installer has registered.
`precompiled` makes each kernel load the modules of precompiled packages.
`cleared` removes the staged build.
An error names the kernel that failed and quotes the end of make.log.

state: The action.
version: The driver's version.
flavour: The flavour of the modules.
kernels: Releases of the kernels.
built_from: Source packages as NAME=VERSION (`aside`).
package: The installed package that contains the source (`dkms`).
module: File name of the module, without its suffix (`dkms`).
pack: The `pack` that `aside` returned.
packages: Packages with precompiled modules.
serial: Serial number of the certificate of the site's key, with which every module is signed; empty if DKMS signs.
key_file: The site's key, on the host.
certificate_file: The key's certificate, on the host.
without: Names of gpuprov's own package sources that are to be removed, and are ignored (`aside`).
lock_timeout: Seconds to wait for another package manager to finish.

Returns:
pack: The archive of the staged modules; empty in check mode. (state is aside)
kernels: Kernels whose modules were put in place. (state is dkms, runfile or precompiled)
signed: Modules that were signed again, by kernel. (state is dkms, runfile or precompiled)
"""

from __future__ import annotations

from .. import family, files
from ..driver import actions
from ..module import AnsibleModule

NAMES = {"type": "list", "elements": "str", "default": []}
WORD = {"type": "str", "default": ""}
OPTIONS = {
    "state": {"type": "str", "choices": ["aside", "dkms", "runfile", "precompiled", "cleared"], "required": True},
    "flavour": {"type": "str", "choices": ["open", "proprietary", ""], "default": ""},
    "module": {"type": "str", "default": "nvidia"},
    **dict.fromkeys(("kernels", "built_from", "packages", "without"), NAMES),
    **dict.fromkeys(("version", "package", "pack", "serial", "key_file", "certificate_file"), WORD),
    "lock_timeout": {"type": "int", "default": 300},
}


def run(module: AnsibleModule) -> None:
    try:
        answer = actions.ACTIONS[module.params["state"]](family.read_family(), module.params, module.check_mode)
    except OSError as error:
        module.fail_json(msg=files.explain(error))
    module.exit_json(**answer)
