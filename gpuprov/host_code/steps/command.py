"""Run a command whose need gpuprov's checks have established.

Running the command counts as the change. Check mode reports the command and does not run it.

argv: The program and its arguments. An empty list runs nothing.
fix: The fix, if the command fails.
tolerate: The consequence of a failure, which is then reported as a warning; empty if a failure is an error.

Returns:
stdout: The command's standard output. (when it was run)
"""

from __future__ import annotations

from shlex import quote

from ..module import AnsibleModule

OPTIONS = {
    "argv": {"type": "list", "elements": "str", "required": True},
    "fix": {"type": "str", "default": "correct what it reports, then apply again"},
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
        message = (error.strip() or out.strip() or f"status {int(status)}").splitlines()[-1]
        if module.params["tolerate"]:
            module.warn(f"{shown}: {message}; {module.params['tolerate']}")
            module.exit_json(
                changed=True, stdout=out, stderr=error
            )  # with a status of its own, Ansible would call it failed
        module.fail_json(msg=f"{shown}: {message}. Fix: {module.params['fix']}", rc=status, stdout=out, stderr=error)
    module.exit_json(changed=True, stdout=out, stderr=error, rc=status)
