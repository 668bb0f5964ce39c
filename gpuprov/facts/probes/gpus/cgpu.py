"""Alibaba's cGPU on a host: its version, the settings of each GPU, and what conflicts with it."""

import msgspec

from gpuprov.facts.probes.base import Output, Probe
from gpuprov.host_code.at_boot import cgpu as onhost
from gpuprov.host_code.at_boot.cgpu import CgpuGpu


class Cgpu(msgspec.Struct, frozen=True, kw_only=True):
    """The state of cGPU."""

    # Empty if the module is not loaded.
    version: str = ""
    # Its modules that modprobe would find.
    installed: tuple[str, ...] = ()
    gpus: tuple[CgpuGpu, ...] = ()
    # Addresses of GPUs in MIG mode.
    mig: tuple[str, ...] = ()
    # Whether an MPS daemon runs.
    mps: bool = False
    # Of gpuprov's units only.
    mps_ours: bool = False


def parse(output: Output) -> Cgpu:
    many = output.rows()
    return Cgpu(
        **onhost.parse(output.text)._asdict(),
        installed=tuple(many.get("module", ())),
        mig=tuple(line.split(",")[0].strip() for line in many.get("mig", ())),
        mps="mps" in many,
        mps_ours=set(many.get("mps", ())) == {"gpuprov"},
    )


# cGPU as its procfs shows it, of whatever version. nvidia-cuda-mps are the first 15 letters of MPS's daemon and server.
CGPU = Probe(
    "cgpu",
    f"""{onhost.READER}for m in {" ".join(onhost.MODULES)}; do modinfo -n $m >/dev/null 2>&1 && echo "module|$m"; done
"""
    """nvidia-smi --query-gpu=pci.bus_id,mig.mode.current --format=csv,noheader 2>/dev/null |
  sed -n '/, Enabled/s/^/mig|/p'
for f in $(grep -lsx nvidia-cuda-mps /proc/[0-9]*/comm); do
  grep -qs '/gpuprov-mps@' "${f%comm}cgroup" && echo 'mps|gpuprov' || echo 'mps|'
done | sort -u
true""",
    parse,
    "cat /proc/cgpu_km/version; head -v /proc/cgpu_km/[0-9]*/policy",
)
