"""The title of an answer begins with the message that was asked of."""

from __future__ import annotations

from click.testing import CliRunner

from gpuprov.cli import cli
from tests.rows import run_each


@run_each(
    ("asked", "title"),
    [
        ("srun: error: Requested node configuration is not available", "Requested node configuration is not available"),
        ("NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal", "Xid 149"),
        ("bash: nvidia-smi: command not found", "nvidia-smi: command not found"),
        ("dcgmi: Error: DCGM_ST_NOT_WATCHED", "DCGM_ST_NOT_WATCHED"),
    ],
)
def test_the_message_that_was_asked_of_comes_first(asked: str, title: str) -> None:
    done = CliRunner().invoke(cli, ["explain", asked])
    assert done.stdout.startswith(f"symptom: {title}"), done.output
