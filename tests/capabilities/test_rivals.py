"""host.rivals: commands of others that a boot or cron runs, against what a spec sets."""

from __future__ import annotations

from pathlib import Path

from gpuprov.capabilities import BY_NAME
from gpuprov.capabilities.base import Context
from gpuprov.capabilities.host import House
from gpuprov.facts.probes.host.rivals import RIVALS
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
]


@run_each(("name", "line", "words"), ROWS)
def test_what_a_command_is_against(name: str, line: str, words: str) -> None:
    host = HostSpec(name="gpu1", capabilities={name: BY_NAME[name].fragment()})
    outcome = CHECKS["host.rivals"].run(Context(host, House(), facts(rivals=f"read|\ncommand|/etc/rc.local|{line}\n")))
    assert (outcome.status, words in outcome.found) == ("fail" if words else "pass", True), (line, outcome)


def test_what_is_read(tmp_path: Path) -> None:
    files = {
        "etc/rc.local": "#!/bin/sh\n# nvidia-smi -pm 0\nnvidia-smi -pl 300\n",
        "etc/cron.d/x": "@reboot root nvidia-smi -pm 0\n",
        "etc/systemd/system/site.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -mig 0\n",
        "etc/systemd/system/off.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -mig 1\n",
        "etc/systemd/system/gpuprov-x.service": "[Service]\nExecStart=/usr/bin/nvidia-smi -pm 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "etc/rc.local").chmod(0o755)
    script = RIVALS.script.replace(" /etc/", f" {tmp_path}/etc/").replace(" /var/", f" {tmp_path}/var/")
    output = run_script(script, tmp_path, {"systemctl": 'case $* in *" site.timer") exit 0 ;; *) exit 1 ;; esac'})
    assert output.status == 0, output
    told = [(each.file.removeprefix(str(tmp_path)), each.line) for each in RIVALS.parse(output)]
    assert told == [
        ("/etc/rc.local", "nvidia-smi -pl 300"),
        ("/etc/cron.d/x", "@reboot root nvidia-smi -pm 0"),
        ("/etc/systemd/system/site.service", "ExecStart=/usr/bin/nvidia-smi -mig 0"),
    ]
