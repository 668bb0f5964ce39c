#!/usr/bin/python
"""Record on a host which capabilities are being applied, and which were."""

from __future__ import annotations

DOCUMENTATION = """
module: gpuprov_receipt
short_description: Mark an apply as begun, or write what was applied into the receipt
description:
  - Both lie in /var/lib/gpuprov. The mark (applying.json) tells a later run that this one was cut off, so that it
    completes what stayed half-way. The receipt (receipt.json) says with which digest each capability was applied, when,
    and what it brought.
  - A receipt that cannot be read is kept as receipt.json.damaged, with a warning.
  - Check mode changes neither.
author: gpuprov
options:
  state:
    description: What is recorded.
    type: str
    choices: [begun, applied]
    required: true
  run:
    description: The run, as M(gpuprov_lock) returned it; its name and its begin stand in the mark.
    type: dict
    default: {}
  capabilities:
    description: The capabilities that are applied.
    type: list
    elements: str
    required: true
  known:
    description: All capabilities of the host. What a run left half-way of others is forgotten. Default, the
      capabilities themselves.
    type: list
    elements: str
    default: []
  digests:
    description: By capability, the digest of what is applied; those of other capabilities are left aside.
    type: dict
    default: {}
  resources:
    description: >-
      By capability, what it has on the host, as C(file PATH), C(unit NAME), C(hold PACKAGE) and C(setting WORDS), the
      words separated by tabs; the receipt gets the sum of each file. C(unread CHECK) keeps the settings of a check as
      the receipt has them.
    type: dict
    default: {}
  changing:
    description: >-
      By capability, settings that are changed next, as in O(resources). The mark keeps their values, so that the
      receipt gets them also where this run is cut off and a later one finds the new values.
    type: dict
    default: {}
  forgotten:
    description: Capabilities of which nothing is left on the host, so that the receipt names them no longer.
    type: list
    elements: str
    default: []
  version:
    description: gpuprov's version, for the receipt.
    type: str
    default: ""
"""
EXAMPLES = """
- name: Mark that changes begin
  gpuprov_receipt: {state: begun, run: "{{ lock.run }}", capabilities: [kernel], known: [kernel, nvidia_driver]}
- name: Write what was applied into the receipt
  gpuprov_receipt: {state: applied, capabilities: [kernel], digests: {kernel: 0f3e}}
"""
RETURN = """
half:
  description: What an earlier run left half-way and this one does not apply.
  type: list
  elements: str
  returned: state is begun
fresh:
  description: The capabilities whose digest is new in the receipt.
  type: list
  elements: str
  returned: state is applied
gone:
  description: The capabilities that the receipt names no longer.
  type: list
  elements: str
  returned: state is applied
"""

from ansible.module_utils.gpuprov_host_code import receipt
from ansible.module_utils.gpuprov_host_code.module import AnsibleModule

SPEC = {
    "state": {"type": "str", "choices": ["begun", "applied"], "required": True},
    "run": {"type": "dict", "default": {}},
    "capabilities": {"type": "list", "elements": "str", "required": True},
    "known": {"type": "list", "elements": "str", "default": []},
    "digests": {"type": "dict", "default": {}},
    "resources": {"type": "dict", "default": {}},
    "changing": {"type": "dict", "default": {}},
    "forgotten": {"type": "list", "elements": "str", "default": []},
    "version": {"type": "str", "default": ""},
}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params, check = module.params, module.check_mode
    names = params["capabilities"]
    if params["state"] == "begun":
        half = [] if check else receipt.begin(params["run"], names, params["known"] or names, params["changing"])
        module.exit_json(changed=False, half=half)
    given = [params[name] for name in ("digests", "version", "resources", "forgotten")]
    merged = receipt.merge_applied(params["run"], names, *given, check=check)
    if merged["damaged"]:
        module.warn(
            f"the receipt could not be read ({merged['damaged']}); the old one is kept as {receipt.RECEIPT}.damaged, "
            "what earlier runs applied is forgotten"
        )
    module.exit_json(changed=bool(merged["fresh"] or merged["gone"]), fresh=merged["fresh"], gone=merged["gone"])


if __name__ == "__main__":
    main()
