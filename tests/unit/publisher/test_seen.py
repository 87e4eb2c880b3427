"""What is known of the cluster's slices, from lists, events and answers in any order."""

from common.cluster import Raw, SliceEvent, SliceList
from services.publisher.seen import Seen


def item(name: str, version: int) -> Raw:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "spec": {"at": version}}


def test_nothing_is_known_before_the_first_list() -> None:
    seen = Seen()
    seen.put(item("a", 5))

    assert not seen.view().known


def test_a_list_older_than_our_answer_does_not_undo_it() -> None:
    seen = Seen()
    seen.put(item("a", 7))

    seen.replace(SliceList([item("a", 5)], "6"))

    assert seen.view().slices == {"a": item("a", 7)}


def test_a_list_from_before_our_first_write_does_not_remove_it() -> None:
    seen = Seen()
    seen.put(item("a", 7))

    seen.replace(SliceList([], "6"))

    assert seen.view().slices == {"a": item("a", 7)}
    assert seen.view().deletions == 0


def test_a_list_that_lacks_an_older_slice_means_that_it_is_gone() -> None:
    seen = Seen()
    seen.put(item("a", 7))

    seen.replace(SliceList([], "8"))

    assert seen.view().slices == {}
    assert seen.view().deletions == 1


def test_an_event_older_than_our_answer_is_no_news() -> None:
    seen = Seen()
    seen.put(item("a", 7))
    before = seen.view()

    seen.change(SliceEvent("MODIFIED", item("a", 6)))
    seen.change(SliceEvent("DELETED", item("a", 6)))

    assert seen.view() == before


def test_our_own_write_that_comes_back_as_an_event_is_no_news() -> None:
    seen = Seen()
    seen.put(item("a", 7))
    before = seen.view()

    seen.change(SliceEvent("MODIFIED", item("a", 7)))

    assert seen.view() == before


def test_a_deletion_by_others_is_counted_and_our_own_is_not() -> None:
    seen = Seen()
    seen.put(item("a", 7))
    seen.put(item("b", 8))

    seen.remove(item("b", 8))
    seen.change(SliceEvent("DELETED", item("b", 10)))
    seen.change(SliceEvent("DELETED", item("a", 9)))

    assert seen.view().slices == {}
    assert seen.view().deletions == 1


def test_versions_that_are_no_numbers_count_as_news() -> None:
    seen = Seen()
    seen.put(item("a", 7))
    odd: Raw = {"metadata": {"name": "a"}, "spec": {"at": "now"}}

    seen.change(SliceEvent("MODIFIED", odd))

    assert seen.view().slices == {"a": odd}


def test_the_very_object_that_is_known_can_be_told_as_deleted() -> None:
    seen = Seen()
    known: Raw = {"metadata": {"name": "a"}, "spec": {}}
    seen.change(SliceEvent("ADDED", known))

    seen.change(SliceEvent("DELETED", known))

    assert seen.view().slices == {}
    assert seen.view().deletions == 1


def test_a_removal_that_is_heard_of_before_the_answer_to_our_write_counts() -> None:
    for before in ([], [item("a", 5)]):
        seen = Seen()
        seen.replace(SliceList(before, "6"))

        seen.change(SliceEvent("DELETED", item("a", 9)))
        seen.put(item("a", 8))

        assert seen.view().slices == {}
        assert seen.view().deletions >= 1


def test_a_list_that_lacks_our_write_because_somebody_removed_it_counts_before_its_answer() -> None:
    seen = Seen()

    seen.replace(SliceList([], "9"))
    seen.put(item("a", 8))

    assert seen.view().slices == {}


def test_what_is_written_again_after_a_removal_is_there() -> None:
    seen = Seen()
    seen.replace(SliceList([item("a", 5)], "6"))
    seen.change(SliceEvent("DELETED", item("a", 9)))

    seen.put(item("a", 10))

    assert seen.view().slices == {"a": item("a", 10)}
