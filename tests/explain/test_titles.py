"""What `explain` prints: titles that begin with the message asked of, and what is known of hardware by its name."""

from __future__ import annotations

from click.testing import CliRunner

from gpuprov.cli import cli
from tests.rows import run_each


@run_each(
    ("text", "title"),
    [
        ("srun: error: Requested node configuration is not available", "Requested node configuration is not available"),
        ("NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal", "Xid 149"),
        ("bash: nvidia-smi: command not found", "nvidia-smi: command not found"),
        ("dcgmi: Error: DCGM_ST_NOT_WATCHED", "DCGM_ST_NOT_WATCHED"),
    ],
)
def test_the_message_that_was_asked_of_comes_first(text: str, title: str) -> None:
    done = CliRunner().invoke(cli, ["explain", text])
    assert done.stdout.startswith(f"symptom: {title}"), done.output


@run_each(
    ("text", "title", "driver"),
    [
        ("Vera Rubin", "generation of GPUs: Rubin", "open kernel modules only, from branch 615 on"),
        ("kepler", "generation of GPUs: Kepler", "proprietary kernel modules only, branch 470 is the last"),
        ("gb102", "chip: GB102", "open kernel modules only, from branch 570 on"),
        ("GH100", "chip: GH100", "H100-SXM5-80GB"),
        ("A100X", "GPU: A100X", "gpuprov catalog mig A100X"),
        ("10de:20b9", "GPU: A30X", "24 GB"),
    ],
)
def test_a_generation_or_a_chip_is_told_with_its_drivers(text: str, title: str, driver: str) -> None:
    done = CliRunner().invoke(cli, ["explain", text])
    assert done.stdout.startswith(f"{title}\n"), done.output
    assert driver in done.stdout
