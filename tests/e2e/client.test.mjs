// The browser client against the real server, over a network that fails.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { LaybyError, Session as Client } from "../../src/web/client.js";
import { LOOK, Session, eventually, joined, model, request, serve } from "./kit.mjs";
import { network } from "./network.mjs";

/** A client of a session, closed at the end of the test, and what it was told. `over`: another address than the server's. */
async function attach(t, session, { over = session.server.url, ...options } = {}) {
  const client = await Client.open({ baseUrl: over, sessionId: session.id, ...options });
  t.after(() => client.close());
  return client;
}

/** All that an iterator gives, until it ends. */
function collect(events) {
  const seen = [];
  seen.reading = (async () => {
    for await (const event of events) seen.push(event);
  })();
  seen.reading.catch((error) => (seen.error = error));
  return seen;
}

const told = (client, type, test = () => true) =>
  new Promise((resolve) => client.on(type, (event) => test(event) && resolve(event)));
const isIdle = ({ type, status, cursor }) => type === "session.status" && status === "idle" && cursor;
const idle = (seen) => eventually(() => seen.error ?? seen.find(isIdle), "the turn's end");
const textOf = (seen) =>
  seen
    .filter(({ type }) => type === "response.output_text.delta")
    .map(({ delta }) => delta)
    .join("");

test("a chat: messages, their answers, and the events to every iterator and listener", async (t) => {
  const server = await serve(t);
  const client = await Client.create({ baseUrl: `${server.url}/`, title: "from the client" });
  t.after(() => client.close());
  const first = collect(client.events());
  const types = [];
  client.on("*", ({ type }) => types.push(type));
  const hello = await client.ask("hello there");
  assert.deepEqual([hello.status, hello.output_text], ["completed", "You said: hello there"]);
  const second = collect(client.events());
  assert.equal((await client.ask([{ type: "input_text", text: "again" }])).output_text, "You said: again");
  await eventually(() => second.some(isIdle), "the end for the second");
  assert.equal(textOf(first), "You said: hello thereYou said: again");
  assert.equal(textOf(second), "You said: again");
  assert.ok(types.includes("layby.connection") && types.includes("session.heartbeat"));
  assert.ok(first.every(({ type, cursor }) => cursor && type !== "session.heartbeat"));
  const replay = collect(client.events({ after: "start" }));
  await eventually(() => replay.filter(isIdle).length === 2, "the replay");
  assert.deepEqual(joined(replay), joined(first));
  const snapshot = await client.snapshot();
  assert.deepEqual([snapshot.title, snapshot.status, snapshot.cursor], ["from the client", "idle", client.cursor]);
  assert.deepEqual(
    (await client.items({ limit: 1 })).data.map(({ role, content }) => [role, content[0].text]),
    [["user", "hello there"]],
  );
  assert.equal((await client.interrupt()).status, "idle");
});

test("an iterator begun before the message sees all that it causes, at a session somebody else made", async (t) => {
  const server = await serve(t);
  for (let round = 0; round < 10; round++) {
    const client = await attach(t, await Session.create(server, {}));
    const seen = collect(client.events());
    const { response_id } = await client.send("hi");
    await idle(seen);
    const created = seen.filter(({ type }) => type === "response.created").map(({ response }) => response.id);
    assert.deepEqual(created, [response_id]);
  }
});

test("who comes in the middle of a text sees all of it", async (t) => {
  const server = await serve(t);
  const text = "from the very beginning ".repeat(20);
  const session = await Session.on(server, await model(t, [{ text, pause: 5 }]));
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say("go");
  await eventually(() => stream.text.length > 50, "some text");
  const seen = collect((await attach(t, session)).events());
  await idle(seen);
  assert.equal(textOf(seen), text);
});

