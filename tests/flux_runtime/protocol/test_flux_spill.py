"""Which partitions are in memory: pages, and rotation (SP-1 to SP-6)."""

from __future__ import annotations

import pytest

from flux_runtime.protocol.spill import PagePool, ReadIn, Spill, WriteOut


def spill(**options: float) -> Spill:
    return Spill(PagePool(100), {"a": 30, "b": 30, "c": 30}, **options)  # type: ignore[arg-type]


def relinquish(site: Spill, pages: int) -> list[WriteOut | ReadIn]:
    site.pool.post_relinquish(pages)
    return site.check()


def test_sp_1_pages_are_lent_taken_freed_and_given_back() -> None:
    pool = PagePool(10, page_bytes=4)
    pool.resize("a", 17)
    assert pool.free == 5
    pool.donate(2)
    pool.resize("a", 16)
    assert pool.free == 8
    pool.post_relinquish(9)
    assert pool.release() == 8
    assert (pool.free, pool.pages, pool.wanted_back) == (0, 4, 1)
    pool.free_all("a")
    assert pool.release() == 1
    assert pool.free == 3
    with pytest.raises(ValueError, match="holds nothing"):
        PagePool(10, page_bytes=0)


def test_sp_2_the_longest_active_partitions_leave_until_it_fits() -> None:
    site = spill()
    assert relinquish(site, 35) == [WriteOut("a", 30)]
    assert site.on_disk() == {"a"}
    assert (site.pool.pages, site.pool.wanted_back) == (65, 0)


def test_sp_2_pages_below_the_threshold_are_made_free() -> None:
    site = spill(threshold=20)
    assert site.check() == [WriteOut("a", 30)]
    assert site.check() == []
    assert site.resize("b", 60) == [WriteOut("b", 60)]


def test_sp_4_partitions_take_turns() -> None:
    site = spill(gap=10)
    relinquish(site, 35)
    assert site.tick(9) == []
    assert site.tick(10) == [WriteOut("b", 30), ReadIn("a", 30)]
    assert site.tick(19) == []
    assert site.tick(20) == [WriteOut("c", 30), ReadIn("b", 30)]


def test_sp_5_with_room_again_nobody_is_swapped_out() -> None:
    site = spill(gap=10)
    relinquish(site, 35)
    assert site.tick(0) == []
    site.pool.donate(35)
    assert site.tick(0) == [ReadIn("a", 30)]
    assert site.tick(50) == []


def test_sp_5_room_that_the_site_wants_back_is_no_room() -> None:
    site = spill(gap=10)
    relinquish(site, 35)
    site.pool.donate(35)
    site.pool.post_relinquish(15)
    assert site.tick(0) == []


def test_sp_6_the_gap_follows_the_time_of_the_last_activation() -> None:
    site = spill()
    relinquish(site, 35)
    site.took(3)
    assert site.tick(2) == []
    assert site.tick(3) == [WriteOut("b", 30), ReadIn("a", 30)]


def test_every_partition_has_its_turn() -> None:
    site = Spill(PagePool(100), dict.fromkeys(range(20), 10), gap=1)
    site.check()
    seen = {a.part for now in range(60) for a in site.tick(now) if isinstance(a, ReadIn)}
    assert seen == set(range(20))


def test_a_partition_larger_than_memory_still_has_its_turn() -> None:
    site = Spill(PagePool(10), {"a": 30, "b": 5}, gap=1)
    assert site.check() == [WriteOut("a", 30)]
    assert site.tick(1) == [WriteOut("b", 5), ReadIn("a", 30)]
    assert site.tick(2) == [WriteOut("a", 30), ReadIn("b", 5)]


def test_partitions_come_and_go() -> None:
    site = spill()
    assert site.add("d", 20) == [WriteOut("a", 30)]
    site.remove("a")
    site.remove("b")
    assert site.pool.free == 50
    assert site.on_disk() == frozenset()
