// A client-tool session on the real runtime.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LOOK, Session, eventually, model, request, serve } from "./kit.mjs";

test("a call parks, its output reaches the model verbatim, and the next turn still sees the pair", async (t) => {
  const server = await serve(t);
  const output = '{"color":  "blue"}\r\n\u2028 ';
  const llm = await model(t, [
    { text: "Wait. ", calls: [{ id: "call_1", name: "look", arguments: '{"id": 42}' }] },
    { text: "It is blue." },
    { text: "It was blue." },
  ]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("Which color?", [LOOK]);
  const { item } = await stream.call("call_1");
  assert.deepEqual([item.name, item.arguments], ["look", '{"id": 42}']);
  assert.equal((await session.snapshot()).status, "waiting");
  assert.equal((await session.give("call_1", output)).status, "accepted");
  await stream.status("idle");
  assert.equal(stream.text, "Wait. It is blue.");
  await session.say("Again?");
  await session.status("idle");
  const input = llm.requests[2].body.input;
  assert.deepEqual(
    input.map((entry) => entry.type),
    ["message", "message", "function_call", "function_call_output", "message", "message"],
  );
  assert.deepEqual(input[3], { type: "function_call_output", call_id: "call_1", output });
  assert.equal(llm.requests[2].body.tools, undefined, "the tools of a message do not outlive its turn");
});

for (const sockets of ["hibernate", "close"]) {
  test(`a parked session is put out of memory (${sockets}) and the same stream delivers the rest of the turn`, async (t) => {
    const server = await serve(t);
    const llm = await model(t, [{ calls: [{ id: "call_1", name: "look" }] }, { text: "Resumed." }]);
    const session = await Session.on(server, llm);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go", [LOOK]);
    await stream.call("call_1");
    await server.evict(session.id, sockets);
    assert.equal((await session.snapshot()).status, "waiting");
    assert.equal(llm.requests.length, 1, "waking asked the model");
    await session.give("call_1", "seen");
    await stream.status("idle");
    assert.equal(stream.text, "Resumed.");
    assert.equal(llm.requests.length, 2);
    assert.equal(stream.shape.filter((shape) => shape.endsWith("action_required")).length, 1);
    assert.equal(stream.ended, false);
  });
}

test("a parked session survives the death of the server, and a cursor resumes exactly", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [
    {
      text: "Hold on. ",
      calls: [
        { id: "call_1", name: "look" },
        { id: "call_2", name: "look" },
      ],
    },
    { text: "All good." },
  ]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("go", [LOOK]);
  await stream.call("call_2");
  await session.give("call_1", "one");
  await stream.wait(({ item }) => item?.type === "function_call_output", "the first output");
  const cursor = stream.lastId;
  await stream.close();
  await server.kill();
  const pending = (await session.snapshot()).pending_tool_calls;
  assert.deepEqual(
    pending.map((call) => call.call_id),
    ["call_2"],
  );
  const resumed = session.stream(t, cursor);
  await session.give("call_2", "two");
  await resumed.status("idle");
  assert.equal(stream.text + resumed.text, "Hold on. All good.");
  assert.equal(llm.requests.length, 2);
});

test("a turn that the server's death cut short is run again and ends once", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "never finished ".repeat(50), pause: 20 }, { text: "Second try." }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("go");
  await eventually(() => stream.text.length > 50, "some text");
  const cursor = stream.lastId;
  await stream.close();
  await server.kill();
  const resumed = session.stream(t, cursor);
  await resumed.status("idle");
  assert.ok(resumed.shape.includes("response.retry"), resumed.shape.join("\n"));
  assert.equal(resumed.shape.filter((shape) => shape.startsWith("response.completed")).length, 1);
  assert.ok(resumed.text.endsWith("Second try."), resumed.text);
  const answers = (await session.snapshot()).items.filter((item) => item.role === "assistant");
  assert.deepEqual([answers.at(-1).status, answers.at(-1).content[0].text], ["completed", "Second try."]);
  assert.ok(answers.slice(0, -1).every((item) => item.status === "incomplete"));
});

test("an interrupt closes the connection to the model and keeps what was said", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "word ".repeat(400), pause: 20 }, { text: "next" }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("talk");
  await eventually(() => stream.text.length > 20, "some text");
  const interrupted = await session.post({ type: "interrupt", data: {} });
  assert.equal(interrupted.status, "interrupted");
  await eventually(() => llm.requests[0].closed, "the model's connection is closed", 2);
  await stream.type("session.interrupted");
  await session.say("again");
  await session.status("idle");
  const texts = llm.requests[1].body.input.map((entry) => entry.content[0].text);
  assert.equal(texts[1], stream.text.slice(0, texts[1].length));
  assert.match(texts[2], /interrupted/);
});

test("a model's connection is used again, and left where the host does not end its answer", async (t) => {
  const server = await serve(t);
  const lingering = (linger) => ({ text: "short", linger });
  const llm = await model(t, [...Array.from({ length: 5 }, () => lingering(100)), lingering(Infinity)]);
  const session = await Session.on(server, llm);
  for (let n = 0; n < 6; n++) {
    await session.say("go");
    await eventually(() => llm.requests.length > n, `request ${n + 1}`);
    await session.status("idle");
    await eventually(() => llm.requests[n].over, `answer ${n + 1} is over`);
  }
  assert.deepEqual(
    llm.requests.map(({ closed }) => closed),
    [false, false, false, false, false, true],
  );
  const connections = new Set(llm.requests.map(({ port }) => port));
  assert.ok(connections.size < llm.requests.length, "every request had a connection of its own");
});

