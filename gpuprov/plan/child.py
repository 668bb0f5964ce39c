"""The process that becomes `ansible-playbook`; run as a file. Arguments: PIDFILE, the parent's process id, and
Ansible's own, the last of which is the playbook.

It has no terminal and no input, so that nothing can wait for an answer to an invisible prompt; it writes its process id
where the parent looks for it; and on Linux it receives SIGTERM when the parent dies, for whatever reason.
"""

import fcntl
import os
import signal
import sys
import termios
from pathlib import Path


def detach() -> None:
    """Give up the controlling terminal (prompts open /dev/tty) and standard input."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent's word; in a shell's background it is ignored
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
    """Request SIGTERM on the parent's death: PR_SET_PDEATHSIG, prctl(2)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main(pid_file: str, parent: str, *arguments: str) -> None:
    end_with_parent(int(parent))
    detach()
    with open(f"{pid_file}.part", "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    os.replace(f"{pid_file}.part", pid_file)
    from gpuprov.core import garbage

    garbage.collect_seldom()
    from ansible.cli.playbook import main as ansible_playbook

    from gpuprov.plan import bounds, warm

    packed = warm.Packed(Path(arguments[-1]).parent)
    bounds.bound_memory()
    warm.warm(packs=not packed.bring())
    try:
        ansible_playbook(["ansible-playbook", *arguments])
    finally:
        packed.keep()


if __name__ == "__main__":
    main(*sys.argv[1:])
