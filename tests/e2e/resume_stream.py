"""Reads a turn with httpx-sse over as many connections as it has events, each resumed at the last id; answers its call.

Prints the events of each connection as a JSON list of lists.
"""

import json
import sys

import httpx
from httpx_sse import connect_sse

url, key = sys.argv[1:]
ENDS = ["response.completed", "response.failed"]


def post(client, event):
    client.post(f"{url}/events", json=event).raise_for_status()


def events(client, last):
    """The next connection's events up to the first one with a new id."""
    headers = {"Last-Event-ID": last} if last else {}
    params = None if last else {"after": "start"}
    with connect_sse(client, "GET", f"{url}/stream", params=params, headers=headers) as source:
        source.response.raise_for_status()
        for event in source.iter_sse():
            yield {"id": event.id, "event": event.event, "data": json.loads(event.data)}


connections = []
with httpx.Client(timeout=30, trust_env=False, headers={"authorization": f"Bearer {key}"}) as client:
    post(client, {"type": "message", "data": {"role": "user", "content": "Use the tool."}})
    last, over = "", False
    while not over:
        seen = []
        for event in events(client, last):
            seen.append(event)
            item = event["data"].get("item", {})
            if item.get("status") == "action_required":
                post(client, {"type": "function_call_output", "data": {"call_id": item["call_id"], "output": "teal"}})
            over = event["event"] in ENDS
            if event["id"] not in ("", last):
                last = event["id"]
                break
        connections.append(seen)
print(json.dumps(connections))