test("registered tools are offered and answered, whatever they give and whatever they throw", async (t) => {
  const server = await serve(t);
  const names = ["text", "parts", "json", "nothing", "half", "throws", "huge", "garbled"];
  const llm = await model(t, [
    { calls: names.map((name) => ({ id: name, name, arguments: name === "garbled" ? "{oops" : '{"n": 1}' })) },
    { text: "Thank you." },
  ]);
  const client = await attach(t, await Session.on(server, llm));
  const seen = [];
  const parts = [{ type: "input_text", text: "a part" }];
  const outputs = { text: "as it is", parts, json: { a: [1] }, nothing: undefined, half: "cut \ud83d" };
  for (const [name, output] of Object.entries(outputs))
    client.tool(name, { description: `gives ${name}` }, (args, call) => (seen.push([call.call_id, args.n]), output));
  client.tool("throws", { timeoutS: 60 }, async () => {
    throw new Error("the door is shut");
  });
  client.tool("huge", {}, () => "x".repeat(4 * 1024 * 1024 + 1));
  client.tool("garbled", {}, () => seen.push("ran"));
  const unregister = client.tool("gone", {}, () => "");
  unregister();
  const response = await client.ask("go", { tools: [LOOK] });
  assert.equal(response.output_text, "Thank you.");
  assert.deepEqual(seen.map(([id]) => id).sort(), Object.keys(outputs).sort());
  assert.ok(seen.every(([, n]) => n === 1));
  const [{ body }, { body: again }] = llm.requests;
  assert.deepEqual(body.tools.map(({ name }) => name).sort(), [...names, "look"].sort());
  assert.equal(body.tools.find(({ name }) => name === "json").description, "gives json");
  const given = Object.fromEntries(
    again.input.filter(({ output }) => output !== undefined).map(({ call_id, output }) => [call_id, output]),
  );
  assert.deepEqual([given.text, given.parts, given.json, given.nothing], ["as it is", parts, '{"a":[1]}', "null"]);
  assert.equal(given.half, "cut \ufffd");
  assert.match(given.huge, /refused.*4194305/);
  const items = (await client.items()).data.filter(({ type }) => type === "function_call_output");
  const failed = items.filter(({ is_error }) => is_error).map(({ call_id, output }) => [call_id, output]);
  assert.deepEqual(failed.map(([id]) => id).sort(), ["garbled", "huge", "throws"]);
  assert.equal(given.throws, "the door is shut");
  assert.match(given.garbled, /not JSON/);
});

test("calls that were parked before the client came, or before the tool, are answered", async (t) => {
  const server = await serve(t);
  const calls = ["a", "b"].map((id) => ({ id, name: "look" }));
  const llm = await model(t, [{ calls: [...calls, { id: "c", name: "late" }] }, { text: "All seen." }]);
  const session = await Session.on(server, llm);
  await session.say("go", [LOOK, { type: "function", name: "late" }]);
  await session.status("waiting");
  const client = await attach(t, session);
  const ran = [];
  client.tool("look", {}, (_, { call_id }) => (ran.push(call_id), `seen ${call_id}`));
  const seen = collect(client.events());
  await eventually(async () => (await client.snapshot()).pending_tool_calls.length === 1, "two are answered");
  client.tool("late", {}, () => "better late");
  await idle(seen);
  assert.deepEqual(ran.sort(), ["a", "b"]);
  assert.equal(textOf(seen), "All seen.");
  assert.deepEqual(
    llm.requests[1].body.input
      .filter(({ output }) => output)
      .map(({ output }) => output)
      .sort(),
    ["better late", "seen a", "seen b"],
  );
});

test("of two clients with one tool exactly one wins, the other is told, and the model is asked once", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "call_1", name: "look" }] }, { text: "Done." }]);
  const session = await Session.on(server, llm);
  const clients = [await attach(t, session), await attach(t, session)];
  let started = 0;
  let both;
  const barrier = new Promise((resolve) => (both = resolve));
  const ends = clients.map((client, n) => {
    client.tool("look", {}, async () => {
      if (++started === 2) both();
      await barrier;
      return `from ${n}`;
    });
    return Promise.race([told(client, "layby.answered"), told(client, "layby.answer_lost")]);
  });
  await Promise.all(clients.map((client) => told(client, "session.status")));
  const { output_text } = await clients[0].ask("go");
  assert.equal(output_text, "Done.");
  const verdicts = await Promise.all(ends);
  assert.deepEqual(verdicts.map(({ type }) => type).sort(), ["layby.answer_lost", "layby.answered"]);
  const winner = verdicts.findIndex(({ type }) => type === "layby.answered");
  assert.equal(verdicts[1 - winner].code, "call_already_resolved");
  assert.equal(llm.requests.length, 2);
  assert.equal(llm.requests[1].body.input.at(-1).output, `from ${winner}`);
});

