// How streams end, and what a client that does not read may cost.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { test } from "node:test";
import { built } from "../../scripts/server.mjs";
import { Session, eventually, joined, model, request, serve } from "./kit.mjs";

const MIB = 1024 * 1024;
const KEYS = { LAYBY_API_KEYS: "acme:key-of-acme", LAYBY_PRIVATE_HOSTS: "true" };
const bearer = (key) => ({ authorization: `Bearer ${key}` });

/** A WebSocket, what came over it, and how it was closed. */
async function dial(t, session, query = "", headers = {}) {
  const url = `${session.server.url.replace("http", "ws")}/v1/sessions/${session.id}/ws${query}`;
  const socket = new WebSocket(url, { headers });
  t.after(() => socket.close());
  const messages = [];
  const client = {
    socket,
    messages,
    bytes: 0,
    wait: (match, what, seconds) => eventually(() => messages.find(match), what, seconds),
    send: (message) => socket.send(JSON.stringify(message)),
    ack: (cursor) => client.send({ type: "ack", cursor }),
    closed: (seconds) => eventually(() => client.close, "the socket is closed", seconds),
    get events() {
      return messages.filter(({ type, cursor }) => cursor && type !== "session.cursor");
    },
  };
  socket.onmessage = ({ data }) => {
    client.bytes += data.length;
    const message = JSON.parse(data);
    messages.push(message);
    client.onMessage?.(message);
  };
  socket.onclose = ({ code, reason }) => (client.close = { code, reason });
  await new Promise((resolve, reject) => ((socket.onopen = resolve), (socket.onerror = reject)));
  return client;
}

/** A session of a deployment with keys, and a token for it. */
async function guarded(t, server, body = {}) {
  const session = await Session.create(server, { ...body }, bearer("key-of-acme"));
  const token = async (expires_in = 900, scopes = ["read", "send"]) =>
    (await session.request("POST", "/tokens", { scopes, expires_in })).body.token;
  return { session, token };
}

const asPage = (session, token) => new Session(session.server, session.id, bearer(token));

test("streams and sockets end at once when their tokens are revoked; those with an API key go on", async (t) => {
  const server = await serve(t, KEYS);
  const { session, token } = await guarded(t, server);
  const given = await token();
  const stream = asPage(session, given).stream(t);
  const socket = await dial(t, session, `?access_token=${given}`);
  const keyed = session.stream(t);
  const keyedSocket = await dial(t, session, "", session.headers);
  await Promise.all([stream, keyed].map((stream) => stream.type("session.status")));
  await Promise.all([socket, keyedSocket].map(({ wait }) => wait(({ type }) => type === "session.status", "status")));
  assert.equal((await session.request("DELETE", "/tokens")).status, 200);
  const { code, reason } = await socket.closed(5);
  assert.equal(code, 1008);
  assert.match(reason, /revoked/);
  await eventually(() => stream.ended, "the stream ends", 5);
  assert.deepEqual([stream.error, stream.done], [undefined, false]);
  await session.say("hello");
  await keyed.status("idle");
  await keyedSocket.wait(({ type, status, cursor }) => type === "session.status" && status === "idle" && cursor, "idle");
  assert.deepEqual(joined(keyedSocket.events), keyed.content);
});

test("streams and sockets end when their tokens expire, and the session's object is not woken for it", async (t) => {
  const server = await serve(t, KEYS);
  const { session, token } = await guarded(t, server);
  const given = await token(2);
  const began = Date.now();
  const stream = asPage(session, given).stream(t);
  const socket = await dial(t, session, `?access_token=${given}`);
  await stream.type("session.status");
  await server.miniflare.unsafeEvictDurableObject("layby", "Session", { name: `acme/${session.id}` });
  const { code, reason } = await socket.closed(5);
  assert.deepEqual([code, reason], [1008, "token expired"]);
  await eventually(() => stream.ended, "the stream ends", 5);
  assert.deepEqual([stream.error, stream.done], [undefined, false]);
  assert.ok(Date.now() - began > 900, "it ended too early");
  assert.equal(server.logs.filter(({ message }) => message.startsWith(`${session.id} woke`)).length, 0);
  assert.equal((await asPage(session, given).request("GET")).status, 401);
});

