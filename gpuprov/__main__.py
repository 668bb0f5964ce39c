"""The boundary: signals and exceptions become one clear message and an exit code."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line. Errors that a user can act on are told without a traceback; `--debug` shows it."""
    import click

    from gpuprov.cli import cli
    from gpuprov.errors import GpuprovError

    debug = "--debug" in sys.argv
    try:
        code = cli.main(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except GpuprovError as error:
        if debug:
            raise
        from gpuprov import console

        console.error(error)
        sys.exit(error.exit_code)
    except click.exceptions.Abort:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


if __name__ == "__main__":
    main()
