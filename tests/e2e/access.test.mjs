// Who may do what: API keys, session tokens, origins, and how often.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { LOOK, Session, model, request, serve } from "./kit.mjs";

const KEYS = {
  LAYBY_PRIVATE_HOSTS: "true",
  LAYBY_API_KEYS: "acme:key-of-acme,acme:second-key,beta:key-of-beta",
  LAYBY_ORIGINS: "https://app.example.com",
};
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const message = { type: "message", data: { role: "user", content: "hi" } };

/** A parked session of the tenant acme, and what makes tokens for it. */
async function parked(t, tool = "look") {
  const server = await serve(t, KEYS);
  const llm = await model(t, [
    {
      calls: [
        { id: "a", name: tool },
        { id: "b", name: "pay" },
      ],
    },
    { text: "ok" },
  ]);
  const provider = { type: "openai-responses", base_url: llm.url };
  const agent = { name: "test", model: "m", provider };
  const session = await Session.create(server, { agent }, bearer("key-of-acme"));
  const pay = { type: "function", function: { name: "pay" } };
  await session.say("go", [LOOK, pay]);
  await session.status("waiting");
  const token = async (body) => {
    const answer = await session.request("POST", "/tokens", body);
    assert.equal(answer.status, 201, JSON.stringify(answer.body));
    return answer.body.token;
  };
  const as = (token, headers = {}) => new Session(server, session.id, { ...bearer(token), ...headers });
  return { server, session, token, as };
}

test("every route does for every scope what the contract says", async (t) => {
  const { server, session, token, as } = await parked(t);
  const output = { type: "function_call_output", data: { call_id: "nope", output: "x" } };
  const routes = [
    ["GET", "", undefined, "read"],
    ["GET", "/items", undefined, "read"],
    ["GET", "/events", undefined, "read"],
    ["GET", "/agent", undefined, "read"],
    ["GET", "/stream?after=bad", undefined, "read"],
    ["POST", "/events", { ...message, on_busy: "reject" }, "send"],
    ["POST", "/events", { type: "interrupt", data: { response_id: "stale" } }, "send"],
    ["DELETE", "/queue/nope", undefined, "send"],
    ["POST", "/events", output, "tools"],
    ["DELETE", "/calls/nope", undefined, "tools"],
    ["PATCH", "", { title: "x" }, "key"],
    ["POST", "/fork", {}, "key"],
    ["POST", "/tokens", { scopes: ["read"] }, "key"],
    ["DELETE", "/tokens", undefined, "key"],
    ["DELETE", "", undefined, "key"],
  ];
  for (const scope of ["read", "send", "tools"]) {
    const holder = as(await token({ scopes: [scope] }));
    for (const [method, path, body, need] of routes) {
      const { status, body: answer } = await holder.request(method, path, body);
      const what = `${scope}: ${method} ${path} ${JSON.stringify(body)} → ${status} ${JSON.stringify(answer)}`;
      if (need === scope) assert.ok(![401, 403].includes(status) && status < 500, what);
      else assert.deepEqual([status, answer.error?.code], [403, "forbidden"], what);
    }
    for (const path of ["/v1/sessions", "/v1/agents", "/v1/usage", "/v1/info"]) {
      const { status } = await request(server, "GET", path, undefined, holder.headers);
      assert.equal(status, 403, path);
    }
  }
  assert.equal((await session.snapshot()).status, "waiting", "nothing has happened");
});

