"""YAML that somebody else wrote: one kind of error for all that cannot be read, and no text costs more than
its size.

PyYAML lets errors of Python's own constructors through, and its anchors make a small text a large object.
"""

import re
from typing import Any

MAX_BYTES = 4 * 1024 * 1024  # an object of the Kubernetes API has 1.5 MiB at the most (etcd's limit)
_UNWANTED = re.compile(rb"[&*!]")  # without one of these there is neither an alias nor a tag


class YamlError(ValueError):
    """The text is no YAML that liken reads. `line` counts from 1; None where no line is to blame."""

    def __init__(self, words: str, line: int | None = None) -> None:
        super().__init__(" ".join(words.split())[:200])
        self.line = line


def read_yaml(content: bytes, *, typed: bool = True) -> Any:
    """The document in `content`. Not `typed`: every scalar is text, as "0403" has to stay what it is.

    Aliases and tags are refused; not `typed`, where people write, a key that is there twice too. Raises
    YamlError.
    """
    import yaml  # late: most processes read no YAML

    if len(content) > MAX_BYTES:
        raise YamlError(f"it is larger than {MAX_BYTES // 1024 // 1024} MiB")
    name = "SafeLoader" if typed else "BaseLoader"
    loader = getattr(yaml, f"C{name}", getattr(yaml, name))
    try:
        if _UNWANTED.search(content):
            _refuse_aliases_and_tags(yaml.parse(content, loader))
        if not typed:
            _refuse_keys_given_twice(yaml.compose(content, loader))
        return yaml.load(content, loader)
    except YamlError:
        raise
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise YamlError(error.problem or "this is not YAML", line) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # a scalar that looks like a date or a number and is none, text in no encoding, nesting without end
        raise YamlError(str(error)) from error


def _refuse_aliases_and_tags(events: Any) -> None:
    for event in events:
        name = type(event).__name__
        if name == "AliasEvent" or getattr(event, "tag", None):
            what = "an alias" if name == "AliasEvent" else f"the tag {event.tag[:40]!r}"
            raise YamlError(f"liken reads no YAML with {what}", event.start_mark.line + 1)


def _refuse_keys_given_twice(top: Any) -> None:
    """YAML forbids it, yet the loader lets the last one win: half of what somebody wrote would be lost."""
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if node is None or isinstance(node.value, str):
            continue
        keys: set[str] = set()
        for entry in node.value:
            key, value = entry if isinstance(entry, tuple) else (None, entry)
            waiting.append(value)
            if key is None or not isinstance(key.value, str):
                continue
            if key.value in keys:
                raise YamlError(f"{key.value[:40]} is there twice", key.start_mark.line + 1)
            keys.add(key.value)
