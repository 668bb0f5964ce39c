"""What ~/.ssh/config says of the way to a host holds for paramiko as for ssh."""

from __future__ import annotations

import subprocess

import paramiko

from gpuprov.facts.collect.with_paramiko import proxy_command
from tests.rows import run_each

CONFIG = """
Host lone
  ProxyCommand none
Host near
  ProxyJump none
Host v6
  HostName 2001:db8::1
  Port 2200
  ProxyJump ops@first:2222,second
Host old
  ProxyCommand nc -x proxy %h %p
Host *
  ProxyJump bastion
  ProxyCommand nc later %h
"""


@run_each(
    ("name", "command"),
    [
        ("lone", ""),
        ("near", ""),
        ("v6", "ssh -o BatchMode=yes -J ops@first:2222 -W '[2001:db8::1]:22' ssh://second"),
        ("old", "nc -x proxy old 22"),
        ("gpu1", "ssh -o BatchMode=yes -W '[gpu1]:22' ssh://bastion"),
    ],
)
def test_the_way_of_the_users_configuration(name: str, command: str) -> None:
    found = paramiko.SSHConfig.from_text(CONFIG).lookup(name)
    assert proxy_command(found, found["hostname"], 22) == command
    if command.startswith("ssh"):  # as ssh itself reads it
        words = ["sh", "-c", command.replace("ssh -o", "ssh -F none -G -o", 1)]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        assert f"hostname {command.rpartition('/')[2]}\n" in told
