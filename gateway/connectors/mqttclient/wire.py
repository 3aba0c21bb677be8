"""A connection to a broker on the event loop: paho's client, driven through its public interface."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.connectors.mqttbroker import Broker
from gateway.connectors.mqttclient.held import HeldPaho
from gateway.connectors.mqttclient.terms import BrokerError, Limits, OldBrokerError
from infra.threads import run_to_end

V5: Final = MQTTProtocolVersion.MQTTv5
V311: Final = MQTTProtocolVersion.MQTTv311
# A broker that is gone but whose connections stay open is noticed within twice this.
KEEPALIVE_S: Final = 15
_NO_SUCH_VERSION: Final = "Unsupported protocol version"
# How often paho looks whether a ping is due.
_MISC_S: Final = 1.0


class Wire:
    """Connects once, reads and writes whenever the socket is ready, and says when and why the connection is gone.

    Args:
        broker: where to connect.
        client_id: names the session that the broker keeps.
        session_s: how long the broker keeps the session while nobody is connected.
        version: of the protocol.
        receive_max: how many messages the broker may send that are not acknowledged; with version 5 only.
        answer_s: how long the broker may take to answer.
        on_lost: called once, when the connection is gone.

    Attributes:
        paho: the client; set its callbacks for messages before ``connect``.
        session_present: whether the broker has kept the session.
        limits: what the broker accepts.
        lost_why: why the connection is gone; None while it holds.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        session_s: int,
        version: MQTTProtocolVersion,
        receive_max: int,
        answer_s: float,
        on_lost: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._new_session = session_s == 0
        self._version = version
        self._answer_s = answer_s
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._properties: Properties | None = None
        if version == V5:
            self._properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            self._properties.SessionExpiryInterval = session_s
            self._properties.ReceiveMaximum = receive_max
        self._sock: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._gone = asyncio.Event()
        self.reading = True
        self.session_present = False
        self.limits = Limits()
        self.lost_why: str | None = None
        self.paho = self._make_paho(client_id)

    def _make_paho(self, client_id: str) -> HeldPaho:
        made = HeldPaho(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if self._version == V5 else self._new_session,
            protocol=self._version,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        # The sender bounds what is in flight, by what the broker allows.
        made.max_inflight_messages_set(0)
        made.connect_timeout = self._answer_s
        if self._broker.user is not None:
            made.username_pw_set(self._broker.user, self._broker.password)
        if self._broker.tls is not None:
            made.tls_set_context(self._broker.tls)
        made.on_connect = self._on_connect
        made.on_disconnect = self._on_disconnect
        made.on_socket_close = self._on_socket_close
        made.on_socket_register_write = self._on_write_wanted
        made.on_socket_unregister_write = self._on_write_done
        return made

    # -------------------------------------------------------------------------------------------------- connecting

    async def connect(self) -> None:
        """Connect.

        Raises:
            BrokerError: the broker cannot be reached, or refuses.
        """
        try:
            await run_to_end(self._connect)
            self._attach()
            async with asyncio.timeout(self._answer_s):
                await self._connected
        except TimeoutError as error:
            self.abort()
            raise BrokerError(f"{self._broker} cannot be reached (no answer within {self._answer_s:g} s)") from error
        except OSError as error:
            self.abort()
            raise BrokerError(f"{self._broker} {_reason(error)}") from error
        except BaseException:
            self.abort()
            raise

    def _connect(self) -> None:
        """Connect in a thread: paho blocks until there is a connection, and calls back from here."""
        fresh = self._new_session if self._version == V5 else paho.MQTT_CLEAN_START_FIRST_ONLY
        self.paho.connect(
            self._broker.host, self._broker.port, KEEPALIVE_S, clean_start=fresh, properties=self._properties
        )

    def _attach(self) -> None:
        """Let the event loop read and write."""
        self._sock = self.paho.socket()
        if self._sock is None:
            raise ConnectionResetError("the connection broke at once")
        self._loop.add_reader(self._sock, self._read)
        self._loop.add_writer(self._sock, self._write)
        self._timer = self._loop.call_later(_MISC_S, self._misc)

    def _detach(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.remove_reader(sock)
            self._loop.remove_writer(sock)
        if self._timer is not None:
            self._timer.cancel()

    async def disconnect(self) -> None:
        """End the connection in order, if the broker lets it; the broker keeps the session."""
        if self.lost_why is None:
            self.paho.disconnect()
            try:
                async with asyncio.timeout(self._answer_s):
                    await self._gone.wait()
            except TimeoutError:
                self._lose("does not accept the end of the connection")
        self.abort()

    def abort(self) -> None:
        """Close the connection without a message to the broker."""
        self._lose("is not connected any more")
        self._detach()
        # paho calls these again when it is collected.
        self.paho.on_socket_close = self.paho.on_socket_unregister_write = None
        if (sock := self.paho.socket()) is not None:
            sock.close()

    def _on_connect(
        self, _client: paho.Client, _data: Any, flags: paho.ConnectFlags, reason: ReasonCode, said: Properties | None
    ) -> None:
        if self._connected.done():
            return
        self.session_present = bool(flags.session_present)
        self.limits = Limits(
            getattr(said, "ReceiveMaximum", 65_535),
            getattr(said, "MaximumPacketSize", None),
            getattr(said, "MaximumQoS", 2),
        )
        if reason.is_failure:
            kind = OldBrokerError if str(reason) == _NO_SUCH_VERSION else BrokerError
            text = f"{self._broker} refuses the connection ({reason}): check login and access rights"
            self._connected.set_exception(kind(text))
        else:
            self._connected.set_result(None)

    def _on_disconnect(
        self, _client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _said: Properties | None
    ) -> None:
        self._lose(f"closed the connection ({reason})")

    def _lose(self, why: str) -> None:
        """Note that the connection is gone; the first reason counts."""
        if self.lost_why is not None:
            return
        self.lost_why = why
        if not self._connected.done():
            text = f"{self._broker} closed the connection instead of answering"
            self._connected.set_exception(BrokerError(text))
            self._connected.exception()  # ``connect`` raises it, if it still waits
        self._gone.set()
        self._on_lost()

    # ---------------------------------------------------------------------------------------------- reading, writing

    def pause(self) -> None:
        """Stop reading; TCP then holds the broker back."""
        if self._sock is not None:
            self.reading = False
            self._loop.remove_reader(self._sock)

    def resume(self) -> None:
        """Read again."""
        if not self.reading and self._sock is not None:
            self.reading = True
            self._loop.add_reader(self._sock, self._read)
            # TLS may have unpacked bytes that no longer show on the socket.
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        while self._sock is not None and self.reading:
            self._drive(self.paho.loop_read)
            if self._sock is None or not getattr(self._sock, "pending", lambda: 0)():
                break

    def _write(self) -> None:
        self._drive(self.paho.loop_write)

    def _misc(self) -> None:
        self._timer = self._loop.call_later(_MISC_S, self._misc)
        self._drive(self.paho.loop_misc)

    def _drive(self, step: Callable[[], MQTTErrorCode]) -> None:
        try:
            step()
        except Exception as error:  # whatever it is, this connection cannot be used any more
            self._detach()
            self._lose(f"closed the connection ({error!r})")

    def _on_socket_close(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        self._detach()

    def _on_write_wanted(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        # In the thread that connects, nothing is attached yet.
        if self._sock is not None:
            self._loop.add_writer(self._sock, self._write)

    def _on_write_done(self, _client: paho.Client, _data: Any, _sock: Any) -> None:
        if self._sock is not None:
            self._loop.remove_writer(self._sock)


def _reason(error: OSError) -> str:
    """Return what happened, as the end of a sentence that begins with the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"shows a certificate that is not believed ({error}): tls.ca must be its authority, and host its name"
    return f"cannot be reached ({error})"
