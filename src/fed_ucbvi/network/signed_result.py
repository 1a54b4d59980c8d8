"""The end of a run as a file, for nodes that were away when it was told; the server signs it, the node checks it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fed_ucbvi.core.errors import InputError
from fed_ucbvi.core.files import new_file
from fed_ucbvi.core.types import IndexArray
from fed_ucbvi.network.certificate_checks import check_server_certificate
from fed_ucbvi.network.packages import needed
from fed_ucbvi.network.transport import TLSFiles

with needed("cryptography"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

FILE = "result.json"
FORMAT = "fed-ucbvi/signed-result"
_ALGORITHM = ec.ECDSA(hashes.SHA256())


class SignedResult(NamedTuple):
    """The result of a run: its name, its numbers of rounds and episodes, and the policy ``(H, S)`` to deploy."""

    run: str
    rounds: int
    episodes: int
    policy: IndexArray


def write_result(folder: Path, result: SignedResult, tls_files: TLSFiles) -> Path:
    """Write ``result.json``: the result as text, the server's signature under it and the server's certificate."""
    _, certificate, private = tls_files.read()
    key = serialization.load_pem_private_key(private, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{tls_files.key} is not a key that this program made.")
    policy = np.ascontiguousarray(result.policy, dtype="<i4")
    about = {
        "format": FORMAT,
        "run": result.run,
        "rounds": result.rounds,
        "episodes": result.episodes,
        "policy_sha256": hashlib.sha256(policy.tobytes()).hexdigest(),
        "policy": policy.tolist(),
    }
    text = json.dumps(about)
    signature = base64.b64encode(key.sign(text.encode(), _ALGORITHM)).decode()
    content = {"signed": text, "signature": signature, "certificate": certificate.decode()}
    with new_file(folder / FILE) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder / FILE


def read_result(path: Path, authority: bytes, host: str) -> SignedResult:
    """Read back what :func:`write_result` wrote; raise unless the server at ``host`` has signed it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        text, signature, pem = (content[part] for part in ("signed", "signature", "certificate"))
        key = check_server_certificate(pem.encode(), authority, host).public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError("it is not signed with a key of the kind that servers have.")
        key.verify(base64.b64decode(signature, validate=True), text.encode(), _ALGORITHM)
        return _parsed(json.loads(text))
    except InvalidSignature as error:
        raise InputError(f"{path} is not what the server signed.") from error
    except InputError as error:
        raise InputError(f"{path} does not count: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is no signed result of a run.") from error


def _parsed(about: Any) -> SignedResult:
    policy: IndexArray = np.array(about["policy"], dtype="<i4")
    digest = hashlib.sha256(policy.tobytes()).hexdigest()
    if about["format"] != FORMAT or policy.ndim != 2 or digest != about["policy_sha256"]:
        raise ValueError("not of this format")
    return SignedResult(str(about["run"]), int(about["rounds"]), int(about["episodes"]), policy.astype(np.int32))
