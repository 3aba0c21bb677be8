"""How well and how fast each codec packs mail-like text, by length of run: ratio, and MB/s of one core each way.

The goal is 150 MB/s of encoding with zstd, and better figures than those of ESM's authors, who used Deflate level 9 and
Base64, one mail at a time. Run it as ``python bench/payload_codecs.py``; it is seeded and ends in a few seconds.
"""

from __future__ import annotations

import base64
import time
import zlib

import numpy as np
import pyarrow as pa

from infra.payload import CODECS, CodecPolicy, Decoder, Encoder

SEED = 7
MAILS = 6000
RUN_ROWS = (4, 64, 1024)
BUDGET_S = 0.8


def mails() -> pa.RecordBatch:
    """Mails of about 1.3 kB whose words are as unevenly frequent as those of real text."""
    random = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    words = np.array(["".join(random.choice(letters, random.integers(1, 11))) for _ in range(20_000)])
    weights = 1 / np.arange(10, len(words) + 10)
    drawn = random.choice(words, MAILS * 230, p=weights / weights.sum()).reshape(MAILS, 230)
    bodies = [" ".join(line) for line in drawn]
    senders = [f"{line[0]}.{line[1]}@enron.com" for line in drawn]
    return pa.record_batch([pa.array(senders), pa.array(bodies)], names=["sender", "body"])


def measure(batch: pa.RecordBatch, mode: str, run_rows: int) -> tuple[float, float, float, str]:
    """Return raw/sent, encoding and decoding MB/s of raw bytes, and the codec of the body in the end."""
    encoder, decoder = Encoder(batch.schema, codecs=CodecPolicy.parse(mode)), Decoder(batch.schema)
    raw_bytes = sent_bytes = 0
    encode_s = decode_s = 0.0
    for start in range(0, MAILS - run_rows + 1, run_rows):
        begun_s = time.perf_counter()
        encoded = encoder.encode(batch.slice(start, run_rows))
        encoded_s = time.perf_counter()
        for new in encoded.dictionaries:
            decoder.add_dictionary(new.field, new.dictionary_id, new.data)
            sent_bytes += len(new.data)
        decoder.decode(encoded.payload)
        decode_s += time.perf_counter() - encoded_s
        encode_s += encoded_s - begun_s
        raw_bytes += encoded.raw_bytes
        sent_bytes += len(encoded.payload)
        if encode_s + decode_s > BUDGET_S:
            break
    return raw_bytes / sent_bytes, raw_bytes / encode_s / 1e6, raw_bytes / decode_s / 1e6, encoder.choices()["body"]


def measure_peer(batch: pa.RecordBatch) -> tuple[float, float, float]:
    """Return the same three figures for bodies packed as ESM's authors did."""
    raw = [body.encode() for body in batch.column("body").slice(0, 1000).to_pylist()]
    begun_s = time.perf_counter()
    packed = [base64.b64encode(zlib.compress(body, 9)) for body in raw]
    packed_s = time.perf_counter()
    assert [zlib.decompress(base64.b64decode(body)) for body in packed] == raw
    unpack_s = time.perf_counter() - packed_s
    raw_bytes = sum(map(len, raw))
    rates = (raw_bytes / (packed_s - begun_s) / 1e6, raw_bytes / unpack_s / 1e6)
    return raw_bytes / sum(map(len, packed)), *rates


def main() -> None:
    """Print the table."""
    batch = mails()
    print(f"{'codec':<10} {'rows a run':>10} {'ratio':>6} {'encode MB/s':>12} {'decode MB/s':>12}  body packed with")
    ratio, encode, decode = measure_peer(batch)
    print(f"{'ESM':<10} {1:>10} {ratio:>6.2f} {encode:>12.0f} {decode:>12.0f}  deflate 9 + base64")
    for mode in (*CODECS, "auto"):
        for run_rows in RUN_ROWS:
            ratio, encode, decode, choice = measure(batch, mode, run_rows)
            print(f"{mode:<10} {run_rows:>10} {ratio:>6.2f} {encode:>12.0f} {decode:>12.0f}  {choice}")


if __name__ == "__main__":
    main()
