"""Addresses of servers, ``HOST:PORT``."""

from __future__ import annotations

import ipaddress

from fed_ucbvi.core.errors import InputError


def check_address(address: str) -> str:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"'{address}' is not of the form HOST:PORT.")
    return address


def host_of(address: str) -> str:
    """HOST of ``HOST:PORT``.

    >>> host_of("[::1]:50051")
    '::1'
    """
    return address.rpartition(":")[0].strip("[]")


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is given by; None if it is given by a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("192.0.2.1"), is_loopback("elsewhere.example")
    (True, True, False, False)
    """
    ip = ip_of(host)
    return host == "localhost" if ip is None else ip.is_loopback
