// The same rules for every dialect, on the real runtime.
import assert from "node:assert/strict";
import { test } from "node:test";
import { AI, DIALECTS, LOOK, Session, model, request, serve } from "./kit.mjs";

const OPEN = { LAYBY_OPEN: "true" };

for (const [name, dialect] of Object.entries(DIALECTS)) {
  const own = name === "workers-ai";

  /** A server, a model with that script, and a session between them. */
  async function set(t, script, agent = {}, vars = {}) {
    const llm = await model(t, script);
    const server = await serve(t, { ...OPEN, ...vars }, own ? { AI: AI(llm.origin) } : {});
    const provider = dialect.provider(llm.origin);
    const session = await Session.create(server, { agent: { name: "test", model: "m", provider, ...agent } });
    return { llm, server, session };
  }

  test(`${name}: text, thoughts and parallel calls go round, over eviction`, async (t) => {
    const thought = own ? undefined : "Hm.";
    const calls = [
      { id: "call_1", name: "look", arguments: '{"q":1}' },
      { id: "call_2", name: "look", arguments: '{"q":2}' },
    ];
    const { llm, server, session } = await set(t, [
      { thought, text: "北京 🙂 ok.", chunk: 1, calls },
      { text: "Both seen." },
    ]);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go", [LOOK]);
    const { pending_tool_calls: pending } = await session.status("waiting");
    assert.deepEqual(
      pending.map((call) => JSON.parse(call.arguments)),
      [{ q: 1 }, { q: 2 }],
    );
    await server.evict(session.id);
    for (const [n, { call_id }] of pending.entries()) await session.give(call_id, `out ${n} "\\ 🙂`);
    await stream.status("idle");
    assert.equal(stream.text, "北京 🙂 ok.Both seen.");
    if (thought)
      assert.ok(stream.events.some(({ type, delta }) => type.startsWith("response.reasoning") && delta === thought));
    const { body } = llm.requests[1];
    const ids = dialect.calls(body);
    assert.equal(ids.length, 2);
    if (!own) assert.deepEqual(ids, ["call_1", "call_2"]);
    assert.deepEqual(dialect.outputs(body), [
      [ids[0], 'out 0 "\\ 🙂'],
      [ids[1], 'out 1 "\\ 🙂'],
    ]);
    if (thought && name !== "openai-chat")
      assert.ok(JSON.stringify(body).includes("opaque 1"), "the thought did not come back");
    const snapshot = await session.snapshot();
    assert.ok(!JSON.stringify(snapshot).includes("opaque"), "opaque payload is shown");
    assert.equal(snapshot.usage.total_tokens, 30);
    await session.say("again");
    await session.status("idle");
    assert.deepEqual(
      dialect.texts(llm.requests[2].body).map(([role]) => role),
      ["user", "assistant", "assistant", "user"],
    );
  });

  test(`${name}: an error inside the answer keeps the text, fails the turn, and the session works on`, async (t) => {
    const { llm, session } = await set(t, [{ text: "So far. ", failure: "out of cats" }, { text: "Back." }]);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go");
    const failed = await session.status("failed");
    assert.equal(failed.last_task_error.code, "upstream_error");
    assert.match(failed.last_task_error.message, /out of cats/);
    assert.deepEqual(
      failed.items.map(({ type, status }) => [type, status]),
      [
        ["message", "completed"],
        ["message", "incomplete"],
        ["error", "completed"],
      ],
    );
    await session.say("again");
    await session.status("idle");
    assert.deepEqual(
      dialect.texts(llm.requests[1].body).map(([, text]) => text),
      ["go", "So far. ", "again"],
    );
  });

  test(`${name}: a call of an answer that is cut off is not parked`, async (t) => {
    const { session } = await set(t, [{ text: "x", calls: [{ id: "a", name: "look" }], cut: true }]);
    await session.say("go", [LOOK]);
    const failed = await session.status("failed");
    assert.deepEqual([failed.last_task_error.code, failed.pending_tool_calls], ["upstream_truncated", []]);
    assert.ok(!failed.items.some(({ type }) => type === "function_call"));
  });

  test(`${name}: an error with status 200 is tried again, one that is the request's fault is not`, async (t) => {
    const busy = { raw: JSON.stringify({ error: { type: "overloaded_error", message: "Busy" } }) };
    const wrong = { status: 400, raw: JSON.stringify({ error: { message: "prompt is too long: 9 tokens" } }) };
    const { llm, session } = await set(t, [busy, { text: "There." }, wrong]);
    const stream = session.stream(t);
    await stream.type("session.heartbeat");
    await session.say("go");
    await session.status("idle");
    assert.equal((await stream.type("response.retry")).attempt, 2);
    await session.say("again");
    assert.equal((await session.status("failed")).last_task_error.code, "context_length_exceeded");
    assert.equal(llm.requests.length, 3);
  });

  test(`${name}: a rate limit is waited for as long as the provider says`, async (t) => {
    const limited = { status: 429, headers: { "retry-after-ms": "1500" }, raw: "{}" };
    const { llm, session } = await set(t, [limited, { text: "Now." }]);
    await session.say("go");
    assert.equal((await session.status("idle")).items[1].content[0].text, "Now.");
    const waited = llm.requests[1].at - llm.requests[0].at;
    assert.ok(waited >= 1500, `${waited} ms`);
  });

  test(`${name}: silence is noticed, before the first byte and in the middle`, async (t) => {
    let free = () => {};
    const hold = new Promise((resolve) => (free = resolve));
    t.after(() => free());
    const { session } = await set(t, [{ text: "so far", hold }], {}, { LAYBY_IDLE_S: "1" });
    await session.say("go");
    const failed = await session.status("failed");
    assert.equal(failed.last_task_error.code, "upstream_stalled");
    assert.equal(failed.items[1].content[0].text, "so far");
  });

  test(`${name}: an answer without end is ended by the total time`, async (t) => {
    const { llm, session } = await set(t, [{ text: "x".repeat(200), chunk: 1, pause: 50 }], {}, { LAYBY_TOTAL_S: "1" });
    await session.say("go");
    assert.equal((await session.status("failed")).last_task_error.code, "timeout");
    assert.ok(llm.requests[0].closed, "the connection is still open");
  });
}