test("large outputs come back byte for byte, larger ones are refused and nothing is lost", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "call_1", name: "look" }] }, { text: "ok" }]);
  const session = await Session.on(server, llm);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const limit = 4 * 1024 * 1024;
  const refused = await session.request("POST", "/events", {
    type: "function_call_output",
    data: { call_id: "call_1", output: "x".repeat(limit + 1) },
  });
  assert.equal(refused.status, 413);
  assert.equal(refused.body.error.code, "payload_too_large");
  const output = "北".repeat(1_000_000) + "🙂".repeat(200_000);
  await session.give("call_1", output);
  await session.status("idle");
  assert.ok(llm.requests[1].body.input.at(-1).output === output, "the model got another output");
  await server.evict(session.id);
  const items = (await session.request("GET", "/items")).body.data;
  assert.ok(items[2].output === output, "the items show another output");
});

test("a deadline answers a call that nobody answered", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "call_1", name: "look" }] }, { text: "Went on." }]);
  const session = await Session.on(server, llm, { tool_timeout_s: 1 });
  await session.say("go", [LOOK]);
  await session.status("idle");
  assert.match(llm.requests[1].body.input.at(-1).output, /expired/);
  const late = await session.request("POST", "/events", {
    type: "function_call_output",
    data: { call_id: "call_1", output: "x" },
  });
  assert.deepEqual([late.status, late.body.error.code], [409, "call_cancelled"]);
});

test("a deleted session ends its streams and is gone", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  const deleted = await session.request("DELETE");
  assert.deepEqual(deleted.body, { id: session.id, object: "conversation.deleted", deleted: true });
  await stream.reading;
  assert.ok(stream.done, "the stream ended without [DONE]");
  for (const path of ["", "/items", "/stream", "/agent"])
    assert.equal((await session.request("GET", path)).status, 404);
});

test("a deployment is closed until it is opened, and tenants do not see each other", async (t) => {
  const closed = await serve(t, {});
  const answer = await request(closed, "POST", "/v1/sessions", {});
  assert.deepEqual([answer.status, answer.body.error.code], [503, "auth_not_configured"]);
  assert.equal((await request(closed, "GET", "/health")).status, 200);

  const server = await serve(t, { LAYBY_API_KEYS: "one:key-of-one,two:key-of-two" });
  const one = { authorization: "Bearer key-of-one" };
  const session = await Session.create(server, {}, one);
  assert.equal((await session.request("GET")).status, 200);
  const none = await request(server, "GET", `/v1/sessions/${session.id}`);
  assert.deepEqual([none.status, none.body.error.code], [401, "unauthorized"]);
  const other = await request(server, "GET", `/v1/sessions/${session.id}`, undefined, {
    authorization: "Bearer key-of-two",
  });
  assert.deepEqual([other.status, other.body.error.code], [404, "not_found"]);
});

test("errors say what was wrong, and carry the request's id", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const cases = [
    ["POST", "/v1/sessions", "{oops", 400, "invalid_input"],
    ["POST", "/v1/sessions", { agnet: {} }, 400, "invalid_input"],
    ["POST", "/v1/sessions", { agent_id: "ag_none" }, 404, "not_found"],
    ["PUT", `/v1/sessions/${session.id}`, {}, 405, "method_not_allowed"],
    ["GET", "/v2/sessions", undefined, 404, "not_found"],
    ["GET", "/v1/sessions/nope", undefined, 404, "not_found"],
    ["GET", `/v1/sessions/${session.id}/items?limit=0`, undefined, 400, "invalid_input"],
    ["GET", `/v1/sessions/${session.id}/stream?after=nonsense`, undefined, 400, "invalid_input"],
    [
      "GET",
      `/v1/sessions/${session.id}/stream?after=${session.id.slice(-6)}.9999.0.0`,
      undefined,
      400,
      "invalid_input",
    ],
    ["POST", `/v1/sessions/${session.id}/events`, { type: "make_coffee" }, 400, "invalid_input"],
  ];
  for (const [method, path, body, status, code] of cases) {
    const answer = await request(server, method, path, body, { "x-request-id": "my-request" });
    assert.deepEqual(
      [answer.status, answer.body.error?.code],
      [status, code],
      `${method} ${path} ${JSON.stringify(answer.body)}`,
    );
    assert.equal(answer.body.error.request_id, "my-request");
    assert.equal(answer.headers.get("x-request-id"), "my-request");
    assert.ok(answer.body.error.message.length > 10);
  }
  const other = await request(server, "POST", "/v1/sessions", "x", { "content-type": "text/plain" });
  assert.deepEqual([other.status, other.body.error.code], [415, "unsupported_media_type"]);
  const put = await request(server, "PUT", `/v1/sessions/${session.id}`, {});
  assert.equal(put.headers.get("allow"), "GET, PATCH, DELETE");
});

test("the model is shown all of a transcript, also of one that is larger than what an object keeps in memory", async (t) => {
  const server = await serve(t);
  const text = (n) => `${n} ${"lorem ipsum ".repeat(20_000)}`; // 240 KB
  const llm = await model(t, () => ({ text: "ok" }));
  const session = await Session.on(server, llm);
  const said = [];
  for (let n = 0; n < 6; n++) {
    const asleep = () =>
      server.evict(session.id).then(
        () => true,
        () => false,
      );
    if (n === 3) await eventually(asleep, "the object is out of memory");
    said.push(text(n));
    await session.say(said[n]);
    await eventually(() => llm.requests.length === n + 1, `request ${n + 1}`);
    await session.status("idle");
    const { input } = llm.requests[n].body;
    const texts = input.filter(({ role }) => role === "user").map(({ content }) => content[0].text);
    assert.deepEqual(
      texts.map((text) => text.length),
      said.map((text) => text.length),
    );
    assert.deepEqual(
      texts.map((text) => text[0]),
      said.map((text) => text[0]),
    );
    assert.equal(input.length, 2 * n + 1);
  }
});
