"""All output of gpuprov goes through one place, where it is cleaned: code that writes past it is detected here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.test_imports import FILES, dotted, nodes, room, shown

ON_HOSTS = {
    "host_code/at_boot/program.py": "runs on the host at boot; what it prints is for the journal",
    "host_code/checkpoints.py": "runs on the host; what it prints is its answer",
    "host_code/look.py": "runs on the host; what it prints is its answer",
    "host_code/first_boot_judge.py": "runs on the host at boot; what it prints is for the journal",
    "host_code/gpu_settings/__main__.py": "runs on the host at boot; what it prints is for the journal",
    "host_code/lock.py": "runs on the host; what it prints is its answer",
    "host_code/mig/__main__.py": "runs on the host; what it prints is its answer, or for the journal",
    "host_code/mps/__main__.py": "runs on the host, as its units; what it prints is for the journal",
    "host_code/mps/modes.py": "runs on the host; what it prints is for the journal, or a warning of the module",
    "host_code/pull/__main__.py": "runs on the host; what it prints is for the journal, and printable",
    "host_code/pull/reboot.py": "runs on the host; what it prints is its answer",
    "host_code/repair.py": "runs on the host; what it prints is its answer",
    "host_code/restore/act.py": "runs on the host; what it prints is its answer",
    "host_code/readings.py": "runs on the host; what it prints is for the journal",
    "facts/probes/containers/engines_reader.py": "runs on the host; a probe reads what it prints",
    "facts/probes/gpus/cuda_reader.py": "runs on the host; a probe reads what it prints",
    "facts/probes/gpus/mig_reader.py": "runs on the host; a probe reads what it prints",
}
SAYING = {
    "print",
    "pprint",
    "pprint.pprint",
    "input",
    "click.echo",
    "click.secho",
    "click.echo_via_pager",
    "click.confirm",
    "click.prompt",
    "rich.print",
    "os.write",
    "traceback.print_exc",
    "traceback.print_exception",
    "warnings.warn",
    "logging.basicConfig",
    "logging.StreamHandler",
    "Console",
    "rich.console.Console",
}
PIPES = {"facts/collect/with_paramiko.py", "facts/collect/children.py"}
"""Files in which `os.write` is for pipes."""
ASKING = {"terminal.coloured", "terminal.paint", "terminal.on_terminal", "terminal.room", "getattr"}
"""Functions that may get a standard stream: they query it, and do not write to it."""
REPORTING = ("cli", "cli_accept", "cli_mig", "cli_topology", "accept", "apply", "export", "plan", "report", "topology")
WRITING = {
    "cli/sections.py": "a page of help, in memory",
    "report/files.py": "write_atomic, which cleans",
    "apply/log.py": "the log of a run, which cleans",
    "plan/child.py": "its process id",
    "plan/playbook.py": "what Ansible reads",
    "plan/warm.py": "packed modules, for Ansible",
    "plan/workspace.py": "what Ansible reads",
}


def told(node: ast.AST, path: str) -> Iterator[str]:
    """Yield the problems with one call."""
    if not isinstance(node, ast.Call):
        return
    name = dotted(node.func)
    if name in SAYING and not (name == "os.write" and path in PIPES):
        yield f"{path}:{node.lineno}: {name}(): console is who speaks"
    if name.startswith(("sys.stdout.", "sys.stderr.", "sys.__std")) and not name.endswith((".isatty", ".fileno")):
        yield f"{path}:{node.lineno}: {name}()"
    handed = [*node.args, *(keyword.value for keyword in node.keywords)]
    if name not in ASKING and any(dotted(one) in ("sys.stdout", "sys.stderr") for one in handed):
        yield f"{path}:{node.lineno}: {name}() is handed a standard stream"


def test_only_the_console_writes_to_the_terminal() -> None:
    wrong = [
        words
        for path in FILES
        if shown(path) not in {"core/terminal.py", *ON_HOSTS}
        for name in [shown(path)]
        for node in nodes(path)
        for words in told(node, name)
    ]
    assert not wrong


def test_what_speaks_past_the_console_is_found() -> None:
    found = {
        "print(x)",
        "click.echo(x)",
        "sys.stdout.write(x)",
        "json.dump(x, sys.stdout)",
        "error.show(file=sys.stderr)",
        "Console(stderr=True)",
        "os.write(2, x)",
        "print(x, file=sys.stderr)",
    }
    for text in found:
        assert any(True for node in ast.walk(ast.parse(text)) for _ in told(node, "any.py")), text
    for text in ("terminal.coloured(sys.stdout)", "sys.stderr.isatty()", "terminal.result(x)"):
        assert not [words for node in ast.walk(ast.parse(text)) for words in told(node, "any.py")], text


def test_files_for_people_are_written_in_one_place() -> None:
    writing = ("write_text", "write_bytes", "open", "fdopen")
    wrong = {
        f"{shown(path)}:{node.lineno}"
        for path in FILES
        if room(path) in REPORTING and shown(path) not in WRITING
        for node in nodes(path)
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in writing
    }
    assert not wrong


def test_markup_is_escaped_in_one_place() -> None:
    wrong = {
        f"{shown(path)}:{node.lineno}: say in_markup, of gpuprov.core.sanitize"
        for path in FILES
        if shown(path) != "core/sanitize.py"
        for node in nodes(path)
        if (isinstance(node, ast.ImportFrom) and node.module == "html")
        or (isinstance(node, ast.Import) and any(alias.name == "html" for alias in node.names))
    }
    assert not wrong


def test_html_templates_clean_what_they_are_given() -> None:
    from gpuprov.report import page

    finalize = page.environment().finalize
    assert finalize is not None
    assert finalize("\x1b[2J") == "\\u001b[2J"
    folder = Path(page.__file__).parent / "templates"
    assert not [path.name for path in folder.glob("*.j2") if "|safe" in path.read_text().replace(" ", "")]


def test_lines_are_broken_in_one_place() -> None:
    """textwrap breaks a package's name at its hyphens unless it is told not to; `gpuprov.core.sanitize.wrapped` tells
    it."""
    assert [path.name for path in FILES if "textwrap" in path.read_text(encoding="utf-8")] == ["sanitize.py"]
