"""Comparison of gpuprov's view of a real GPU host with the host's own.

Without INVENTORY the host is this machine (`ansible_connection: local`). Everything is read-only: export, verify of the
exported spec, topology, capture; then NVML's own reader against nvidia-smi, GPU by GPU, and the MIG profiles and
placements from NVML against the catalogue. All outputs are written into the folder OUT. Exit code 1 if anything
disagrees, 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gpuprov.catalog.gpus import find_by_pci_id
from gpuprov.catalog.mig import list_profiles
from gpuprov.facts.captures import RecordedFacts, read
from gpuprov.facts.probes.base import ProbeFailed
from gpuprov.facts.probes.driver import nvidia
from gpuprov.facts.probes.gpus import mig

LOCAL = "all: {hosts: {this: {ansible_connection: local, ansible_python_interpreter: %s}}}\n"
RAW = {  # what people paste, kept beside the capture
    "nvidia-smi": "nvidia-smi",
    "nvidia-smi-q": "nvidia-smi -q",
    "nvidia-smi-q-x": "nvidia-smi -q -x",
    "nvidia-smi-L": "nvidia-smi -L",
    "nvidia-smi-topo-m": "nvidia-smi topo -m",
    "nvidia-smi-nvlink-s": "nvidia-smi nvlink -s",
    "nvidia-smi-mig-lgip": "nvidia-smi mig -lgip",
    "nvidia-smi-mig-lgipp": "nvidia-smi mig -lgipp",
    "lspci-nn": "lspci -nn",
    "proc-driver-nvidia-version": "cat /proc/driver/nvidia/version",
    "os-release": "cat /etc/os-release",
}


def disagreements(facts: RecordedFacts) -> Iterator[str]:
    """Yield the differences between NVML, nvidia-smi and the catalogue."""
    smi = {gpu.bus: gpu for gpu in facts.get(nvidia.SMI).gpus}
    state = facts.get(mig.STATE)
    if state.complaint or state.unread:
        yield f"NVML's reader: {state.complaint} {' '.join(state.unread)}".strip()
    for gpu in state.gpus:
        shown = smi.pop(gpu.address, None)
        if shown is None:
            yield f"{gpu.label}: nvidia-smi does not list it"
        elif (shown.uuid, shown.name) != (gpu.uuid, gpu.name):
            yield f"{gpu.label}: NVML says {gpu.name} {gpu.uuid}, nvidia-smi {shown.name} {shown.uuid}"
        known = find_by_pci_id(gpu.pci, gpu.subsystem)
        if known is None:
            yield f"{gpu.label}: the catalogue does not know {gpu.pci} {gpu.subsystem} ({gpu.name})"
            continue
        if known.mig.capable != gpu.capable:
            yield f"{gpu.label}: MIG capable by the catalogue: {known.mig.capable}, by NVML: {gpu.capable}"
        table = {profile.name: profile for profile in list_profiles(known)}
        for profile in gpu.profiles:
            row = table.get(profile.name)
            if row is None:
                yield f"{gpu.label}: {known.key} has no profile {profile.name} in the catalogue"
                continue
            pairs: tuple[tuple[str, object, object], ...] = (
                ("instances", profile.count, row.max_count),
                ("compute slices", profile.slices, row.slices),
                ("memory slices", profile.size or None, row.size),
                ("starts", profile.starts or None, row.starts or None),
                ("id", profile.id, row.nvsmi_id),
            )
            for field, told, ours in pairs:
                if told is not None and ours is not None and told != ours:
                    yield f"{gpu.label}: {known.key} {profile.name}: {field} {told} by NVML, {ours} in the catalogue"
    for bus in smi:
        yield f"{bus}: NVML's reader does not list it"


def main(out: Path, inventory: str = "", host: str = "this") -> int:
    """Return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    if not inventory:
        inventory = str(out / "inventory.yaml")
        Path(inventory).write_text(LOCAL % sys.executable, encoding="utf-8")
        for name, line in RAW.items():
            (out / f"{name}.txt").write_text(_said(["sh", "-c", line])[1], encoding="utf-8")
    spec = str(out / "exported.yaml")
    for name, command in (
        ("export", ["export", inventory, "--limit", host, "--out", spec]),
        ("verify", ["verify", spec, inventory, "--limit", host, "--html", str(out / "verify.html"), "--verbose"]),
        ("topology", ["topology", host, inventory, "--svg", str(out / "topology.svg")]),
        ("capture", ["capture", host, "--inventory", inventory, "--out", str(out / "capture")]),
    ):
        code, text = _said([sys.executable, "-m", "gpuprov", *command])
        (out / f"{name}.txt").write_text(text, encoding="utf-8")
        last = [line for line in text.splitlines() if line.strip()][-1:]
        print(f"{name}: exit code {code}: {' '.join(last)}")
        if name == "capture" and code:
            return 2
    (record,) = read(out / "capture")
    try:
        found = list(disagreements(RecordedFacts(record)))
    except ProbeFailed as error:
        print(error)
        return 2
    if not RecordedFacts(record).get(mig.STATE).gpus:
        print("no GPU that NVML knows")
        return 2
    for line in found:
        print(line)
    print(f"{len(RecordedFacts(record).get(mig.STATE).gpus)} GPUs, {len(found)} disagreements")
    return 1 if found else 0


def _said(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return 124, "no end within 600 s\n"
    return done.returncode, re.sub(r"\n{3,}", "\n\n", done.stdout + done.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder for the outputs")
    parser.add_argument("host", nargs="*", metavar="INVENTORY HOST", help="another host than this machine")
    given = parser.parse_args()
    if len(given.host) not in (0, 2):
        parser.error("INVENTORY and HOST go together")
    sys.exit(main(given.out, *given.host))
