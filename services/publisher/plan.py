"""What to do to the cluster so that it holds the wanted slices, in an order that never offers too much."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from common.cluster import Raw


class Apply(NamedTuple):
    """Write this slice whole. `held` is what it replaces, None where nothing is there."""

    body: Raw
    held: Raw | None


class Delete(NamedTuple):
    """Remove exactly this object."""

    held: Raw


class Answer(NamedTuple):
    """What we sent of a slice and what the server made of it."""

    sent: Raw
    returned: Raw


Answers = Mapping[str, Answer]  # by slice name; only where the two differ


def plan(wanted: Sequence[Raw], seen: Mapping[str, Raw], answers: Answers) -> list[Apply | Delete]:
    """The writes that are needed, in order; empty when the cluster holds what we want.

    Slices are complete before obsolete ones go: what is obsolete has an older generation or stands in the
    way of the count, so it offers nothing meanwhile. Only an object whose immutable pool name is wrong has
    to go first.
    """
    names = {body["metadata"]["name"] for body in wanted}
    pool = wanted[0]["spec"]["pool"]["name"]
    misplaced = [name for name in sorted(names & seen.keys()) if seen[name]["spec"]["pool"]["name"] != pool]
    steps: list[Apply | Delete] = [Delete(seen[name]) for name in misplaced]
    for body in wanted:
        name = body["metadata"]["name"]
        held = None if name in misplaced else seen.get(name)
        if held is None or not holds(held, body, answers.get(name)):
            steps.append(Apply(_conditional(body, held), held))
    steps += [Delete(seen[name]) for name in sorted(seen.keys() - names)]
    return steps


def holds(held: Raw, body: Raw, answer: Answer | None) -> bool:
    """Whether `held` is `body` as this server shows it: fields of others in its metadata do not matter."""
    owners = held["metadata"].get("ownerReferences") or []
    if any(owner not in owners for owner in body["metadata"].get("ownerReferences", ())):
        return False
    now, sent = _spec(held), _spec(body)
    return now == sent or (answer is not None and answer.sent == sent and answer.returned == now)


def answered(body: Raw, returned: Raw) -> Answer | None:
    """What to remember of a write: None when the server kept everything as it was sent."""
    answer = Answer(_spec(body), _spec(returned))
    return None if answer.sent == answer.returned else answer


def as_sent(seen: Mapping[str, Raw], answers: Answers) -> list[Raw]:
    """The slices as if the server had kept what it was sent, in name order; to compare with new ones."""
    found = []
    for name in sorted(seen):
        item, answer = seen[name], answers.get(name)
        if answer is not None and _spec(item)["devices"] == answer.returned["devices"]:
            item = {**item, "spec": {**item["spec"], "devices": answer.sent["devices"]}}
        found.append(item)
    return found


def dropped(answers: Answers) -> tuple[str, ...]:
    """The fields that the server did not keep, as paths without positions, sorted."""
    paths: set[str] = set()
    for answer in answers.values():
        paths.update(_differences(answer.sent, answer.returned, "spec"))
    return tuple(sorted(paths))


def _differences(sent: object, returned: object, path: str) -> Iterator[str]:
    if isinstance(sent, dict) and isinstance(returned, dict):
        for key in sent.keys() | returned.keys():
            yield from _differences(sent.get(key), returned.get(key), f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(returned, list) and len(sent) == len(returned):
        for one, other in zip(sent, returned, strict=True):
            yield from _differences(one, other, f"{path}[]")
    elif sent != returned:
        yield path


def _spec(item: Raw) -> Raw:
    return {**item["spec"], "devices": item["spec"].get("devices") or []}  # an empty list is not returned


def _conditional(body: Raw, held: Raw | None) -> Raw:
    """`body`, to be written only onto the very version that was compared."""
    version = held and held["metadata"].get("resourceVersion")
    if not version:
        return body
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
