"""One OpenAI-compatible server: what it is, and requests to it, with failures in words.

Known apart are llama-server (`/props`, slots), vLLM and SGLang (their names in `/v1/models`) and Ollama; any other
server is one that streams chat completions. Keys are read here and nowhere else, and stand in no sentence. Must not
know: turns.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx
import msgspec

from ds4chat.engine.remote.stream import error_words

log = logging.getLogger(__name__)

Kind = Literal["llama-server", "vllm", "sglang", "ollama", "other"]

CONNECT_SECONDS = 10.0
ASK_SECONDS = 20.0
"""For short questions; a reply may take as long as it takes."""

DEFAULT_CTX = 8_192
"""Tokens of context, where neither the server nor the configuration tells."""

CONTINUES: frozenset[Kind] = frozenset({"llama-server", "vllm", "sglang", "ollama"})
"""Servers that go on with a last message of the assistant."""

MOST_BYTES = 4 * 2**20
"""Of an answer to a short question."""


class About(msgspec.Struct, frozen=True):
    """What the parent tells of the server (see `place.SETTINGS_VARIABLE`)."""

    name: str
    url: str
    model: str = ""
    n_ctx: int | None = None
    key_env: str = ""
    keyring: str = ""


class ServerError(Exception):
    """A request failed; the message is one sentence for the user.

    Attributes:
        status: of HTTP, 0 when there was no answer.
        words: what the server itself said.
        retry_after: seconds it asks to wait, None when it does not.
    """

    def __init__(
        self, sentence: str, status: int = 0, words: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.status, self.words, self.retry_after = status, words, retry_after


def read_key(about: About) -> str:
    """The key from the environment or the keyring, "" for none. Raises ServerError."""
    if about.keyring:
        service, _, user = about.keyring.partition("/")
        try:
            import keyring
        except ImportError:
            raise ServerError(
                f"The key of {about.name} is in the keyring, which needs the package keyring: "
                "`pip install 'ds4chat[keyring]'`."
            ) from None
        try:
            key: str | None = keyring.get_password(service, user)
        except Exception as error:  # whatever the backend of this desktop raises
            raise ServerError(
                f"The keyring could not be read for {about.name} ({type(error).__name__}): unlock it, or use key_env."
            ) from None
        if not key:
            raise ServerError(
                f"The keyring has no key for {about.name}: store one with `keyring set {service} {user}`."
            )
        return key
    key = os.environ.get(about.key_env, "") if about.key_env else ""
    if about.key_env and about.key_env != "DS4CHAT_ENGINE_KEY" and not key:
        raise ServerError(
            f"The key of {about.name} is to be in the variable {about.key_env}, which is not set."
        )
    return key


def is_local(host: str) -> bool:
    """Whether a host is this machine."""
    if host in ("localhost", "localhost.localdomain") or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Server:
    """The server. `connect` finds out what it is."""

    def __init__(self, about: About) -> None:
        """Raises ServerError when the key cannot be had."""
        self._key = key = read_key(about).strip()
        if not all("!" <= c <= "~" for c in key):
            raise ServerError(f"The key of {about.name} has characters that no key has: set it anew.")
        base = httpx.URL(about.url)
        path = base.path.rstrip("/")
        self._root = base.copy_with(path=path.removesuffix("/v1") or "/")
        self._api = base.copy_with(path=path if re.search(r"/v\d+$", path) else f"{path}/v1")
        self.about, self.name = about, about.name
        self.kind: Kind = "other"
        self.model, self.n_ctx, self.slots = about.model, about.n_ctx or 0, 0
        self.sends_key_in_clear = bool(key) and base.scheme == "http" and not is_local(base.host)
        self._client = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx.Timeout(ASK_SECONDS, connect=CONNECT_SECONDS),
            # A key must not follow a redirect to who knows where; a local server needs no proxy.
            follow_redirects=False,
            trust_env=not is_local(base.host),
        )

    def without_key(self, text: str) -> str:
        """A text without the key in it, which servers may repeat."""
        return text.replace(self._key, "[the key]") if self._key else text

    async def aclose(self) -> None:
        await self._client.aclose()

    async def connect(self) -> None:
        """Find out what the server is, which model answers and how much context it has. Raises ServerError."""
        listed = await self.ask("GET", "/models")
        rows = [row for row in _list(listed.get("data")) if isinstance(row.get("id"), str)]
        if not rows and not self.model:
            raise ServerError(f"{self.name} lists no models: name one with --model.")
        names = [row["id"] for row in rows]
        if self.model and names and self.model not in names:
            near = [name for name in names if self.model.casefold() in name.casefold()]
            if len(near) != 1:
                raise ServerError(
                    f'{self.name} has no model "{self.model[:80]}": choose one of {_listed(names)} with --model.'
                )
            self.model = near[0]
        self.model = self.model or names[0]
        row = next((row for row in rows if row["id"] == self.model), {})
        owner = str(row.get("owned_by", "")).lower()
        self.kind = "vllm" if owner == "vllm" else "sglang" if owner == "sglang" else "other"
        if self.kind == "other":
            await self._look_for_llama_server_or_ollama(owner)
        told = next(
            (
                v
                for key in ("max_model_len", "context_length")
                if isinstance(v := row.get(key), int) and v > 0
            ),
            0,
        )
        self.n_ctx = self.n_ctx or told or DEFAULT_CTX

    async def _look_for_llama_server_or_ollama(self, owner: str) -> None:
        try:
            props = await self.ask("GET", "/props", root=True)
        except ServerError:
            props = {}
        defaults = props.get("default_generation_settings")
        if isinstance(defaults, dict):
            self.kind = "llama-server"
            if not self.about.n_ctx and isinstance(defaults.get("n_ctx"), int):
                self.n_ctx = defaults["n_ctx"]
            self.slots = props["total_slots"] if isinstance(props.get("total_slots"), int) else 0
        elif owner == "library":
            self.kind = "ollama"

    async def ask(self, method: str, path: str, body: object = None, *, root: bool = False) -> dict[str, Any]:
        """A short question; the JSON object that answers it. Raises ServerError."""
        url = (self._root if root else self._api).copy_with()
        url = url.copy_with(
            path=url.path.rstrip("/") + path.partition("?")[0], query=path.partition("?")[2].encode() or None
        )
        async with self._sent(method, url, body) as response:
            data = await self._read(response)
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError):
            raise self._no_api("answers with something that is not JSON") from None
        if not isinstance(answer, dict):
            raise self._no_api("answers with something that is no JSON object")
        return answer

    @asynccontextmanager
    async def reply(self, body: dict[str, Any]) -> AsyncIterator[httpx.Response]:
        """A streamed chat completion, begun. Raises ServerError, also when the connection breaks inside."""
        url = self._api.copy_with(path=self._api.path + "/chat/completions")
        async with self._sent("POST", url, body, for_long=True) as response:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind not in ("text/event-stream", "application/x-ndjson", "text/plain", ""):
                raise self._no_api(f"answers with {kind[:40]} where a streamed reply was asked for")
            yield response

    @asynccontextmanager
    async def _sent(
        self, method: str, url: httpx.URL, body: object, *, for_long: bool = False
    ) -> AsyncIterator[httpx.Response]:
        more = {"timeout": httpx.Timeout(None, connect=CONNECT_SECONDS)} if for_long else {}
        try:
            async with self._client.stream(method, url, json=body, **more) as response:  # type: ignore[arg-type]
                if response.is_redirect:
                    raise ServerError(
                        f"{self.name} sends us on to another address: set the url to the one that answers.",
                        response.status_code,
                    )
                if response.status_code >= 400:
                    raise await self._refused(response)
                yield response
        except httpx.ConnectTimeout:
            raise ServerError(
                f"{self.name} does not answer: see that the server at {self._place} runs and can be reached."
            ) from None
        except httpx.ConnectError as error:
            raise ServerError(
                f"There is no connection to {self._place} ({_reason(error)}): start the server there, or correct "
                "its url."
            ) from None
        except httpx.TimeoutException:
            raise ServerError(f"{self.name} took too long to answer: try again.") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            log.info("%s: %s", type(error).__name__, self.without_key(str(error)))
            raise ServerError(f"The connection to {self.name} broke off: try again.") from None

    @property
    def _place(self) -> str:
        host = f"[{self._api.host}]" if ":" in self._api.host else self._api.host
        return f"{self._api.scheme}://{host}" + (f":{self._api.port}" if self._api.port else "")

    async def _read(self, response: httpx.Response) -> bytes:
        data = bytearray()
        async for piece in response.aiter_bytes():
            data += piece
            if len(data) > MOST_BYTES:
                raise self._no_api("answers with more than a short answer may be")
        return bytes(data)

    def _no_api(self, what: str) -> ServerError:
        return ServerError(f"{self.name} {what}: its url must be that of an OpenAI-compatible server.")

    async def _refused(self, response: httpx.Response) -> ServerError:
        status = response.status_code
        try:
            words = error_words(json.loads((await self._read(response))[:100_000]))
        except (ValueError, RecursionError, ServerError):
            words = ""
        said = f" ({words})" if words else ""
        key = self.about.key_env or (
            f"keyring entry {self.about.keyring}" if self.about.keyring else "its key"
        )
        if status in (401, 403):
            sentence = f"{self.name} refuses the key{said}: see to {key}."
        elif status == 404:
            sentence = f"{self.name} does not know what was asked for{said}: see to its url and its model."
        elif status == 429:
            sentence = f"{self.name} has too many requests{said}: wait a while and send again."
        elif status == 503:
            sentence = f"{self.name} is not ready{said}: wait a while and send again."
        elif status >= 500:
            sentence = f"{self.name} failed with {status}{said}: send again, or look into its log."
        else:
            sentence = f"{self.name} refuses the request with {status}{said}."
        return ServerError(sentence, status, words, _seconds(response.headers.get("retry-after")))


def _seconds(header: str | None) -> float | None:
    try:
        seconds = float(header) if header else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < 1e6 else None


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _listed(names: list[str], most: int = 8) -> str:
    shown = ", ".join((name.rpartition("/")[2] or name)[:60] for name in names[:most])
    return shown + (", …" if len(names) > most else "")


def _reason(error: BaseException) -> str:
    text = str(error).lower()
    for part, words in (
        ("name or service", "its name is not known"),
        ("nodename", "its name is not known"),
        ("temporary failure", "its name is not known"),
        ("refused", "connection refused"),
        ("certificate", "its certificate is not trusted"),
        ("ssl", "no secure connection"),
        ("unreachable", "not reachable"),
    ):
        if part in text:
            return words
    return "connection failed"
