"""modules.alias, modules.dep and modules.builtin: which kernel modules would drive hardware without a driver.

The format is kmod's (depmod(8), modules.dep(5)): a line `alias PATTERN MODULE`, where the pattern is a shell
glob over the device's modalias. kmod compares with "-" and "_" as one character, so does this.
"""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import NamedTuple

from common.hardware.tree import Tree
from common.inventory import Unclaimed

_GLOB = re.compile(r"[*?\[]")
_BRACKETS = re.compile(r"(\[[^][]*\])")  # no "[" inside: a line of them would be read once per sign


class Candidate(NamedTuple):
    """A PCI function or USB interface without a driver, as the walk met it."""

    bus: str
    address: str
    name: str  # for people, "" when unknown
    modalias: str


class KernelModules(NamedTuple):
    """The loadable modules of one kernel release."""

    patterns: Mapping[str, tuple[tuple[str, str], ...]]  # literal beginning -> (pattern, module)
    lengths: tuple[int, ...]  # of the literal beginnings, in characters
    present: frozenset[str]  # in modules.dep: on this machine
    builtin: frozenset[str]

    def matching(self, modalias: str) -> tuple[str, ...]:
        """The loadable modules whose alias pattern matches, sorted; built-in ones left out."""
        wanted = _one_dash(modalias)
        found: set[str] = set()
        for length in self.lengths:
            for pattern, module in self.patterns.get(wanted[:length], ()):
                if fnmatchcase(wanted, pattern):
                    found.add(module)
        return tuple(sorted(found - self.builtin))


def unclaimed(tree: Tree, candidates: Iterable[Candidate]) -> tuple[Unclaimed, ...]:
    """The candidates that a loadable module would drive, with these modules, sorted by bus and address.

    A tree without a modules.alias cannot tell: all candidates with a modalias are listed then, without
    modules. Raises TreeError when one of the files is there and cannot be read.
    """
    known = kernel_modules(tree)
    by_modalias: dict[str, tuple[str, ...]] = {}  # servers have hundreds of equal functions
    found = []
    for candidate in sorted(candidates):
        if not candidate.modalias:
            continue
        modules = by_modalias.get(candidate.modalias)
        if modules is None:
            modules = known.matching(candidate.modalias) if known else ()
            by_modalias[candidate.modalias] = modules
        if modules or known is None:
            missing = tuple(module for module in modules if known and module not in known.present)
            found.append(Unclaimed(*candidate, modules=modules, missing=missing))
    return tuple(found)


def kernel_modules(tree: Tree) -> KernelModules | None:
    """The modules of the kernel that the tree's machine runs; None when it has no modules.alias."""
    folder = f"lib/modules/{_release(tree)}"
    aliases = tree.read(f"{folder}/modules.alias")
    if aliases is None:
        return None
    patterns, lengths = _patterns(aliases)
    return KernelModules(
        patterns=patterns,
        lengths=lengths,
        present=_module_names(tree.read(f"{folder}/modules.dep")),
        builtin=_module_names(tree.read(f"{folder}/modules.builtin")),
    )


def _release(tree: Tree) -> str:
    running = tree.text("proc/sys/kernel/osrelease")
    if running:
        return running
    folders = tree.names("lib/modules")
    return folders[0] if len(folders) == 1 else "?"


@lru_cache(maxsize=1)  # 25000 lines that change only when modules are installed
def _patterns(content: bytes) -> tuple[dict[str, tuple[tuple[str, str], ...]], tuple[int, ...]]:
    """The PCI and USB patterns by their literal beginning, so that few remain to be tried and compiled."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        if not line.startswith(("alias pci:", "alias usb:")):
            continue
        words = line.split()
        if len(words) == 3:
            pattern = _one_dash(words[1])
            glob = _GLOB.search(pattern)
            start = pattern[: glob.start()] if glob else pattern
            groups.setdefault(start, []).append((pattern, _one_dash(words[2])))
    by_start = {start: tuple(group) for start, group in groups.items()}
    return by_start, tuple(sorted({len(start) for start in by_start}))


@lru_cache(maxsize=2)
def _module_names(content: bytes | None) -> frozenset[str]:
    """`kernel/drivers/usb/serial/ch341.ko.xz: ...` gives `ch341`; also for lines without a colon."""
    lines = (content or b"").decode("utf-8", "replace").splitlines()
    files = (line.partition(":")[0].rpartition("/")[2] for line in lines)
    return frozenset(_one_dash(file.partition(".ko")[0].strip()) for file in files if ".ko" in file)


def _one_dash(text: str) -> str:
    """`text` with "_" for every "-" outside of brackets, where it means a range."""
    if "-" not in text:
        return text
    parts = _BRACKETS.split(text)
    return "".join(part if part.startswith("[") else part.replace("-", "_") for part in parts)
