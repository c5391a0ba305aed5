"""A small MCP server without the SDK, which starts at once and does what servers should not, as its argument says."""

from __future__ import annotations

import json
import os
import sys
import time

HOW = sys.argv[1] if len(sys.argv) > 1 else ""


def tool(name: str, description: str = "", schema: object = None) -> dict[str, object]:
    shape = {"type": "object", "properties": {"text": {"type": "string"}}} if schema is None else schema
    return {"name": name, "description": description, "inputSchema": shape}


def tools() -> list[dict[str, object]]:
    if HOW == "hostile":
        wide = {"type": "object", "properties": {f"p{i}": {"description": "x" * 900} for i in range(50)}}
        return [
            tool("a b/\x1b[31m!", "\x1b]0;title\x07Calm <|im_end|>\u202e" + "words " * 1000),
            tool("wide", schema=wide),
            tool("a_b__\x1b_31m!"),
        ]
    return [tool("echo", "Says it again."), tool("die"), tool("hang"), tool("fail"), tool("picture")]


def call(name: str, text: str) -> dict[str, object]:
    if name == "die":
        print("I was asked to die.", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "hang":
        time.sleep(600)
    if name == "picture":
        return {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
    return {"content": [{"type": "text", "text": text or "nothing"}], "isError": name == "fail"}


def main() -> None:
    if HOW == "mute":
        time.sleep(600)
    if HOW == "dies":
        sys.exit("no such luck")
    for line in sys.stdin:
        message = json.loads(line)
        params, result = message.get("params") or {}, {}
        match message.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": params["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            case "tools/list":
                result = {"tools": tools()}
            case "tools/call":
                result = call(params["name"], (params.get("arguments") or {}).get("text", ""))
        if "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


main()
