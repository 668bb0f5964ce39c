"""The process that becomes `ansible-playbook`; run as a file, knows nothing of gpuprov. Arguments: PIDFILE, Ansible's own.

It has no terminal and no input, so that nothing can wait for an answer nobody sees; it writes its process id where the
parent looks for it; and on Linux it is told to end (SIGTERM) when the parent dies, however that happens.
"""

import fcntl
import gc
import importlib
import os
import signal
import sys
import termios
from typing import Any

ANSIBLES_POLL, POLL = 0.001, 0.005
"""Seconds between two looks at whether a host has answered. Ansible's default keeps a tenth of a core busy for as long as a host
works; only ansible.cfg can say another (internal_poll_interval), and what it says stays."""


def detach() -> None:
    """Give up the controlling terminal (prompts open /dev/tty) and standard input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
        os.close(terminal)
    except OSError:
        pass  # it has none
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def end_with_parent(parent: int) -> None:
    """PR_SET_PDEATHSIG, prctl(2)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def parse_once() -> None:
    """Ansible packs each module with all that it imports, in a process of its own for each task, and parses the same sixty files of
    its own for every module anew. Parsed here, before there are such processes, they are there for all of them."""
    from ansible.executor import module_common

    parse = getattr(module_common, "_compile_module_ast", None)
    if parse is None:
        return  # an Ansible that does it in another way
    importlib.import_module("ansible.module_utils.basic")  # what every module imports
    known: dict[bytes, Any] = {}

    def parsed(name: str, source: Any) -> Any:
        return known[source] if source in known else parse(name, source)

    for name, module in list(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if name.startswith("ansible.module_utils.") and file.endswith(".py"):
            with open(file, "rb") as source:
                text = source.read()
            known[text] = parse(name, text)
    module_common._compile_module_ast = parsed
    gc.freeze()


def main(pid_file: str, parent: str, *arguments: str) -> None:
    end_with_parent(int(parent))
    detach()
    with open(f"{pid_file}.part", "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    os.replace(f"{pid_file}.part", pid_file)
    from ansible import constants
    from ansible.cli.playbook import main as ansible_playbook

    if constants.DEFAULT_INTERNAL_POLL_INTERVAL == ANSIBLES_POLL:
        constants.DEFAULT_INTERNAL_POLL_INTERVAL = POLL
    parse_once()
    ansible_playbook(["ansible-playbook", *arguments])


if __name__ == "__main__":
    main(*sys.argv[1:])
