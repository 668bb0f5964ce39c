"""The floor: the same script, one ssh exec per host, all at once, from the smallest driver there is.

usage: python floor.py INVENTORY-JSON SCRIPT
"""

import asyncio
import json
import sys

SHELL = "exec /bin/sh -c 'eval \"$(cat)\"'"


async def one(host: dict[str, object], script: bytes) -> None:
    argv = ["ssh", "-T", "-o", "BatchMode=yes", *str(host["ansible_ssh_common_args"]).split()]
    argv += ["-p", str(host["ansible_port"]), "-i", str(host["ansible_ssh_private_key_file"])]
    child = await asyncio.create_subprocess_exec(
        *argv, f"root@{host['ansible_host']}", SHELL, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate(script)
    if child.returncode or not output:
        raise SystemExit(f"ssh exited with {child.returncode}")


async def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        hosts = json.load(file)
    with open(sys.argv[2], "rb") as file:
        script = file.read()
    await asyncio.gather(*(one(host, script) for host in hosts))


asyncio.run(main())
