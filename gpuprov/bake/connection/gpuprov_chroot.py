"""The connection to an image that `gpuprov bake` works on: each command in a chroot, each file through its standard
input."""

from __future__ import annotations

import shlex
import subprocess

from ansible.errors import AnsibleConnectionFailure, AnsibleFileNotFound
from ansible.plugins.connection import ConnectionBase

from gpuprov.core import chroot

DOCUMENTATION = """
name: gpuprov_chroot
short_description: Run tasks in an image of which gpuprov bake has made a chroot
description:
  - Commands run as root below the folder that C(ansible_host) names, in the environment that gpuprov gives programs in images.
author: gpuprov
extends_documentation_fragment:
  - connection_pipelining
options:
  root:
    description: The folder of the image.
    type: str
    required: true
    vars:
      - name: ansible_host
"""


class Connection(ConnectionBase):  # type: ignore[misc]
    """A chroot, entered anew for each command."""

    transport = chroot.CONNECTION
    has_pipelining = True

    def _connect(self) -> Connection:
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return self._run(in_data, "/bin/sh", "-c", cmd)

    def put_file(self, in_path: str, out_path: str) -> None:
        super().put_file(in_path, out_path)
        try:
            with open(in_path, "rb") as file:
                status, _, errors = self._run(file.read(), "/bin/sh", "-c", f"cat > {shlex.quote(out_path)}")
        except OSError as error:
            raise AnsibleFileNotFound(f"{in_path} cannot be read: {error.strerror}") from error
        if status:
            raise AnsibleConnectionFailure(f"{out_path} in the image: {errors.decode(errors='replace').strip()}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        super().fetch_file(in_path, out_path)
        status, text, errors = self._run(None, "cat", "--", in_path)
        if status:
            raise AnsibleConnectionFailure(f"{in_path} in the image: {errors.decode(errors='replace').strip()}")
        with open(out_path, "wb") as file:
            file.write(text)

    def close(self) -> None:
        self._connected = False

    def _run(self, data: bytes | None, *argv: str) -> tuple[int, bytes, bytes]:
        command = chroot.command(str(self.get_option("root")), *argv)
        done = subprocess.run(command, input=data or b"", capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr
