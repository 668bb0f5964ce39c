"""The boundary: signals and exceptions become one clear message and an exit code."""

import os
import sys
from contextlib import suppress
from io import StringIO


def run() -> None:
    """Run `main` as its own process."""
    # It exits without Python's shutdown, which threads of Temporal's SDK may abort.
    from gpuprov.core import garbage
    from gpuprov.core.errors import BROKEN, GpuprovError

    garbage.collect_seldom()
    try:
        try:
            main()
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            sys.exit(error.exit_code if isinstance(error, GpuprovError) else BROKEN)
    except SystemExit as ended:
        if "temporalio" not in sys.modules:
            raise
        for stream in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))


def main() -> None:
    """Run the command line. Errors that a user can act on are printed without a traceback; `--debug` shows it."""
    import click

    from gpuprov.cli import cli
    from gpuprov.core import locales, temporary, terminal
    from gpuprov.core.errors import CODES, GpuprovError

    terminal.blocking()
    locales.settle()
    temporary.settle()
    if "_GPUPROV_COMPLETE" in os.environ:
        from gpuprov.cli import shells

        shells.use()
    debug, out = "--debug" in sys.argv, sys.stdout
    sys.excepthook = terminal.crash
    try:
        code = cli.main(prog_name="gpuprov", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except GpuprovError as error:
        if debug:
            raise
        terminal.error(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        buffer = StringIO()
        error.show(buffer)
        terminal.progress(buffer.getvalue().rstrip("\n"))
        sys.exit(error.exit_code)
    except (click.exceptions.Abort, KeyboardInterrupt):
        from gpuprov.cli.sections import describe_interrupt

        terminal.progress(describe_interrupt(next(iter(sys.argv[1:2]), ""), terminal.Progress.cut_off))
        sys.exit(CODES["interrupted"])
    except SystemExit as ended:
        # Where nobody reads its help, click replaces sys.stdout and ends with status 1.
        sys.exit(ended.code if sys.stdout is out else 0)


if __name__ == "__main__":
    run()
