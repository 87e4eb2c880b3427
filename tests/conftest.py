"""Settings that hold for every test."""

import os

from hypothesis import settings

# A busy machine is slow now and then, which says nothing about the code: no example fails for its time. Where
# CI is set, every run tries the same examples, so that a change fails for what it changed.
settings.register_profile("liken", deadline=None, derandomize="CI" in os.environ)
settings.register_profile("fuzz", deadline=None, derandomize=False, max_examples=2000)  # make fuzz
settings.load_profile("liken")