test("a token answers the calls of its tools, posts messages, and reads the stream in its address", async (t) => {
  const { server, session, token, as } = await parked(t);
  const some = as(await token({ scopes: ["tools"], tools: ["look"] }));
  const give = (call_id) =>
    some.request("POST", "/events", { type: "function_call_output", data: { call_id, output: "x" } });
  const refused = await give("b");
  assert.deepEqual([refused.status, refused.body.error.message], [403, "this token does not cover calls of pay"]);
  assert.equal((await some.request("DELETE", "/calls/b")).status, 403);
  assert.equal((await give("a")).status, 202);
  assert.equal((await give("b")).status, 403);
  const reader = await token({ scopes: ["read", "send"] });
  const address = `${server.url}/v1/sessions/${session.id}`;
  const stream = await fetch(`${address}/stream?after=start&access_token=${reader}`);
  assert.equal(stream.status, 200);
  await stream.body.cancel();
  for (const path of ["", "/items", "/events"])
    assert.equal((await fetch(`${address}${path}?access_token=${reader}`)).status, 401, "for streams only");
  assert.equal(
    (await fetch(`${address}/stream?access_token=key-of-acme`)).status,
    401,
    "an API key is not for addresses",
  );
  const socket = new WebSocket(`${address.replace("http", "ws")}/ws?access_token=${reader}`);
  await once(socket, "open");
  const answers = [];
  socket.addEventListener("message", ({ data }) => {
    const event = JSON.parse(data);
    if (event.type === "session.answer") answers.push([event.ref, event.status]);
  });
  socket.send(JSON.stringify({ ...message, ref: 1 }));
  socket.send(JSON.stringify({ type: "function_call_output", data: { call_id: "b", output: "x" }, ref: 2 }));
  while (answers.length < 2) await once(socket, "message");
  socket.close();
  assert.deepEqual(answers, [
    [1, 202],
    [2, 403],
  ]);
  assert.ok(!JSON.stringify(server.logs).includes(reader), "a token is in the logs");
});

test("forged, expired, foreign and revoked tokens open nothing", async (t) => {
  const { server, session, token, as } = await parked(t);
  const good = await token({ scopes: ["read"] });
  const [claims, mark] = good.slice(3).split(".");
  const said = JSON.parse(Buffer.from(claims, "base64url"));
  const forge = (changes) => `lt_${Buffer.from(JSON.stringify({ ...said, ...changes })).toString("base64url")}.${mark}`;
  for (const [forged, status] of [
    [forge({ c: ["read", "send", "tools"] }), 401],
    [forge({ e: 9999999999 }), 401],
    [forge({ t: "beta" }), 404], // where beta has no such session
    [`lt_${claims}.`, 401],
    [`lt_${claims}`, 401],
    ["lt_x.y", 401],
    [`lt_${"A".repeat(20000)}.x`, 401],
    ["eyJhbGciOiJub25lIn0.e30.", 401],
  ])
    assert.equal((await as(forged).request("GET")).status, status, forged.slice(0, 40));
  const other = await Session.create(server, {}, bearer("second-key"));
  const foreign = new Session(server, other.id, bearer(good));
  assert.deepEqual((await foreign.request("GET")).status, 403);
  const bound = await token({ scopes: ["read"], origin: "https://app.example.com" });
  assert.equal((await as(bound).request("GET")).status, 403);
  assert.equal((await as(bound, { origin: "https://evil.example.com" }).request("GET")).status, 403);
  assert.equal((await as(bound, { origin: "https://app.example.com" }).request("GET")).status, 200);
  const brief = await token({ scopes: ["read"], expires_in: 1 });
  await new Promise((resolve) => setTimeout(resolve, 2100)); // it is the time itself that is waited for
  const late = await as(brief).request("GET");
  assert.deepEqual([late.status, late.body.error.code], [401, "unauthorized"]);
  assert.match(late.body.error.message, /expired/);

  const mine = session.stream(t);
  const theirs = as(good).stream(t);
  await Promise.all([mine.type("session.heartbeat"), theirs.type("session.heartbeat")]);
  await server.miniflare.unsafeEvictDurableObject("layby", "Session", {
    name: `acme/${session.id}`,
    webSockets: "hibernate",
  });
  assert.equal((await as(good).request("GET")).status, 200, "tokens survive eviction");
  assert.equal((await session.request("DELETE", "/tokens")).body.revoked, true);
  await theirs.reading;
  assert.equal(theirs.done, false);
  for (const old of [good, bound])
    assert.equal((await as(old, { origin: "https://app.example.com" }).request("GET")).status, 401);
  assert.equal((await as(await token({ scopes: ["read"] })).request("GET")).status, 200);
  await session.give("a", "x");
  await session.give("b", "x");
  await mine.status("idle");
});

