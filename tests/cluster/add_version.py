"""Make tools/<version>/ for one more Kubernetes release: `python -m tests.cluster.add_version 1.36.3`.

The folder holds a module that requires k8s.io/kubernetes at that release, repeats its list of staging modules
as replace lines (those of a module do not count for one that depends on it), and names the programs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.cluster.binaries import TOOLS, VERSION

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")


def module_text(version: str, original: str, programs: tuple[str, ...] = PROGRAMS) -> str:
    """The go.mod for `version`; `original` is the text of k8s.io/kubernetes' own go.mod."""
    staging = f"v0.{version.removeprefix('1.')}"
    replaced = re.findall(r"^\t(\S+) => \./staging/", original, re.MULTILINE)
    kept = re.findall(r"^(?:go|godebug) .*$", original, re.MULTILINE)
    lines = ["module liken.sh/tests/cluster/tools/kube", "", *kept, "", "tool ("]
    lines += [f"\tk8s.io/kubernetes/cmd/{program}" for program in sorted(programs)]
    lines += [")", "", f"require k8s.io/kubernetes v{version}", "", "replace ("]
    lines += [f"\t{name} => {name} {staging}" for name in replaced]
    return "\n".join([*lines, ")", ""])


def main(version: str, programs: tuple[str, ...] = PROGRAMS) -> int:
    if not VERSION.fullmatch(version):
        print(f"{version!r} is no release: write it like 1.36.3", file=sys.stderr)
        return 2
    found = _go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}")
    if found.returncode != 0:
        print(f"k8s.io/kubernetes v{version} cannot be had: {found.stdout.strip()}", file=sys.stderr)
        return 1
    folder = TOOLS / version
    folder.mkdir(exist_ok=True)
    original = Path(json.loads(found.stdout)["GoMod"]).read_text()
    (folder / "go.mod").write_text(module_text(version, original, programs))
    tidied = _go("mod", "tidy", folder=folder)
    print(f"{folder / 'go.mod'}: " + (tidied.stderr.strip().splitlines() or ["ready"])[-1])
    return tidied.returncode


def _go(*arguments: str, folder: Path = TOOLS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=folder, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], tuple(sys.argv[2:]) or PROGRAMS))
