"""Hosts as others recorded them: bug reports, sosreports, must-gathers, and gpuprov's own captures, read instead of the host.

Whatever kind it is, a record ends as the outputs of probes, so that the same checks judge it. What a record does not hold is not
guessed: a check that needs it is skipped, and says so.
"""

from gpuprov.records.model import Record, RecordedFacts
from gpuprov.records.reader import read

__all__ = ["Record", "RecordedFacts", "read"]
