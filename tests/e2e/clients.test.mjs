// Clients that others wrote, as they are: omnigent-client, the package of the compatible session API; eventsource; httpx-sse.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { EventSource } from "eventsource";
import { python } from "../../scripts/python.mjs";
import { LOOK, Session, eventually, joined, model, request, serve } from "./kit.mjs";

const KEY = "key-of-acme";
const CREDENTIALS = { authorization: `Bearer ${KEY}` };
const VARS = { LAYBY_PRIVATE_HOSTS: "true", LAYBY_API_KEYS: `acme:${KEY}` };
const WIDGET = { name: "lookup_widget", arguments: '{"widget_id": 42}' };

/** Runs a script that lies beside this file and reads the JSON that it prints. */
async function run(script, ...args) {
  const path = fileURLToPath(new URL(script, import.meta.url));
  const env = { ...process.env, PYTHONDONTWRITEBYTECODE: "1" };
  const { stdout } = await promisify(execFile)(python().python, [path, ...args], {
    env,
    maxBuffer: 1 << 26,
    timeout: 60_000,
  });
  return JSON.parse(stdout);
}

/** A test that needs Python and, if it is about omnigent-client, one that is new enough for it. */
function inPython(name, { omnigent = false }, body) {
  test(name, async (t) => {
    const { why, old } = python();
    if (why) return t.skip(`no Python with the clients: ${why}`);
    if (omnigent && old) return t.skip(old);
    await body(t);
  });
}

const omnigent = (name, body) => inPython(`omnigent-client ${name}`, { omnigent: true }, body);

/** Answers by what the message says. */
function answers() {
  let calls = 0;
  const failures = new Set();
  return ({ input }) => {
    const text = input.at(-1).content?.[0]?.text ?? "";
    if (text === "Use the tool.") return { calls: [{ id: `call_${++calls}`, ...WIDGET }] };
    if (text === "Tell a long story.") return { text: "word ".repeat(200), pause: 20 };
    if (text === "Fail.") return { status: 400, raw: JSON.stringify({ error: { message: "no" } }) };
    if (text === "Fail once." && !failures.has(text)) {
      failures.add(text);
      return { raw: JSON.stringify({ error: { type: "overloaded_error", message: "Busy" } }) };
    }
    return { text: input.at(-1).output === undefined ? "Hello." : `It is ${input.at(-1).output}.` };
  };
}

omnigent("chats: its callable answers the model's call, and later turns still see the pair", async (t) => {
  const server = await serve(t, VARS);
  const llm = await model(t, [
    { thought: "A widget.", text: "Let me look. ", calls: [{ id: "call_1", ...WIDGET }] },
    { text: "It is teal." },
    { text: "It was teal." },
    { text: "Teal." },
  ]);
  const got = await run("omnigent_chat.py", server.url, KEY, llm.url, "teal-4711");
  const output = '{"color": "teal-4711"}';
  assert.deepEqual(got.calls, [{ name: "lookup_widget", arguments: { widget_id: 42 }, call_id: "call_1" }]);
  assert.deepEqual(got.texts, ["Let me look. It is teal.", "It was teal.", "Teal."]);
  assert.deepEqual(got.ends, [output, "completed", "completed", "completed"]);
  const turn = ["message", "reasoning", "message", "function_call", "function_call_output", "message"];
  assert.deepEqual(got.items, [...turn, "message", "message", "message", "message"]);
  for (const { body } of llm.requests.slice(1)) {
    const pair = body.input.filter(({ type }) => type.startsWith("function_call"));
    assert.deepEqual(
      pair.map(({ type, call_id, output }) => [type, call_id, output]),
      [
        ["function_call", "call_1", undefined],
        ["function_call_output", "call_1", output],
      ],
    );
  }
  assert.equal(llm.requests[0].headers.authorization, "Bearer secret-key");
  assert.equal(llm.requests.length, 4);
  assert.deepEqual(got.dropped, []);
  assert.deepEqual(got.session, ["idle", "widgets", "test-model"]);
});

