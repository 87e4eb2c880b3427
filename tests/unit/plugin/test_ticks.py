"""That records changed is told at once, and after a burst once more."""

import asyncio
import threading

from services.plugin.ticks import APART_S, ClaimTicks


def test_the_first_change_is_told_at_once_and_the_last_of_a_burst_after_it() -> None:
    told: list[float] = []
    now = 100.0

    async def burst() -> None:
        nonlocal now
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]
        ticks = ClaimTicks(lambda: told.append(now))
        for _ in range(50):
            ticks.changed()
        assert told == [100.0]
        now = 100.0 + APART_S
        await timers()
        assert told == [100.0, now]
        ticks.changed()
        await timers()
        assert told == [100.0, now]
        now = 200.0
        await timers()
        assert told == [100.0, 100.0 + APART_S, 200.0]
        now = 300.0
        ticks.changed()
        assert told == [100.0, 100.0 + APART_S, 200.0, 300.0]

    asyncio.run(burst())


async def timers() -> None:
    """Let the loop run what is due."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_change_in_another_thread_is_told_in_the_loop() -> None:
    told: list[int] = []

    async def other() -> None:
        ended = asyncio.Event()

        def send() -> None:
            told.append(threading.get_ident())
            ended.set()

        ticks = ClaimTicks(send)
        await asyncio.to_thread(ticks.changed)
        await asyncio.wait_for(ended.wait(), 5)

    asyncio.run(other())
    assert told == [threading.get_ident()]


def test_a_change_after_the_end_of_the_loop_is_no_error() -> None:
    made: list[ClaimTicks] = []

    async def end() -> None:
        made.append(ClaimTicks(lambda: None))

    asyncio.run(end())
    thread = threading.Thread(target=made[0].changed)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
