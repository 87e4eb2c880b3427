"""The claims of the local cluster as files."""

from pathlib import Path

import pytest

from common.errors import MachineError, RequestError
from services.console.allocate import new_claim
from services.console.cluster import MAX_NAME, Claims, parse_name


def test_claims_are_found_whatever_their_names_length(tmp_path: Path) -> None:
    claims = Claims(tmp_path)
    long = "a" * MAX_NAME
    for name in ("b", long):
        claims.write(new_claim("default", name, [], "n1", "liken.sh"))
    assert [claim["metadata"]["name"] for claim in claims.all()] == [long, "b"]
    found = claims.find("default", long)
    assert found is not None
    assert found["metadata"]["name"] == long
    claims.remove("default", long)
    claims.remove("default", long)
    assert claims.find("default", long) is None


@pytest.mark.parametrize(
    "content", ["", "{", "- 1", "metadata: 1", "metadata: {name: 1, namespace: a}", "\x00"]
)
def test_a_claim_that_cannot_be_read_is_told_by_its_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "claims/default").mkdir(parents=True)
    (tmp_path / "claims/default/bad.yaml").write_text(content)
    with pytest.raises(MachineError, match=r"bad\.yaml.*: repair or remove that file"):
        Claims(tmp_path).all()


def test_a_name_has_a_namespace_or_the_default_one() -> None:
    assert parse_name("stick") == ("default", "stick")
    assert parse_name("team/stick.1") == ("team", "stick.1")


@pytest.mark.parametrize("name", ["a" * (MAX_NAME + 1), f"{'a' * 300}/b"])
def test_a_name_that_is_too_long_is_told_the_limit(name: str) -> None:
    with pytest.raises(RequestError, match=f"letters, and a claim's may have {MAX_NAME}"):
        parse_name(name)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "A", "a_b", "..", "a/../b", "-a", "a-"])
def test_what_kubernetes_takes_for_no_name_is_refused(name: str) -> None:
    with pytest.raises(RequestError, match="no name for a claim"):
        parse_name(name)
