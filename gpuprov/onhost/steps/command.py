"""Run a command that was found to be needed.

For a change that a program of the host makes, and that gpuprov's checks found to be needed, so that running it
is the change.
In check mode it is said, and not run.

argv: The program and its arguments. An empty list runs nothing.
hint: The way out, if it fails.
tolerate: What it means that it failed, which is then a warning and no error; empty where it is one.

Returns:
stdout: What it printed. (when it was run)
"""

from __future__ import annotations

from shlex import quote

from ..module import AnsibleModule

OPTIONS = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "hint": {"type": "str", "default": "correct what it reports, then apply again"},
    "tolerate": {"type": "str", "default": ""},
}


def run(module: AnsibleModule) -> None:
    argv = module.params["argv"]
    if not argv:
        module.exit_json(changed=False)
    shown = " ".join(quote(word) for word in argv)
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would run: {shown}")
    status, out, error = module.run_command(argv, expand_user_and_vars=False)
    if status:
        said = (error.strip() or out.strip() or f"status {int(status)}").splitlines()[-1]
        if module.params["tolerate"]:
            module.warn(f"{shown}: {said}; {module.params['tolerate']}")
            module.exit_json(
                changed=True, stdout=out, stderr=error
            )  # with a status of its own, Ansible would call it failed
        module.fail_json(msg=f"{shown}: {said}. Fix: {module.params['hint']}", rc=status, stdout=out, stderr=error)
    module.exit_json(changed=True, stdout=out, stderr=error, rc=status)
