// What clients can do to a turn while it is open: steer it, take messages back, cancel a call, say that a tool failed.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LOOK, Session, model, serve } from "./kit.mjs";

const message = (content, more = {}) => ({ type: "message", data: { role: "user", content }, ...more });
const types = (request) => request.body.input.map((item) => item.type);

test("a steering message joins the turn after the outputs, over eviction too, and is read in its place", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "Both." }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  const first = await session.say("go", [LOOK]);
  await session.status("waiting");
  const steered = await session.post(message("also this", { on_busy: "steer" }));
  assert.deepEqual([steered.status, steered.response_id], ["steered", first.response_id]);
  assert.deepEqual(
    (await session.snapshot()).queue.map(({ item_id }) => item_id),
    [steered.item_id],
  );
  await server.evict(session.id);
  await session.give("a", "seen");
  await stream.status("idle");
  assert.deepEqual(types(llm.requests[1]), ["message", "function_call", "function_call_output", "message"]);
  const consumed = stream.events.filter(({ type }) => type === "session.input.consumed");
  assert.deepEqual(consumed[1].data.item_id, steered.item_id);
  const items = (await session.snapshot()).items;
  assert.deepEqual(
    items.map(({ type, response_id, status }) => [type, response_id, status]),
    ["message", "function_call", "function_call_output", "message", "message"].map((type) => [
      type,
      first.response_id,
      "completed",
    ]),
  );
});

test("a steering message whose turn is stopped gets a turn, and its item says so", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "Late." }]);
  const session = await Session.on(server, llm);
  const first = await session.say("go", [LOOK]);
  await session.status("waiting");
  const steered = await session.post(message("too late", { on_busy: "steer" }));
  await session.post({ type: "interrupt", data: {} });
  const snapshot = await session.status("idle");
  const item = snapshot.items.find(({ id }) => id === steered.item_id);
  assert.equal(item.response_id, snapshot.last_response.id);
  assert.notEqual(item.response_id, first.response_id);
  assert.equal(snapshot.items.at(-1).content[0].text, "Late.");
});

test("a queued message can be withdrawn, once and under a key", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "One." }]);
  const session = await Session.on(server, llm);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const { item_id } = await session.say("second thoughts");
  const take = (key) => session.request("DELETE", `/queue/${item_id}`, undefined, key && { "idempotency-key": key });
  const [once, again] = [await take("k"), await take("k")];
  assert.deepEqual([once.status, once.body.id, once.body.deleted], [200, item_id, true]);
  assert.deepEqual([again.body, again.headers.get("idempotent-replayed")], [once.body, "true"]);
  const gone = await take();
  assert.deepEqual([gone.status, gone.body.error.code], [404, "not_found"]);
  await session.give("a", "x");
  const { items, queue } = await session.status("idle");
  assert.deepEqual([items.length, queue, llm.requests.length], [4, [], 2]);
});

test("one of two calls is cancelled, the other fails, and the model hears of both", async (t) => {
  const server = await serve(t);
  const calls = [
    { id: "a", name: "look" },
    { id: "b", name: "look" },
  ];
  const llm = await model(t, [{ calls }, { text: "Well." }]);
  const session = await Session.on(server, llm);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const cancelled = await session.request("DELETE", "/calls/a");
  assert.deepEqual([cancelled.status, cancelled.body.status, cancelled.body.remaining], [200, "cancelled", 1]);
  assert.equal((await session.request("DELETE", "/calls/a")).status, 200);
  assert.equal((await session.request("DELETE", "/calls/nope")).body.error.code, "unknown_call_id");
  const failed = { type: "function_call_output", data: { call_id: "b", output: "no such element", is_error: true } };
  await session.post(failed);
  assert.equal((await session.post(failed)).status, "duplicate");
  await session.status("idle");
  assert.equal((await session.request("DELETE", "/calls/b")).body.error.code, "call_already_resolved");
  const [first, second] = llm.requests[1].body.input.filter(({ type }) => type === "function_call_output");
  assert.match(first.output, /cancelled/);
  assert.deepEqual(second, { type: "function_call_output", call_id: "b", output: "no such element" });
  const items = (await session.request("GET", "/items")).body.data;
  assert.deepEqual(
    items.filter(({ call_id }) => call_id).map(({ type, status, is_error }) => [type, status, is_error]),
    [
      ["function_call", "cancelled", undefined],
      ["function_call", "completed", undefined],
      ["function_call_output", "cancelled", true],
      ["function_call_output", "completed", true],
    ],
  );
  const alone = await session.request("GET", `/items?limit=1&after=${items[0].id}`);
  assert.equal(alone.body.data[0].status, "cancelled", "a call's status does not depend on the page");
});

test("a tool's own deadline comes before the agent's", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "Went on." }]);
  const session = await Session.on(server, llm, { tool_timeout_s: 3600 });
  await session.say("go", [{ ...LOOK, tool_timeout_s: 1 }]);
  const { pending_tool_calls } = await session.status("waiting");
  assert.ok(pending_tool_calls[0].expires_at - pending_tool_calls[0].created_at <= 2);
  await session.status("idle");
  assert.match(llm.requests[1].body.input.at(-1).output, /expired/);
  assert.equal(llm.requests[0].body.tools[0].tool_timeout_s, undefined);
});

test("a call that is answered in the very moment in which it is seen is never unknown, a thousand times", async (t) => {
  const server = await serve(t);
  const runs = 250;
  const script = Array.from({ length: runs }, (_, n) => ({ tool_calls: [{ name: "look", call_id: `call_${n}` }] }));
  const provider = { type: "scripted", script: script.flatMap((call) => [call, { text: "ok" }]), delta_ms: 0 };

  async function client() {
    const session = await Session.create(server, { agent: { name: "quick", provider } });
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    const answers = [];
    let idle = () => {};
    stream.onEvent = ({ type, item, status, id }) => {
      if (item?.status === "action_required") answers.push(session.give(item.call_id, "at once"));
      if (type === "session.status" && status === "idle" && id) idle();
    };
    for (let n = 0; n < runs; n++) {
      const ended = new Promise((resolve) => (idle = resolve));
      await session.say("again", [LOOK]);
      await ended;
    }
    return Promise.all(answers);
  }

  for (const answers of await Promise.all([client(), client(), client(), client()])) {
    assert.equal(answers.length, runs);
    for (const { status, remaining } of answers) assert.deepEqual([status, remaining], ["accepted", 0]);
  }
});
