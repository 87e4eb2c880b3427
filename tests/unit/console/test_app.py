"""The command's words, its page, and its help agree."""

import re
from pathlib import Path

from services.console.app import app

PAGE = Path(__file__).parents[3] / "docs/reference/command.md"
COMMANDS = {
    command.callback.__name__: command.callback for command in app.registered_commands if command.callback
}


def test_the_page_lists_every_command_and_no_other() -> None:
    assert set(re.findall(r"^\| `liken (\w+)", PAGE.read_text(), re.MULTILINE)) == COMMANDS.keys()


def test_every_command_says_what_it_does() -> None:
    assert [name for name, command in COMMANDS.items() if not command.__doc__] == []
