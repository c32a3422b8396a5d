// Lists of sessions, agents, and what was used.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LOOK, Session, eventually, model, request, serve } from "./kit.mjs";

const list = async (server, query = "") => (await request(server, "GET", `/v1/sessions${query}`)).body;
const ids = (page) => page.data.map(({ id }) => id);

test("sessions are listed from their making to their deletion, filtered and found", async (t) => {
  const server = await serve(t);
  const make = (body) => Session.create(server, body);
  const one = await make({ title: "Über Wale", labels: { team: "sea", a: "b:c" } });
  const two = await make({ title: "100% land", agent: { name: "other", provider: { type: "scripted" } } });
  const three = await make({ labels: { team: "sea" } });
  assert.deepEqual(ids(await list(server)), [three.id, two.id, one.id]);
  assert.deepEqual(ids(await list(server, "?order=asc")), [one.id, two.id, three.id]);
  for (const [query, found] of [
    ["label=team:sea", [three, one]],
    ["label=a:b:c", [one]],
    ["label=team:land", []],
    ["agent_name=other", [two]],
    ["search_query=über", [one]],
    ["search_query=WALE", [one]],
    ["search_query=100%25", [two]],
    ["search_query=sea", [three, one]],
    ["status=idle&agent_name=layby", [three, one]],
    ["status=waiting", []],
    ["archived=true", []],
    [`after=${two.id}`, [one]],
    [`before=${two.id}`, [three]],
    [`after=${three.id}&limit=1`, [two]],
  ])
    assert.deepEqual(
      ids(await list(server, `?${query}`)),
      found.map(({ id }) => id),
      query,
    );
  const newest = async () => {
    // Times are whole seconds.
    await two.request("PATCH", "", { archived: true, title: "Put away" });
    return (await list(server, "?sort_by=updated_at&limit=1")).data[0].title === "Put away";
  };
  await eventually(newest, "the change in the list");
  assert.deepEqual(ids(await list(server, "?archived=true")), [two.id]);
  await one.request("DELETE");
  assert.deepEqual(ids(await list(server)), [three.id, two.id]);
  const gone = await request(server, "GET", `/v1/sessions?after=${one.id}`);
  assert.deepEqual([gone.status, gone.body.error.param], [404, "after"]);
});

test("pages neither repeat nor lose a session while others are made", async (t) => {
  const server = await serve(t);
  const made = [];
  for (let n = 0; n < 7; n++) made.push((await Session.create(server, {})).id);
  const seen = [];
  for (let after = "", more = true; more;) {
    const page = await list(server, `?limit=3${after}`);
    seen.push(...ids(page));
    [after, more] = [`&after=${page.last_id}`, page.has_more];
    await Session.create(server, {});
  }
  assert.deepEqual(seen, made.reverse());
});

test("the list follows what a session does, over the death of the server too", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }, { text: "Done." }]);
  const session = await Session.on(server, llm);
  const listed = (status) =>
    eventually(async () => (await list(server)).data[0].status === status, `${status} in the list`);
  await session.say("go", [LOOK]);
  await listed("waiting");
  await server.kill();
  await session.give("a", "x");
  await session.status("idle");
  await listed("idle");
  const { body } = await request(server, "GET", "/v1/usage");
  assert.deepEqual([body.total.total_tokens, body.days[0].usage.total_tokens, body.sessions], [30, 30, 1]);
  const copy = await session.request("POST", "/fork", {});
  assert.deepEqual(ids(await list(server)), [copy.body.id, session.id]);
  await session.request("DELETE");
  const after = (await request(server, "GET", "/v1/usage")).body;
  assert.deepEqual(
    [after.total.total_tokens, after.sessions],
    [30, 1],
    "a copy has used nothing yet, and what was used stays",
  );
});

test("a session is deleted once under its key", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, {});
  const key = { "idempotency-key": "bye" };
  const first = await session.request("DELETE", "", undefined, key);
  const again = await session.request("DELETE", "", undefined, key);
  assert.deepEqual([first.status, again.status, again.body], [200, 200, first.body]);
  assert.equal(again.headers.get("idempotent-replayed"), "true");
  assert.equal((await session.request("DELETE", "", undefined, { "idempotency-key": "other" })).status, 404);
  const other = await Session.create(server, {});
  assert.equal((await other.request("DELETE", "", undefined, key)).status, 200, "a key belongs to its session");
  assert.equal((await other.request("GET")).status, 404);
  assert.equal((await session.request("DELETE")).status, 404);
});

