"""A Pulse-Eight CEC adapter as a computer sees it at the other end of its serial line.

Run with the gadget's end of the line, a tty. What the kernel's pulse8-cec wants to know is answered; nobody
is on the CEC bus. A message is a code and what belongs to it, between START and END; a byte of ESCAPE or more
is sent as ESCAPE and the byte less OFFSET. A question is answered by a message of its own code, an order by
ACCEPTED and the order's code.
"""

import contextlib
import os
import sys
import time
import tty

END, START, ESCAPE = 0xFE, 0xFF, 0xFD
OFFSET = 3
ACCEPTED = 0x08
ANSWERS = {
    0x15: bytes.fromhex("000c"),  # version of the firmware; from 2 on it is asked for all the rest
    0x17: bytes.fromhex("5d3b2a00"),  # when that was built, in seconds since 1970
    0x19: b"\0",  # acts by itself while no computer does: no
    0x1B: b"\4",  # logical address
    0x1D: bytes.fromhex("0010"),  # logical addresses it answers to, a bit each
    0x1F: bytes.fromhex("1000"),  # physical address 1.0.0.0
    0x21: b"\4",  # type of device: playback
    0x23: b"\5",  # version of CEC: 1.4
    0x25: b"liken",  # what a television calls it
    0x28: b"\1",  # type of adapter: on USB
    0x2A: b"\0",  # switches itself on: no; asked for from version 10 on
}


def answer(message: bytes) -> bytes:
    """The answer to a message, both without framing."""
    code = message[0]
    return bytes([code]) + ANSWERS[code] if code in ANSWERS else bytes([ACCEPTED, code])


def framed(message: bytes) -> bytes:
    body = b"".join(bytes([ESCAPE, byte - OFFSET]) if byte >= ESCAPE else bytes([byte]) for byte in message)
    return bytes([START]) + body + bytes([END])


class Unframing:
    """Makes messages of the bytes of a line, however they are cut."""

    def __init__(self) -> None:
        self._message = bytearray()
        self._escaped = False

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that end in these bytes."""
        ended = []
        for byte in data:
            if byte == START:
                self._message.clear()
            elif byte == END:
                ended.append(bytes(self._message))
            elif byte == ESCAPE:
                self._escaped = True
            else:
                self._message.append(byte + OFFSET if self._escaped else byte)
                self._escaped = False
        return [message for message in ended if message]


def serve(path: str) -> None:
    """Answer until the gadget is unplugged, which hangs the line up."""
    line = os.open(path, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(line)
    print("answers", flush=True)
    unframing = Unframing()
    with contextlib.suppress(OSError):
        while data := os.read(line, 256):
            for message in unframing.feed(data):
                os.write(line, framed(answer(message)))
    os.close(line)


if __name__ == "__main__":
    while True:
        serve(sys.argv[1])
        time.sleep(0.05)
