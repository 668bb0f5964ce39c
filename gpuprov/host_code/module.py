"""The only way for gpuprov's modules to answer: no byte on a host makes the answer unreadable to Ansible."""

from __future__ import annotations

from typing import Any, NoReturn

from ansible.module_utils import basic

from .texts import make_readable


class AnsibleModule(basic.AnsibleModule):  # type: ignore[misc]
    """Ansible's own module class, with readable texts in its results, errors and warnings. `step`: that of
    gpuprov_step, which its result names."""

    step = ""

    def exit_json(self, **result: Any) -> NoReturn:
        if self.step:
            result["step"] = self.step
        super().exit_json(**make_readable(result))
        raise AssertionError  # it ends the process

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        super().fail_json(make_readable(str(msg)), **make_readable(result))
        raise AssertionError

    def warn(self, warning: str, **more: Any) -> None:
        super().warn(make_readable(str(warning)), **more)