test("the platform's binding gets the words of its own, and its absence is told", async (t) => {
  const llm = await model(t, [{ calls: [{ id: "", name: "look" }] }, { text: "ok" }]);
  const agent = {
    name: "own",
    model: "@cf/some/model",
    provider: { type: "workers-ai", gateway: "gate" },
    temperature: 0.5,
  };
  const server = await serve(t, OPEN, { AI: AI(llm.origin) });
  const session = await Session.create(server, { agent });
  await session.say("go", [LOOK]);
  const { pending_tool_calls } = await session.status("waiting");
  await session.give(pending_tool_calls[0].call_id, "x");
  await session.status("idle");
  const { model: name, options, stream, temperature, tools, messages } = llm.requests[1].body;
  assert.deepEqual(
    [name, options, stream, temperature],
    ["@cf/some/model", { gateway: { id: "gate" }, returnRawResponse: true }, true, 0.5],
  );
  assert.deepEqual([tools.length, messages[1].content], [1, ""]);
  const bare = await Session.create(await serve(t), { agent });
  await bare.say("go");
  const failed = await bare.status("failed");
  assert.match(failed.last_task_error.message, /no binding AI/);
});

test("a deployment's providers are used by name, their secrets are nowhere, and others can be forbidden", async (t) => {
  const llm = await model(t, () => ({ text: "Hello." }));
  const azure = {
    type: "openai-chat",
    base_url: `${llm.origin}/deployments/d/v1`,
    headers: { "api-key": "$AZURE_KEY" },
    query: { "api-version": "1" },
  };
  const claude = { type: "anthropic", base_url: llm.url, api_key: "$CLAUDE_KEY" };
  const vars = {
    ...OPEN,
    AZURE_KEY: "zebra-azure",
    CLAUDE_KEY: "zebra-claude",
    LAYBY_PROVIDERS: JSON.stringify({ azure, claude }),
    LAYBY_PROVIDER: "azure",
    LAYBY_INLINE_PROVIDERS: "false",
  };
  const server = await serve(t, vars);
  const session = await Session.create(server, { agent: { name: "a", model: "m", provider: "claude" } });
  await session.say("hi");
  await session.status("idle");
  assert.equal(llm.requests[0].headers["x-api-key"], "zebra-claude");
  const plain = await Session.create(server, { agent: { name: "a", model: "m" } });
  await plain.say("hi");
  await plain.status("idle");
  const { url, headers } = llm.requests[1];
  assert.deepEqual([url, headers["api-key"]], ["/deployments/d/v1/chat/completions?api-version=1", "zebra-azure"]);
  await plain.request("PATCH", "", { model_override: "claude:opus" });
  await plain.say("hi");
  await plain.status("idle");
  assert.deepEqual([llm.requests[2].url, llm.requests[2].body.model], ["/v1/messages", "opus"]);
  for (const { id } of [session, plain])
    for (const path of ["", "/items", "/agent", "/events"])
      assert.ok(!JSON.stringify((await request(server, "GET", `/v1/sessions/${id}${path}`)).body).includes("zebra"));
  assert.ok(!JSON.stringify(server.logs).includes("zebra"), "a secret is in the logs");
  const create = (provider) => request(server, "POST", "/v1/sessions", { agent: { name: "a", model: "m", provider } });
  const inline = await create(claude);
  assert.deepEqual(
    [inline.status, inline.body.error.code, inline.body.error.param],
    [403, "forbidden", "agent.provider"],
  );
  const unknown = await create("nobody");
  assert.deepEqual([unknown.status, unknown.body.error.param], [400, "agent.provider"]);
  assert.match(unknown.body.error.message, /no provider nobody; it has azure, claude/);
  assert.equal((await create(undefined)).status, 201);
});

