"""`liken record FILE`: this machine, or another tree, as one small archive for a report or a test."""

from pathlib import Path

from common.errors import RequestError
from common.files import write_atomically
from common.hardware.machine import FILE, file_of, load_machine, machine_of
from common.hardware.record import FORMATS, record
from common.hardware.tree import open_tree
from common.settings import read_settings
from services.console.output import say


def run(file: Path, root: Path | None) -> None:
    """Write the recording. Raises RequestError for a name of no archive, TreeError, MachineError."""
    suffix = next((suffix for suffix in FORMATS if file.name.endswith(suffix)), None)
    if suffix is None:
        raise RequestError(f"{file} is no archive's name: end it in one of {', '.join(FORMATS)}")
    settings = read_settings()
    here = root is None or root == Path("/")
    places = (settings.host_proc, settings.host_modules) if here else ()
    with open_tree(settings.root if root is None else root, *places) as tree:
        machine = load_machine(settings.machine) if root is None or here else machine_of(tree, file_of(root))
        declared = settings.machine.read_bytes() if here and settings.machine.exists() else tree.read(FILE)
        content = record(tree, machine, declared or b"").pack(suffix)
    write_atomically(file, content)
    size = len(content) // 1024 + 1
    say(f"wrote {file} ({size} KiB), serial numbers masked; read it with --root {file}")
