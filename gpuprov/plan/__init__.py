"""Plans of apply for each host, with reasons and reboots; shown before anything is done."""

from gpuprov.plan.decide import Decision, decide
from gpuprov.plan.document import build_document
from gpuprov.plan.model import HostPlan
from gpuprov.plan.planning import plan
from gpuprov.plan.summary import sentence
from gpuprov.plan.text import as_text

__all__ = ["Decision", "HostPlan", "as_text", "build_document", "decide", "plan", "sentence"]
