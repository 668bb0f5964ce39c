"""Part of the program for dnf's Python (3.6 on EL 8): its entry point. It answers one request on its standard output,
as JSON."""

import json
import os
from typing import Any, Dict

import dnf.exceptions

from . import dnf_actions
from .dnf_base import Refused


def main(request: Dict[str, Any]) -> None:
    """Answer the request."""
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what scriptlets and plugins print
    try:
        answer = getattr(dnf_actions, "act_" + request["action"])(request)
    except (dnf.exceptions.Error, Refused, OSError) as error:
        answer = {"problem": " ".join(str(error).split())}
    answer_to.write(json.dumps(dict({"problem": ""}, **answer)))
    answer_to.close()
