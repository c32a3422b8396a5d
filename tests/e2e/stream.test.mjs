// The stream: nothing lost, nothing twice, nothing that costs.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { LOOK, Session, eventually, joined, model, request, serve } from "./kit.mjs";

/** A number from 0 to `below`, the same in every run. */
function dice(seed) {
  let state = seed;
  return (below) => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return Math.floor((state / 2147483648) * below);
  };
}

/** Reads the stream in pieces: resumes at the last id, reads a few events, drops the connection, until `isOver`. */
async function readInPieces(t, session, cursor, roll, isOver, between = async () => {}) {
  const events = [];
  let resumes = 0;
  for (;;) {
    const stream = session.stream(t, cursor);
    const wanted = 1 + roll(4);
    await eventually(
      () =>
        stream.events.filter((event) => event.id).length >= wanted ||
        stream.ended ||
        isOver(events.concat(stream.events)),
      "some events",
    );
    await stream.close();
    events.push(...stream.events.filter((event) => event.id));
    cursor = stream.lastId ?? cursor;
    resumes++;
    if (isOver(events)) return { events, resumes };
    await between(resumes);
  }
}

const ends = (events) =>
  events.filter((event) => event.type === "session.status" && event.status !== "running" && event.status !== "waiting")
    .length;

test("a reader that is torn off all the time gets what a steady one gets, over evictions too", async (t) => {
  const server = await serve(t);
  const turns = 6;
  const script = [];
  for (let turn = 0; turn < turns; turn++) {
    script.push({
      text: `Turn ${turn}: 北京 🙂 ${"words and more words ".repeat(20)}`,
      pause: 8,
      calls: [{ id: `call_${turn}`, name: "look" }],
    });
    script.push({ text: `And then ${"it went on ".repeat(20)}`, pause: 8 });
  }
  const llm = await model(t, script);
  const session = await Session.on(server, llm);
  const steady = session.stream(t);
  await steady.type("session.heartbeat");
  const start = (await session.snapshot()).cursor;
  const roll = dice(7);
  const work = (async () => {
    for (let turn = 0; turn < turns; turn++) {
      await session.say(`go ${turn}`, [LOOK]);
      await steady.call(`call_${turn}`);
      await server.evict(session.id, roll(2) ? "hibernate" : "close");
      await session.give(`call_${turn}`, `out ${turn}`);
      await eventually(() => ends(steady.events.filter((event) => event.id)) > turn, "the turn's end");
    }
  })();
  const pieces = await Promise.all(
    [1, 2, 3, 4].map((seed) => readInPieces(t, session, start, dice(seed), (events) => ends(events) === turns)),
  );
  await work;
  const resumes = pieces.reduce((sum, piece) => sum + piece.resumes, 0);
  t.diagnostic(`${resumes} resumes`);
  assert.ok(resumes >= 200, `only ${resumes} resumes`);
  const whole = steady.content;
  for (const { events } of pieces) {
    const got = joined(events);
    const at = whole.findIndex((event, n) => !isDeepStrictEqual(event, got[n]));
    assert.deepEqual([at, got[at]], [-1, undefined], JSON.stringify(whole[at]));
    assert.equal(got.length, whole.length);
  }
  assert.equal(llm.requests.length, 2 * turns);
});

