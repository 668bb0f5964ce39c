"""Build the driver's kernel modules aside, or have them in place for every kernel.

`aside` downloads the packages that modules are built from, and builds these for every kernel where they touch
nothing, so that a build that fails leaves the old driver as it is. The transaction after it then builds
nothing.
`dkms` has DKMS build and install the modules of a package for each kernel that lacks them. What was built aside
is used, and taken away.
`runfile` does the same with what NVIDIA's installer has registered.
`precompiled` has the modules of precompiled packages be the ones that each kernel loads.
`cleared` takes away what was built aside.
A kernel for which it fails, and the end of make.log, is in the message.

state: What to do.
version: The driver's version.
flavour: Of the modules.
kernels: Releases of the kernels.
built_from: NAME=VERSION of the packages that have the source (`aside`).
package: The installed package that has the source (`dkms`).
module: What the module's file is called, without its ending (`dkms`).
pack: What `aside` has returned.
packages: Those that have precompiled modules.
serial: Serial number of the certificate of the site's key, that every module is signed with; empty where DKMS
    signs.
key_file: The site's key, on the host.
certificate_file: Its certificate, on the host.
without: Names of gpuprov's own package sources that are to leave, and are not seen (`aside`).
lock_timeout: How long to wait for another package manager to finish, in seconds.

Returns:
pack: The archive of modules that were built aside; empty in check mode. (state is aside)
kernels: Kernels whose modules were put in place. (state is dkms, runfile or precompiled)
signed: Modules that were signed anew, by kernel. (state is dkms, runfile or precompiled)
"""

from __future__ import annotations

from .. import family
from ..driver import actions
from ..driver.dkms import Failed
from ..module import AnsibleModule
from ..packages.model import Refused

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
        answer = actions.ACTIONS[module.params["state"]](family.here(), module.params, module.check_mode)
    except (Refused, Failed) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}. Fix: see the file system of the host")
    module.exit_json(**answer)
