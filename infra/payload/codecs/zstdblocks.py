"""Reads the headers of a zstd frame's blocks before any of them is unpacked (RFC 8878, section 3.1.1).

The time to unpack a frame depends on its sequences ("copy n bytes from m bytes back"), not on its size: 12 kB can order
45 million copies of three bytes, a second of work. Each block declares how many sequences it has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import zstandard

FREE_SEQUENCES: Final = 500_000
"""The number of sequences that every frame may have: 10 to 20 ms of work."""
SEQUENCES_PER_BYTE: Final = 4
"""More sequences than that need this many bytes. Columns of real types have up to 2.2 for each byte, text 0.3."""
FREE_BLOCKS: Final = 64
LEAST_BLOCK_BYTES: Final = 4096
"""Beyond ``FREE_BLOCKS`` a block must hold this much on average: our packer's hold 8 KiB at least, mostly 128."""

_HEADER_BYTES: Final = 3
_REPEATED: Final = 1
_COMPRESSED: Final = 2
_RAW_LITERALS: Final = 0
_ONE_LITERAL: Final = 1
_LEAST_MATCH_BYTES: Final = 3


class Claims(NamedTuple):
    """The sizes that blocks declare.

    Attributes:
        blocks: how many were read.
        sequences: how many they have in total.
        least_bytes: the least that they unpack to; a sequence copies three bytes or more.
    """

    blocks: int
    sequences: int
    least_bytes: int


def claims(packed: memoryview, most_blocks: int, enough_bytes: int) -> Claims:
    """Add up the declarations of a frame's blocks; stop after ``most_blocks`` or at ``enough_bytes``.

    Raises:
        ZstdError: this is not a frame.
    """
    at = zstandard.frame_header_size(packed)
    blocks = sequences = least_bytes = 0
    while blocks < most_blocks and least_bytes <= enough_bytes and at + _HEADER_BYTES <= len(packed):
        head = int.from_bytes(packed[at : at + _HEADER_BYTES], "little")
        last, kind, size = head & 1, head >> 1 & 3, head >> 3
        at += _HEADER_BYTES
        blocks += 1
        if kind == _COMPRESSED:
            literals, copies = _compressed(packed[at : at + size])
            sequences += copies
            least_bytes += literals + _LEAST_MATCH_BYTES * copies
        else:
            least_bytes += size
        if last:
            break
        at += 1 if kind == _REPEATED else size
    return Claims(blocks, sequences, least_bytes)


def why_too_much(packed: memoryview, raw_bytes: int) -> str:
    """Return why a frame of ``raw_bytes`` takes too much work, or holds more bytes; empty if it is acceptable.

    Raises:
        ZstdError: this is not a frame.
    """
    most_blocks = FREE_BLOCKS + raw_bytes // LEAST_BLOCK_BYTES
    found = claims(packed, most_blocks + 1, raw_bytes)
    if found.least_bytes > raw_bytes:
        return f"the frame holds more than the {raw_bytes} declared bytes"
    if found.blocks > most_blocks:
        return f"the frame has more than {most_blocks} blocks for {raw_bytes} bytes"
    most_sequences = FREE_SEQUENCES + SEQUENCES_PER_BYTE * len(packed)
    if found.sequences > most_sequences:
        return f"the frame of {len(packed)} bytes has {found.sequences} sequences, more than {most_sequences}"
    return ""


def is_accepted(packed: memoryview, raw_bytes: int) -> bool:
    """Return whether a frame that a packer made would be accepted; short frames cannot have too many sequences."""
    return raw_bytes <= _LEAST_MATCH_BYTES * FREE_SEQUENCES or not why_too_much(packed, raw_bytes)


def _compressed(block: memoryview) -> tuple[int, int]:
    """Return how many literals and how many sequences a compressed block has; (0, 0) for a truncated block.

    RFC 8878, sections 3.1.1.3.1.1 and 3.1.1.3.2.1.
    """
    kind, form = (block[0] & 3, block[0] >> 2 & 3) if len(block) else (0, 0)
    if kind in (_RAW_LITERALS, _ONE_LITERAL):
        head_bytes, shift = ((1, 3), (2, 4), (1, 3), (3, 4))[form]
        literals = int.from_bytes(block[:head_bytes], "little") >> shift
        at = head_bytes + (literals if kind == _RAW_LITERALS else 1)
    else:
        head_bytes, bits = ((3, 10), (3, 10), (4, 14), (5, 18))[form]
        sizes, mask = int.from_bytes(block[:head_bytes], "little") >> 4, (1 << bits) - 1
        literals = sizes & mask
        at = head_bytes + (sizes >> bits & mask)
    count = bytes(block[at : at + 3])
    if len(count) < 3:  # at least one byte of sequences' modes and tables follows any count
        return (literals, 0)
    if count[0] < 128:
        return literals, count[0]
    if count[0] < 255:
        return literals, (count[0] - 128 << 8) + count[1]
    return literals, count[1] + (count[2] << 8) + 0x7F00