test("a deleted session ends streams with [DONE] and sockets with 1000", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const stream = session.stream(t);
  const socket = await dial(t, session);
  await stream.type("session.status");
  await socket.wait(({ type }) => type === "session.status", "the status");
  await session.request("DELETE");
  const { code, reason } = await socket.closed(5);
  assert.deepEqual([code, reason], [1000, "the session was deleted"]);
  await eventually(() => stream.ended, "the stream ends", 5);
  assert.ok(stream.done);
});

/** The worker, but for the way to its objects: `/break` makes requests to a session's object fail, or sockets to it break. */
function breakable() {
  const { modules, objects } = built();
  const contents = `
    import Worker, { Session, Directory } from "./index.js";
    export { Session, Directory };
    const broken = new Map();
    let dials = 0;
    const stub = (stub, name) => ({
      async fetch(url, init) {
        const how = broken.get(name.split("/")[1]);
        const isDial = init.headers?.upgrade !== undefined;
        if (how && isDial) dials++;
        if (how === "away") throw new Error("the object is away");
        if (how !== "dead" || !isDial) return stub.fetch(url, init);
        const [client, server] = Object.values(new WebSocketPair());
        server.accept();
        server.close(1011, "broken");
        return new Response(null, { status: 101, webSocket: client });
      },
    });
    export default class extends Worker {
      constructor(ctx, env) {
        const getByName = (name, options) => stub(env.SESSION.getByName(name, options), name);
        super(ctx, { ...env, SESSION: { getByName } });
      }
      async fetch(request) {
        const { pathname, searchParams } = new URL(request.url);
        if (pathname !== "/break") return super.fetch(request);
        if (searchParams.has("how")) broken.set(searchParams.get("session"), searchParams.get("how"));
        return Response.json({ dials });
      }
    }`;
  return { main: "front.js", modules: { ...modules, "front.js": { type: "esm", contents } }, objects };
}

for (const [how, what] of [
  ["away", "cannot be reached"],
  ["dead", "takes a connection and drops it, each time"],
]) {
  test(`an object that ${what} is dialled more and more rarely, and given up`, async (t) => {
    const server = await serve(t, { LAYBY_OPEN: "true" }, {}, breakable());
    const session = await Session.create(server, {});
    const stream = session.stream(t);
    const socket = await dial(t, session);
    await stream.type("session.status");
    await socket.wait(({ type }) => type === "session.status", "the status");
    await request(server, "GET", `/break?session=${session.id}&how=${how}`);
    await server.evict(session.id, "close");
    const { code, reason } = await socket.closed(30);
    assert.equal(code, 1012);
    assert.match(reason, /reconnect with the last cursor/);
    await eventually(() => stream.ended, "the stream ends", 30);
    assert.deepEqual([stream.error, stream.done], [undefined, false]);
    assert.equal((await request(server, "GET", "/break")).body.dials, 16, "eight for each reader");
  });
}

test("a socket whose posts cannot reach the object answers, and is closed", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true" }, {}, breakable());
  const session = await Session.create(server, {});
  const socket = await dial(t, session);
  await socket.wait(({ type }) => type === "session.status", "the status");
  await request(server, "GET", `/break?session=${session.id}&how=away`);
  socket.send({ ref: 1, type: "interrupt", data: {} });
  const answer = await socket.wait(({ ref }) => ref === 1, "the answer");
  assert.equal(answer.status, 503);
  assert.equal((await socket.closed(5)).code, 1012);
});

