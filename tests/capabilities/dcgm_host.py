"""DCGM on the good host, told as its probes print it."""

from __future__ import annotations

CORE, CUDA = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-4-cuda12"
CLOSED = ("datacenter-gpu-manager-4-proprietary", "datacenter-gpu-manager-4-proprietary-cuda12")
SET = (CORE, CUDA, *CLOSED)
EXPORTER = "datacenter-gpu-manager-exporter"
ENGINE = "/usr/bin/nv-hostengine -n --service-account nvidia-dcgm"
SENDER = "/usr/bin/dcgm-exporter -f /etc/dcgm-exporter/default-counters.csv"
TOLD = "DCGM_EXPORTER_LISTEN=:9400 DCGM_REMOTE_HOSTENGINE_INFO=127.0.0.1:5555"


def packages(*names: str, version: str = "1:4.4.2-1", state: str = "hi ", **others: str) -> str:
    """dpkg-query's lines; `others` (underscores for dashes) have a version of their own."""
    rows = dict.fromkeys(names or SET, version) | {name.replace("_", "-"): given for name, given in others.items()}
    return "".join(f"{state}|{name}|{given}|{name}\n" for name, given in rows.items())


def index(*versions: str, names: tuple[str, ...] = (), exporters: tuple[str, ...] = ("4.8.2-1", "4.7.1-1")) -> str:
    """apt-cache madison's lines for line 4 in these versions, newest first, for line 3, and for the exporter."""
    four = names or (*SET, *(name.replace("12", "13") for name in SET if "12" in name),
                     *(name.replace("12", "11") for name in SET if "12" in name))  # fmt: skip
    rows = [(name, version) for name in four for version in versions or ("1:4.5.3-1", "1:4.4.2-1")]
    rows += [("datacenter-gpu-manager", version) for version in ("1:3.3.9", "1:3.3.8")]
    rows += [(EXPORTER, version) for version in exporters]
    return "".join(f" {name} | {version} | http://example.org Packages\n" for name, version in rows)


def units(engine: tuple[str, str] = ("active", "enabled"), exporter: tuple[str, str] = ("inactive", "")) -> str:
    """`systemctl show` of the two units: (active, file) of each."""
    rows = (("nvidia-dcgm.service", *engine), ("nvidia-dcgm-exporter.service", *exporter))
    return "\n".join(
        f"Id={name}\nLoadState={'loaded' if file else 'not-found'}\nActiveState={active}\nUnitFileState={file}\n"
        for name, active, file in rows
    )


def said(
    engine: str = ENGINE, *, start: str = ENGINE, installed: str = "4.4.2", running: str = "4.4.2",
    discovery: str = "1 GPU found (Active).", exporter: str = "", sends: str = "", told: str = TOLD,
    metrics: str = "", counters: bool = True,
) -> str:  # fmt: skip
    """What the probe `dcgm` prints. `engine` and `exporter` are the processes' command lines, `start` and `sends` the
    units'."""
    lines = [f"start|engine|{start}", "environment|engine|DCGM_HOME_DIR=/var/log/nvidia-dcgm"]
    lines += [f"process|engine|800|{engine} "] * bool(engine)
    lines += [f"start|exporter|{sends or exporter}", f"environment|exporter|{told if sends or exporter else ''}"]
    lines += [f"process|exporter|900|{exporter} ", f"metrics|{metrics}"] if exporter else []
    lines += ["counters|"] * counters + [f"installed|{installed}"] * bool(installed)
    lines += [f"discovery|{line}" for line in discovery.splitlines()] + [f"running|{running}"]
    return "\n".join(lines) + "\n"


PROBES = {
    "dcgm_packages": packages(),
    "dcgm_index": index(),
    "dcgm_units": units(),
    "dcgm": said(),
    "dcgm_counters": "",
}
