"""Records of hosts: bug reports, sosreports, must-gathers, and gpuprov's own captures, read instead of the host. Every
kind of record is converted to the outputs of probes, so that the same checks apply. Missing data is not guessed: a
check that needs it is skipped, and says so."""

from gpuprov.facts.captures.model import Record, RecordedFacts
from gpuprov.facts.captures.piped import iterate_input
from gpuprov.facts.captures.reader import iterate, read

__all__ = ["Record", "RecordedFacts", "iterate", "iterate_input", "read"]