test("a socket is closed after a thousand posts", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const socket = await dial(t, session);
  await socket.wait(({ type }) => type === "session.status", "the status");
  for (let n = 0; n < 1100; n++) socket.send({ ref: n, type: "make_coffee" });
  const { code, reason } = await socket.closed(60);
  assert.equal(code, 1012);
  assert.match(reason, /limit.*reconnect with the last cursor/);
  const answers = socket.messages.filter(({ type }) => type === "session.answer");
  assert.deepEqual(
    answers.map(({ ref, status }) => [ref, status]),
    Array.from({ length: 999 }, (_, n) => [n, 400]),
  );
});

/** A connection that asks for a stream and never reads the answer. */
function mute(t, server, path) {
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  t.after(() => socket.destroy());
  socket.on("error", (error) => (socket.failed = error));
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
  return socket;
}

/** Megabytes of memory that a process has. */
const memory = (pid) => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) / 1024;

test("readers that never read are broken off, and what waited for them is freed", async (t) => {
  const server = await serve(t);
  const llm = await model(t, (body) => ({ text: `${body.input.length}`.repeat(3_000_000), chunk: 65_536 }));
  const session = await Session.on(server, llm);
  const readers = Array.from({ length: 20 }, () => mute(t, server, `/v1/sessions/${session.id}/stream`));
  await eventually(async () => (await session.snapshot()).subscribers === 20, "all are attached");
  const before = memory(server.pid);
  const state = async () => (await session.request("GET", "?include_items=false")).body;
  for (let turn = 1; turn <= 3; turn++) {
    const { response_id } = await session.say("go");
    const ended = async () => (await state()).last_response?.id === response_id;
    await eventually(ended, "the turn's end", 60);
  }
  await eventually(async () => (await state()).subscribers === 0, "they were cut off", 30);
  t.diagnostic(`memory: ${before.toFixed()} MB before, ${memory(server.pid).toFixed()} MB with 20 mute readers`);
  for (const reader of readers) {
    let tail = "";
    reader.on("data", (data) => (tail = (tail + data.toString("latin1")).slice(-100)));
    reader.resume();
    await eventually(() => reader.closed || reader.readableEnded, "its connection ends");
    assert.ok(!tail.endsWith("\r\n0\r\n\r\n"), "its answer came to an orderly end: what waited was kept until it read");
  }
});

test("an orderly end delivers everything to a reader that is behind", async (t) => {
  const server = await serve(t, KEYS);
  const llm = await model(t, [{ text: "x".repeat(700_000), chunk: 65_536 }]);
  const provider = { type: "openai-responses", base_url: llm.url, api_key: "secret-key" };
  const { session, token } = await guarded(t, server, { agent: { name: "a", model: "m", provider } });
  const reader = mute(t, server, `/v1/sessions/${session.id}/stream?access_token=${await token()}`);
  await eventually(async () => (await session.snapshot()).subscribers === 1, "it is attached");
  await session.say("go");
  await session.status("idle");
  assert.equal((await session.request("DELETE", "/tokens")).status, 200);
  await eventually(async () => (await session.snapshot()).subscribers === 0, "it was let go");
  let text = "";
  reader.on("data", (data) => (text += data.toString("latin1")));
  reader.resume();
  await eventually(() => text.endsWith("\r\n0\r\n\r\n"), "the answer's orderly end");
  assert.match(text, /"status":"idle"/);
});