test("settings of a turn reach the model in that turn alone, and are refused where there is no such thing", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "one" }, { text: "two" }]);
  const session = await Session.on(server, llm, { temperature: 1 });
  const settings = { tool_choice: "required", temperature: 0.25, max_output_tokens: 50 };
  await session.post({ type: "message", data: { role: "user", content: "go" }, tools: [LOOK], ...settings });
  await session.status("waiting");
  await session.give("a", "x");
  await session.status("idle");
  await session.say("again");
  await session.status("idle");
  assert.deepEqual(
    llm.requests.map(({ body }) => [body.tool_choice, body.temperature, body.max_output_tokens]),
    [
      ["required", 0.25, 50],
      [undefined, 0.25, 50],
      [undefined, 1, undefined],
    ],
  );
  const provider = DIALECTS.anthropic.provider(llm.origin);
  const other = await Session.create(server, { agent: { name: "b", model: "m", provider } });
  const message = { type: "message", data: { role: "user", content: "go" }, response_format: { type: "json_object" } };
  const refused = await other.request("POST", "/events", message);
  assert.deepEqual([refused.status, refused.body.error.param], [400, "response_format"]);
  assert.deepEqual((await other.snapshot()).items, []);
  const patched = await other.request("PATCH", "", { reasoning_effort: "minimal" });
  assert.deepEqual([patched.status, patched.body.error.param], [400, "reasoning_effort"]);
  const agent = { name: "c", model: "m", provider, temperature: 2 };
  assert.equal((await request(server, "POST", "/v1/sessions", { agent })).body.error.param, "temperature");
});

test("a wrong setting is named, and nothing of it is told", async (t) => {
  const server = await serve(t, { ...OPEN, LAYBY_PROVIDERS: '{"azure":"zebra-key"}' });
  const { status, body } = await request(server, "GET", "/v1/sessions");
  assert.deepEqual([status, body.error.code], [503, "auth_not_configured"]);
  assert.match(body.error.message, /LAYBY_PROVIDERS/);
  assert.ok(!JSON.stringify([body, server.logs]).includes("zebra"));
  assert.ok(JSON.stringify(server.logs).includes("azure: invalid type: string"), "the log does not say why");
});
