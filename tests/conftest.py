"""Settings that hold for every test."""

from hypothesis import settings

# A busy machine is slow now and then, which says nothing about the code: no example fails for its time.
settings.register_profile("liken", deadline=None)
settings.load_profile("liken")
