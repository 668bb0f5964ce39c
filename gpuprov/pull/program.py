"""The puller as one file: a zip archive for Python, with nothing but `gpuprov.host_code.pull`.

It goes to hosts in user-data, of which clouds take 16 KiB; so it has no docstrings and comments.
"""

import ast
import io
import zipfile
from pathlib import Path

from gpuprov.host_code import pull

# Part of the unpacked gpuprov, whose other modules it uses.
LEFT_OUT = ("reboot.py",)
PACKAGE = "gpuprov_pull"
START = f"""import sys
if sys.version_info < (3, 8):
    sys.exit("gpuprov-pull: this is Python %d.%d; allowed: 3.8 or newer; nothing was changed" % sys.version_info[:2])
from {PACKAGE}.__main__ import main
sys.exit(main())
"""


def build_archive() -> bytes:
    """Build the archive: the same bytes for the same gpuprov."""
    folder = Path(str(pull.__file__)).parent
    files = {"__main__.py": START}
    for path in sorted(folder.glob("*.py")):
        if path.name not in LEFT_OUT:
            files[f"{PACKAGE}/{path.name}"] = strip_docs(path.read_text(encoding="utf-8"))
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:  # not compressed here: all of it together is, later
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), text)
    return made.getvalue()


def strip_docs(source: str) -> str:
    """Strip docstrings and comments from a program."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            kept = [
                statement
                for statement in body
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
            ]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.unparse(tree)
