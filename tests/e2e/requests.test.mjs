// Requests that mean harm, or mean nothing: each gets its clear answer, and the sessions work on.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, request as send } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Session, eventually, model, request, serve } from "./kit.mjs";

const CLOSED = { LAYBY_API_KEYS: "acme:key-of-acme" };
const KEY = { authorization: "Bearer key-of-acme" };
const message = (content) => ({ type: "message", data: { role: "user", content } });

test("what is no request gets the answer that says why", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const path = `/v1/sessions/${session.id}`;
  const json = { "content-type": "application/json" };
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  const cases = [
    ["POST", "/events", "x", { "content-type": "text/plain" }, 415, "unsupported_media_type"],
    [
      "POST",
      "/events",
      JSON.stringify(message("x")),
      { "content-type": "application/x-www-form-urlencoded" },
      415,
      "unsupported_media_type",
    ],
    ["POST", "/events", '{"type":"message"', json, 400, "invalid_input"],
    ["POST", "/events", deep, json, 400, "invalid_input"],
    ["POST", "/events", `{"type":"message","data":{"role":"user","content":${deep}}}`, json, 400, "invalid_input"],
    ["POST", "/events", "null", json, 400, "invalid_input"],
    ["POST", "/events", Buffer.from('{"type":"\xff"}', "latin1"), json, 400, "invalid_input"],
    ["POST", "/events", "x".repeat(8 * 1024 * 1024 + 1), json, 413, "payload_too_large"],
    ["POST", "/events", JSON.stringify(message("x")), { ...json, "idempotency-key": "a\tb" }, 400, "invalid_input"],
    ["PUT", "", "{}", json, 405, "method_not_allowed"],
    ["QUERY", "", undefined, {}, 405, "method_not_allowed"],
    ["GET", "/nowhere", undefined, {}, 404, "not_found"],
    ["GET", "/items?limit=1e9", undefined, {}, 400, "invalid_input"],
    ["GET", "/stream?after=%0d%0aevent:%20x", undefined, {}, 400, "invalid_input"],
    ["GET", "/stream?after=000000.1.0.0", undefined, {}, 400, "invalid_input"],
    ["GET", "/ws", undefined, {}, 400, "invalid_input"],
  ];
  for (const [method, rest, body, headers, status, code] of cases) {
    const answer = await fetch(server.url + path + rest, { method, body, headers });
    const what = `${method} ${rest} ${String(body).slice(0, 40)}`;
    assert.equal(answer.status, status, what);
    const { error } = await answer.json();
    assert.equal(error.code, code, what);
    assert.ok(error.message.length > 5 && error.request_id, what);
  }
  for (const rest of ["/stream", "/ws"])
    assert.equal((await fetch(server.url + path + rest, { method: "HEAD" })).status, 405, "it would never end");
  await session.say("still there?");
  assert.equal((await session.status("idle")).items.length, 2);
});

test("a request id with a line end in it is not given back, and a body that breaks off changes nothing", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const raw = (text) =>
    new Promise((resolve) => {
      const socket = connect(server.port, "127.0.0.1", () => socket.end(text));
      let answer = "";
      socket.on("data", (data) => (answer += data));
      socket.on("close", () => resolve(answer));
      socket.on("error", () => resolve(answer));
    });
  const head = `POST /v1/sessions/${session.id}/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n`;
  await raw(`${head}content-length: 500\r\n\r\n{"type":"message","data":{"role":"user","content":"ha`);
  for (const id of ["a b", "a\rx-injected: 1", "a\nx-injected: 1", "a\r\n x-injected: 1", "a\u0000b", "é"]) {
    const injected = await raw(`GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: ${id}\r\n\r\n`);
    // A bare LF ends the header for some parsers: then the id is `a`, and what follows is a header of the request.
    const refused = injected.startsWith("HTTP/1.1 400");
    assert.ok(refused || /^x-request-id: req_/im.test(injected) || id.startsWith("a\n"), injected);
    assert.doesNotMatch(injected, /^ *x-injected/im, JSON.stringify(id));
  }
  assert.deepEqual((await session.snapshot()).items, []);
});

