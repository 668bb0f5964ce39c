"""host.rivals: commands of others that a boot or cron runs, against what a spec sets."""

from __future__ import annotations

from pathlib import Path

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House
from gpuprov.capabilities.rdma.fragment import Rdma
from gpuprov.capabilities.rdma.roce.fragment import Roce
from gpuprov.facts.probes.host.rivals import RIVALS
from gpuprov.spec.kernel import Kernel
from gpuprov.spec.model import HostSpec
from tests.capabilities.asking import CHECKS, facts
from tests.facts.probes import run_script
from tests.rows import run_each

ROWS = [
    ("mig", "nvidia-smi -i 0 -mig 0", "changes MIG (mig)"),
    ("mig", "/usr/bin/nvidia-smi mig -dgi", "changes MIG (mig)"),
    ("mig", "nvidia-mig-parted apply -f /etc/x.yaml", "changes MIG (mig)"),
    ("mig", "nvidia-smi mig -lgi", ""),
    ("mig", "nvidia-mig-parted assert -f /etc/x.yaml", ""),
    ("mig", "nvidia-smi -pm 0", ""),
    ("persistence", "@reboot root nvidia-smi -pm 0", "switches persistence mode off"),
    ("persistence", "nvidia-smi --persistence-mode=DISABLED", "switches persistence mode off"),
    ("persistence", "nvidia-smi -pm 1", ""),
    ("persistence", "ExecStart=/bin/systemctl stop nvidia-persistenced", "stops a unit of it (persistence)"),
    ("persistence", "systemctl restart nvidia-persistenced", ""),
    ("gpu_settings", "nvidia-smi -pl 300", "changes settings (gpu_settings)"),
    ("gpu_settings", "nvidia-smi -q -d POWER", ""),
    ("gpu_settings", "nvidia-smi --loop=5 --query-gpu=power.draw", ""),
    ("mps", "nvidia-cuda-mps-control -d", "starts another MPS daemon"),
    ("mps", "nvidia-smi -i 0 -c EXCLUSIVE_PROCESS", "changes the compute mode (mps)"),
    ("dcgm", "service nvidia-dcgm stop", "stops a unit of it (dcgm)"),
    ("dcgm", "service nvidia-dcgm start", ""),
    ("fabric_manager", "0 3 * * * root systemctl --now disable nvidia-fabricmanager.service", "stops a unit of it"),
    ("container_toolkit", "systemctl stop docker.socket docker", "stops a unit of it (container_toolkit)"),
    ("container_toolkit", "ExecStart=/usr/local/bin/myservice docker run x; systemctl stop foo; docker pull y", ""),
    ("container_toolkit", "systemctl stop docker-registry.service", ""),
    ("container_toolkit", "systemctl start docker", ""),
    ("nvidia_driver", "modprobe -r nvidia_uvm nvidia", "unloads the driver"),
    ("nvidia_driver", "modprobe nvidia_uvm", ""),
    ("pcie", "setpci -s 3b:00.0 ECAP_ACS+6.w=1d", "changes PCIe settings"),
    ("pcie", "setpci -s 3b:00.0 ECAP_ACS+6.w", ""),
    ("rdma", "cma_roce_tos -d mlx5_0 -t 0", ""),
]
OTHER = {
    "rdma": Rdma(fabric="roce", roce=Roce(tos=106)),
    "kernel": Kernel(sysctl={"vm.swappiness": 1, "net.ipv4.conf.eth0/1.rp_filter": 2}, cpu_governor="performance"),
}
OTHER_ROWS = [
    ("post-up cma_roce_tos -d mlx5_0 -t 0", "changes settings of RoCE (rdma)"),
    ('RUN+="/usr/bin/mlnx_qos -i eth0 --trust=pcp"', "changes settings of RoCE (rdma)"),
    ("dcb pfc set dev eth0 prio-pfc all:off", "changes settings of RoCE (rdma)"),
    ("dcb pfc show dev eth0", ""),
    ("cma_roce_tos -d mlx5_0", ""),
    ("mlnx_qos -i eth0", ""),
    ("@reboot root sysctl -w vm.swappiness=60", "sets vm.swappiness (kernel)"),
    ("echo 60 > /proc/sys/vm/swappiness", "sets vm.swappiness (kernel)"),
    ("echo 0 >/proc/sys/net/ipv4/conf/eth0.1/rp_filter", "sets net.ipv4.conf.eth0/1.rp_filter"),
    ("sysctl vm.swappiness; cat /proc/sys/vm/swappiness", ""),
    ("sysctl -w vm.swappiness_other=60", ""),
    ("ExecStart=/usr/bin/cpupower -c all frequency-set -g powersave", "another CPU frequency governor"),
    ("cpupower frequency-info -g", ""),
]


@run_each(("name", "line", "words"), ROWS)
def test_what_a_command_is_against(name: str, line: str, words: str) -> None:
    host = HostSpec(name="gpu1", capabilities={name: BY_NAME[name].fragment()})
    outcome = CHECKS["host.rivals"].run(Context(host, House(), facts(rivals=f"read|\ncommand|/etc/rc.local|{line}\n")))
    assert (outcome.status, words in outcome.found) == ("fail" if words else "pass", True), (line, outcome)


@run_each(("line", "words"), OTHER_ROWS)
def test_what_a_command_is_against_of_the_kernel_and_of_roce(line: str, words: str) -> None:
    host = HostSpec(name="gpu1", capabilities=OTHER)
    outcome = CHECKS["host.rivals"].run(Context(host, House(), facts(rivals=f"read|\ncommand|/etc/rc.local|{line}\n")))
    assert (outcome.status, words in outcome.found) == ("fail" if words else "pass", True), (line, outcome)


def test_what_is_read(tmp_path: Path) -> None:
    files = {
        "etc/rc.local": "#!/bin/sh\n# nvidia-smi -pm 0\nnvidia-smi -pl 300\n",
        "etc/cron.d/x": "@reboot root nvidia-smi -pm 0\n",
        "etc/network/if-up.d/roce": "#!/bin/sh\nmlnx_qos -i eth0 --pfc 0,0,0,0,0,0,0,0\n",
        "etc/udev/rules.d/99-x.rules": 'ACTION=="add", RUN+="/sbin/sysctl -w vm.swappiness=60"\n',
        "etc/systemd/system/site.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -mig 0\n",
        "etc/systemd/system/off.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -mig 1\n",
        "etc/systemd/system/gpuprov-x.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -pm 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name in ("rc.local", "network/if-up.d/roce"):
        (tmp_path / "etc" / name).chmod(0o755)
    script = RIVALS.script.replace(" /etc/", f" {tmp_path}/etc/").replace(" /var/", f" {tmp_path}/var/")
    output = run_script(script, tmp_path, {"systemctl": 'case $* in *" site.timer") exit 0 ;; *) exit 1 ;; esac'})
    assert output.status == 0, output
    told = [(each.file.removeprefix(str(tmp_path)), each.line) for each in RIVALS.parse(output)]
    assert told == [
        ("/etc/rc.local", "nvidia-smi -pl 300"),
        ("/etc/network/if-up.d/roce", "mlnx_qos -i eth0 --pfc 0,0,0,0,0,0,0,0"),
        ("/etc/udev/rules.d/99-x.rules", 'ACTION=="add", RUN+="/sbin/sysctl -w vm.swappiness=60"'),
        ("/etc/cron.d/x", "@reboot root nvidia-smi -pm 0"),
        ("/etc/systemd/system/site.service", "ExecStart=/usr/bin/nvidia-smi -mig 0"),
    ]
