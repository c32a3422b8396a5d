"""Reads a session's stream with httpx-sse until the session rests; prints the events as a JSON list."""

import json
import sys

import httpx
from httpx_sse import connect_sse

url, last = sys.argv[1], sys.argv[2]
events = []
with httpx.Client(timeout=30, trust_env=False) as client:
    with connect_sse(client, "GET", url, params={"after": "start"}) as source:
        for event in source.iter_sse():
            events.append({"id": event.id, "event": event.event, "data": event.data})
            if event.id == last:
                break
print(json.dumps(events))
