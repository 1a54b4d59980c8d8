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
    """The address of a host; None if the host is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """True if a host is this machine.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("192.0.2.1"), is_loopback("elsewhere.example")
    (True, True, False, False)
    """
    ip = ip_of(host)
    if ip is None:
        return host == "localhost"
    return ip.is_loopback
