// `npm run memory`: what one isolate's memory grows to under what is hardest on it. An isolate has 128 MB for all of its
// sessions, and WebAssembly memory never shrinks, so its size at the end is the most that was ever needed.
import assert from "node:assert/strict";
import { connect } from "node:net";
import { test } from "node:test";
import { built } from "../scripts/server.mjs";
import { Session, eventually, model, request, serve } from "./e2e/kit.mjs";

const MB = 1_000_000;
const LIMIT = 100 * MB;
const LOOK = { type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } };

/** The worker, and a route that tells the size of its WebAssembly memory. */
function watched() {
  const { modules, objects } = built();
  const watch = `
    const Instance = WebAssembly.Instance;
    WebAssembly.Instance = new Proxy(Instance, {
      construct(target, args) {
        const instance = new target(...args);
        globalThis.watched = instance.exports.memory;
        return instance;
      },
    });`;
  const front = `
    import "./watch.js";
    import Worker, { Session, Directory } from "./index.js";
    export { Session, Directory };
    export default class extends Worker {
      async fetch(request) {
        if (new URL(request.url).pathname !== "/memory") return super.fetch(request);
        return Response.json(globalThis.watched.buffer.byteLength);
      }
    }`;
  const module = (contents) => ({ type: "esm", contents });
  return { main: "front.js", modules: { ...modules, "front.js": module(front), "watch.js": module(watch) }, objects };
}

async function start(t) {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_SESSION_RATE: "0" }, {}, watched());
  const size = async () => (await request(server, "GET", "/memory")).body;
  const check = async (what) => {
    const bytes = await size();
    t.diagnostic(`${what}: ${(bytes / MB).toFixed(1)} MB of WebAssembly memory`);
    assert.ok(bytes <= LIMIT, `${what}: ${bytes} bytes`);
  };
  return { server, check };
}

/** A reader that asks for all of the stream and, unless it is told to, never reads it. */
function mute(t, server, path) {
  const socket = connect(server.port, "127.0.0.1");
  t.after(() => socket.destroy());
  socket.on("error", () => {});
  socket.pause();
  socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\n\r\n`);
  return socket;
}

test("a thousand hostile bodies", async (t) => {
  const { server, check } = await start(t);
  const session = await Session.create(server, {});
  const big = 8_000_000;
  const fill = (text, size) => text.repeat(Math.floor(size / text.length));
  const message = (content) => `{"type":"message","on_busy":"reject","data":{"role":"user","content":${content}}}`;
  const kinds = [
    (size) => message(`[${fill('{"":0},', size)}0]`),
    (size) => message(`[${fill("0,", size)}0]`),
    (size) => `${fill("[", size)}`,
    (size) => message(fill("[", size / 2) + fill("]", size / 2)),
    (size) => message(`[${fill('{"a":[{}]},', size)}0]`),
    (size) => `{${fill('"k":1,', size)}"type":"message"}`,
    (size) => `{"${fill("x", size)}":1}`,
    (size) => `{"type":"${fill("x", size)}"}`,
    (size) => `{"type":"message","data":"${fill("\\u0000", size)}"}`,
    (size) => `{"type":"function_call_output","data":{"call_id":"${fill("c", size)}","output":""}}`,
    (size) => message(`"${fill("\\n", size)}"`).replace("user", "wizard"),
    (size) => fill("x", size),
  ];
  let sent = 0;
  for (let round = 0; sent < 1000; round++)
    // Several at once, now and then of the largest size that is let in.
    await Promise.all(
      kinds.map(async (kind) => {
        const body = kind(round % 20 === 0 ? big : 200_000);
        sent++;
        const { status } = await session.request("POST", "/events", body, { "content-type": "application/json" });
        assert.ok([400, 404, 409, 413, 503].includes(status), `${status} for ${body.slice(0, 60)}`);
      }),
    );
  await check(`${sent} bodies`);
  assert.equal((await session.snapshot()).status, "idle");
});

test("forty screenshots of a megabyte in one turn", async (t) => {
  const { server, check } = await start(t);
  const calls = Array.from({ length: 40 }, (_, n) => ({ id: `call_${n}`, name: "look" }));
  const llm = await model(t, (body) => (body.input.some(({ type }) => type === "function_call") ? { text: "done" } : { calls }));
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const image_url = `data:image/png;base64,${"A".repeat(1_000_000)}`;
  for (const { id } of calls) await session.give(id, [{ type: "input_image", image_url }]);
  const { last_response } = await session.status("idle", "failed");
  t.diagnostic(`the turn: ${last_response.status} ${last_response.error?.code ?? ""}`);
  await eventually(() => stream.events.some(({ type }) => /^response\.(completed|failed)$/.test(type)), "its end");
  for (let after = "", more = true; more;) {
    const { body } = await session.request("GET", `/items?limit=1000${after}`);
    [after, more] = [`&after=${body.last_id}`, body.has_more];
  }
  await session.snapshot();
  await check("the turn, its stream, its items and a snapshot");
  const { status } = await session.request("POST", "/events", { type: "message", data: { role: "user", content: "again" } });
  assert.equal(status, 202, "the session can be used");
});

test("a transcript of 60 MB, read by twenty of whom half never read", async (t) => {
  const { server, check } = await start(t);
  const session = await Session.create(server, { agent: { name: "a", provider: { type: "scripted", script: [] } } });
  const content = "y".repeat(3_000_000);
  for (let n = 0; n < 20; n++) {
    const { response_id } = await session.say(content);
    const ended = async () => (await session.request("GET", "?include_items=false")).body.last_response?.id === response_id;
    await eventually(ended, "the turn's end", 60);
  }
  const path = `/v1/sessions/${session.id}/stream?after=start`;
  for (let n = 0; n < 10; n++) mute(t, server, path);
  const readers = Array.from({ length: 10 }, () => session.stream(t, "start"));
  const { cursor } = await session.snapshot();
  await eventually(() => readers.every(({ lastId }) => lastId === cursor), "the readers have all of it", 300);
  await check("20 turns of 3 MB and 20 readers");
});