test("ids that are none, or another's, are not found and make no storage", async (t) => {
  const server = await serve(t);
  const zero = "0".repeat(32);
  const ids = [
    `sess_${zero}`,
    "sess_",
    `sess_${zero}0`,
    "..",
    "%2e%2e",
    "sess_%00",
    "default%2Fsess",
    `SESS_${zero}`,
    `sess_${"g".repeat(32)}`,
  ];
  for (const id of ids)
    for (const [method, path] of [
      ["GET", ""],
      ["GET", "/stream"],
      ["GET", "/events?wait=1"],
      ["POST", "/events"],
      ["PATCH", ""],
      ["DELETE", ""],
      ["POST", "/fork"],
      ["POST", "/tokens"],
      ["DELETE", "/calls/x"],
    ]) {
      const body = ["POST", "PATCH"].includes(method) ? {} : undefined;
      const answer = await request(server, method, `/v1/sessions/${id}${path}`, body);
      assert.equal(answer.status, 404, `${method} ${id}${path}`);
    }
  await server.stop();
  const files = readdirSync(server.storage, { recursive: true }).filter((file) =>
    /layby-Session.[0-9a-f]{64}/.test(file),
  );
  for (const file of files) {
    const { DatabaseSync } = await import("node:sqlite");
    const db = new DatabaseSync(join(server.storage, file));
    assert.deepEqual(db.prepare("SELECT name FROM sqlite_master").all(), [], file);
    db.close();
  }
});

test("limits hold at their edge and above it", async (t) => {
  const server = await serve(t);
  const create = (body) => request(server, "POST", "/v1/sessions", body);
  const labels = (count) => Object.fromEntries(Array.from({ length: count }, (_, n) => [`l${n}`, "x"]));
  const tools = (count) => Array.from({ length: count }, (_, n) => ({ type: "function", name: `t${n}` }));
  const agent = (more) => ({ agent: { name: "a", provider: { type: "scripted" }, ...more } });
  for (const [body, status, param] of [
    [{ title: "x".repeat(200) }, 201],
    [{ title: "x".repeat(201) }, 400, "title"],
    [{ labels: labels(16) }, 201],
    [{ labels: labels(17) }, 400, "labels"],
    [{ labels: { ["k".repeat(64)]: "v".repeat(512) } }, 201],
    [{ labels: { k: "v".repeat(513) } }, 400, "labels.k"],
    [agent({ tools: tools(128) }), 201],
    [agent({ tools: tools(129) }), 400, "agent.tools"],
    [agent({ instructions: "x".repeat(1_400_000) }), 201],
    [agent({ instructions: "x".repeat(1_600_000) }), 413, "agent"],
  ]) {
    const answer = await create(body);
    assert.deepEqual([answer.status, answer.body.error?.param], [status, param], JSON.stringify(body).slice(0, 80));
  }
  const llm = await model(t, [{ text: "x", hold: new Promise(() => {}) }]);
  const session = await Session.on(server, llm);
  await session.say("first");
  for (let n = 0; n < 32; n++) await session.say(`waits ${n}`);
  const full = await session.request("POST", "/events", message("one too many"));
  assert.deepEqual([full.status, full.body.error.code], [503, "overloaded"]);
  assert.match(full.body.error.message, /the queue is full \(32 messages\)/);
  assert.ok(full.headers.get("retry-after"));
});

test("nobody is sent to private places, unless the deployment allows it, and keys do not follow redirects", async (t) => {
  const server = await serve(t, CLOSED);
  const create = (base_url) =>
    request(
      server,
      "POST",
      "/v1/sessions",
      { agent: { name: "a", model: "m", provider: { type: "openai-chat", base_url, api_key: "k" } } },
      KEY,
    );
  for (const url of [
    "http://api.example.com",
    "https://127.0.0.1/v1",
    "https://2130706433/",
    "https://[::1]/",
    "https://10.0.0.1",
    "https://localhost:8787",
    "https://metadata.google.internal",
    "https://169.254.169.254/latest",
  ]) {
    const { status, body } = await create(url);
    assert.deepEqual([status, body.error.param], [400, "agent.provider.base_url"], url);
  }
  assert.equal((await create("https://api.example.com/v1")).status, 201);
  const session = await Session.create(server, {}, KEY);
  const image = { type: "input_image", image_url: "https://192.168.1.1/x.png" };
  const refused = await session.request("POST", "/events", message([image]));
  assert.deepEqual([refused.status, refused.body.error.param], [400, "data.content[0].image_url"]);

  const seen = [];
  const other = createServer((req, res) => {
    seen.push(req.headers);
    res.end("{}");
  }).listen(0, "127.0.0.1");
  t.after(() => other.close());
  await eventually(() => other.listening, "the other host");
  const llm = await model(t, [
    { status: 307, headers: { location: `http://127.0.0.1:${other.address().port}/v1` }, raw: "" },
  ]);
  const local = await serve(t);
  const redirected = await Session.on(local, llm);
  await redirected.say("go");
  const failed = await redirected.status("failed");
  assert.deepEqual([failed.last_task_error.code, seen], ["upstream_error", []]);
});

