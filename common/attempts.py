"""How often something that others take away may be put back."""

FIRST_PAUSE_S = 0.1  # doubled after each attempt, whether it worked or not, up to
LONGEST_PAUSE_S = 5.0  # ... this: somebody may delete all the time, or the disk may be full
CALM_S = 60.0  # without an attempt; then the pauses begin anew


class Attempts:
    """When the next attempt may be: the first at once, later ones after doubling pauses."""

    def __init__(self) -> None:
        self._last = float("-inf")
        self._pause_s = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next attempt; 0 for now."""
        return max(0.0, self._last + self._pause_s - now)

    def did(self, now: float) -> None:
        again = now - self._last < CALM_S
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S) if again else FIRST_PAUSE_S
        self._last = now
