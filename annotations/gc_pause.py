"""Python's cycle collector, off while a large result is built.

Reading and analysing make a million small objects and no reference cycles; the collector would walk
all of them again and again (measured: two thirds of the time for 100,000 components), and once more
when it is switched on. So they are handed to its oldest generation without a walk.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def gc_paused() -> Iterator[None]:
    """No cycle collection inside; on again afterwards if it was on before."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_freeze_count() == 0:
            # Both only relink lists. Where the program has frozen objects of its own, they stay so.
            gc.freeze()
            gc.unfreeze()
        gc.enable()