test("an agent comes as a bundle", async (t) => {
  const server = await serve(t);
  const folder = mkdtempSync(join(tmpdir(), "bundle-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const llm = await model(t, [{ text: "From the bundle." }]);
  writeFileSync(
    join(folder, "config.yaml"),
    `name: packed\nprompt: |\n  Be brief.\n  Always.\nexecutor:\n  model: m\n  auth: {type: api_key, api_key: zebra, base_url: "${llm.url}"}\n`,
  );
  execFileSync("tar", ["-czf", join(folder, "agent.tar.gz"), "-C", folder, "config.yaml"]);
  const { readFileSync } = await import("node:fs");
  const gz = readFileSync(join(folder, "agent.tar.gz"));
  const post = (bundle, metadata, headers = {}) => {
    const form = new FormData();
    if (metadata !== undefined) form.set("metadata", JSON.stringify(metadata));
    if (bundle) form.set("bundle", new Blob([bundle]), "agent.tar.gz");
    return fetch(`${server.url}/v1/sessions`, { method: "POST", body: form, headers });
  };
  const key = { "idempotency-key": "bundle" };
  const made = await post(gz, { title: "Packed" }, key);
  const body = await made.json();
  assert.deepEqual([made.status, Object.keys(body).sort()], [201, ["agent_id", "agent_name", "session_id"]]);
  assert.deepEqual(await (await post(gz, { title: "Packed" }, key)).json(), body);
  const session = new Session(server, body.session_id);
  await session.say("hi");
  const snapshot = await session.status("idle");
  assert.deepEqual(
    [snapshot.title, snapshot.agent_name, snapshot.items[1].content[0].text],
    ["Packed", "packed", "From the bundle."],
  );
  assert.equal(llm.requests[0].body.instructions, "Be brief.\nAlways.\n");
  const { body: list } = await request(server, "GET", "/v1/sessions?agent_name=packed");
  assert.equal(list.data[0].agent_id, body.agent_id);
  const twin = await Session.create(server, { agent_id: body.agent_id });
  assert.equal((await twin.snapshot()).agent_name, "packed");
  for (const [bundle, metadata, param] of [
    [undefined, {}, "bundle"],
    [Buffer.from("not gzip"), {}, "bundle"],
    [gz.subarray(0, 60), {}, "bundle"],
    [gz, { titel: "x" }, "titel"],
    [gz, { agent: { name: "a", model: "m" } }, "metadata.agent"],
  ]) {
    const answer = await post(bundle, metadata);
    assert.deepEqual([answer.status, (await answer.json()).error.param], [400, param]);
  }
});

test("a refusal leaves the connection usable, though nobody needed the body", async (t) => {
  const server = await serve(t);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const sockets = new Set();
  const ask = (method, path, body) =>
    new Promise((resolve, reject) => {
      const headers = body ? { "content-type": "application/json", "content-length": body.length } : {};
      const req = send(server.url + path, { method, agent, headers });
      req.on("socket", (socket) => sockets.add(socket));
      req.on("error", reject);
      req.on("response", (res) => res.resume().on("end", () => resolve(res.statusCode)));
      req.flushHeaders();
      // The body comes a moment after the head.
      setTimeout(() => req.end(body), body ? 1 : 0);
    });
  for (const id of [`sess_${"0".repeat(32)}`, "no-id"]) {
    for (let round = 0; round < 30; round++) {
      assert.equal(await ask("POST", `/v1/sessions/${id}/events`, '{"type":"interrupt"}'), 404);
      assert.equal(await ask("PATCH", `/v1/sessions/${id}`, '{"title":"x"}'), 404);
      assert.equal(await ask("GET", `/v1/sessions/${id}/items`), 404);
    }
  }
  assert.equal(sockets.size, 1);
});
