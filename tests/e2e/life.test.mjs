// How sessions begin, change, are copied, and end.
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { LOOK, Session, eventually, model, request, serve } from "./kit.mjs";

/** The database of the only session on a server. */
function database(server) {
  const folder = join(server.storage, "do", "layby-Session");
  const [name] = readdirSync(folder).filter((file) => /^[0-9a-f]{64}\.sqlite$/.test(file));
  return join(folder, name);
}

test("PATCH changes what it names, at once, under a key once, and the next request heeds it", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "one" }, { text: "two" }]);
  const session = await Session.on(server, llm);
  const patch = async (body, headers) => (await session.request("PATCH", "", body, headers)).body;
  let changed = await patch({ title: "Title", labels: { a: "1", b: "2" }, archived: true, runner_id: "r" });
  assert.deepEqual(
    [changed.id, changed.title, changed.labels, changed.archived],
    [session.id, "Title", { a: "1", b: "2" }, true],
  );
  changed = await patch({ labels: { a: "", c: "3" }, model_override: "other", reasoning_effort: "low" });
  assert.deepEqual([changed.labels, changed.model], [{ b: "2", c: "3" }, "other"]);
  await session.say("hi");
  await session.status("idle");
  assert.deepEqual([llm.requests[0].body.model, llm.requests[0].body.reasoning.effort], ["other", "low"]);
  await server.evict(session.id);
  const back = await patch({ title: null, model_override: null, reasoning_effort: null });
  assert.deepEqual([back.title, back.model], [null, "test-model"]);
  await session.say("hi");
  await session.status("idle");
  assert.deepEqual([llm.requests[1].body.model, llm.requests[1].body.reasoning], ["test-model", undefined]);
  const key = { "idempotency-key": "once" };
  await patch({ title: "kept" }, key);
  await patch({ title: "later" });
  assert.equal((await patch({ title: "kept" }, key)).title, "kept", "the first answer");
  assert.equal((await session.snapshot()).title, "later");
  const wrong = await session.request("PATCH", "", { titel: "x" });
  assert.deepEqual([wrong.status, wrong.body.error.param], [400, "titel"]);
});

test("a session begins with the items that it is given, and a last user message starts a turn", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "Still 4." }]);
  const items = [
    { type: "message", role: "user", content: "What is 2 + 2?" },
    { type: "function_call", call_id: "sum", name: "add", arguments: '{"a": 2,"b": 2}' },
    { type: "function_call_output", call_id: "sum", output: "4" },
    { type: "message", role: "assistant", content: "4." },
    { type: "message", role: "user", content: "Sure?" },
  ];
  const provider = { type: "openai-responses", base_url: llm.url };
  const agent = { name: "test", model: "m", provider };
  const session = await Session.create(server, { agent, initial_items: items });
  const snapshot = await session.status("idle");
  assert.equal(snapshot.items.at(-1).content[0].text, "Still 4.");
  const [question, call, output] = llm.requests[0].body.input;
  assert.deepEqual(question, { type: "message", role: "user", content: [{ type: "input_text", text: "What is 2 + 2?" }] });
  // An id that the host did not make is shown to it in the form that the strictest host takes.
  const call_id = call.call_id;
  assert.match(call_id, /^[a-zA-Z0-9]{9}$/);
  assert.deepEqual(call, { type: "function_call", call_id, name: "add", arguments: '{"a": 2,"b": 2}' });
  assert.deepEqual(output, { type: "function_call_output", call_id, output: "4" });
  const bad = await request(server, "POST", "/v1/sessions", { agent, initial_items: items.toSpliced(2, 1) });
  assert.deepEqual([bad.status, bad.body.error.param], [400, "initial_items[2]"]);
  assert.match(bad.body.error.message, /call sum has no output/);
});

test("a copy has the transcript up to a turn, and what was open is closed in it alone", async (t) => {
  const server = await serve(t);
  const big = "北".repeat(700_000);
  const llm = await model(t, [
    { text: "One." },
    { calls: [{ id: "a", name: "look" }] },
    { text: "In the copy." },
    { text: "In the second." },
    { text: "In the original." },
  ]);
  const session = await Session.on(server, llm, {}, { title: "Original" });
  const first = await session.say(big);
  await session.status("idle");
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const fork = async (body, headers) => {
    const answer = await session.request("POST", "/fork", body, headers);
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    assert.equal(answer.headers.get("location"), `/v1/sessions/${answer.body.id}`);
    return [new Session(server, answer.body.id), answer];
  };
  const [copy, { body }] = await fork({ title: "Copy" });
  assert.deepEqual([body.title, body.status, body.pending_tool_calls], ["Copy", "idle", []]);
  assert.deepEqual(
    body.items.map(({ type, status }) => [type, status]),
    [
      ["message", "completed"],
      ["message", "completed"],
      ["message", "completed"],
      ["function_call", "cancelled"],
      ["function_call_output", "cancelled"],
      ["message", "completed"],
    ],
  );
  await copy.say("and now?");
  await copy.status("idle");
  assert.ok(llm.requests[2].body.input[0].content[0].text === big, "a large text did not come over");
  const [early] = await fork({ up_to_response_id: first.response_id }, { "idempotency-key": "f" });
  assert.equal((await early.snapshot()).items.length, 2);
  const [again] = await fork({ up_to_response_id: first.response_id }, { "idempotency-key": "f" });
  assert.equal(again.id, early.id);
  await server.kill();
  await early.say("here?");
  const events = (await early.request("GET", "/events?limit=1000")).body.data;
  await early.status("idle");
  assert.ok(events.length > 5, "the copy has the events too");
  await session.give("a", "seen");
  assert.equal((await session.status("idle")).items.at(-1).content[0].text, "In the original.");
  const unknown = await session.request("POST", "/fork", { up_to_response_id: "resp_nope" });
  assert.deepEqual([unknown.status, unknown.body.error.param], [404, "up_to_response_id"]);
  const nobody = await request(server, "POST", `/v1/sessions/sess_${"0".repeat(32)}/fork`, {});
  assert.deepEqual([nobody.status, nobody.body.error.code], [404, "not_found"]);
});

