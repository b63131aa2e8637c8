"""The ends of a transport over TCP, and what else a server answers."""

from mdgan.transport.tcp_host import TcpHostTransport
from mdgan.transport.tcp_server import AcceptsFrom, TcpServerTransport
from mdgan.transport.visit import ask_server, watch_server

__all__ = ["AcceptsFrom", "TcpHostTransport", "TcpServerTransport", "ask_server", "watch_server"]
