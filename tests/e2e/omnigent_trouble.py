"""omnigent-client when not all goes well: interrupts, retries, failures, and a client that goes away over a parked call."""

import asyncio
import json

from omnigent_client import OmnigentError
from omnigent_client._sessions_chat import SessionsChat
from omnigent_kit import Dropped, bundle, connect


async def chat_of(client, tool=lambda info: "teal"):
    return await client.sessions_chat(bundle(), tool_callables={"lookup_widget": tool})


async def told(chat, text):
    try:
        return (await chat.query(text)).text
    except OmnigentError as error:
        return {"error": str(error), "code": error.code}


async def interrupted(client):
    """Interrupts a turn at its first text. Its last event, what another reader sees of it, and the turn after it."""
    chat = await chat_of(client)
    ready = asyncio.Event()
    seen = []

    async def watch():
        async for event in client.sessions.stream(chat.session_id):
            ready.set()
            seen.append(event.type)
            if seen[-2:] == ["session.interrupted", "session.status"]:
                return

    watching = asyncio.create_task(watch())
    await ready.wait()
    last, cancelled = None, False
    async for event in chat.send("Tell a long story."):
        last = event.type
        if event.type == "response.output_text.delta" and not cancelled:
            cancelled = True
            await chat.cancel()
    try:
        await asyncio.wait_for(watching, 5)
    except asyncio.TimeoutError:
        seen.append("nothing more")
    await chat.cancel()
    return {"last": last, "seen": seen[-3:], "status": (await chat.refresh()).status, "next": await told(chat, "Hello.")}


async def retried(client):
    chat = await chat_of(client)
    events = [event async for event in chat.send("Fail once.")]
    return [event.model_dump(mode="json") for event in events if event.type == "response.retry"]


async def failed(client):
    chat = await chat_of(client)
    text = await told(chat, "Fail.")
    error = (await chat.refresh()).last_task_error
    return {"text": text, "error": error, "next": await told(chat, "Hello.")}


async def parked():
    """One client leaves over a parked call, another one comes and answers it."""

    def leave(info):
        raise RuntimeError("the client is gone")

    async with connect() as client:
        chat = await chat_of(client, leave)
        try:
            await chat.query("Use the tool.")
        except RuntimeError:
            pass
    async with connect() as client:

        async def tools(agent_id, session_id=None):
            return [{"name": "lookup_widget", "runtime": "client"}]

        session = await client.sessions.get(chat.session_id)
        again = SessionsChat(client.sessions, None, None, session, {"lookup_widget": lambda info: "teal"}, tools)
        text = ""
        async for event in again.stream():
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                return {"status": session.status, "text": text}


async def main():
    dropped = Dropped()
    async with connect() as client:
        results = {
            "interrupted": await interrupted(client),
            "retried": await retried(client),
            "failed": await failed(client),
        }
    return {**results, "parked": await parked(), "dropped": dropped.events}


print(json.dumps(asyncio.run(main())))