test("agents are made, changed, listed and deleted; a session keeps the one that it was made with", async (t) => {
  const server = await serve(t);
  const agents = (method, path = "", body, headers) => request(server, method, `/v1/agents${path}`, body, headers);
  const provider = { type: "scripted", script: [{ text: "First." }, { text: "Second." }] };
  const key = { "idempotency-key": "make" };
  const made = await agents("POST", "", { name: "helper", instructions: "Be brief.", provider, tools: [LOOK] }, key);
  assert.deepEqual([made.status, made.body.version, made.body.tools[0].name], [201, 1, "look"]);
  assert.equal(
    (await agents("POST", "", { name: "helper", instructions: "Be brief.", provider, tools: [LOOK] }, key)).body.id,
    made.body.id,
  );
  const { id } = made.body;
  assert.equal(made.headers.get("location"), `/v1/agents/${id}`);
  const session = await Session.create(server, { agent_id: id });
  const changed = await agents("PATCH", `/${id}`, { instructions: "Be long." });
  assert.deepEqual([changed.body.version, changed.body.instructions, changed.body.tools.length], [2, "Be long.", 1]);
  assert.equal((await session.request("GET", "/agent")).body.instructions, "Be brief.");
  const { body: page } = await agents("GET");
  assert.deepEqual(
    page.data.map(({ id, version }) => [id, version]),
    [[id, 2]],
    "agents that came with a session are not listed",
  );
  assert.equal((await agents("DELETE", `/${id}`)).body.deleted, true);
  for (const answer of [
    await agents("GET", `/${id}`),
    await agents("PATCH", `/${id}`, {}),
    await agents("DELETE", `/${id}`),
  ])
    assert.deepEqual([answer.status, answer.body.error.code], [404, "not_found"]);
  const refused = await request(server, "POST", "/v1/sessions", { agent_id: id });
  assert.deepEqual([refused.status, refused.body.error.param], [404, "agent_id"]);
  await session.say("hi");
  assert.equal((await session.status("idle")).items[1].content[0].text, "First.");
  const bad = await agents("POST", "", { name: "x", modle: "y" });
  assert.deepEqual([bad.status, bad.body.error.param], [400, "modle"]);
});

test("a page of agents is bounded in bytes, and all of them are found", async (t) => {
  const server = await serve(t);
  const instructions = "x".repeat(900_000);
  const made = [];
  for (let n = 0; n < 5; n++) {
    const agent = { name: `large ${n}`, instructions, provider: { type: "scripted" } };
    made.push((await request(server, "POST", "/v1/agents", agent)).body.id);
  }
  const seen = [];
  const sizes = [];
  for (let after = "", more = true; more;) {
    const { status, body } = await request(server, "GET", `/v1/agents?order=asc&after=${after}`);
    assert.equal(status, 200);
    seen.push(...body.data.map(({ id }) => id));
    sizes.push(body.data.length);
    [after, more] = [body.last_id, body.has_more];
  }
  assert.deepEqual([seen, sizes], [made, [3, 2]]);
});

test("a tenant sees neither sessions nor agents of another", async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "one:key-of-one,two:key-of-two" });
  const as = (tenant) => ({ authorization: `Bearer key-of-${tenant}` });
  const session = await Session.create(server, {}, as("one"));
  const agent = await request(server, "POST", "/v1/agents", { name: "a", provider: { type: "scripted" } }, as("one"));
  for (const path of ["/v1/sessions", "/v1/agents"])
    assert.deepEqual((await request(server, "GET", path, undefined, as("two"))).body.data, []);
  assert.equal((await request(server, "GET", `/v1/agents/${agent.body.id}`, undefined, as("two"))).status, 404);
  const stolen = await request(server, "POST", "/v1/sessions", { agent_id: agent.body.id }, as("two"));
  assert.equal(stolen.status, 404);
  assert.equal((await request(server, "POST", `/v1/sessions/${session.id}/fork`, {}, as("two"))).status, 404);
  assert.equal((await request(server, "GET", "/v1/usage", undefined, as("two"))).body.sessions, 0);
});
