"""Documents that lie are worse than none: links, settings and manifests are compared with the tree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "images/*.md")
    for path in ROOT.glob(pattern)
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get: lowercase, punctuation gone, blanks to dashes."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_the_settings_page_lists_exactly_the_variables_that_are_read() -> None:
    source = (ROOT / "common/settings.py").read_text()
    read = set(re.findall(r'read\.\w+\(\s*"([A-Z][A-Z_]+)"', source))
    page = (ROOT / "docs/reference/settings.md").read_text()
    told = set(re.findall(r"^\| `([A-Z][A-Z_]+)`", page, re.MULTILINE))
    assert told == read


def test_every_overlay_that_a_page_names_exists() -> None:
    named = {name for page in PAGES for name in re.findall(r"deploy/overlays/[\w-]+", page.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name / "kustomization.yaml").exists()] == []