test("pages of allowed origins may ask, others may not, on every route", async (t) => {
  const server = await serve(t, KEYS);
  const preflight = (path, origin) =>
    fetch(server.url + path, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization" },
    });
  for (const path of ["/v1/sessions", "/v1/sessions/x/events", "/health", "/nowhere"]) {
    const yes = await preflight(path, "https://app.example.com");
    assert.deepEqual([yes.status, yes.headers.get("access-control-allow-origin")], [204, "https://app.example.com"]);
    assert.match(yes.headers.get("access-control-allow-headers"), /idempotency-key/);
    const no = await preflight(path, "https://evil.example.com");
    assert.deepEqual([no.status, no.headers.get("access-control-allow-origin")], [403, null]);
  }
  const answer = await request(server, "GET", "/v1/sessions", undefined, { origin: "https://app.example.com" });
  assert.deepEqual(
    [answer.status, answer.headers.get("access-control-allow-origin")],
    [401, "https://app.example.com"],
  );
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  const open = await serve(t);
  const any = await request(open, "GET", "/health", undefined, { origin: "https://any.example.com" });
  assert.equal(any.headers.get("access-control-allow-origin"), "*");
});

test("who asks too often is told when to come back, and the others are not", async (t) => {
  const server = await serve(t, { ...KEYS, LAYBY_TENANT_RATE: "5", LAYBY_SESSION_RATE: "1" });
  const ask = (key) => request(server, "GET", "/v1/info", undefined, bearer(key));
  const answers = await Promise.all(Array.from({ length: 30 }, () => ask("key-of-acme")));
  const limited = answers.filter(({ status }) => status === 429);
  assert.ok(limited.length >= 5 && limited.length <= 10, `${limited.length} of 30`);
  assert.equal(limited[0].body.error.code, "rate_limited");
  assert.ok(Number(limited[0].headers.get("retry-after")) >= 1);
  assert.equal((await ask("key-of-beta")).status, 200);
  const nobody = `sess_${"0".repeat(32)}`;
  const said = { t: "beta", s: nobody, c: ["read"], e: 9999999999 };
  const forged = `lt_${Buffer.from(JSON.stringify(said)).toString("base64url")}.x`;
  const asNobody = () => request(server, "GET", `/v1/sessions/${nobody}`, undefined, bearer(forged));
  const flood = await Promise.all(Array.from({ length: 40 }, asNobody));
  assert.ok(flood.some(({ status }) => status === 429));
  assert.equal((await ask("key-of-beta")).status, 200, "a forged token used up what is the tenant's");
  const session = await Session.create(server, {}, bearer("key-of-beta"));
  const posts = await Promise.all(Array.from({ length: 8 }, () => session.request("POST", "/events", message)));
  assert.equal(posts.filter(({ status }) => status === 202).length, 4);
  assert.equal(posts.filter(({ status }) => status === 429).length, 4);
});

test("the service says what it is and what it can", async (t) => {
  const server = await serve(t, { ...KEYS, OPENAI_API_KEY: "zebra-key" });
  const { body } = await request(server, "GET", "/v1/info", undefined, bearer("second-key"));
  assert.deepEqual([body.providers, body.limits.body_bytes, body.limits.queue], [["openai"], 8388608, 32]);
  assert.ok(!JSON.stringify(body).includes("zebra"));
  const document = await request(server, "GET", "/openapi.json");
  assert.deepEqual([document.status, document.body.openapi], [200, "3.1.0"]);
  const line = server.logs.map(({ message }) => message).find((line) => line.includes('"event":"request"'));
  assert.deepEqual(Object.keys(JSON.parse(line)).sort(), ["event", "method", "ms", "request_id", "route", "status"]);
});

test("a deployment says what is logged", async (t) => {
  const lines = async (LAYBY_LOG) => {
    const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_LOG });
    const session = await Session.create(server, {});
    await session.say("hello");
    await session.status("idle");
    await session.status("idle");
    const events = server.logs.map(({ message }) => /"event":"(\w+)"/.exec(message)?.[1]).filter(Boolean);
    return [...new Set(events)].sort();
  };
  assert.deepEqual(await lines("requests"), ["request", "turn"]);
  assert.deepEqual(await lines("turns"), ["turn"]);
  assert.deepEqual(await lines("errors"), []);
});