test("a socket whose client acknowledges nothing is closed after 4 MiB, and loses nothing", async (t) => {
  const server = await serve(t);
  const llm = await model(t, () => ({ text: "never acknowledged ".repeat(100_000), chunk: 65_536 }));
  const session = await Session.on(server, llm);
  const healthy = session.follow(t, (await session.snapshot()).cursor);
  await healthy.type("session.heartbeat");
  for (let turn = 1; turn <= 2; turn++) {
    await session.say("go");
    await session.status("idle");
  }
  await eventually(() => healthy.events.filter(({ type }) => type === "response.completed").length === 2, "both turns");
  const last = await eventually(() => healthy.events.at(-1)?.status === "idle" && healthy.lastId, "the last event");
  const events = [];
  let cursor = "start";
  let closes = 0;
  for (;;) {
    const socket = await dial(t, session, `?after=${cursor}`);
    await eventually(() => socket.close || socket.events.at(-1)?.cursor === last, "an end", 60);
    events.push(...socket.events);
    cursor = events.at(-1).cursor;
    if (cursor === last) break;
    const { code, reason } = socket.close;
    assert.equal(code, 1013);
    assert.match(reason, /"ack".*reconnect with the last cursor/);
    assert.ok(socket.bytes > 4 * MIB, `closed after ${socket.bytes} bytes`);
    closes++;
  }
  assert.ok(closes >= 1, `${closes} closes`);
  assert.deepEqual(joined(events), healthy.content);
});

test("a socket whose client acknowledges gets all of a long history, at the pace of its acknowledgements", async (t) => {
  const server = await serve(t);
  const llm = await model(t, () => ({ text: "acknowledged ".repeat(40_000), chunk: 65_536 }));
  const session = await Session.on(server, llm);
  const healthy = session.follow(t, (await session.snapshot()).cursor);
  await healthy.type("session.heartbeat");
  const turns = 8;
  const completed = () => healthy.events.filter(({ type }) => type === "response.completed").length;
  for (let turn = 1; turn <= turns; turn++) {
    await session.say("go");
    await eventually(() => completed() === turn, "the turn's end");
    await session.status("idle");
  }
  const last = await eventually(() => healthy.events.at(-1)?.status === "idle" && healthy.lastId, "the last event");
  const socket = await dial(t, session, "?after=start");
  await socket.wait(({ cursor }) => cursor, "the first event");
  socket.ack(socket.events[0].cursor);
  // It is known to acknowledge now, so it waits for more, and is not closed.
  let before = -1;
  await eventually(async () => {
    const still = before === socket.bytes && socket.bytes > MIB;
    before = socket.bytes;
    await new Promise((resolve) => setTimeout(resolve, 300));
    return still;
  }, "the history waits");
  assert.notEqual(socket.events.at(-1).cursor, last, "all of the history was sent");
  assert.equal(socket.close, undefined);
  socket.onMessage = ({ cursor }) => cursor && socket.ack(cursor);
  socket.ack(socket.events.at(-1).cursor);
  await eventually(() => socket.events.at(-1).cursor === last, "the rest", 60);
  assert.ok(socket.bytes > 8 * MIB, `only ${socket.bytes} bytes: the limit was not passed`);
  assert.deepEqual(joined(socket.events), healthy.content);
  // Acknowledgements are neither answered nor counted as posts.
  for (let n = 0; n < 1200; n++) socket.ack(last);
  socket.send({ ref: "after", type: "make_coffee" });
  await socket.wait(({ ref }) => ref === "after", "an answer");
  assert.equal(socket.messages.filter(({ type }) => type === "session.answer").length, 1);
  assert.equal(llm.requests.length, turns);
});

test("a socket takes text of a bounded size, and says so", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const socket = await dial(t, session);
  await socket.wait(({ type }) => type === "session.status", "the status");
  const answers = () => socket.messages.filter(({ type }) => type === "session.answer");
  const answer = async (data) => {
    const before = answers().length;
    socket.socket.send(data);
    return eventually(() => answers()[before], "an answer");
  };
  const binary = await answer(new Uint8Array([123, 125]));
  assert.deepEqual([binary.status, binary.ref, binary.body.error.code], [400, null, "invalid_input"]);
  assert.match(binary.body.error.message, /binary/);
  const long = await answer(JSON.stringify({ ref: 1, type: "message", data: "x".repeat(8 * MIB) }));
  assert.deepEqual([long.status, long.body.error.code], [413, "payload_too_large"]);
  const { cursor } = await socket.wait(({ type }) => type === "session.cursor", "the position");
  const ahead = cursor.replace(/\.\d+\./, ".999.");
  for (const ack of [{ type: "ack" }, { type: "ack", cursor: "nonsense" }, { type: "ack", cursor: ahead }]) {
    const refused = await answer(JSON.stringify(ack));
    assert.deepEqual([refused.status, refused.body.error.code], [400, "invalid_input"], JSON.stringify(ack));
  }
  assert.equal(socket.close, undefined);
});

