"""Alibaba's cGPU on a host: its version, the settings of each GPU, what sets them at boot, and what cannot be beside it."""

from __future__ import annotations

import msgspec

from gpuprov.onhost.at_boot import cgpu as onhost
from gpuprov.onhost.at_boot.cgpu import CgpuGpu
from gpuprov.probe.base import Output, Probe
from gpuprov.probe.host.systemd import GONE


class Cgpu(msgspec.Struct, frozen=True, kw_only=True):
    """`version` is empty where the module is not loaded; `installed` are its modules that modprobe would find.

    `config`: the lines of gpuprov's configuration (None: no such file). `load`, `active`, `file`: of the boot unit. `log`: its
    last lines; `gone`: files of its command that are not there. `mig`: addresses of GPUs in MIG mode. `mps`: whether an MPS
    daemon runs; `mps_ours`: of gpuprov's units only.
    """

    version: str = ""
    installed: tuple[str, ...] = ()
    gpus: tuple[CgpuGpu, ...] = ()
    config: tuple[str, ...] | None = None
    load: str = "not-found"
    active: str = "inactive"
    file: str = ""
    log: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    mps: bool = False
    mps_ours: bool = False


def parse(output: Output) -> Cgpu:
    many = output.rows()
    unit = {name: (many.get(name) or [""])[-1] for name in ("LoadState", "ActiveState", "UnitFileState")}
    return Cgpu(
        **onhost.parse(output.text)._asdict(),
        installed=tuple(many.get("module", ())),
        config=tuple(line for line in many.get("config", ()) if line) if "config" in many else None,
        load=unit["LoadState"] or "not-found",
        active=unit["ActiveState"] or "inactive",
        file=unit["UnitFileState"],
        log=tuple(many.get("log", ())),
        gone=tuple(many.get("gone", ())),
        mig=tuple(line.split(",")[0].strip() for line in many.get("mig", ())),
        mps="mps" in many,
        mps_ours=set(many.get("mps", ())) == {"gpuprov"},
    )


CGPU = Probe(
    "cgpu",
    f"""{onhost.READER}c={onhost.CONFIG} u=gpuprov-cgpu.service
for m in {" ".join(onhost.MODULES)}; do modinfo -n $m >/dev/null 2>&1 && echo "module|$m"; done
"""
    """[ -e $c ] && echo 'config|' && sed -n 's/^\\([0-9*].*\\)/config|\\1/p' $c
systemctl show -p LoadState -p ActiveState -p UnitFileState $u 2>/dev/null | tr = '|'
"""
    f"{GONE}"
    """journalctl -q --no-pager -o cat -n 4 -u $u 2>/dev/null | sed 's/^/log|/'
nvidia-smi --query-gpu=pci.bus_id,mig.mode.current --format=csv,noheader 2>/dev/null | sed -n '/, Enabled/s/^/mig|/p'
for f in $(grep -lsx nvidia-cuda-mps /proc/[0-9]*/comm); do
  grep -qs '/gpuprov-mps@' "${f%comm}cgroup" && echo 'mps|gpuprov' || echo 'mps|'
done | sort -u
true""",
    parse,
    "cat /proc/cgpu_km/version; head -v /proc/cgpu_km/[0-9]*/policy; systemctl status gpuprov-cgpu",
    speaks=True,
    blank=r"LoadState\|",
)
"""cGPU as its procfs shows it, of whatever version. nvidia-cuda-mps are the first 15 letters of MPS's daemon and server."""
