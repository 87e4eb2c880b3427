"""Strategies: bytes that are anything, and sound documents with something wrong in them."""

from hypothesis import strategies as st

# what readers stumble over: ends, separators, other encodings, signs without a glyph, numbers without bounds
_SPLINTERS = st.sampled_from(
    [
        b"",
        b"\0",
        b"\n",
        b"\r\n",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        "\u2028\u202e\ud7ff".encode(),
        b"=",
        b":",
        b"- ",
        b"[" * 40,
        b"{" * 40,
        b"*a",
        b"&a ",
        b"!!int x",
        b"!!timestamp x",
        b"!!bool x",
        b"<<: ",
        b"2026-99-99",
        b"9" * 5000,
        b"-1",
        b"1e999",
        b'"',
        b"\\",
        b"../../../etc/passwd",
        b"/",
        b"null",
    ]
)


def damaged(*sound: bytes) -> st.SearchStrategy[bytes]:
    """One of the `sound` documents with parts cut out, doubled, or replaced by splinters; or any bytes."""

    @st.composite
    def one(draw: st.DrawFn) -> bytes:
        text = draw(st.sampled_from(sound))
        for _ in range(draw(st.integers(0, 4))):
            begin = draw(st.integers(0, len(text)))
            end = draw(st.integers(begin, min(len(text), begin + 40)))
            text = (
                text[:begin]
                + draw(_SPLINTERS | st.binary(max_size=8) | st.just(text[begin:end] * 2))
                + text[end:]
            )
        return text

    return one() | st.binary(max_size=200)
