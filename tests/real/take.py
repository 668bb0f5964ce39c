"""Takes a capture of a host that one can log in to: python -m tests.real.take FOLDER PROBE... -- COMMAND...

COMMAND runs a shell there, which reads the probes' scripts from its standard input: `ssh root@host sh`. Who looks at the
host then writes about.yaml, and blanks what README.md says is blanked.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

from gpuprov.facts.captures import captured
from gpuprov.facts.probes.base import Facts, Output, Probe
from tests.real.corpus import WHOLE, probes

SPECS = {
    "cuda_in_containers": {"cuda_image": "docker.io/nvidia/cuda:12.8.0-base-ubuntu22.04", "cuda_engines": ""},
    "cuda_images": {"cuda_image": "docker.io/nvidia/cuda:12.8.0-base-ubuntu22.04", "cuda_engines": ""},
    "cuda_runs": {"cuda_user": "nobody"},
    "dcgm_counters": {"counters": "/etc/dcgm-exporter/default-counters.csv"},
    "file_systems": {"paths": "/\n/boot\n/scratch"},
    "first_boot": {"back": "1"},
    "hpc": {"mpi": "system", "release": ""},
    "modules_built": {"built": "nvidia mlx5_ib ext4 no-such"},
    "mps_user": {"mps_user": "nobody"},
    "scratch": {"mount": "/scratch"},
    "unit_reads": {"reads": "ssh.service|/etc/ssh\ncron.service|/etc/crontab\nslurmd.service|/etc/slurm"},
}
"""What the scripts of probes ask, as specs would say it."""


def ask(probe: Probe[object], command: list[str]) -> Output:
    variables = "".join(f"{name}='{value}'\n" for name, value in SPECS.get(probe.name, {}).items())
    done = subprocess.run(
        command, input=variables + probe.script, capture_output=True, text=True, check=False, timeout=300
    )
    return Output(done.stdout, done.returncode, done.stderr[:500])


def main(words: list[str]) -> None:
    (folder, *names), command = words[: words.index("--")], words[words.index("--") + 1 :]
    facts = Facts({name: ask(probes()[name], command) for name in names})
    facts.read_at = time.time()
    place = Path(folder, WHOLE)
    place.parent.mkdir(exist_ok=True)
    place.write_text(captured.text(captured.made("host", facts, "")), encoding="utf-8")
    assert msgspec.json.decode(place.read_bytes())


if __name__ == "__main__":
    main(sys.argv[1:])
