"""What a test of recorded machines needs."""

import pytest

from tests.machines.recording import MACHINES

HAS_MACHINES = any(MACHINES.glob("*.tar.xz"))
# For tests that name a machine; those that go over all recordings have this project's own at least.
needs_machines = pytest.mark.skipif(
    not HAS_MACHINES, reason=f"no recorded machines in {MACHINES}: set LIKEN_MACHINES to their folder"
)
