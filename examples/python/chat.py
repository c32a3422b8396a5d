"""A chat with a tool, in plain httpx.

    npm start                                  # in another terminal, in the folder of layby
    pip install httpx
    python examples/python/chat.py             # or: LAYBY_URL=https://… LAYBY_KEY=… python … "your message"
"""

import json
import os
import sys
import time
import uuid

import httpx

URL = os.environ.get("LAYBY_URL", "http://127.0.0.1:8787")
KEY = os.environ.get("LAYBY_KEY")
MESSAGE = sys.argv[1] if len(sys.argv) > 1 else 'Please use weather {"city": "Lisbon"}'
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def weather(city: str) -> str:
    return f"It is sunny in {city}, 24 degrees."


def post(http: httpx.Client, path: str, body: dict) -> dict:
    """Posts once, however often it is sent: a repeated request with the same key does nothing."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    for attempt in range(5):
        try:
            return http.post(path, json=body, headers=headers).raise_for_status().json()
        except httpx.TransportError:
            if attempt == 4:
                raise
    raise AssertionError


def events(http: httpx.Client, session: str, cursor: str):
    """The events after a cursor. A connection that breaks is taken up again after the last event."""
    while True:
        try:
            # The server says something every 15 seconds, so 40 seconds of silence are a dead connection.
            timeout = httpx.Timeout(10, read=40)
            with http.stream("GET", f"/v1/sessions/{session}/stream", params={"after": cursor}, timeout=timeout) as answer:
                answer.raise_for_status()
                frame = {}
                for line in answer.iter_lines():
                    if line:
                        name, _, value = line.partition(": ")
                        frame[name] = value
                        continue
                    if frame.get("data") == "[DONE]":
                        return
                    cursor = frame.get("id", cursor)
                    if "data" in frame:
                        yield json.loads(frame["data"])
                    frame = {}
        except httpx.TransportError:
            time.sleep(1)


def main() -> None:
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx.Client(base_url=URL, headers=headers) as http:
        session = post(http, "/v1/sessions", {"title": "chat.py"})["id"]
        path = f"/v1/sessions/{session}/events"
        message = {"type": "message", "data": {"role": "user", "content": MESSAGE}, "tools": [WEATHER]}
        sent = post(http, path, message)
        print(f"> {MESSAGE}")
        for event in events(http, session, sent["cursor"]):
            kind, item = event["type"], event.get("item", {})
            if kind == "response.output_text.delta":
                print(event["delta"], end="", flush=True)
            elif kind == "response.output_item.done" and item.get("status") == "action_required":
                output = weather(**json.loads(item["arguments"]))
                print(f"[{item['name']} {item['arguments']} -> {output}]")
                post(http, path, {"type": "function_call_output", "data": {"call_id": item["call_id"], "output": output}})
            elif kind == "response.failed":
                sys.exit(event["response"]["error"]["message"])
            elif kind == "session.status" and event["status"] == "idle":
                print()
                return


if __name__ == "__main__":
    main()
