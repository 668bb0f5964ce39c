"""Processes by name: any user may give a process the name of a root program, so only those started by root count."""

# Shell function `roots PATTERN`: prints /proc/PID of each such process. /proc/PID itself also belongs to root if a
# user has started su under another name; the real user id is the first in its status:
# https://man7.org/linux/man-pages/man5/proc_pid_status.5.html
ROOTS = r"""roots() {
  for d in $(grep -lsxE "$1" /proc/[0-9]*/comm); do
    grep -qs '^Uid:[[:space:]]*0[[:space:]]' "${d%/comm}/status" && echo "${d%/comm}"
  done
}
"""