test("an answer is whole, also where the end of its turn has no room for it", async (t) => {
  const server = await serve(t);
  const text = "x".repeat(1_500_000);
  const llm = await model(t, [{ text, chunk: 65_536 }]);
  const client = await attach(t, await Session.on(server, llm));
  const { output, output_text } = await client.ask("go");
  assert.equal(output[0].truncated, true);
  assert.ok(output_text === text, `${output_text.length} characters`);
});

test("a tool is told when its answer is no longer wanted", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "call_1", name: "look" }] }, { text: "Without it." }]);
  const client = await attach(t, await Session.on(server, llm));
  const lost = told(client, "layby.answer_lost");
  client.tool("look", {}, async (_, { call_id, signal }) => {
    const aborted = once(signal, "abort");
    await client.cancelCall(call_id);
    await aborted;
    return "too late";
  });
  assert.equal((await client.ask("go")).output_text, "Without it.");
  assert.equal((await lost).code, "call_cancelled");
});

test("a connection that breaks all the time loses nothing and repeats nothing", async (t) => {
  const server = await serve(t);
  let seed = 7;
  const roll = (below) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
  const text = "北京 🙂 and more words, ".repeat(12);
  const turns = 5;
  const turn = (_, n) => [
    { text, chunk: 2, pause: 4, calls: [{ id: `call_${n}`, name: "look" }] },
    { text, chunk: 2, pause: 4 },
  ];
  const session = await Session.on(server, await model(t, Array.from({ length: turns }, turn).flat()));
  const steady = session.stream(t);
  await steady.type("session.heartbeat");
  const net = await network(t, server, () => 3000 + roll(1000)); // room for the head and the largest event
  const client = await attach(t, session, { over: net.url });
  const ran = [];
  client.tool("look", {}, (_, { call_id }) => (ran.push(call_id), "seen"));
  const [one, two] = [collect(client.events()), collect(client.events())];
  for (let n = 0; n < turns; n++) assert.equal((await client.ask("go")).output_text, text + text);
  const over = (events) => events.filter(isIdle).length === turns;
  await eventually(() => over(one) && over(two), "all turns' ends");
  await eventually(
    () => steady.events.filter(({ id, status }) => id && status === "idle").length === turns,
    "the same",
  );
  const log = one.filter(({ cursor }) => cursor);
  assert.deepEqual(joined(log), steady.content);
  assert.deepEqual([...two], [...one]);
  assert.equal(new Set(log.map(({ cursor }) => cursor)).size, log.length);
  assert.deepEqual(
    ran,
    Array.from({ length: turns }, (_, n) => `call_${n}`),
  );
  t.diagnostic(`${net.cuts} cuts`);
  assert.ok(net.cuts >= 20, `only ${net.cuts} cuts`);
});

test("a call that was resolved while the client was away is not run", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [
    { calls: [{ id: "call_1", name: "look" }] },
    { text: "Somebody else did it.", calls: [{ id: "call_2", name: "look" }] },
    { text: "Now you." },
  ]);
  const session = await Session.on(server, llm);
  const net = await network(t, server);
  const client = await attach(t, session, { over: net.url });
  const seen = collect(client.events());
  await eventually(() => client.cursor, "the client is attached");
  const ran = [];
  client.tool("look", {}, (_, { call_id }) => (ran.push(call_id), "seen"));
  net.down = true;
  net.cut();
  await session.say("go", [LOOK]);
  await session.status("waiting");
  await session.give("call_1", "from somebody else");
  await eventually(async () => (await session.snapshot()).pending_tool_calls[0]?.call_id === "call_2", "the next call");
  net.down = false;
  await idle(seen);
  assert.deepEqual(ran, ["call_2"]);
  assert.equal(textOf(seen), "Somebody else did it.Now you.");
});

test("the server dies and comes back: a tool's answer and a message arrive, once", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [
    { text: "Wait. ", calls: [{ id: "call_1", name: "look" }] },
    { text: "Thanks. " },
    { text: "Again." },
  ]);
  const client = await attach(t, await Session.on(server, llm));
  let dead;
  client.tool("look", {}, () => {
    dead = server.kill();
    return "seen";
  });
  const seen = collect(client.events());
  assert.equal((await client.ask("go")).output_text, "Wait. Thanks. ");
  await dead;
  const [again] = await Promise.all([client.ask("again"), server.kill()]);
  assert.ok(["Again.", "past the end of the script"].includes(again.output_text), again.output_text);
  const users = (await client.items()).data.filter(({ role }) => role === "user").map(({ content }) => content[0].text);
  assert.deepEqual(users, ["go", "again"]);
  await eventually(() => seen.filter(isIdle).length === 2, "both ends");
  const cursors = seen.map(({ cursor }) => cursor).filter(Boolean);
  assert.equal(new Set(cursors).size, cursors.length);
});

