"""The command's words, its page, and its help agree."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from services.console.__main__ import run
from services.console.app import app

PAGE = Path(__file__).parents[3] / "docs/reference/command.md"
COMMANDS = {
    command.callback.__name__: command.callback for command in app.registered_commands if command.callback
}


def test_the_page_lists_every_command_and_no_other() -> None:
    assert set(re.findall(r"^\| `liken (\w+)", PAGE.read_text(), re.MULTILINE)) == COMMANDS.keys()


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in COMMANDS.items() if not command.__doc__] == []


INTERRUPTED = """
import sys
from services.console.__main__ import main
class CtrlC:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, CtrlC())
sys.argv[1:] = ["devices", "--root", "/nothing"]
main()
"""


@pytest.mark.parametrize("module", ["typer", "services.console.app", "services.console.hardware", "msgspec"])
def test_ctrl_c_while_the_command_loads_is_one_line(module: str) -> None:
    script = INTERRUPTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "liken: interrupted\n")


@pytest.mark.parametrize("arguments", [["status", "--state", ""], ["devices", "--root", ""]])
def test_an_empty_path_is_wrong_usage_and_not_the_current_folder(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert (told.count("\n"), f"'{arguments[1]}': an empty path" in told) == (1, True)
