"""The `liken` command: runs one command and turns every error into one line and an exit code.

0: done. 1: refused or not found. 2: wrong usage. 130: interrupted.
"""

import io
import os
import sys

import typer

from common.errors import LikenError
from common.settings import SettingsError
from services.console.output import complain


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no error
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code. Prints one line on stderr when that is not 0."""
    from services.console.app import app

    try:
        code = app(arguments, prog_name="liken", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return 130
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _reader_is_gone()  # typer had noticed
    except BrokenPipeError:
        return _reader_is_gone()
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        text, code = _told(error)
        complain(text)
        return code
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> tuple[str, int]:
    """The line and the exit code for an error."""
    match error:
        case typer.TyperException():
            return _usage(error), 2
        case SettingsError():
            return str(error), 2
        case LikenError():
            return str(error), 1
        case OSError():
            return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 1
    if os.environ.get("LOG_LEVEL") == "DEBUG":
        raise error
    fault = f"a fault of liken itself ({type(error).__name__}: {error})"
    return f"{fault}: LOG_LEVEL=DEBUG shows where; please report it", 1


def _reader_is_gone() -> int:
    # `| head` has seen enough: that is no failure, and nothing may be written at exit either
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    where = context.command_path if context else "liken"
    text = error.format_message()
    return f"{text.replace('Value error, ', '').rstrip('.')}: see {where} --help"


if __name__ == "__main__":
    main()