test("a client that sends without waiting for answers is closed before it fills the memory", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const socket = await dial(t, session);
  await socket.wait(({ type }) => type === "session.status", "the status");
  const data = { padding: "x".repeat(200_000) };
  for (let n = 0; n < 300; n++) socket.send({ ref: n, type: "make_coffee", data });
  const { code, reason } = await socket.closed(30);
  assert.equal(code, 1013);
  assert.match(reason, /read the replies/);
  const fresh = await dial(t, session);
  fresh.send({ ref: 1, type: "interrupt", data: {} });
  await fresh.wait(({ ref, status }) => ref === 1 && status === 202, "the next connection works");
});

test("the answers to a client's messages count as unread, too", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const socket = await dial(t, session);
  await socket.wait(({ type }) => type === "session.status", "the status");
  const ref = "x".repeat(500_000);
  for (let n = 0; n < 12 && !socket.close; n++) {
    const before = socket.messages.length;
    socket.send({ ref, type: "make_coffee" });
    await eventually(() => socket.messages.length > before || socket.close, "an answer");
  }
  assert.equal((await socket.closed(5)).code, 1013);
});

test("HEAD answers every route as GET does, without a body and without waiting", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  await session.say("hello");
  await session.status("idle");
  const { body: agents } = await request(server, "GET", "/v1/agents");
  const { agent_id } = await session.snapshot();
  assert.ok(agents.data);
  const at = `/v1/sessions/${session.id}`;
  const { cursor } = (await request(server, "GET", `${at}/events?after=start&limit=1000`)).body;
  const changing = new Set(["date", "server-timing", "x-request-id", "content-length", "transfer-encoding", "connection", "keep-alive"]);
  const headers = (answer) => [...answer.headers].filter(([name]) => !changing.has(name));
  for (const path of [
    "/health",
    "/openapi.json",
    "/",
    "/v1/info",
    "/v1/usage",
    "/v1/sessions",
    "/v1/agents",
    `/v1/agents/${agent_id}`,
    at,
    `${at}/items`,
    `${at}/agent`,
    `${at}/events`,
    `${at}/events?wait=1`,
    `${at}/events?after=start&wait=20`,
    `${at}/events?after=${cursor}&wait=20`,
    `${at}/events?wait=26`,
    `${at}/stream`,
    `${at}/ws`,
    "/v1/nothing",
  ]) {
    const began = Date.now();
    const head = await request(server, "HEAD", path);
    assert.ok(Date.now() - began < 10_000, `HEAD ${path} waited`);
    assert.equal(head.body, "", path);
    if (path.endsWith("/stream") || path.endsWith("/ws")) {
      assert.equal(head.status, 405, path);
      continue;
    }
    const get = await request(server, "GET", path.replace(/&?wait=\d\d?$/, (wait) => (wait === "wait=26" ? wait : "")));
    assert.equal(head.status, get.status, path);
    assert.deepEqual(headers(head), headers(get), path);
  }
});

test("the Idempotency-Key of a WebSocket's handshake is not the key of its events", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const socket = await dial(t, session, "", { "idempotency-key": "handshake" });
  await socket.wait(({ type }) => type === "session.status", "the status");
  for (const ref of [1, 2, 3]) {
    socket.send({ ref, type: "message", data: { role: "user", content: `message ${ref}` } });
    const answer = await socket.wait((message) => message.ref === ref, `the answer to ${ref}`);
    assert.equal(answer.status, 202, JSON.stringify(answer.body));
  }
});
