"""zstd dictionaries: trained from a field's first short runs, named by a hash of their bytes."""

from __future__ import annotations

import hashlib

import msgspec
import zstandard

MAX_DICTIONARY_BYTES = 64 * 1024
TRAIN_BYTES = 256 * 1024
"""Training starts once this much has been sampled..."""
TRAIN_RUNS = 64
"""...or after this many runs, if those hold at least ``MIN_TRAIN_BYTES``."""
MIN_TRAIN_BYTES = 16 * 1024
SAMPLE_BYTES = 4 * 1024
"""A long body is cut into pieces of this size: the trainer wants many samples, and one long run is not many."""
PIECES_PER_RUN = 16
MIN_SAMPLES = 8


class NewDictionary(msgspec.Struct, frozen=True, kw_only=True):
    """A trained dictionary, which a host must have before the first payload that uses it."""

    field: str
    dictionary_id: int
    data: bytes


def dictionary_id(data: bytes) -> int:
    """Return an id derived from the dictionary's bytes, so that two gateways never use one id for different ones."""
    return int.from_bytes(hashlib.sha256(data).digest()[:6], "big")


class Trainer:
    """Collects samples of one field until a dictionary can be trained; stops after one failed training."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._samples: list[bytes | bytearray | memoryview] = []
        self._sampled_bytes = 0
        self._runs = 0
        self.done = False

    def offer(self, body: memoryview) -> NewDictionary | None:
        """Take samples of a run's body; return the dictionary when these were the last samples needed."""
        if self.done:
            return None
        for start in range(0, min(len(body), PIECES_PER_RUN * SAMPLE_BYTES), SAMPLE_BYTES):
            self._samples.append(bytes(body[start : start + SAMPLE_BYTES]))
            self._sampled_bytes += len(self._samples[-1])
        self._runs += 1
        if not self._enough():
            return None
        return self._train()

    def _enough(self) -> bool:
        if len(self._samples) < MIN_SAMPLES:
            return False
        late = self._runs >= TRAIN_RUNS and self._sampled_bytes >= MIN_TRAIN_BYTES
        return late or self._sampled_bytes >= TRAIN_BYTES

    def _train(self) -> NewDictionary | None:
        """Train on the samples; samples with nothing in common give no dictionary."""
        self.done = True
        size_bytes = min(MAX_DICTIONARY_BYTES, self._sampled_bytes // 8)
        try:
            data = zstandard.train_dictionary(size_bytes, self._samples).as_bytes()
        except zstandard.ZstdError:
            return None
        finally:
            self._samples = []
        return NewDictionary(field=self._field, dictionary_id=dictionary_id(data), data=data)
