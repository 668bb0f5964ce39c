"""Rehearse an inventory on simulated hosts: apply, verify, reboot, verify, apply again. Real hosts are never
contacted."""

from gpuprov.rehearse.acts import rehearse
from gpuprov.rehearse.command import run
from gpuprov.rehearse.document import build_document
from gpuprov.rehearse.model import Options, Rehearsal, Rehearsed, Seen, Step
from gpuprov.rehearse.text import format_text

__all__ = ["Options", "Rehearsal", "Rehearsed", "Seen", "Step", "build_document", "format_text", "rehearse", "run"]
