"""One timer for many answers: each has its own time, and only what is late is ended."""

from __future__ import annotations

import asyncio

import pytest

from fed_ucbvi.network.deadline import Deadline


async def answer(deadline: Deadline, seconds: float) -> str:
    task = asyncio.current_task()
    assert task is not None
    try:
        with deadline.of(task):
            await asyncio.sleep(seconds)
    except TimeoutError:
        return "late"
    return "in time"


def test_each_task_has_its_own_time_and_may_begin_again() -> None:
    async def story() -> list[str]:
        deadline = Deadline(0.2)

        async def twice(*seconds: float) -> str:
            return " ".join([await answer(deadline, one) for one in seconds])

        told = await asyncio.gather(twice(0), twice(60), twice(0.1, 0.15), twice(0.1, 60), twice(60, 0))
        deadline.close()
        return list(told)

    told = asyncio.run(asyncio.wait_for(story(), 30))
    assert told == ["in time", "late", "in time in time", "in time late", "late in time"]


def test_a_task_that_is_cancelled_from_elsewhere_is_not_late() -> None:
    async def story() -> None:
        task = asyncio.ensure_future(answer(Deadline(60), 60))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(story(), 30))
