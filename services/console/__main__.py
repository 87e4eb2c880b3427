"""The `liken` command: runs one command and turns every error into one line and an exit code.

0: done. 1: refused or not found. 2: wrong usage. 130: interrupted.
"""

import io
import os
import sys

# All else is imported where it is used: an interrupt during an import is told in one line, too.

INTERRUPTED = 128 + 2  # what shells give for SIGINT


def main() -> None:
    """Run the command line of this process and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no error
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns its exit code. Prints one line on stderr when that is not 0."""
    try:
        import typer

        from services.console.app import app
    except KeyboardInterrupt:
        return _interrupted()
    try:
        code = app(arguments, prog_name="liken", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return _reader_is_gone()  # typer had noticed
    except BrokenPipeError:
        return _reader_is_gone()
    except Exception as error:  # noqa: BLE001 - no traceback reaches a user
        from services.console.output import complain

        text, code = _told(error)
        complain(text)
        return code
    if code == INTERRUPTED:
        return _interrupted()  # typer had noticed
    return code if isinstance(code, int) else 0


def _told(error: Exception) -> tuple[str, int]:
    """The line and the exit code for an error."""
    import typer

    from common.errors import LikenError
    from common.settings import SettingsError

    match error:
        case typer.TyperException():
            return _usage(error.format_message(), getattr(error, "ctx", None)), 2
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


def _interrupted() -> int:
    print("liken: interrupted", file=sys.stderr, flush=True)
    return INTERRUPTED


def _reader_is_gone() -> int:
    # `| head` has seen enough: that is no failure, and nothing may be written at exit either
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _usage(text: str, context: object) -> str:
    where = getattr(context, "command_path", "liken")
    return f"{text.replace('Value error, ', '').rstrip('.')}: see {where} --help"


if __name__ == "__main__":
    main()
