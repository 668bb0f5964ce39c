"""Shell scripts of faults of MIG and MPS. They act as an operator would: by nvidia-smi, systemctl, the MPS daemon."""

from __future__ import annotations

CLIENT = "gpuprov-sim-mig-client"
NO_INSTANCES = "nvidia-smi mig -dci >/dev/null && nvidia-smi mig -dgi >/dev/null"
# Profile 0 of NVML is the whole GPU on every model.
OTHER_INSTANCES = f"{NO_INSTANCES} && nvidia-smi mig -cgi 0 -C >/dev/null"
MODE_OFF = f"{NO_INSTANCES}; nvidia-smi -mig 0 >/dev/null"
# Recreated instances have other UUIDs.
MIG_AGAIN = (
    "systemctl restart gpuprov-mig.service\n"
    "for unit in nvidia-cdi-refresh gpuprov-cdi-refresh; do\n"
    "  if systemctl cat $unit.service >/dev/null 2>&1; then systemctl restart $unit.service; fi\n"
    "done\n"
    "for unit in $(systemctl list-units --all --plain --no-legend 'gpuprov-mps@*' | cut -d' ' -f1); do systemctl "
    "restart $unit; done"
)


def mig_client(before: str = "") -> str:
    """Start a process of user nobody with the first MIG device open, with the files that CUDA opens; `before` runs in
    its shell."""
    return (
        "device=$(ls -d /proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci* 2>/dev/null | sort -V | head -n 1)\n"
        '[ -n "$device" ] || { echo "the host has no MIG device" >&2; exit 1; }\n'
        "gpu=${device#*/gpu}; gpu=${gpu%%/*}\n"
        "node() { sed -n 's#^DeviceFileMinor: #/dev/nvidia-caps/nvidia-cap#p' \"$1/access\"; }\n"
        f"systemd-run --quiet --collect --unit {CLIENT} --slice user.slice --uid nobody --property "
        "SupplementaryGroups=video \\\n  sh -c \\\n"
        f'  "{before}exec 3</dev/nvidia$gpu 4</dev/nvidia-uvm 5<$(node "${{device%/*}}") 6<$(node "$device"); '
        'exec sleep infinity"\n'
        "for _ in 1 2 3 4 5 6 7 8 9 10; do\n"
        f"  pid=$(systemctl show --property MainPID --value {CLIENT})\n"
        '  case "$(cat /proc/$pid/comm)" in sleep) exit 0;; esac; sleep 0.2\n'
        "done\n"
        'echo "the process did not start" >&2; exit 1'
    )


NO_CLIENT = f"systemctl kill --signal KILL {CLIENT} 2>&1 || true; systemctl stop {CLIENT} 2>&1 || true"

MPS_UNITS = "$(systemctl list-units --all --plain --no-legend 'gpuprov-mps@*' | cut -d' ' -f1)"
MPS_STOP = f'for unit in {MPS_UNITS}; do systemctl kill --signal KILL "$unit" || true; systemctl stop "$unit"; done'
MPS_AGAIN = f'for unit in {MPS_UNITS}; do systemctl restart "$unit"; done'
MPS_LIMIT = (
    "for pid in $(pidof nvidia-cuda-mps-control); do\n"
    "  pipe=$(tr '\\0' '\\n' < /proc/$pid/environ | sed -n 's/^CUDA_MPS_PIPE_DIRECTORY=//p')\n"
    '  [ -n "$pipe" ] || continue\n'
    '  echo "set_default_active_thread_percentage $1" | CUDA_MPS_PIPE_DIRECTORY=$pipe nvidia-cuda-mps-control '
    ">/dev/null\n"
    "done"
)
