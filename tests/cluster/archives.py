"""Our images for the cluster: assembled by images/assemble.py, once for each state of what goes into them."""

import hashlib
import os
import shutil
import subprocess
import sys

from tests.cluster.binaries import cache
from tests.cluster.objects import REPOSITORY

SOURCES = ("common", "services", "images", "requirements.txt", "pyproject.toml")
IMAGES_AT = "LIKEN_CLUSTER_IMAGES"  # the folder of the archives, for the tests inside
TAG = "0.1.0"  # what deploy/base names


def assemble() -> tuple[str, str]:
    """The folder with the archives and a line for people; no folder when they could not be made."""
    folder = cache().parent / "images" / _digest()
    if not folder.exists():
        for old in folder.parent.glob("[!.]*"):  # not what another run is making
            shutil.rmtree(old)
        fresh = folder.with_name(f".{folder.name}.{os.getpid()}")
        command = [sys.executable, str(REPOSITORY / "images/assemble.py"), str(fresh), TAG]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason"])[-1]
            return "", f"images not made, the DaemonSet does not run: {last}"
        (fresh / "sizes").write_text(done.stdout.replace(str(fresh), str(folder)))
        try:
            fresh.rename(folder)
        except OSError:  # another run has made the same meanwhile
            shutil.rmtree(fresh)
    return str(folder), (folder / "sizes").read_text().rstrip()


def _digest() -> str:
    """One name for the contents of all sources."""
    total = hashlib.sha256()
    for source in SOURCES:
        top = REPOSITORY / source
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                total.update(f"{path.relative_to(REPOSITORY)}\0".encode() + path.read_bytes())
    return total.hexdigest()[:16]