test("an answer that never came back is not a second message", async (t) => {
  const server = await serve(t);
  let lost = 0;
  const flaky = async (url, init) => {
    const answer = await fetch(url, init);
    if (init.method !== "POST" || lost >= 2) return answer;
    lost++;
    throw new TypeError("fetch failed");
  };
  const client = await Client.create({ baseUrl: server.url, fetch: flaky });
  t.after(() => client.close());
  assert.equal((await client.ask("once")).output_text, "You said: once");
  assert.equal(lost, 2);
  assert.equal((await client.items()).data.filter(({ role }) => role === "user").length, 1);
});

test("a token is renewed when it has expired, for requests and for the stream", async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "acme:key-of-acme" });
  const key = { authorization: "Bearer key-of-acme" };
  const session = await Session.create(server, {}, key);
  const tokens = [];
  const token = async () => {
    const body = { scopes: ["read", "send", "tools"], expires_in: tokens.length === 0 ? 1 : 900 };
    const answer = await session.request("POST", "/tokens", body);
    tokens.push(answer.body.token);
    return answer.body.token;
  };
  const client = await attach(t, session, { token });
  const seen = collect(client.events());
  await eventually(() => client.cursor, "the client is attached");
  const as = (token) => new Session(server, session.id, { authorization: `Bearer ${token}` });
  await eventually(async () => (await as(tokens[0]).request("GET")).status === 401, "the first token has expired");
  const both = await Promise.all([client.snapshot(), client.ask("hello")]);
  assert.equal(both[1].output_text, "You said: hello");
  assert.equal(tokens.length, 2, "renewed once for all requests");
  const reconnected = told(client, "layby.connection", ({ state }) => state === "open");
  await session.request("DELETE", "/tokens"); // ends streams that were opened with a token
  await reconnected;
  assert.equal((await client.ask("again")).output_text, "You said: again");
  assert.equal(tokens.length, 3);
  assert.equal(textOf(seen), "You said: helloYou said: again");

  const fixed = await attach(t, session, { token: tokens.at(-1) });
  const ending = collect(fixed.events());
  await eventually(() => fixed.cursor, "the client is attached");
  await session.request("DELETE", "/tokens");
  await assert.rejects(ending.reading, (error) => error instanceof LaybyError && error.code === "unauthorized");
  await assert.rejects(fixed.send("x"), { status: 401 });
});

test("close ends the stream and every iterator, and the server sees it go", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_HEARTBEAT_S: "1" });
  const session = await Session.create(server, {});
  const client = await attach(t, session);
  const all = [client.events(), client.events(), client.events({ after: "start" })].map(collect);
  const left = client.events();
  await eventually(async () => (await session.snapshot()).subscribers === 2, "one shared stream, one of its own");
  await left.return();
  assert.deepEqual(await left.next(), { value: undefined, done: true });
  const asked = client.ask("never sent", { onBusy: "reject", tools: [LOOK], tool_choice: "nonsense" });
  await assert.rejects(asked, { code: "invalid_input" });
  client.close();
  await Promise.all(all.map(({ reading }) => reading));
  assert.deepEqual(await client.events().next(), { value: undefined, done: true });
  await eventually(async () => (await session.snapshot()).subscribers === 0, "nobody is left");
});

test("a deleted session ends everything; one that is not there is an error", async (t) => {
  const server = await serve(t);
  const missing = { baseUrl: server.url, sessionId: "sess_0" };
  await assert.rejects(Client.open(missing), { name: "LaybyError", status: 404, code: "not_found" });
  const session = await Session.create(server, {});
  const net = await network(t, server);
  const client = await attach(t, session);
  const away = await attach(t, session, { over: net.url });
  const [seen, missed] = [collect(client.events()), collect(away.events())];
  await eventually(() => client.cursor && away.cursor, "both are attached");
  net.down = true;
  net.cut();
  await session.request("DELETE");
  await seen.reading;
  net.down = false;
  await assert.rejects(missed.reading, { code: "not_found" });
});

