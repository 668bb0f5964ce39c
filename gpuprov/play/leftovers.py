"""Remove temporary folders that killed runs left on the host: those of the user who logs in, as that user, through the
guard of the lock.

Nothing comes of a failure: what stays is in nobody's way.
"""

import shlex
from typing import TypedDict

from gpuprov.core import assets
from gpuprov.play.host import Host, Result


class Arguments(TypedDict):
    """None."""


def run(host: Host, _arguments: Arguments) -> Result:
    """Run the script."""
    script = (assets.root() / "roles" / "host" / "files" / "clear.sh").read_text(encoding="utf-8")
    guard = host.template(host.variables.get("host_lock") or {}).get("guard")
    host.login(shlex.join([*([guard, "--"] if guard else []), "/bin/sh", "-c", script]))
    return {"changed": False}
