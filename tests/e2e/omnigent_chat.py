"""A chat with omnigent-client: three turns, the first with a tool that runs here. Prints what came of it."""

import asyncio
import json
import sys

from omnigent_client import StreamHooks
from omnigent_kit import Dropped, bundle, connect

marker = sys.argv[4]


async def main():
    dropped = Dropped()
    calls, ends = [], []

    async def lookup_widget(info):
        calls.append({"name": info.name, "arguments": info.arguments, "call_id": info.call_id})
        return json.dumps({"color": marker})

    hooks = StreamHooks(
        on_tool_call_end=lambda end: ends.append(end.output),
        on_response_end=lambda end: ends.append(end.status),
    )
    async with connect() as client:
        chat = await client.sessions_chat(bundle(), tool_callables={"lookup_widget": lookup_widget}, hooks=hooks)
        first = await chat.query("Which colour has widget 42?")
        second = await chat.query("Which colour was it?")
        third = [chunk async for chunk in await chat.query("Once more.", stream=True)]
        session = await chat.refresh()
    return {
        "calls": calls,
        "ends": ends,
        "texts": [first.text, second.text, "".join(third)],
        "session": [session.status, session.agent_name, session.llm_model],
        "items": [item["type"] for item in session.items],
        "dropped": dropped.events,
    }


print(json.dumps(asyncio.run(main())))