omnigent("lists, reads, changes and forks sessions", async (t) => {
  const server = await serve(t, VARS);
  const llm = await model(t, answers());
  const provider = { type: "openai-responses", base_url: llm.url };
  const agent = { name: "registered", model: "m", provider };
  assert.equal((await request(server, "POST", "/v1/agents", agent, CREDENTIALS)).status, 201);
  const got = await run("omnigent_sessions.py", server.url, KEY, llm.url);

  const { create, get, items, more_items, fork, from_agent } = got;
  assert.deepEqual([create.status, create.title, create.labels], ["idle", "first", { a: "b" }]);
  const types = ["message", "function_call", "function_call_output", "message"];
  assert.deepEqual(
    get.items.map(({ type }) => type),
    types,
  );
  assert.deepEqual(
    [...items.data, ...more_items.data].map(({ type }) => type),
    types,
  );
  assert.deepEqual([items.has_more, more_items.has_more], [true, false]);
  assert.deepEqual([fork.title, fork.items.length], ["copy", 4]);
  assert.deepEqual(
    [from_agent.title, from_agent.agent_id, from_agent.agent_name],
    ["third", got.agent.id, "registered"],
  );
  assert.equal(got.missing.code, "not_found");
  assert.equal(got.unknown_call.code, "unknown_call_id");
  assert.equal(got.unbind.id, get.id);

  // All in one, so that everything that is wrong is said at once.
  const ids = (list) => (Array.isArray(list) ? list.map(({ id }) => id) : list);
  const [first, second, copy, third] = [create.id, get.id, fork.id, from_agent.id];
  const seen = {
    list: ids(got.list),
    list_by_name: ids(got.list_by_name),
    list_by_agent: Array.isArray(got.list_by_agent) ? ids(got.list_by_agent).sort() : got.list_by_agent,
    list_active: ids(got.list_active),
    list_mine: ids(got.list_mine),
    list_archived: ids(got.list_archived),
    list_all: ids(got.list_all),
    effort: [got.effort.reasoning_effort, got.no_effort.reasoning_effort],
    model: [got.model, got.no_model].map((session) => [session.llm_model, session.model_override]),
    silent_model: [got.silent_model, got.no_silent_model].map((session) => session.message ?? session.model_override),
    archived: got.archive.archived,
    mapping: got.mapping,
    stopped: got.stopped,
  };
  assert.deepEqual(seen, {
    list: [second, first],
    list_by_name: [first],
    list_by_agent: [first, second].sort(),
    list_active: [third, copy, second],
    list_mine: [third, copy, second],
    list_archived: [first],
    list_all: [third, copy, second, first],
    effort: ["low", null],
    model: [
      ["test-model", "other-model"],
      ["test-model", null],
    ],
    silent_model: ["other-model", null],
    archived: true,
    mapping: "It is teal.",
    stopped: undefined,
  });
});

omnigent("gets over interrupts, retries, failures and a client that goes away", async (t) => {
  const server = await serve(t, VARS);
  const llm = await model(t, answers());
  const got = await run("omnigent_trouble.py", server.url, KEY, llm.url);
  assert.deepEqual(got.parked, { status: "waiting", text: "It is teal." });
  assert.deepEqual(got.interrupted, {
    last: "response.cancelled",
    seen: ["response.cancelled", "session.interrupted", "session.status"],
    status: "idle",
    next: "Hello.",
  });
  assert.deepEqual(
    got.retried.map(({ attempt, error }) => [attempt, typeof error.code]),
    [[2, "string"]],
  );
  assert.equal(got.failed.error.code, "upstream_error");
  assert.deepEqual([got.failed.text, got.failed.next], ["", "Hello."]);
  assert.deepEqual(got.dropped, []);
});

