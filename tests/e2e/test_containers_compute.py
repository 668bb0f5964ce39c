"""CUDA in containers of real engines, docker, podman and containerd, with NVIDIA's own toolkit and a stand-in libcuda:
it runs, each fault has a sentence of its own, and nothing stays behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprov.facts.probes.gpus.cuda_runs import CUDA_IN_CONTAINERS
from gpuprov.simulate.description import Description, Gpus
from tests.e2e.lab import Lab, loaded
from tests.e2e.machine import Machine

pytestmark = pytest.mark.e2e
ENGINES = ("docker", "podman", "containerd")
CUDA, SPECIFICATION = "container_toolkit.cuda", "/var/run/cdi/nvidia.yaml"
RUNC = """\
#!/bin/sh
# A simulated host sees its part of the machine's cgroups as a folder; runc gets a view in which that part is the root.
for d in /sys/fs/cgroup/*/; do { echo $$ > "$d/cgroup.procs"; } 2> /dev/null; done
exec unshare --cgroup --mount sh -c '
  umount -R /sys/fs/cgroup 2> /dev/null
  mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup
  while read -r _ hierarchy; do
    mkdir -p "/sys/fs/cgroup/$hierarchy"; mount -t cgroup -o "$hierarchy" cgroup "/sys/fs/cgroup/$hierarchy"
  done <<END
$(cut -d: -f1,2 /proc/self/cgroup | grep -E "^[1-9][0-9]?:[a-z]" | tr : " ")
END
  exec /usr/sbin/runc.real "$@"' runc "$@"
"""
HOOK = """\
#!/bin/sh
# /proc/driver/nvidia of a simulated host is not a file of the kernel's, and not in the /proc of its containers.
case " $* " in *" disable-device-node-modification "*) exit 0;; esac
exec "$0.real" "$@"
"""
PREPARE = """\
mv /usr/sbin/runc /usr/sbin/runc.real; install -m 755 /run/wrapper /usr/sbin/runc
for p in nvidia-ctk nvidia-cdi-hook; do mv /usr/bin/$p /usr/bin/$p.real
  install -m 755 /run/without-hook /usr/bin/$p; done
mkdir -p /etc/containers; rm -rf /var/lib/containers/storage
cd /etc/containers
printf '[storage]\\ndriver = "vfs"\\nrunroot = "/run/containers/storage"\\ngraphroot = "/var/lib/containers/storage"\\n' > storage.conf
printf '[engine]\\nruntime = "runc"\\n[containers]\\ndefault_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]\\n' > containers.conf
mount -t tmpfs tmpfs /var/lib/containerd; systemctl restart containerd docker
l=$(readlink -f /usr/lib/x86_64-linux-gnu/libcuda.so.1); mv $l $l.real
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -DSAY='"/etc/say"' -o $l /run/libcuda.c; ldconfig
"""
IMAGE = """\
mkdir -p /opt/image/etc; printf '%s' "$says" > /opt/image/etc/say
for e in docker podman; do tar c -C /opt/image . | $e import - site/cuda:$tag > /dev/null 2>&1; done
docker save site/cuda:$tag -o /opt/image.tar; ctr images import /opt/image.tar > /dev/null
"""
LEFT = "docker ps -a --format '{{.Names}}'; podman ps -a --format '{{.Names}}'; ctr containers ls -q"


@pytest.fixture(scope="module")
def host(lab: Lab) -> Iterator[Machine]:
    """A host whose engines start containers, with an image that has one file, /etc/say, and no program."""
    described = Description(gpu=Gpus(model="L40S", count=2), container_toolkit=True, engines=("docker", "podman"))
    with loaded("e2e-containers", described, "libcuda1", "libnvidia-ml1") as machine:
        applied = lab.run("apply", lab.inventory({"container_toolkit": {"runtimes": [*ENGINES]}}, machine), "--yes")
        assert applied.code == 0, applied
        machine.write("/run/wrapper", RUNC)
        machine.write("/run/without-hook", HOOK)
        machine.write("/run/libcuda.c", (Path(__file__).parents[1] / "facts/probes/gpus/libcuda.c").read_text())
        machine.sh(PREPARE)
        make_image(machine, "1", "")
        yield machine


def make_image(machine: Machine, tag: str, says: str) -> None:
    """An image in all engines in which libcuda says this."""
    machine.sh(f"tag={tag} says='{says}'\n{IMAGE}")


def ask(lab: Lab, machine: Machine, tag: str = "1", engines: tuple[str, ...] = ENGINES) -> str:
    """Status and finding of the check. Whatever they are, no container is left."""
    block = {"runtimes": [*engines], "cuda_image": f"site/cuda:{tag}"}
    inventory = lab.inventory({"container_toolkit": block}, machine)
    rows = lab.run("verify", inventory, "--only", "container_toolkit", "--json").json
    assert machine.sh(LEFT).split() == []
    return next(f"{row['status']}: {row['found']}" for row in rows if row["check"] == CUDA)


def test_it_runs_in_an_image_without_a_single_program(lab: Lab, host: Machine) -> None:
    assert ask(lab, host) == "pass: CUDA runs on each device in docker, podman, containerd"


def test_what_libcuda_says_is_told_for_the_device(lab: Lab, host: Machine) -> None:
    uuid = host.sh("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 1").strip()
    for tag, says, found in (
        ("802", "cuInit 802", "cuInit: 802 CUDA_ERROR_SYSTEM_NOT_READY"),
        ("spoil", "spoil 1", "memory that was copied there came back otherwise"),
        ("hang", "cuMemAlloc -2", "no answer within 12 s"),
    ):
        make_image(host, tag, f"{uuid} {says}\n")
        assert re.fullmatch(f"fail: podman: [0-9a-f:.]+: {found}", ask(lab, host, tag, ("podman",)))


def test_a_gpu_that_somebody_holds_is_not_proven_and_a_forbidden_one_is_wrong(lab: Lab, host: Machine) -> None:
    uuid = host.sh("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 0").strip()
    make_image(host, "46", f"{uuid} cuDevicePrimaryCtxRetain 46\n")
    host.sh("nvidia-smi -c EXCLUSIVE_PROCESS -i 0")
    assert re.match(r"skip: docker: \S+ in use by somebody else", ask(lab, host, "46", ("docker",)))
    host.sh("nvidia-smi -c PROHIBITED -i 0")
    assert re.match("fail: docker: .*: compute mode Prohibited", ask(lab, host, "46", ("docker",)))
    host.sh("nvidia-smi -c DEFAULT -i 0")


UVM_LEFT_OUT = r"re.sub(r'        - path: /dev/nvidia-uvm\n(?:          .*\n)+', '', text)"
DENIED = r"""re.sub(r'        - path: /dev/nvidiactl\n(?:          .*\n)+', '', text).replace('    mounts:\n',
  '    mounts:\n        - {hostPath: /dev/denied, containerPath: /dev/nvidiactl, options: [bind, rw]}\n', 1)"""
OTHER_DRIVER = r"re.sub(r'\.so\.[0-9]+\.[0-9.]+[0-9]', '.so.535.161.08', text)"


def test_a_specification_that_is_wrong(lab: Lab, host: Machine) -> None:
    """The device file that a cgroup denies is a real one that containers may not open, FUSE's."""
    host.sh(f"cp {SPECIFICATION} /run/kept; mknod /dev/denied c 10 229")
    for change, found in (
        (UVM_LEFT_OUT, "there is no /dev/nvidia-uvm"),
        (DENIED, "a cgroup denies /dev/nvidiactl"),
        (OTHER_DRIVER, "has files of driver 535.161.08, which are gone: it is stale"),
        ("''", "no CDI specification names the GPUs"),
    ):
        program = f"import re\ntext = open('/run/kept').read()\nopen('{SPECIFICATION}', 'w').write({change})"
        host.write("/run/change.py", program)
        host.sh("python3 /run/change.py")
        assert re.match(f"fail: podman: .*{found}", ask(lab, host, engines=("podman",)))
    host.sh(f"cp /run/kept {SPECIFICATION}; rm /dev/denied")
    assert ask(lab, host, engines=("podman",)) == "pass: CUDA runs on each device in podman"


def test_what_the_host_lacks(lab: Lab, host: Machine) -> None:
    lacks = "; ".join(f"{name} has no image site/cuda:none" for name in ENGINES)
    assert ask(lab, host, "none") == f"fail: {lacks}"
    host.sh("mv /dev/nvidia-uvm /dev/away")
    assert "there is no /dev/nvidia-uvm" in ask(lab, host)
    host.sh(
        "mv /dev/away /dev/nvidia-uvm; cp /etc/docker/daemon.json /run/daemon.json; echo '{}' > /etc/docker/daemon.json"
    )
    host.sh("systemctl restart docker")
    assert ask(lab, host, engines=("docker",)).startswith("fail: docker: NVIDIA's runtime is not registered")
    host.sh("cp /run/daemon.json /etc/docker/daemon.json; systemctl restart docker")
    note = {"by": "slurm", "run": "friday", "since": "2026-11-30T00:00:00Z", "host": "x"}
    host.write("/var/lib/gpuprov/drained.json", json.dumps(note))
    assert ask(lab, host).startswith("skip: drained by gpuprov run friday")
    host.sh("rm /var/lib/gpuprov/drained.json")


KILLED = """\
set +e
kill_tree() { for c in $(cat "/proc/$1/task/"*/children 2> /dev/null); do kill_tree "$c"; done
  kill -9 "$1" 2> /dev/null; }
sh /run/probe.sh > /dev/null 2>&1 &
for i in $(seq 100); do { docker ps; podman ps; ctr containers ls -q; } | grep -q gpuprov-cuda && break; sleep 0.2; done
kill_tree $!
true
"""


@pytest.mark.parametrize("engine", ENGINES)
def test_the_container_goes_when_all_of_the_login_is_killed(lab: Lab, host: Machine, engine: str) -> None:
    """As a snippet is that takes too long."""
    uuid = host.sh("nvidia-smi --query-gpu=uuid --format=csv,noheader -i 0").strip()
    make_image(host, "slow", f"{uuid} cuMemAlloc -2\n")
    host.write("/run/probe.sh", f"cuda_image=site/cuda:slow cuda_engines={engine}\n{CUDA_IN_CONTAINERS.script}")
    host.sh(KILLED)
    assert host.sh(LEFT).split() == ["gpuprov-cuda"]
    host.wait_for(f'[ -z "$({LEFT})" ]', 60)