test("a connection that is silent for too long is dead; one with heartbeats is not", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_HEARTBEAT_S: "1" });
  const session = await Session.create(server, {});
  const net = await network(t, server);
  const client = await attach(t, session, { over: net.url, silenceMs: 2500 });
  const seen = collect(client.events());
  let beats = 0;
  client.on("session.heartbeat", () => beats++);
  await eventually(() => beats === 4, "heartbeats for longer than the silence that is borne");
  assert.equal(net.streams, 1);
  const retrying = told(client, "layby.connection", ({ state }) => state === "retrying");
  net.freeze();
  await session.say("are you there?");
  assert.match((await retrying).error.message, /no sign of life for 2500 ms/);
  await idle(seen);
  assert.equal(textOf(seen), "You said: are you there?");
  assert.equal(net.streams, 2);
});

test("when the browser is online again, the client reconnects at once", async (t) => {
  const browser = new EventTarget();
  globalThis.addEventListener = browser.addEventListener.bind(browser);
  globalThis.removeEventListener = browser.removeEventListener.bind(browser);
  t.after(() => {
    delete globalThis.addEventListener;
    delete globalThis.removeEventListener;
  });
  const server = await serve(t);
  const session = await Session.create(server, {});
  const net = await network(t, server);
  const client = await attach(t, session, { over: net.url, silenceMs: 600_000 });
  const seen = collect(client.events());
  await eventually(() => client.cursor, "the client is attached");
  net.freeze();
  await session.say("hello?");
  await session.status("idle");
  assert.equal(textOf(seen), "");
  browser.dispatchEvent(new Event("online"));
  await idle(seen);
  assert.equal(textOf(seen), "You said: hello?");
});

test("frames may be cut at any byte", async (t) => {
  const events = [
    'event: session.heartbeat\ndata: {"type":"session.heartbeat"}\n\n',
    'event: session.status\ndata: {"type":"session.status","status":"idle"}\n\n',
    "id: x.1.0.0\n\n",
    'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"北京 🙂 data: \\n\\n"}\nid: x.2.0.0\n\n',
    'event: session.heartbeat\ndata: {"type":"session.heartbeat"}\n\n',
    'event: session.status\ndata: {"type":"session.status","status":"idle"}\nid: x.3.0.0\n\n',
  ];
  const bytes = new TextEncoder().encode(events.join(""));
  const whole = bytes.length;
  const asked = [];
  // Every connection brings `size` bytes at a time and breaks off one byte later than the one before.
  const run = async (size) => {
    asked.length = 0;
    let end = 1;
    const at = { "x.1.0.0": 3, "x.2.0.0": 4, "x.3.0.0": 6 };
    const fake = async (url) => {
      if (!url.includes("/stream")) return Response.json({});
      const after = new URL(url).searchParams.get("after");
      asked.push(after);
      const rest = new TextEncoder().encode(events.slice(at[after] ?? 0).join(""));
      const stop = Math.min(rest.length, end++);
      const pieces = [];
      for (let from = 0; from < stop; from += size) pieces.push(rest.slice(from, Math.min(stop, from + size)));
      if (after === "x.3.0.0") pieces.push(new TextEncoder().encode("data: [DONE]\n\n"));
      return new Response(
        new ReadableStream({ pull: (c) => (pieces.length > 0 ? c.enqueue(pieces.shift()) : c.close()) }),
      );
    };
    const client = await Client.open({ baseUrl: "http://fake", sessionId: "s", fetch: fake });
    t.after(() => client.close());
    // Nothing has to be waited for: every pause ends at once.
    client.on(
      "layby.connection",
      ({ state }) => state === "retrying" && queueMicrotask(() => browser.dispatchEvent(new Event("online"))),
    );
    const seen = collect(client.events());
    await seen.reading;
    assert.deepEqual(
      seen.map(({ type, cursor, delta }) => [type, cursor, delta]),
      [
        ["session.status", undefined, undefined],
        ["response.output_text.delta", "x.2.0.0", "北京 🙂 data: \n\n"],
        ["session.status", "x.3.0.0", undefined],
      ],
    );
  };
  const browser = new EventTarget();
  globalThis.addEventListener = browser.addEventListener.bind(browser);
  globalThis.removeEventListener = browser.removeEventListener.bind(browser);
  t.after(() => {
    delete globalThis.addEventListener;
    delete globalThis.removeEventListener;
  });
  for (const size of [1, 2, 3, 7, whole]) await run(size);
  assert.ok(asked.length > 20);
});
