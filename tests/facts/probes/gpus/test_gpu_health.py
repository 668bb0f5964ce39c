"""The script that asks nvidia-smi -q: it looks twice where one look does not tell."""

from __future__ import annotations

from pathlib import Path

from gpuprov.facts.probes.gpus.gpu_health import GPU_HEALTH
from gpuprov.facts.probes.gpus.gpu_state import State
from tests.facts.probes import run_script
from tests.rows import run_each


def run(tmp_path: Path, first: str, second: str, status: int = 0) -> State:
    """What the script prints where nvidia-smi says the one of a GPU's slowdown, and then the other."""
    shown = "printf 'Attached GPUs : 1\\nGPU 00000000:19:00.0\\n    Clocks Event Reasons\\n        HW Slowdown : %s\\n'"
    programs = {
        "nvidia-smi": f'case "$*" in -q) {shown} "{first}"; exit {status};; "-q -d PERFORMANCE") {shown} '
        f'"{second}";; esac',
        "sleep": ":",
    }
    output = run_script(GPU_HEALTH.script, tmp_path, programs)
    assert output.status == status
    return GPU_HEALTH.parse(output)


@run_each(
    ("first", "second", "slow"),
    [
        ("Not Active", "Active", ()),
        ("Active", "Not Active", ()),
        ("Active", "Active", ("HW Slowdown",)),
        ("Active", "N/A", ("HW Slowdown",)),
    ],
)
def test_a_slowdown_counts_where_two_looks_find_it(
    tmp_path: Path, first: str, second: str, slow: tuple[str, ...]
) -> None:
    state = run(tmp_path, first, second, status=14)
    assert [one.slow for one in state.gpus] == [slow]
