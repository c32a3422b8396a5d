// Every route with every kind of wrong credential: refused, without a trace in any object's storage and without a secret in
// any answer or log line.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { request as http } from "node:http";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { Session, eventually, model, request, serve } from "./kit.mjs";

const SECRET = "sk-nobody-may-read-this";
const KEYS = { LAYBY_PRIVATE_HOSTS: "true", LAYBY_API_KEYS: "acme:key-of-acme,beta:key-of-beta" };
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const encode = (claims) => Buffer.from(JSON.stringify(claims)).toString("base64url");

/** A request whose path goes out as it is: `fetch` would normalise it. */
function raw(server, method, path, headers, body) {
  return new Promise((resolve, reject) => {
    const sent = http({ host: "127.0.0.1", port: server.port, method, path, headers }, (answer) => {
      let text = "";
      answer.on("data", (chunk) => (text += chunk));
      answer.on("end", () => resolve({ status: answer.statusCode, text }));
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

/** What a WebSocket's handshake has beside its credentials. */
const HANDSHAKE = {
  upgrade: "websocket",
  connection: "Upgrade",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

/** What is in the storage of all objects: the tables of every database that has any, row by row. */
function stored(server) {
  const root = join(server.storage, "do");
  const files = existsSync(root) ? readdirSync(root, { recursive: true, withFileTypes: true }) : [];
  const databases = files.filter((file) => file.isFile() && /^[0-9a-f]{64}\.sqlite$/.test(file.name));
  return databases
    .map((file) => join(file.parentPath, file.name))
    .sort()
    .flatMap((path) => {
      const database = new DatabaseSync(path, { readOnly: true });
      const names = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE '\\_cf%' ESCAPE '\\'");
      const tables = names.all().map(({ name }) => {
        const rows = database.prepare(`SELECT * FROM ${name}`).all();
        // That the directory has heard of the session is written down by the alarm, half a minute later.
        return `${path} ${name} ${JSON.stringify(rows.filter((row) => row.seq !== -4))}`;
      });
      database.close();
      return tables;
    });
}

/** Every route and method of the API's document, with ids in place. */
async function routes(server, session, other) {
  const { body } = await request(server, "GET", "/openapi.json");
  return Object.entries(body.paths)
    .filter(([path]) => path.startsWith("/v1/"))
    .flatMap(([path, methods]) => {
      const id = path.includes("/agents/") ? other : session;
      const filled = path.replace(/\{(item_id|call_id)\}/, "x").replace(/\{\w+\}/, id);
      return Object.keys(methods)
        .filter((method) => ["get", "post", "patch", "delete"].includes(method))
        .map((method) => [method.toUpperCase(), filled]);
    });
}

test("no wrong credential opens any route, and none leaves a trace", async (t) => {
  const server = await serve(t, KEYS);
  const llm = await model(t, [{ calls: [{ id: "x", name: "look" }] }]);
  const provider = { type: "openai-responses", base_url: llm.url, api_key: SECRET };
  const agent = { name: "test", model: "m", provider, tools: [{ type: "function", name: "look" }] };
  const acme = bearer("key-of-acme");
  const vault = (await request(server, "POST", "/v1/agents", agent, acme)).body.id;
  const session = await Session.create(server, { agent_id: vault }, acme);
  const other = await Session.create(server, { agent_id: vault }, acme);
  const nobody = `sess_${"0".repeat(32)}`;
  await session.say("go");
  await session.status("waiting");
  const token = async (of, body) => (await of.request("POST", "/tokens", body)).body.token;
  const all = ["read", "send", "tools"];
  const revoked = await token(session, { scopes: all });
  await session.request("DELETE", "/tokens");
  const good = await token(session, { scopes: all });
  const brief = await token(session, { scopes: all, expires_in: 1 });
  const foreign = await token(other, { scopes: all });
  const readers = await token(session, { scopes: ["read"] });
  const [claims, signature] = good.slice(3).split(".");
  const said = JSON.parse(Buffer.from(claims, "base64url"));
  await eventually(async () => (await request(server, "GET", `/v1/sessions/${session.id}`, undefined, bearer(brief))).status === 401, "the brief token has expired");

  const forged = (changes, end = signature) => `lt_${encode({ ...said, ...changes })}.${end}`;
  const tenants = ["beta", "gone", "default", "", "acme/../beta", `acme/../agents/${vault}?`, "acme/../../v1/agents?after=&after=",
    "acme\\..\\beta", "acme\0", "acme/", "acmé", "a".repeat(65), "acme%2f..", null, 7, {}];
  const wrong = {
    nothing: {},
    "an empty token": bearer(""),
    "a wrong key": bearer("key-of-acmf"),
    "a key in another scheme": { authorization: "Basic key-of-acme" },
    "an expired token": bearer(brief),
    "a revoked token": bearer(revoked),
    "another session's token": bearer(foreign),
    "no signature": bearer(`lt_${claims}.`),
    "another signature": bearer(`lt_${claims}.AA`),
    "more scopes": bearer(forged({ c: [...all, "approve"] })),
    "a later end": bearer(forged({ e: 9999999999 })),
    "a session that is not there": bearer(forged({ s: nobody })),
    ...Object.fromEntries(tenants.map((tenant) => [`the tenant ${JSON.stringify(tenant)}`, bearer(forged({ t: tenant }, "AA"))])),
    ...Object.fromEntries(["", "..", "sess_../x", `${session.id}/../..`].map((id) => [`the session ${id}`, bearer(forged({ s: id }, "AA"))])),
  };
  const paths = [...(await routes(server, session.id, vault)), ...(await routes(server, nobody, vault))];
  assert.ok(paths.length > 40, `${paths.length} routes`);
  // What is told with a delay has been told by now.
  await eventually(async () => (await request(server, "GET", "/v1/sessions?status=waiting", undefined, acme)).body.data.length === 1, "the list");
  const before = stored(server);
  const asked = llm.requests.length;
  const failures = [];
  for (const [what, headers] of Object.entries(wrong))
    for (const [method, path] of paths) {
      const body = ["POST", "PATCH"].includes(method) ? "{}" : undefined;
      const sent = { ...headers, "idempotency-key": "k", ...(path.endsWith("/ws") ? HANDSHAKE : {}), ...(body ? { "content-type": "application/json", "content-length": "2" } : {}) };
      const { status, text } = await raw(server, method, path, sent, body);
      const refused = [401, 403, 404].includes(status);
      if (!refused || text.includes(SECRET) || !text.startsWith('{"error":')) failures.push(`${what}: ${method} ${path} → ${status} ${text.slice(0, 100)}`);
    }
  // A token with one scope does what that scope says and nothing else.
  for (const [method, path] of paths.filter(([method, path]) => method !== "GET" || !path.includes(session.id))) {
    const body = ["POST", "PATCH"].includes(method) ? "{}" : undefined;
    const sent = { ...bearer(readers), ...(body ? { "content-type": "application/json", "content-length": "2" } : {}) };
    const { status } = await raw(server, method, path, sent, body);
    if (![401, 403, 404].includes(status)) failures.push(`a reader: ${method} ${path} → ${status}`);
  }
  assert.deepEqual(failures, []);
  assert.equal(llm.requests.length, asked, "the model was asked");
  assert.deepEqual(stored(server), before, "something was written");
  const logs = JSON.stringify(server.logs);
  for (const secret of [SECRET, "key-of-acme", "key-of-beta", good, signature]) assert.ok(!logs.includes(secret), `${secret} is in the logs`);
  assert.equal((await session.snapshot()).status, "waiting");
});

test("a path that reads in two ways is refused, whoever asks", async (t) => {
  const server = await serve(t, KEYS);
  const acme = bearer("key-of-acme");
  const session = await Session.create(server, {}, acme);
  const before = stored(server);
  const token = `lt_${encode({ t: "acme", s: session.id, c: [], e: 0 })}.AA`;
  for (const headers of [acme, bearer(token)])
    for (const tail of ["calls/a\\..\\..\\..\\..\\..\\log", "calls/..", "calls/%2e%2e", "../../agents/x", "./", "", "%2e"])
      for (const method of ["GET", "DELETE"]) {
        const { status, text } = await raw(server, method, `/v1/sessions/${session.id}/${tail}`, headers);
        assert.ok([400, 401, 403, 404, 405].includes(status), `${method} ${tail}: ${status} ${text}`);
        assert.ok(!text.includes("token_key") && !text.includes('"records"'));
      }
  assert.equal((await session.snapshot()).status, "idle", "the session was deleted");
  assert.deepEqual(stored(server).length, before.length);
});

test("reading makes no storage", async (t) => {
  const server = await serve(t, KEYS);
  const beta = bearer("key-of-beta");
  for (const path of ["/v1/sessions", "/v1/agents", "/v1/usage"]) {
    const { status, body } = await request(server, "GET", path, undefined, beta);
    assert.deepEqual([status, body.data ?? []], [200, []]);
  }
  for (const [method, path] of [["GET", `/v1/sessions/sess_${"0".repeat(32)}`], ["DELETE", `/v1/sessions/sess_${"0".repeat(32)}`], ["GET", "/v1/agents/ag_x"], ["DELETE", "/v1/agents/ag_x"]])
    assert.equal((await request(server, method, path, undefined, { ...beta, "idempotency-key": "k" })).status, 404, path);
  assert.deepEqual(stored(server), []);
});

test("a body is not waited for before the credentials are checked", async (t) => {
  const server = await serve(t, KEYS);
  const session = await Session.create(server, {}, bearer("key-of-acme"));
  const claims = { t: "acme", s: session.id, c: ["send"], e: 9999999999 };
  const answer = await new Promise((resolve, reject) => {
    const headers = { ...bearer(`lt_${encode(claims)}.AA`), "content-type": "application/json", "transfer-encoding": "chunked" };
    const sent = http({ host: "127.0.0.1", port: server.port, method: "POST", path: `/v1/sessions/${session.id}/events`, headers }, resolve);
    sent.on("error", reject);
    sent.write("{"); // and never ends
    t.after(() => sent.destroy());
  });
  assert.equal(answer.statusCode, 401);
});

test("a wrong setting is named, and nothing of its value is told", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_PROVIDERS: '{"azure":"sk-SECRET-789"}' });
  const { status, body } = await request(server, "GET", "/v1/sessions");
  assert.deepEqual([status, body.error.code], [503, "auth_not_configured"]);
  assert.match(body.error.message, /LAYBY_PROVIDERS/);
  assert.ok(!JSON.stringify([body, server.logs]).includes("SECRET"));
});

test("the scheme's case does not matter, and a preflight allows the headers that it asks for", async (t) => {
  const server = await serve(t, { ...KEYS, LAYBY_ORIGINS: "https://app.example.com" });
  for (const scheme of ["bearer", "BEARER", "Bearer"])
    assert.equal((await request(server, "GET", "/v1/info", undefined, { authorization: `${scheme} key-of-acme` })).status, 200);
  const preflight = async (origin, headers) => {
    const sent = { origin, "access-control-request-method": "POST", "access-control-request-headers": headers };
    const answer = await fetch(`${server.url}/v1/sessions`, { method: "OPTIONS", headers: sent });
    return [answer.status, answer.headers.get("access-control-allow-headers") ?? ""];
  };
  const [status, allowed] = await preflight("https://app.example.com", "authorization, traceparent,x-trace");
  assert.equal(status, 204);
  for (const name of ["idempotency-key", "traceparent", "x-trace"]) assert.ok(allowed.includes(name), allowed);
  assert.equal((await preflight("https://evil.example.com", "traceparent"))[0], 403);
});

test("a page's token costs no more than it may", async (t) => {
  const server = await serve(t, KEYS);
  const llm = await model(t, () => ({ text: "ok" }));
  const provider = { type: "openai-responses", base_url: llm.url };
  const session = await Session.create(server, { agent: { name: "t", model: "m", provider, instructions: "hidden words" } }, bearer("key-of-acme"));
  const token = async (body) => bearer((await session.request("POST", "/tokens", body)).body.token);
  const post = (headers, more) => request(server, "POST", `/v1/sessions/${session.id}/events`,
    { type: "message", data: { role: "user", content: "hi" }, on_busy: "interrupt", ...more }, headers);
  const page = await token({ scopes: ["read", "send"] });
  for (const more of [{ model_override: "dear" }, { temperature: 1 }, { reasoning_effort: "high" }])
    assert.equal((await post(page, more)).status, 403, JSON.stringify(more));
  const free = await token({ scopes: ["send"], models: ["dear"], settings: true });
  assert.equal((await post(free, { model_override: "dear", temperature: 1 })).status, 202);
  const agent = (await request(server, "GET", `/v1/sessions/${session.id}/agent`, undefined, page)).body;
  assert.deepEqual([agent.name, agent.instructions], ["t", null]);
  const statuses = [];
  for (let n = 0; n < 30; n++) statuses.push((await post(page)).status);
  const taken = statuses.filter((status) => status === 202).length;
  assert.ok(taken >= 8 && taken <= 15 && statuses.includes(429), `${taken} of 30 messages`);
  assert.equal((await post(bearer("key-of-acme"))).status, 202, "the tenant itself is not limited");
});

test("an agent that came with a session goes with the last session that has it", async (t) => {
  const server = await serve(t, KEYS);
  const acme = bearer("key-of-acme");
  const agent = { name: "own", model: "m", provider: { type: "openai-chat", base_url: "http://127.0.0.1:9", api_key: SECRET } };
  const one = await Session.create(server, { agent }, acme);
  const two = await Session.create(server, { agent }, acme);
  const id = (await one.snapshot()).agent_id;
  const there = async () => (await request(server, "GET", `/v1/agents/${id}`, undefined, acme)).status;
  await one.request("DELETE");
  assert.equal(await there(), 200);
  await two.request("DELETE");
  assert.equal(await there(), 404);
});

test("what a key made and was deleted is not made again under that key", async (t) => {
  const server = await serve(t, KEYS);
  const key = { ...bearer("key-of-acme"), "idempotency-key": "once" };
  const create = () => request(server, "POST", "/v1/sessions", { title: "x" }, key);
  const first = await create();
  assert.equal(first.status, 201);
  assert.equal((await create()).body.id, first.body.id);
  await request(server, "DELETE", `/v1/sessions/${first.body.id}`, undefined, bearer("key-of-acme"));
  const again = await create();
  assert.deepEqual([again.status, again.body.error.code], [409, "idempotency_key_reused"]);
  assert.match(again.body.error.message, /was deleted/);
});

test("an answer of any size is given again under its key", async (t) => {
  const server = await serve(t);
  const text = "x".repeat(3_000_000);
  const body = { title: "one", initial_items: [{ role: "user", content: text }, { role: "assistant", content: "ok" }] };
  const key = { "idempotency-key": "large" };
  const first = await request(server, "POST", "/v1/sessions", body, key);
  assert.equal(first.status, 201);
  const again = await request(server, "POST", "/v1/sessions", body, key);
  assert.deepEqual([again.status, again.body.id, again.headers.get("idempotent-replayed")], [201, first.body.id, "true"]);
  const session = new Session(server, first.body.id);
  for (const replayed of [null, "true"]) {
    const { status, body, headers } = await session.request("PATCH", "", { title: "two" }, key);
    assert.deepEqual([status, body.title, headers.get("idempotent-replayed")], [200, "two", replayed]);
  }
});

test("what a deployment no longer allows is refused when the model would be asked, and nothing else is", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true" });
  const llm = await model(t, () => ({ text: "ok" }));
  const session = await Session.on(server, llm);
  for (const [name, value] of [
    ["LAYBY_INLINE_PROVIDERS", "false"],
    ["LAYBY_PRIVATE_HOSTS", "false"],
  ]) {
    server.vars = { LAYBY_OPEN: "true", [name]: value };
    await server.restart();
    const { status, body } = await session.request("PATCH", "", { title: name, expires_in: 3600 });
    assert.deepEqual([status, body.title], [200, name]);
    assert.ok([400, 403].includes((await session.request("PATCH", "", { model_override: "other" })).status));
    await session.say("go");
    assert.equal((await session.status("idle", "failed")).last_task_error.code, "upstream_unreachable");
    assert.equal(llm.requests.length, 0, `${name}: the provider was asked`);
  }
});