test("a session whose time is over is erased by itself, with its streams", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, { expires_in: 2, title: "brief" });
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  assert.ok((await session.snapshot()).expires_at > Date.now() / 1000 - 1);
  await stream.reading;
  assert.ok(stream.done, "the stream ended without [DONE]");
  assert.equal((await session.request("GET")).status, 404);
  await server.stop();
  const left = new DatabaseSync(database(server)).prepare("SELECT name FROM sqlite_master").all();
  assert.deepEqual(left, []);
});

test("nothing is left of a deleted session", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, { title: "zebra-title" });
  await session.post({ type: "message", data: { role: "user", content: "zebra-text", id: "zebra-key" } });
  await session.status("idle");
  await session.request("DELETE");
  await server.stop();
  const file = database(server);
  assert.deepEqual(new DatabaseSync(file).prepare("SELECT name FROM sqlite_master").all(), []);
  for (const end of ["", "-wal"])
    assert.ok(!existsSync(file + end) || !readFileSync(file + end).includes("zebra"), `the file${end} still has it`);
});

test("answers are forgotten by the alarm when they have been kept long enough", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "ok" }]);
  const session = await Session.on(server, llm, { tool_timeout_s: 3 });
  await session.post({ type: "message", data: { role: "user", content: "go", id: "old" }, tools: [LOOK] });
  await session.status("waiting");
  await session.request("PATCH", "", { title: "x" }, { "idempotency-key": "new" });
  await server.stop();
  const db = new DatabaseSync(database(server));
  db.prepare("UPDATE answer SET at = at - 49 * 3600 WHERE name = 'message old'").run();
  db.close();
  await server.start();
  await session.status("idle");
  await server.stop();
  const kept = new DatabaseSync(database(server)).prepare("SELECT name FROM answer").all();
  assert.deepEqual(
    kept.map(({ name }) => name),
    ["patch new"],
  );
});

test("a session of 5 000 items wakes by reading as little as one of two", async (t) => {
  const server = await serve(t);
  const rows = async (count) => {
    const items = Array.from({ length: count }, (_, n) => ({
      role: n % 2 ? "assistant" : "user",
      content: `text ${n}`,
    }));
    const session = await Session.create(server, { initial_items: items });
    await server.evict(session.id);
    assert.equal((await session.request("GET", "?include_items=false")).status, 200);
    const line = await eventually(
      () => server.logs.map(({ message }) => message).find((line) => line.startsWith(`${session.id} woke`)),
      "the line that tells what was read",
    );
    const page = await session.request("GET", `/items?order=desc&limit=2`);
    assert.equal(page.body.data[0].content[0].text, `text ${count - 1}`);
    return Number(/(\d+) rows read/.exec(line)[1]);
  };
  const [few, many] = [await rows(2), await rows(5000)];
  assert.equal(many, few);
  assert.ok(few < 20, `${few} rows read`);
});

test("texts of every size come back byte for byte, images too", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {
    agent: { name: "quiet", provider: { type: "scripted", script: [{}, {}, {}, {}, {}, {}] } },
  });
  const sizes = [999_999, 1_000_001, 1_900_000, 2_100_000, 4_194_304];
  const texts = sizes.map((size) => "🙂".repeat(Math.floor(size / 4)) + "x".repeat(size % 4));
  const image = { type: "input_image", image_url: `data:image/png;base64,${"A".repeat(3_000_000)}` };
  for (const text of texts) await session.say(text);
  await session.say([{ type: "input_text", text: "look" }, image]);
  await session.status("idle");
  await server.evict(session.id);
  const items = [];
  for (let more = true; more; ) {
    const after = items.length ? `?after=${items.at(-1).id}` : "";
    const page = (await session.request("GET", `/items${after}`)).body;
    assert.ok(page.data.length > 0);
    items.push(...page.data);
    more = page.has_more;
  }
  const content = items.filter(({ role }) => role === "user").map((item) => item.content);
  for (const [n, text] of texts.entries()) assert.ok(content[n][0].text === text, `${sizes[n]} bytes`);
  assert.ok(content.at(-1)[1].image_url === image.image_url, "the image");
});

test("a text with half a character is refused with its place, and nothing is lost", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const body = String.raw`{"type":"message","data":{"role":"user","content":"half \ud83d of it"}}`;
  const { status, body: answer } = await session.request("POST", "/events", body);
  assert.deepEqual([status, answer.error.code], [400, "invalid_input"]);
  assert.match(answer.error.message, /column 63; an unpaired surrogate/);
  await session.say("whole 🙂");
  assert.match((await session.status("idle")).items[1].content[0].text, /whole 🙂/);
});