test("over the server's deaths a reader gets what the log has, but for text that died unfinished", async (t) => {
  const server = await serve(t);
  const llm = await model(
    t,
    Array.from({ length: 60 }, (_, n) => ({ text: `Answer ${n}: ${"some words ".repeat(30)}`, pause: 10 })),
  );
  const session = await Session.on(server, llm);
  const start = (await session.snapshot()).cursor;
  const turns = 5;
  let kills = 0;
  const over = (events) => ends(events) === turns;
  const reading = readInPieces(t, session, start, dice(11), over);
  const work = (async () => {
    for (let turn = 0; turn < turns; turn++) {
      await eventually(
        async () =>
          session.say(`go ${turn}`).then(
            () => true,
            () => false,
          ),
        "the message is taken",
      );
      await sleep(120);
      await server.kill();
      kills++;
      await eventually(
        async () =>
          session.snapshot().then(
            (s) => s.status === "idle",
            () => false,
          ),
        "the turn's end",
      );
    }
  })();
  const [{ events }] = await Promise.all([reading, work]);
  assert.equal(kills, turns);
  const replay = session.stream(t, "start");
  await eventually(() => over(replay.events), "the replay");
  // What was shown of a text that died may be longer than what was kept; all else is the same, in the same order.
  const settled = (list) =>
    joined(list)
      .filter(
        (event) =>
          !event.type.endsWith(".delta") &&
          !event.type.endsWith("_text.done") &&
          event.type !== "response.output_item.added",
      )
      .filter((event) => event.item?.status !== "incomplete");
  assert.deepEqual(settled(events), settled(replay.events.filter((event) => event.id)));
  const ids = events.map((event) => event.id);
  const twice = events.filter((event, n) => ids.indexOf(event.id) !== n);
  assert.deepEqual(twice, [], "an id came twice");
});

/** Rows written by the turns so far, from the worker's own log. */
const rows = (server) =>
  server.logs
    .map((log) => /^\{.*"event":"turn".*\}$/.exec(log.message))
    .filter(Boolean)
    .map((match) => JSON.parse(match[0]).rows_written);

test("rows written do not depend on the number of deltas or of readers", async (t) => {
  const server = await serve(t);
  const turn = (deltas) => ({ text: "12345678".repeat(deltas) });
  const llm = await model(t, [turn(3), turn(3000), turn(3), { calls: [{ id: "c", name: "look" }] }, turn(3)]);
  const session = await Session.on(server, llm);
  const run = async (count, tools) => {
    await session.say("go", tools);
    if (tools) {
      await session.status("waiting");
      await session.give("c", "out");
    }
    return (await eventually(() => rows(server).length === count && rows(server), `turn ${count} is logged`)).at(-1);
  };
  const few = await run(1);
  const many = await run(2);
  const streams = Array.from({ length: 20 }, () => session.stream(t));
  await Promise.all(streams.map((stream) => stream.type("session.heartbeat")));
  const watched = await run(3);
  const tool = await run(4, [LOOK]);
  t.diagnostic(`rows written: plain turn ${few}, 3 000 deltas ${many}, 20 readers ${watched}, one tool ${tool}`);
  // A slow machine may take long enough for a checkpoint of the text: one row, overwritten.
  assert.ok(many - few <= 1 && watched - few <= 1, `${few}, ${many}, ${watched}`);
  assert.ok(few <= 8, `a plain turn writes ${few} rows`);
  assert.ok(tool <= 12, `a turn with a tool writes ${tool} rows`);
});

test("a hundred readers get the same, though one of them never reads", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "to everybody ".repeat(40), pause: 2 }]);
  const session = await Session.on(server, llm);
  const { hostname, port } = new URL(server.url);
  const mute = connect(Number(port), hostname);
  t.after(() => mute.destroy());
  mute.pause();
  mute.write(`GET /v1/sessions/${session.id}/stream HTTP/1.1\r\nhost: x\r\n\r\n`);
  const streams = Array.from({ length: 99 }, () => session.stream(t));
  await Promise.all(streams.map((stream) => stream.type("session.heartbeat", 60)));
  await eventually(async () => (await session.snapshot()).subscribers === 100, "all are attached");
  await session.say("go");
  await Promise.all(streams.map((stream) => stream.status("idle")));
  const want = streams[0].events.filter((event) => event.id);
  for (const stream of streams)
    assert.deepEqual(
      stream.events.filter((event) => event.id),
      want,
    );
});

