from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class Welcome(_message.Message):
    __slots__ = ("fields",)
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: str
    def __init__(self, fields: _Optional[str] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("kind", "iteration", "size", "taker", "data")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    TAKER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    iteration: int
    size: int
    taker: int
    data: bytes
    def __init__(self, kind: _Optional[str] = ..., iteration: _Optional[int] = ..., size: _Optional[int] = ..., taker: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class Order(_message.Message):
    __slots__ = ("giver", "iteration", "taker", "ticket")
    GIVER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TAKER_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    giver: int
    iteration: int
    taker: int
    ticket: str
    def __init__(self, giver: _Optional[int] = ..., iteration: _Optional[int] = ..., taker: _Optional[int] = ..., ticket: _Optional[str] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Time(_message.Message):
    __slots__ = ("seconds",)
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    def __init__(self, seconds: _Optional[float] = ...) -> None: ...
