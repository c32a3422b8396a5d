// The same request twice has the effect of one.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LOOK, Session, model, request, serve } from "./kit.mjs";

const message = (content) => ({ type: "message", data: { role: "user", content } });

test("a repeated request is answered as the first time: at once, at the same time, after eviction and after death", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "Once." }, { text: "never" }]);
  const session = await Session.on(server, llm);
  const post = (body = message("hello")) => session.request("POST", "/events", body, { "idempotency-key": "key-1" });
  const answers = await Promise.all([post(), post(), post(), post()]);
  await session.status("idle");
  answers.push(await post());
  await server.evict(session.id);
  answers.push(await post());
  await server.kill();
  answers.push(await post());
  for (const { status, body } of answers) assert.deepEqual([status, body], [202, answers[0].body]);
  const replayed = answers.map(({ headers }) => headers.get("idempotent-replayed")).filter(Boolean);
  assert.deepEqual(replayed, Array(answers.length - 1).fill("true"));
  const other = await post(message("something else"));
  assert.deepEqual([other.status, other.body.error.code], [409, "idempotency_key_reused"]);
  assert.equal((await session.snapshot()).items.length, 2);
  assert.equal(llm.requests.length, 1);
});

test("a message's own id is a key", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "Once." }, { text: "Twice." }]);
  const session = await Session.on(server, llm);
  const post = (id, content) =>
    session.request("POST", "/events", { type: "message", data: { role: "user", content, id } });
  const first = await post("m-1", "hello");
  await session.status("idle");
  assert.deepEqual((await post("m-1", "hello")).body, first.body);
  assert.equal((await post("m-1", "other")).body.error.code, "idempotency_key_reused");
  assert.notEqual((await post("m-2", "hello")).body.item_id, first.body.item_id);
  await session.status("idle");
  assert.equal(llm.requests.length, 2);
});

test("a request that was refused may be made again under its key", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "c", name: "look" }] }, { text: "ok" }]);
  const session = await Session.on(server, llm);
  const output = { type: "function_call_output", data: { call_id: "c", output: "x" } };
  const post = () => session.request("POST", "/events", output, { "idempotency-key": "early" });
  assert.equal((await post()).status, 404);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  assert.equal((await post()).body.status, "accepted");
  assert.equal((await post()).body.status, "accepted");
});

test("a session is made once per key and tenant", async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "one:key-of-one,two:key-of-two" });
  const create = (tenant, body) =>
    request(server, "POST", "/v1/sessions", body, {
      authorization: `Bearer key-of-${tenant}`,
      "idempotency-key": "make",
    });
  const [first, again] = await Promise.all([create("one", { title: "a" }), create("one", { title: "a" })]);
  assert.deepEqual([first.status, again.status, again.body], [201, 201, first.body]);
  assert.equal(first.headers.get("location"), `/v1/sessions/${first.body.id}`);
  assert.equal((await create("one", { title: "b" })).body.error.code, "idempotency_key_reused");
  assert.notEqual((await create("two", { title: "a" })).body.id, first.body.id);
  const bad = await request(
    server,
    "POST",
    "/v1/sessions",
    {},
    { authorization: "Bearer key-of-one", "idempotency-key": "a b" },
  );
  assert.deepEqual([bad.status, bad.body.error.param], [400, "Idempotency-Key"]);
});
