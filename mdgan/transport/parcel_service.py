"""Parcels over gRPC: a service that hands them out, and the call by which a host fetches one."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from mdgan.errors import Folded
from mdgan.timeouts import Timeouts
from mdgan.transport.base import Visitor
from mdgan.transport.frames import Frame, Most, WireError, next_frame
from mdgan.transport.guard import MOST_CALLS, Access, Guard
from mdgan.transport.links_pb2 import Order, Piece
from mdgan.transport.parcels import NothingThere, Parcels
from mdgan.transport.streams import CLOSE_SECONDS, FETCH, Threads, options, reason_of

_log = logging.getLogger(__name__)


class ParcelService:
    """Hands out parcels to hosts that show the ticket for one."""

    def __init__(self, parcels: Parcels, guard: Guard) -> None:
        self._parcels = parcels
        self._guard = guard
        self._server: grpc.Server | None = None

    @classmethod
    def of_host(cls, parcels: Parcels, access: Access) -> "ParcelService":
        """Makes the service of a host, which logs the callers that it refuses."""
        folded = Folded()

        def tell(visitor: Visitor, reason: str) -> None:
            if line := folded.line(reason, visitor):
                _log.warning("refused to hand out discriminators: %s", line)

        return cls(parcels, Guard(access, tell))

    def serve(self, place: str, timeouts: Timeouts) -> str:
        """Opens a port or a socket for parcels alone; returns its place, see `Guard.listen`."""
        self._server = grpc.server(
            Threads(),
            handlers=[self.handler()],
            interceptors=[self._guard],
            options=options(timeouts, 1),
            maximum_concurrent_rpcs=2 * MOST_CALLS,
        )
        place_opened = self._guard.listen(self._server, place)
        self._server.start()
        return place_opened

    def stop(self, grace_seconds: float) -> None:
        """Closes the port of `serve`; calls in progress have a moment to end."""
        if self._server is not None:
            self._server.stop(grace_seconds).wait(grace_seconds + CLOSE_SECONDS)
            self._guard.close()

    def handler(self) -> grpc.GenericRpcHandler:
        """The service as a gRPC server takes it."""
        fetch: Any = grpc.unary_stream_rpc_method_handler(self._fetch, Order.FromString, None)
        return grpc.method_handlers_generic_handler("mdgan.Parcels", {"Fetch": fetch})

    def _fetch(self, order: Order, context: grpc.ServicerContext) -> Iterator[bytes]:
        parcel = order.giver, order.iteration, order.taker
        try:
            frame = self._parcels.wait_for(*parcel, order.ticket)
        except NothingThere as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        self._guard.does_not_count(context)
        yield from frame.pieces
        self._parcels.fetched(*parcel)


def fetch(
    channel: grpc.Channel, order: Order, accepts: Mapping[str, Most], timeout_seconds: float
) -> Frame:
    """Fetches a parcel from the host that laid it out, or from the server.

    Raises:
        NothingThere: the call ended without a parcel.
        WireError: the answer is not exactly one message of an accepted kind.
    """
    ask = channel.unary_stream(FETCH, Order.SerializeToString, Piece.FromString)
    answer = ask(order, timeout=timeout_seconds)
    try:
        frame = next_frame(answer, accepts)
        more = next(answer, None)
    except grpc.RpcError as error:
        raise NothingThere(reason_of(error)) from error
    finally:
        answer.cancel()
    if frame is None or more is not None:
        raise WireError("it did not give one message")
    return frame
