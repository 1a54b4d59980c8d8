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


def is_loopback(host: str) -> bool:
    """Whether a host is this very machine.

    >>> is_loopback("localhost"), is_loopback("::1"), is_loopback("192.0.2.1"), is_loopback("elsewhere.example")
    (True, True, False, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
