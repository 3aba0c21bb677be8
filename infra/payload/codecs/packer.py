"""How one field is packed over the runs of a query: with a fixed codec, or with the one that measures cheapest."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from infra.payload.body import write_body
from infra.payload.codecs.choose import CODECS, Codec, Measurement, choose
from infra.payload.codecs.codecs import Packer
from infra.payload.codecs.dictionaries import NewDictionary, Trainer
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.codecs.zstdblocks import is_accepted
from infra.payload.shapes import Shape, suits, write_shape

RESAMPLE_RUNS = 64
MIN_RESAMPLE_RUNS = 8
"""At least this many runs pass between two measurements of all codecs, even when sizes vary."""
SHIFT = 4.0
"""A body this many times longer or shorter than the one measured is measured again."""
MAX_SAMPLE_BYTES = 256 * 1024
MAX_DICTIONARY_RUN_BYTES = 64 * 1024
"""``auto`` trains on shorter bodies only: in a long run the run itself serves as the dictionary."""
FADE = 0.5


class PackedColumn(NamedTuple):
    """A column as it is sent.

    Attributes:
        codec: how its body is packed; ``none`` if packing would not make it shorter, or the host would refuse it.
        shaped: whether the body is one of ``infra.payload.shapes``, not an Arrow message.
        raw_bytes: length of the body.
        packed: what is sent.
        unpacked_bytes: how much memory the other site counts for it.
    """

    codec: Codec
    shaped: bool
    raw_bytes: int
    packed: bytes | memoryview
    unpacked_bytes: int


class FieldPacker:
    """Packs one field's columns, run after run; not thread-safe.

    A column with a codec has a shape, if there is one for its type. ``auto`` measures what columns cost with and
    without. ``none`` sends them as they are.

    Attributes:
        dictionary: the trained dictionary, once there is one.
    """

    def __init__(self, field: str, policy: CodecPolicy) -> None:
        self._policy = policy
        self._mode = policy.mode(field)
        self._packer = Packer()
        self._trainer = Trainer(field)
        self.dictionary: NewDictionary | None = None
        self._choice: Codec | None = None if self._mode == "auto" else self._mode
        self._shaped = self._mode != "none"
        self._measured: dict[bool, dict[Codec, Measurement]] = {}
        self._measured_bytes = 0
        self._runs_since = 0
        self._interval_runs = 1

    @property
    def choice(self) -> Codec | None:
        """The codec in use; None while ``auto`` has seen no run."""
        return self._choice

    def pack(self, column: pa.Array) -> PackedColumn:
        """Return a column as it is sent; it must have rows."""
        if self._mode == "auto" and self._due(max(1, column.nbytes)):
            self._measure(column)
        shaped = self._shaped and suits(column.type)
        body, growth_bytes = _body(column, shaped=shaped)
        if self._mode == "zstd-dict" or (self._mode == "auto" and len(body) <= MAX_DICTIONARY_RUN_BYTES):
            self._train(body)
        codec = self._usable(self._choice or "none")
        packed = self._packer.pack(codec, body)
        if len(packed) >= len(body) or (codec.startswith("zstd") and not is_accepted(memoryview(packed), len(body))):
            codec, packed = "none", body
        return PackedColumn(codec, shaped, len(body), packed, len(body) + growth_bytes)

    def _usable(self, codec: Codec) -> Codec:
        return "zstd" if codec == "zstd-dict" and self.dictionary is None else codec

    def _train(self, body: memoryview) -> None:
        trained = self._trainer.offer(body)
        if trained is not None:
            self._packer.use(trained)
            self.dictionary = trained
            self._interval_runs = 1

    def _due(self, size: int) -> bool:
        """Return whether to measure: often at first, then every ``RESAMPLE_RUNS`` runs, or when sizes change."""
        self._runs_since += 1
        if not self._measured or self._runs_since >= self._interval_runs:
            return True
        return not self._is_alike(size) and self._runs_since >= MIN_RESAMPLE_RUNS

    def _is_alike(self, size: int) -> bool:
        return 1 / SHIFT < size / self._measured_bytes < SHIFT

    def _measure(self, column: pa.Array) -> None:
        size = max(1, column.nbytes)
        shifted = bool(self._measured) and not self._is_alike(size)
        if shifted:
            self._measured = {}
        for shaped in (False, True) if suits(column.type) else (False,):
            self._measure_codecs(column, shaped=shaped)
        rate = self._policy.current_link_rate
        best = {shaped: choose(measured, rate) for shaped, measured in self._measured.items()}
        self._shaped = min(best, key=lambda shaped: self._measured[shaped][best[shaped]].cost_s(rate))
        self._choice = best[self._shaped]
        self._measured_bytes = size
        self._runs_since = 0
        self._interval_runs = MIN_RESAMPLE_RUNS if shifted else min(self._interval_runs * 2, RESAMPLE_RUNS)

    def _measure_codecs(self, column: pa.Array, *, shaped: bool) -> None:
        """Measure all codecs with bodies of one kind, by the column's bytes, so that both kinds can be compared."""
        begun_s = self._policy.clock()
        body, _ = _body(column, shaped=shaped)
        made_s = self._policy.clock() - begun_s
        sample = body[:MAX_SAMPLE_BYTES]
        part = len(sample) / len(body)
        known = self._measured.setdefault(shaped, {})
        for codec in CODECS:
            if codec != self._usable(codec):
                continue
            begun_s = self._policy.clock()
            packed = self._packer.pack(codec, sample)
            cpu_s = self._policy.clock() - begun_s + part * made_s
            fresh = Measurement(raw_bytes=part * max(1, column.nbytes), sent_bytes=len(packed), cpu_s=cpu_s)
            known[codec] = known[codec].merged(fresh, FADE) if codec in known else fresh


def _body(column: pa.Array, *, shaped: bool) -> Shape:
    return write_shape(column) if shaped else Shape(write_body(column), 0)
