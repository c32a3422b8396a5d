"""What omnigent-client does with sessions beside chatting. Prints what each function gave, or its error."""

import asyncio
import json
from dataclasses import asdict, is_dataclass

from omnigent_kit import TOOL, bundle, connect

results = {}


def plain(value):
    if isinstance(value, list):
        return [plain(one) for one in value]
    return asdict(value) if is_dataclass(value) else value


async def note(name, doing):
    try:
        value = await doing
    except Exception as error:
        results[name] = {"error": type(error).__name__, "code": getattr(error, "code", None), "message": str(error)}
        return None
    results[name] = plain(value)
    return value


async def mapped(client):
    """A turn of an agent that declares its tool as the package's own agents do: a mapping by name."""
    about = {"description": TOOL["description"], "parameters": TOOL["parameters"]}
    tools = bundle({TOOL["name"]: {"type": "function", "runtime": "client", **about}})
    chat = await client.sessions_chat(tools, tool_callables={"lookup_widget": lambda info: "teal"})
    return (await chat.query("Use the tool.")).text


async def main():
    async with connect() as client:
        sessions = client.sessions
        first = await note("create", sessions.create(bundle(), title="first", labels={"a": "b"}, workspace="/tmp"))
        chat = await client.sessions_chat(bundle(), tool_callables={"lookup_widget": lambda info: "teal"})
        second = chat.session_id
        await chat.query("Use the tool.")
        await note("get", sessions.get(second))
        await note("items", sessions.list_items(second, limit=2))
        await note("more_items", sessions.list_items(second, after=results["items"]["last_id"]))
        await note("list", sessions.list())
        await note("list_by_name", sessions.list(agent_name="widgets", order="asc", limit=1))
        await note("list_by_agent", sessions.list(agent_id=chat.agent_id, sort_by="updated_at"))
        await note("effort", sessions.set_reasoning_effort(second, reasoning_effort="low"))
        await note("no_effort", sessions.set_reasoning_effort(second, reasoning_effort=None))
        await note("model", sessions.set_model_override(second, model_override="other-model"))
        await note("no_model", sessions.set_model_override(second, model_override=None))
        await note("silent_model", sessions.set_model_override(second, model_override="other-model", silent=True))
        await note("no_silent_model", sessions.set_model_override(second, model_override=None, silent=True))
        await note("unbind", sessions.unbind_runner(second))
        await note("fork", sessions.fork(second, title="copy"))
        agent = await note("agent", sessions.resolve_agent("registered"))
        await note("from_agent", sessions.create_from_agent_id(agent.id, title="third"))
        await note("archive", sessions.set_archived(first.id, archived=True))
        await note("list_active", sessions.list(kind="any"))
        await note("list_mine", sessions.list(visibility="mine"))
        await note("list_archived", sessions.list(visibility="archived"))
        await note("list_all", sessions.list(include_archived=True))
        await note("missing", sessions.get("sess_0"))
        output = {"type": "function_call_output", "data": {"call_id": "no", "output": ""}}
        await note("unknown_call", sessions.post_event(second, output))
        await note("mapping", mapped(client))


try:
    asyncio.run(main())
except Exception as error:
    results["stopped"] = repr(error)
print(json.dumps(results))
