"""What the Hugging Face hub is asked: which files a repository has, and the bytes of one from a place on.

Speaks the hub's HTTP API: `/api/models/REPO/revision/main?blobs=true` and `/REPO/resolve/COMMIT/FILE`, at HF_ENDPOINT
where that is set. Sends a token (HF_TOKEN, or the login that huggingface_hub keeps) to that host alone. Nothing here is
called but by `models pull`.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any

from ds4chat import __version__
from ds4chat.errors import Ds4chatError, UsageError
from ds4chat.safe_text import one_line

ENDPOINT = "https://huggingface.co"
TIMEOUT = 30.0
"""Seconds without a byte after which a connection counts as broken."""

MAX_ANSWER = 20_000_000
"""Bytes of a list of files."""

EXTRA = "pip install 'ds4chat[pull]'"

_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


class HubError(Ds4chatError):
    """The hub could not be reached, or refused."""


class BrokenConnectionError(HubError):
    """It may go better with another try."""


@dataclass(frozen=True)
class RemoteFile:
    """A file of a repository. `size` in bytes, 0 when unknown; `sha256` in hex, "" when the hub does not tell."""

    name: str
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True)
class Repository:
    """What a repository holds at one commit."""

    name: str
    commit: str
    files: tuple[RemoteFile, ...]


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Sends the token on to the same host alone: other hosts have no use for it, and storage hosts refuse it."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
        token = req.unredirected_hdrs.get("Authorization")
        if new is not None and token and _origin(req.full_url) == _origin(newurl):
            new.add_unredirected_header("Authorization", token)
        return new


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


class Hub:
    """The hub at one address.

    Raises:
        UsageError: HF_ENDPOINT is no address, or HF_HUB_OFFLINE is set.
    """

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        env = os.environ if env is None else env
        self.endpoint = (env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        if not self.endpoint.startswith(("https://", "http://")):
            raise UsageError(f'HF_ENDPOINT is "{self.endpoint}": it must begin with https:// or http://.')
        if env.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
            raise UsageError("HF_HUB_OFFLINE is set, so that nothing is downloaded: unset it first.")
        self._token = env.get("HF_TOKEN") or _kept_token()
        self._opener = urllib.request.build_opener(_Redirects)

    @property
    def host(self) -> str:
        """For sentences."""
        return urllib.parse.urlsplit(self.endpoint).netloc

    def repository(self, name: str) -> Repository:
        """The files of a repository's main branch. Raises HubError, UsageError."""
        if not _REPO.fullmatch(name):
            raise UsageError(f'"{name}" is no repository: give it as hf:ORG/REPO or hf:ORG/REPO:FILE.')
        with self._open(name, f"/api/models/{name}/revision/main?blobs=true") as response:
            try:
                answer = json.loads(response.read(MAX_ANSWER))
                files = tuple(_remote_file(item) for item in answer["siblings"])
                return Repository(name, str(answer["sha"]), files)
            except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                raise HubError(f"{self.host} gave no list of files for {name}: try again later.") from error
            except (OSError, http.client.HTTPException) as error:
                raise self.broken(error) from error

    def open(self, repository: Repository, file: RemoteFile, start: int = 0) -> http.client.HTTPResponse:
        """The bytes of a file, from `start` on if the answer's status is 206, else all of them. Raises HubError."""
        path = urllib.parse.quote(f"/{repository.name}/resolve/{repository.commit}/{file.name}")
        return self._open(repository.name, path, {"Range": f"bytes={start}-"} if start else {})

    def _open(
        self, repository: str, path: str, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        request = urllib.request.Request(self.endpoint + path, headers=dict(headers or {}))
        request.add_header("User-Agent", f"ds4chat/{__version__}")
        # Compressed answers would make ranges count other bytes.
        request.add_header("Accept-Encoding", "identity")
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            response: http.client.HTTPResponse = self._opener.open(request, timeout=TIMEOUT)
            return response
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                raise self._refusal(repository, error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self.broken(error) from error

    def broken(self, error: BaseException) -> BrokenConnectionError:
        """The sentence for a connection that ended early, or never began."""
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        words = one_line(str(reason))[:200] or type(error).__name__
        return BrokenConnectionError(
            f"{self.host} cannot be reached ({words}): see to the connection and try again."
        )

    def _refusal(self, repository: str, error: urllib.error.HTTPError) -> HubError:
        code, kind = error.code, error.headers.get("X-Error-Code", "")
        page = f"{self.endpoint}/{repository}"
        if kind == "GatedRepo":
            return HubError(
                f"{repository} is for those alone who accepted its terms: accept them at {page}, and {self._log_in()}."
            )
        if code in (401, 403, 404) and kind != "EntryNotFound":
            mine = (
                "with this login" if self._token else f"without a login; for one of your own {self._log_in()}"
            )
            return HubError(
                f"There is no model repository {repository} on {self.host} {mine}: check its name."
            )
        if code == 404:
            return HubError(f"{repository} has no such file any more: look at {page}.")
        if code in (408, 429) or code >= 500:
            return BrokenConnectionError(f"{self.host} is busy or out of order ({code}): try again later.")
        return HubError(f"{self.host} refused ({code} {one_line(str(error.reason))[:100]}): try again later.")

    def _log_in(self) -> str:
        """How to become somebody for the hub."""
        if self._token:
            return "use a token (HF_TOKEN) that may read it"
        if _has_library():
            return "set HF_TOKEN to a token, or log in with `hf auth login`"
        return f"set HF_TOKEN to a token, or install huggingface_hub with `{EXTRA}` and log in with `hf auth login`"


def _remote_file(item: dict[str, Any]) -> RemoteFile:
    lfs = item.get("lfs") or {}
    sha256 = str(lfs.get("sha256") or "").lower()
    size = lfs.get("size") or item.get("size") or 0
    return RemoteFile(str(item["rfilename"]), int(size), sha256 if _SHA256.fullmatch(sha256) else "")


def _has_library() -> bool:
    return importlib.util.find_spec("huggingface_hub") is not None


def _kept_token() -> str:
    """Of a login with `hf auth login`, "" for none or without huggingface_hub."""
    if not _has_library():
        return ""
    try:
        from huggingface_hub import get_token

        return str(get_token() or "")
    except Exception:  # whatever goes wrong in there: most models need no login
        return ""
