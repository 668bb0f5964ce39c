"""Run a program without installing it; stdin: {"files": {name: text}, "arguments": [...]}. The first file is the program.

Its own files lie in a temporary folder meanwhile; "{folder}" in an argument is that folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile


def main() -> int:
    request = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(prefix="gpuprov-mig-") as folder:
        for name, text in request["files"].items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        program = os.path.join(folder, next(iter(request["files"])))
        arguments = [one.replace("{folder}", folder) for one in request["arguments"]]
        return subprocess.run([sys.executable, "-B", program, *arguments], check=False).returncode


sys.exit(main())