test("eventsource with a session token resumes over the server's death without loss", async (t) => {
  const server = await serve(t, VARS);
  const long = "word ".repeat(300);
  const llm = await model(t, [
    { text: "Let me look. ", calls: [{ id: "call_1", name: "look" }] },
    { text: "Done." },
    { text: long, pause: 10 },
    { text: long, chunk: 400 },
  ]);
  const provider = { type: "openai-responses", base_url: llm.url };
  const session = await Session.create(server, { agent: { name: "test", model: "m", provider } }, CREDENTIALS);
  const made = await session.request("POST", "/tokens", { scopes: ["read"] });
  const address = `${server.url}/v1/sessions/${session.id}/stream`;
  const source = new EventSource(`${address}?after=start&access_token=${made.body.token}`);
  t.after(() => source.close());

  const events = [];
  let opened = 0;
  source.addEventListener("open", () => opened++);
  const types = ["session.heartbeat", "session.status", "session.input.consumed", "session.interrupted"];
  for (const kind of ["created", "in_progress", "retry", "completed", "failed"]) types.push(`response.${kind}`);
  for (const kind of ["output_item.added", "output_item.done"]) types.push(`response.${kind}`);
  for (const kind of ["output_text", "function_call_arguments"])
    types.push(`response.${kind}.delta`, `response.${kind}.done`);
  for (const type of types)
    source.addEventListener(type, ({ data, lastEventId }) => {
      if (type !== "session.heartbeat") events.push({ id: lastEventId, ...JSON.parse(data) });
    });
  const count = (type) => events.filter((event) => event.type === type).length;
  const settled = (turns) =>
    eventually(
      () => count("response.completed") === turns && events.at(-1).status === "idle",
      `the end of turn ${turns}`,
    );
  const reopened = (times) => eventually(() => opened === times, `connection ${times}`);

  // Killed while a call is parked, and answered before the reader is back.
  await reopened(1);
  await session.say("Use the tool.", [LOOK]);
  await session.status("waiting");
  await eventually(() => events.at(-1)?.status === "waiting", "the call is parked");
  await server.kill();
  await session.give("call_1", "seen");
  await session.status("idle");
  await settled(1);
  assert.equal(opened, 2);
  const whole = async () => {
    const { body } = await session.request("GET", "/events?after=start&limit=1000");
    return body.data;
  };
  assert.deepEqual(joined(events), joined(await whole()));

  // Killed in the middle of a text.
  await session.say("Tell a long story.");
  await eventually(() => events.at(-1).delta?.includes("word"), "the text has begun");
  await server.kill();
  await settled(2);
  assert.equal(opened, 3);
  const ids = events.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, "an event came twice");
  // What was shown of the text that died may be longer than what was kept of it; all else is the same, in the same order.
  const log = await whole();
  const finished = log.filter(({ item }) => item && !["in_progress", "incomplete"].includes(item.status));
  const lived = new Set([undefined, ...finished.map(({ item }) => item.id)]);
  const alive = (list) => joined(list).filter((event) => lived.has(event.item_id ?? event.item?.id));
  assert.deepEqual(alive(events), alive(log));
  assert.equal(joined(events).filter(({ type, delta }) => type.endsWith("text.delta") && delta === long).length, 1);
});

inPython("httpx-sse reads a turn event by event, each on a connection of its own", {}, async (t) => {
  const server = await serve(t, VARS);
  const llm = await model(t, [
    { text: "Let me look. ", chunk: 5, calls: [{ id: "call_1", ...WIDGET }] },
    { text: "It is teal, all over.", chunk: 5, pause: 5 },
  ]);
  const provider = { type: "openai-responses", base_url: llm.url };
  const tool = { type: "function", function: { name: WIDGET.name } };
  const agent = { name: "test", model: "m", provider, tools: [tool] };
  const session = await Session.create(server, { agent }, CREDENTIALS);
  const connections = await run("resume_stream.py", `${server.url}/v1/sessions/${session.id}`, KEY);
  for (const [first] of connections) assert.equal(first.event, "session.heartbeat", "a stream answers at once");
  const events = connections.flatMap((seen) => seen.slice(1));
  for (const { event, data } of events) assert.equal(event, data.type);
  const { body } = await session.request("GET", "/events?after=start&limit=1000");
  const end = body.data.findIndex(({ type }) => type === "response.completed");
  assert.deepEqual(joined(events.map(({ data }) => data)), joined(body.data.slice(0, end + 1)));
  const ids = events.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, "an event came twice");
  assert.equal(connections.length, ids.length);
});
