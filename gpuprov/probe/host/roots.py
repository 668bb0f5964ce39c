"""Processes by their name: anybody may call one as a program of root's is called, so those alone count that root has started."""

from __future__ import annotations

ROOTS = r"""roots() {
  for d in $(grep -lsxE "$1" /proc/[0-9]*/comm); do
    grep -qs '^Uid:[[:space:]]*0[[:space:]]' "${d%/comm}/status" && echo "${d%/comm}"
  done
}
"""
"""The function `roots PATTERN`: /proc/PID of each process that is called so. /proc/PID itself is root's, too, where a user has called
su by another name; who has started it, its status says first: https://man7.org/linux/man-pages/man5/proc_pid_status.5.html"""