test("a reader that is too slow is cut off, resumes, and has lost nothing; the others do not notice", async (t) => {
  const server = await serve(t);
  const big = (n) => ({ text: `${n}`.repeat(3_000_000), chunk: 32_768 });
  const llm = await model(t, [big(1), big(2), big(3)]);
  const session = await Session.on(server, llm);
  const { hostname, port } = new URL(server.url);
  const slow = connect(Number(port), hostname);
  t.after(() => slow.destroy());
  slow.write(`GET /v1/sessions/${session.id}/stream HTTP/1.1\r\nhost: x\r\n\r\n`);
  slow.pause();
  const start = (await session.snapshot()).cursor;
  const healthy = session.follow(t, start);
  await healthy.type("session.heartbeat");
  await eventually(async () => (await session.snapshot()).subscribers === 2, "both are attached");
  for (let turn = 1; turn <= 3; turn++) {
    await session.say("go");
    await eventually(() => ends(healthy.events.filter((event) => event.id)) === turn, "the turn's end", 60);
  }
  await eventually(async () => (await session.snapshot()).subscribers === 1, "the slow reader is gone");
  let got = Buffer.alloc(0);
  slow.on("data", (data) => (got = Buffer.concat([got, data])));
  slow.resume();
  await eventually(
    () => slow.readableEnded || slow.closed || slow.destroyed || got.includes("\r\n0\r\n\r\n"),
    "the slow reader's end",
  );
  const text = got.toString();
  assert.ok(!text.includes("[DONE]"), "a cut is not an orderly end");
  assert.ok(text.length < 30_000_000);
  const resumed = session.follow(t, start);
  await eventually(() => ends(resumed.events.filter((event) => event.id)) === 3, "the replay", 60);
  assert.deepEqual(resumed.content, healthy.content);
});

test("readers that have gone are forgotten", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_HEARTBEAT_S: "1" });
  const session = await Session.create(server, {});
  for (let round = 0; round < 20; round++) {
    const streams = Array.from({ length: 50 }, () => session.stream(t));
    await Promise.all(streams.map((stream) => stream.type("session.heartbeat", 60)));
    await Promise.all(streams.map((stream) => stream.close()));
  }
  await eventually(async () => (await session.snapshot()).subscribers === 0, "no reader is left", 10);
});

test("heartbeats have no id and let the session's object sleep", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_HEARTBEAT_S: "1" });
  const llm = await model(t, [{ calls: [{ id: "c", name: "look" }] }, { text: "done" }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("go", [LOOK]);
  await stream.call("c");
  await server.evict(session.id);
  const beats = () => stream.events.filter((event) => event.type === "session.heartbeat");
  const before = beats().length;
  await eventually(() => beats().length >= before + 3, "three heartbeats", 10);
  assert.ok(beats().every((event) => event.id === undefined));
  assert.equal(
    server.logs.filter((log) => log.message.startsWith(`${session.id} woke`)).length,
    0,
    "the object was woken",
  );
  await session.give("c", "x");
  await stream.status("idle");
  assert.equal(server.logs.filter((log) => log.message.startsWith(`${session.id} woke`)).length, 1);
});

test("the events as JSON are those of the stream, in pages of any size, and can be waited for", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "Hello there. ", calls: [{ id: "c", name: "look" }] }, { text: "Bye." }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  const { body: none } = await session.request("GET", "/events");
  assert.deepEqual([none.data, none.has_more], [[], false]);
  const waiting = session.request("GET", `/events?after=${none.cursor}&wait=20`);
  await eventually(async () => (await session.snapshot()).subscribers === 2, "the poll waits");
  await session.say("go", [LOOK]);
  const { body: first } = await waiting;
  assert.equal(first.data[0].type, "session.status");
  await stream.call("c");
  await session.give("c", "x");
  await stream.status("idle");
  for (const limit of [1, 3, 1000]) {
    const events = [];
    for (let after = "start", more = true; more;) {
      const { body } = await session.request("GET", `/events?after=${after}&limit=${limit}`);
      assert.ok(body.data.length <= limit);
      events.push(...body.data);
      [after, more] = [body.cursor, body.has_more];
      assert.equal(events.at(-1).cursor, after);
    }
    assert.deepEqual(joined(events), stream.content);
  }
  const began = Date.now();
  const { body: last } = await session.request("GET", `/events?after=${stream.lastId}&wait=1`);
  assert.deepEqual([last.data, last.cursor], [[], stream.lastId]);
  assert.ok(Date.now() - began >= 900, "it did not wait");
  for (const query of ["wait=26", "wait=x", "limit=0", "after=nonsense"]) {
    assert.equal((await session.request("GET", `/events?${query}`)).status, 400, query);
  }
});

