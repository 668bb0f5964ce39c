"""The only way for gpuprov's modules to answer: no byte on a host makes the answer unreadable to Ansible."""

from __future__ import annotations

from typing import Any, NoReturn

from ansible.module_utils import basic

from .texts import readable


class AnsibleModule(basic.AnsibleModule):  # type: ignore[misc]
    """Ansible's own module class, with readable texts in its results, errors and warnings."""

    def exit_json(self, **result: Any) -> NoReturn:
        super().exit_json(**readable(result))
        raise AssertionError  # it ends the process

    def fail_json(self, msg: str, **result: Any) -> NoReturn:
        super().fail_json(readable(str(msg)), **readable(result))
        raise AssertionError

    def warn(self, warning: str, **more: Any) -> None:
        super().warn(readable(str(warning)), **more)
