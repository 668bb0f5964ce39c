"""Real sshd processes on loopback ports: own configuration, own host key, own login key, all in one folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from gpuprov.spec.model import RawHost

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")


class Sshd:
    """`count` servers on free ports. `stop` ends them, and nothing else."""

    def __init__(self, folder: Path, count: int) -> None:
        assert SSHD
        self.folder = folder
        for name in ("host", "login"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        Path("/run/sshd").mkdir(exist_ok=True, mode=0o755)
        self.ports = free_ports(count)
        key = (folder / "host.pub").read_text().rsplit(" ", 1)[0]
        (folder / "known_hosts").write_text("".join(f"[127.0.0.1]:{port} {key}\n" for port in self.ports))
        self._children = [self._start(port) for port in self.ports]
        for port in self.ports:
            wait_for(port)

    def restart(self, number: int, first: str) -> None:
        """One of them again, with these lines in place of those of their kind: sshd takes the last MaxStartups."""
        self._children[number].terminate()
        self._children[number].wait()
        self._children[number] = self._start(self.ports[number], first)
        wait_for(self.ports[number])

    def _start(self, port: int, first: str = "") -> subprocess.Popen[bytes]:
        config = self.folder / f"sshd_{port}"
        own = (
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {self.folder}/login.pub\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            "PasswordAuthentication no\nMaxStartups 200\nMaxSessions 50\nPrintMotd no\n"
        )
        given = {line.split()[0] for line in first.splitlines()}
        config.write_text(first + "".join(f"{line}\n" for line in own.splitlines() if line.split()[0] not in given))
        assert SSHD
        return subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=subprocess.DEVNULL)

    def host(self, number: int = 0, **connection: object) -> RawHost:
        """The inventory's view of one of the servers."""
        variables: dict[str, object] = {
            "ansible_host": "127.0.0.1",
            "ansible_port": self.ports[number],
            "ansible_ssh_private_key_file": str(self.folder / "login"),
            "ansible_ssh_common_args": f"-F none -o UserKnownHostsFile={self.folder}/known_hosts",
        }
        return RawHost(name=f"gpu{number + 1:02d}", connection=variables | connection)

    def stop(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            child.wait()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"no sshd on port {port}")
