"""How one field is packed over the runs of a query: with a fixed codec, or with the one that measures cheapest."""

from __future__ import annotations

from infra.payload.codecs.choose import CODECS, Codec, Measurement, choose
from infra.payload.codecs.codecs import Packer
from infra.payload.codecs.dictionaries import NewDictionary, Trainer
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.codecs.zstdblocks import is_accepted

RESAMPLE_RUNS = 64
MIN_RESAMPLE_RUNS = 8
"""At least this many runs pass between two measurements of all codecs, even when sizes vary."""
SHIFT = 4.0
"""A body this many times longer or shorter than the one measured is measured again."""
MAX_SAMPLE_BYTES = 256 * 1024
MAX_DICTIONARY_RUN_BYTES = 64 * 1024
"""``auto`` trains on shorter bodies only: in a long run the run itself serves as the dictionary."""
FADE = 0.5


class FieldPacker:
    """Packs one field's bodies, run after run; not thread-safe.

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
        self._measured: dict[Codec, Measurement] = {}
        self._measured_body_bytes = 0
        self._runs_since = 0
        self._interval_runs = 1

    @property
    def choice(self) -> Codec | None:
        """The codec in use; None while ``auto`` has seen no run."""
        return self._choice

    def pack(self, body: memoryview) -> tuple[Codec, bytes | memoryview]:
        """Return the codec used and the packed body.

        The codec is ``none`` if packing would not make the body shorter, or would make a frame that the host refuses.
        """
        if self._mode == "zstd-dict" or (self._mode == "auto" and len(body) <= MAX_DICTIONARY_RUN_BYTES):
            self._train(body)
        if self._mode == "auto" and self._due(len(body)):
            self._measure(body)
        codec = self._usable(self._choice or "none")
        packed = self._packer.pack(codec, body)
        if len(packed) >= len(body) or (codec.startswith("zstd") and not is_accepted(memoryview(packed), len(body))):
            return "none", body
        return codec, packed

    def _usable(self, codec: Codec) -> Codec:
        return "zstd" if codec == "zstd-dict" and self.dictionary is None else codec

    def _train(self, body: memoryview) -> None:
        trained = self._trainer.offer(body)
        if trained is not None:
            self._packer.use(trained)
            self.dictionary = trained
            self._interval_runs = 1

    def _due(self, body_bytes: int) -> bool:
        """Return whether to measure: often at first, then every ``RESAMPLE_RUNS`` runs, or when body sizes change."""
        self._runs_since += 1
        if not self._measured or self._runs_since >= self._interval_runs:
            return True
        ratio = body_bytes / self._measured_body_bytes
        return not 1 / SHIFT < ratio < SHIFT and self._runs_since >= MIN_RESAMPLE_RUNS

    def _measure(self, body: memoryview) -> None:
        sample = body[:MAX_SAMPLE_BYTES]
        shifted = bool(self._measured) and not 1 / SHIFT < len(body) / self._measured_body_bytes < SHIFT
        for codec in CODECS:
            if codec != self._usable(codec):
                continue
            started_s = self._policy.clock()
            packed = self._packer.pack(codec, sample)
            cpu_s = self._policy.clock() - started_s
            fresh = Measurement(raw_bytes=len(sample), sent_bytes=len(packed), cpu_s=cpu_s)
            known = None if shifted else self._measured.get(codec)
            self._measured[codec] = known.merged(fresh, FADE) if known else fresh
        self._choice = choose(self._measured, self._policy.current_link_rate)
        self._measured_body_bytes = len(body)
        self._runs_since = 0
        self._interval_runs = MIN_RESAMPLE_RUNS if shifted else min(self._interval_runs * 2, RESAMPLE_RUNS)
