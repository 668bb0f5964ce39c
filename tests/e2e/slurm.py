"""A Slurm cluster of four nodes in one simulated host: Debian's slurmctld, slurmd and munge, on loopback."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from gpuprov.simulate import container, engine

NODES = ("gpu1", "gpu2", "gpu3", "gpu4")
START = r"""
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-plugins munge > /dev/null
systemctl disable --now --quiet slurmctld slurmd 2> /dev/null || true
mkdir -p /etc/slurm /var/lib/slurm/ctl /var/spool/slurmd /var/log/slurm
chown slurm /var/lib/slurm/ctl
printf '127.0.0.1 localhost %s\n' "$(hostname)" > /etc/hosts
printf '#!/bin/sh\necho reboot >> /root/reboots\n' > /usr/local/sbin/reboot-node
chmod +x /usr/local/sbin/reboot-node
cat > /etc/slurm/slurm.conf <<EOF
ClusterName=lab
SlurmctldHost=$(hostname)(127.0.0.1)
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=slurm
StateSaveLocation=/var/lib/slurm/ctl
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=1
SlurmdTimeout=10
RebootProgram=/usr/local/sbin/reboot-node
MpiDefault=none
NodeName=gpu[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[17001-17004] CPUs=2 RealMemory=200 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
systemctl restart munge
slurmctld
for node in gpu1 gpu2 gpu3 gpu4; do slurmd -N $node; done
"""
# After a change, the client of the client is killed: as if the machine that runs gpuprov had gone.
CLIENT = """#!/bin/sh
{exec} {name} "$@"
status=$?
if [ -e {folder}/kill ] && [ "$1" = "$(cat {folder}/kill)" ]; then rm {folder}/kill; kill -9 $PPID; fi
exit $status
"""


@dataclass
class Slurm:
    """The cluster, and a folder with scontrol and squeue that reach it from here."""

    host: str
    folder: Path

    def sh(self, script: str) -> str:
        """What a shell script said, run beside slurmctld."""
        return container.run(self.host, script)

    def show(self, node: str) -> str:
        """The node's state and reason, as scontrol has them."""
        lines = self.sh(f"scontrol show node {node}").splitlines()
        at = next((n for n, line in enumerate(lines) if line.startswith("   Reason=")), len(lines))
        state = next(line.split()[0] for line in lines if line.startswith("   State="))
        return "\n".join([state, *lines[at:]])

    def wait(self, node: str, *words: str, without: str = "\0", seconds: float = 90) -> str:
        """Wait until a node shows all of these words, and not that one."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            shown = self.show(node)
            if all(word in shown for word in words) and without not in shown:
                return shown
            time.sleep(0.5)
        raise AssertionError(f"{node} has not come to {words}: {self.show(node)}")

    def boot(self, node: str, pause: float = 0.5) -> None:
        """End its slurmd and start it as after a boot."""
        self.sh(f"kill $(cat /run/slurmd-{node}.pid); sleep {pause}; slurmd -b -N {node}")

    def kill_after(self, verb: str) -> None:
        """The next gpuprov is killed as soon as scontrol has done this."""
        (self.folder / "kill").write_text(verb)

    def gpuprov(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A command of gpuprov's, with the clients of this cluster."""
        from tests.e2e.lab import GPUPROV

        environment = {"PATH": f"{self.folder}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.folder)}
        command = [GPUPROV, *map(str, words), "--by", "slurm", "--run", "fri", "--poll", "0.5"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def start(host: str, folder: Path) -> Slurm:
    """Install and start it on a simulated host that is up."""
    container.run(host, START)
    for name in ("scontrol", "squeue"):
        words = " ".join(engine.command("exec", container.PREFIX + host))
        (folder / name).write_text(CLIENT.format(exec=words, name=name, folder=folder))
        (folder / name).chmod(0o755)
    cluster = Slurm(host, folder)
    for node in NODES:
        cluster.wait(node, "State=IDLE", without="NOT_RESPONDING")
    return cluster