/** A WebSocket and what came over it. */
async function dial(t, session, query = "") {
  const socket = new WebSocket(`${session.server.url.replace("http", "ws")}/v1/sessions/${session.id}/ws${query}`);
  t.after(() => socket.close());
  const messages = [];
  socket.onmessage = ({ data }) => messages.push(JSON.parse(data));
  await new Promise((resolve, reject) => ((socket.onopen = resolve), (socket.onerror = reject)));
  const wait = (match, what) => eventually(() => messages.find(match), what);
  return { socket, messages, wait };
}

test("a snapshot's cursor misses nothing of a text that is being written", async (t) => {
  const server = await serve(t);
  const text = "one two three four ".repeat(20);
  const llm = await model(t, [{ text, chunk: 5, pause: 20 }]);
  const session = await Session.on(server, llm);
  const first = session.stream(t);
  await first.type("session.heartbeat");
  await session.say("go");
  await first.wait(() => first.text.length > 20, "some of the text");
  const { cursor, items } = await session.snapshot();
  assert.equal(items.length, 1);
  const late = session.stream(t, cursor);
  await late.status("idle");
  assert.equal(late.text, text);
  assert.equal(late.events.filter(({ type }) => type === "response.output_item.added").length, 1);
});

test("a WebSocket carries the same events, takes events with a reference, and resumes", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "Over the wire. ", calls: [{ id: "c", name: "look" }] }, { text: "Bye." }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  const { socket, messages, wait } = await dial(t, session);
  await wait(({ type }) => type === "session.status", "the greeting");
  const message = { type: "message", data: { role: "user", content: "go" }, tools: [LOOK] };
  socket.send(JSON.stringify({ ref: "m-1", ...message }));
  const answer = await wait(({ type, ref }) => type === "session.answer" && ref === "m-1", "the answer");
  assert.deepEqual([answer.status, answer.body.status], [202, "started"]);
  await wait(({ item }) => item?.status === "action_required", "the call");
  await server.evict(session.id);
  for (const [ref, text, status, code] of [
    [
      2,
      JSON.stringify({ ref: 2, type: "function_call_output", data: { call_id: "nope", output: "x" } }),
      404,
      "unknown_call_id",
    ],
    [3, JSON.stringify({ ref: 3, type: "make_coffee" }), 400, "invalid_input"],
    [null, "{oops", 400, "invalid_input"],
  ]) {
    socket.send(text);
    const refused = await wait((m) => m.type === "session.answer" && m.ref === ref, `the answer to ${text}`);
    assert.deepEqual([refused.status, refused.body.error.code], [status, code]);
  }
  socket.send(JSON.stringify({ ref: 4, type: "function_call_output", data: { call_id: "c", output: "x" } }));
  await stream.status("idle");
  await wait(
    ({ type, status, cursor }) => type === "session.status" && status === "idle" && cursor === stream.lastId,
    "the end",
  );
  const events = messages.filter(({ type, cursor }) => cursor && type !== "session.cursor");
  assert.deepEqual(joined(events), stream.content);
  const resumed = await dial(t, session, `?after=${events[5].cursor}`);
  await resumed.wait(({ cursor }) => cursor === stream.lastId, "the rest");
  assert.deepEqual(joined(resumed.messages.filter(({ cursor }) => cursor)), joined(events.slice(6)));
  assert.equal((await request(server, "GET", `/v1/sessions/${session.id}/ws`)).status, 400);
});
