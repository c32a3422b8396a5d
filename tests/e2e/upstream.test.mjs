// Models that do not behave: that are silent, never end, or leave out the end of an answer; and what becomes of their connections.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { DIALECTS, Session, eventually, model, serve } from "./kit.mjs";

const OPEN = { LAYBY_OPEN: "true" };
const frame = (event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;

/** Answers with `pieces` for as long as the connection lasts. */
const endless = (pieces) => ({
  respond: async (res) => {
    res.writeHead(200, { "content-type": "text/event-stream" });
    const gone = once(res, "close");
    for (const piece of pieces()) {
      if (res.destroyed) return;
      if (!res.write(piece)) await Promise.race([new Promise((resolve) => res.once("drain", resolve)), gone]);
    }
  },
});

/** The frames of a text that never ends, as fast as they are read. */
const text = (delta) =>
  function* () {
    yield frame({ type: "response.output_item.added", output_index: 0, item: { type: "message" } });
    const piece = frame({ type: "response.output_text.delta", output_index: 0, content_index: 0, delta });
    const many = piece.repeat(Math.ceil(20_000 / piece.length));
    for (;;) yield many;
  };

/** Comments that never end. */
const nothing = function* () {
  const piece = `${": nothing to say\n".repeat(1000)}\n`;
  for (;;) yield piece;
};

const silent = { respond: () => {} };
const closed = (llm, n) => eventually(() => llm.requests[n]?.closed, `request ${n} is closed at the provider`, 10);

test("a model request that is given up before its headers is closed at the provider", async (t) => {
  const llm = await model(t, () => silent);
  const server = await serve(t, { ...OPEN, LAYBY_FIRST_BYTE_S: "1" });
  const session = await Session.on(server, llm);
  await session.say("go");
  await closed(llm, 0);
  await eventually(() => llm.requests.length === 2, "the request is made again");
  await session.post({ type: "interrupt", data: {} });
  await closed(llm, 1);
  await session.say("go");
  await eventually(() => llm.requests.length === 3, "the next turn asks");
  assert.equal((await session.request("DELETE")).status, 200);
  await closed(llm, 2);
});

test("a model request that has failed for good is closed at the provider", async (t) => {
  const llm = await model(t, () => silent);
  const server = await serve(t, { ...OPEN, LAYBY_TOTAL_S: "1" });
  const session = await Session.on(server, llm);
  await session.say("go");
  assert.equal((await session.status("failed")).last_task_error.code, "timeout");
  await closed(llm, 0);
  assert.equal(llm.requests.length, 1);
});

for (const [size, delta] of Object.entries({ small: "0123456789", large: "x".repeat(50_000) }))
  test(`a text without end in ${size} deltas ends its turn as incomplete, and the session works on`, async (t) => {
    const llm = await model(t, [endless(text(delta)), { text: "Back." }]);
    const session = await Session.on(await serve(t, OPEN), llm);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go");
    const { response } = await stream.wait(({ type }) => type === "response.incomplete", "the turn ends", 60);
    assert.deepEqual(response.incomplete_details, { reason: "max_output_bytes" });
    await closed(llm, 0);
    const length = stream.text.length;
    assert.ok(length > 4_000_000 && length <= 4 * 1024 * 1024, `${length} bytes were shown`);
    await session.say("again");
    await session.status("idle");
    assert.equal((await session.snapshot()).items.at(-1).content[0].text, "Back.");
  });

for (const [what, pieces] of Object.entries({ text: text("0123456789"), nothing }))
  test(`an interrupt is answered while a model sends ${what} as fast as it can`, async (t) => {
    const llm = await model(t, [endless(pieces)]);
    const session = await Session.on(await serve(t, OPEN), llm);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go");
    await eventually(() => llm.requests.length === 1, "the model is asked");
    if (what === "text") await eventually(() => stream.text.length > 100_000, "text is shown");
    const asked = Date.now();
    const answer = await session.post({ type: "interrupt", data: {} });
    const took = Date.now() - asked;
    t.diagnostic(`answered after ${took} ms`);
    assert.equal(answer.status, "interrupted");
    assert.ok(took < 5000, `answered after ${took} ms`);
    await closed(llm, 0);
  });

test("an answer that says nothing without end is a failure", async (t) => {
  const llm = await model(t, [endless(nothing)]);
  const session = await Session.on(await serve(t, OPEN), llm);
  await session.say("go");
  const { last_task_error: error } = await session.status("failed");
  assert.deepEqual([error.code, error.message], ["upstream_error", "the model provider sent more than 67108864 bytes"]);
  await closed(llm, 0);
});

for (const name of ["openai-chat", "anthropic"])
  test(`${name}: an answer that is whole but for its last mark is complete after a few seconds`, async (t) => {
    const dialect = DIALECTS[name];
    const pieces = [...dialect.answer({ text: "All said." }, 1)].filter(Boolean);
    const mark = pieces.findIndex((piece) => /finish_reason":"stop|stop_reason/.test(piece));
    assert.ok(mark > 0);
    const hangs = {
      respond: (res) => {
        res.writeHead(200, { "content-type": "text/event-stream" });
        for (const piece of pieces.slice(0, mark + 1)) res.write(piece);
      },
    };
    const llm = await model(t, [hangs]);
    const server = await serve(t, OPEN);
    const session = await Session.create(server, {
      agent: { name: "a", model: "m", provider: dialect.provider(llm.origin) },
    });
    await session.say("go");
    const { items } = await session.status("idle", "failed");
    assert.deepEqual([items.at(-1).status, items.at(-1).content[0].text], ["completed", "All said."]);
    await closed(llm, 0);
  });

test("the built-in model has a total time like any other", async (t) => {
  const server = await serve(t, { ...OPEN, LAYBY_TOTAL_S: "1" });
  const agent = { name: "slow", model: "m", provider: { type: "scripted", delta_ms: 60_000 } };
  const session = await Session.create(server, { agent });
  await session.say("one two three");
  assert.equal((await session.status("failed")).last_task_error.code, "timeout");
});
