"""`make test-kernel`: the tests of this folder, once more when the emulator broke its guest.

A guest of which both processors spin for a minute is the emulator at fault: liken has no part in its kernel.
"""

import signal
import subprocess
import sys
from pathlib import Path

from tests.kernel.conftest import EMULATOR_FAILED

HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    code = _run(arguments)
    if code == EMULATOR_FAILED:
        print("kernel tier: the emulated kernel locked up, not by liken; all begins anew", flush=True)
        code = _run(arguments)
    return code


def _run(arguments: list[str]) -> int:
    child = subprocess.Popen([sys.executable, "-m", "pytest", str(HERE), *arguments])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches pytest, which ends by itself
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
