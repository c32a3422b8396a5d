// The outside of the API held against a recording: streams, snapshots, items, pages of events and errors of sessions in every
// situation. Ids, cursors and times are replaced by what they are the n-th of, and error messages are left out: their wording
// is free. GOLDEN_RECORD=1 records anew, which only a change of the contract calls for.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { LOOK, Session, eventually, joined, model, request, serve } from "./kit.mjs";

const FILE = fileURLToPath(new URL("./golden.json", import.meta.url));
const golden = process.env.GOLDEN_RECORD === "1" ? {} : JSON.parse(readFileSync(FILE, "utf8"));

/** Replaces what differs from run to run. One for each session, so that an id is the same in all that is seen of it. */
class Normal {
  #names = new Map();

  #name(kind, text) {
    const key = `${kind} ${text}`;
    if (!this.#names.has(key)) {
      const known = [...this.#names.keys()].filter((name) => name.startsWith(`${kind} `)).length;
      this.#names.set(key, `${kind}_${known + 1}`);
    }
    return this.#names.get(key);
  }

  of(value, key = "") {
    if (Array.isArray(value)) return value.map((entry) => this.of(entry));
    if (value && typeof value === "object") {
      const kept = Object.entries(value).filter(([key]) => key !== "cursor" && key !== "request_id");
      return Object.fromEntries(kept.map(([key, value]) => [key, this.of(value, key)]));
    }
    if (typeof value === "number" && key.endsWith("_at")) return value === 0 ? 0 : "time";
    if (typeof value !== "string") return value;
    if (key === "message") return "words";
    return value.replace(/\b(sess|resp|item|ag|call)_[0-9a-f]{16,32}\b/g, (id, kind) => this.#name(kind, id));
  }
}

/** Everything that can be read of a session at rest. */
async function seen(session) {
  const normal = new Normal();
  const events = [];
  for (let after = "start", more = true; more;) {
    const { body } = await session.request("GET", `/events?after=${after}&limit=1000`);
    events.push(...body.data);
    [after, more] = [body.cursor, body.has_more];
  }
  const read = async (path) => (await session.request("GET", path)).body;
  return normal.of({
    stream: joined(events),
    snapshot: await read(""),
    items: await read("/items?limit=1000"),
    agent: await read("/agent"),
  });
}

function check(name, value) {
  if (process.env.GOLDEN_RECORD === "1") golden[name] = value;
  else assert.deepEqual(value, golden[name], name);
}

const rest = (session) => session.status("idle", "failed");
const message = (content, more) => ({ type: "message", data: { role: "user", content }, ...more });

test("what clients see of sessions in every situation is what was recorded", async (t) => {
  const server = await serve(t);
  const on = async (answers, agent = {}) => {
    const llm = await model(t, answers);
    return { llm, session: await Session.on(server, llm, agent) };
  };
  const usual = {
    async "a plain turn with thoughts"() {
      const { session } = await on([{ thought: "hm", text: "Hello there." }]);
      await session.say("hi");
      await rest(session);
      return session;
    },
    async "parallel calls, one of an unknown tool, one that failed"() {
      const calls = ["a", "b", "c"].map((id) => ({ id, name: id === "c" ? "nobody" : "look", arguments: `{"at":"${id}"}` }));
      const { session } = await on([{ text: "Let me see.", calls }, { text: "Done." }]);
      await session.say("go", [LOOK]);
      await session.status("waiting");
      check("parallel calls, waiting", await seen(session));
      await session.post({ type: "function_call_output", data: { call_id: "b", output: "no", is_error: true } });
      await session.give("a", "yes");
      await rest(session);
      return session;
    },
    async "an interrupt while calls wait, and a message after it"() {
      const { session } = await on([{ calls: [{ id: "a", name: "look" }] }, { text: "Fine." }]);
      await session.say("go", [LOOK]);
      await session.status("waiting");
      await session.post({ type: "interrupt", data: {} });
      await rest(session);
      await session.say("and now");
      await rest(session);
      return session;
    },
    async "messages that queue and that steer"() {
      const { session } = await on([{ calls: [{ id: "a", name: "look" }] }, { text: "One." }, { text: "Two." }]);
      await session.say("go", [LOOK]);
      await session.status("waiting");
      await session.post(message("later"));
      await session.post(message("join", { on_busy: "steer" }));
      check("messages that queue, waiting", await seen(session));
      await session.give("a", "yes");
      await eventually(async () => (await session.snapshot()).usage.total_tokens === 45, "three responses");
      await rest(session);
      return session;
    },
    async "a call that is cancelled and one that expires"() {
      const calls = [{ id: "a", name: "look" }, { id: "b", name: "look" }];
      const { session } = await on([{ calls }, { text: "Well." }], { tool_timeout_s: 1 });
      await session.say("go", [LOOK]);
      await session.status("waiting");
      await session.request("DELETE", "/calls/a");
      await rest(session);
      return session;
    },
    async "a failure, and a turn after it"() {
      const { session } = await on([{ text: "Half", failure: "it broke" }, { text: "Whole." }]);
      await session.say("go");
      await rest(session);
      check("a failure", await seen(session));
      await session.say("again");
      await rest(session);
      return session;
    },
    async "a retry"() {
      const { session } = await on([{ status: 503, raw: "{}", headers: { "retry-after": "1" } }, { text: "Now." }]);
      await session.say("go");
      await rest(session);
      return session;
    },
    async "a limit"() {
      const { session } = await on([{ text: "Too much", reason: "length" }]);
      await session.say("go");
      await rest(session);
      return session;
    },
    async "a session with initial items, patched, and its copy"() {
      const llm = await model(t, [{ text: "Three." }]);
      const initial_items = [
        { role: "user", content: "One." },
        { type: "function_call", call_id: "x", name: "look", arguments: "{}" },
        { type: "function_call_output", call_id: "x", output: "two" },
        { role: "user", content: "And?" },
      ];
      const session = await Session.on(server, llm, {}, { initial_items, title: "t", labels: { a: "b" } });
      await rest(session);
      await session.request("PATCH", "", { title: "u", labels: { c: "d" }, archived: true });
      const copy = new Session(server, (await session.request("POST", "/fork", {})).body.id);
      check("a copy", await seen(copy));
      return session;
    },
  };
  for (const [name, play] of Object.entries(usual)) check(name, await seen(await play()));
});

test("what clients are refused is what was recorded", async (t) => {
  const server = await serve(t, { LAYBY_API_KEYS: "acme:key-of-acme" });
  const acme = { authorization: "Bearer key-of-acme" };
  const provider = { type: "scripted", script: [{ tool_calls: [{ name: "look", arguments: "{}", call_id: "a" }] }] };
  const session = await Session.create(server, { agent: { name: "a", provider } }, acme);
  await session.say("go", [LOOK]);
  await session.status("waiting");
  const output = (call_id, output) => ({ type: "function_call_output", data: { call_id, output } });
  const token = { authorization: `Bearer ${(await session.request("POST", "/tokens", { scopes: ["read"] })).body.token}` };
  const own = `/v1/sessions/${session.id}`;
  const cases = [
    ["GET", "/v1/sessions", undefined, {}],
    ["GET", "/v1/sessions", undefined, { authorization: "Bearer wrong-key" }],
    ["GET", "/v1/sessions?limit=0", undefined, acme],
    ["GET", "/v1/sessions?label=plain", undefined, acme],
    ["GET", "/v1/nothing", undefined, acme],
    ["PUT", "/v1/sessions", {}, acme],
    ["GET", "/v1/sessions/sess_x", undefined, acme],
    ["GET", "/v1/agents/ag_x", undefined, acme],
    ["POST", "/v1/sessions", { agent: { name: "a" } }, acme],
    ["POST", "/v1/sessions", { agnet: {} }, acme],
    ["POST", "/v1/sessions", { agent_id: "ag_x" }, acme],
    ["POST", "/v1/sessions", { initial_items: [{ type: "function_call_output", call_id: "x", output: "" }] }, acme],
    ["POST", `${own}/events`, "{", acme],
    ["POST", `${own}/events`, { type: "coffee", data: {} }, acme],
    ["POST", `${own}/events`, message("x", { on_busy: "reject" }), acme],
    ["POST", `${own}/events`, message("x", { on_busy: "maybe" }), acme],
    ["POST", `${own}/events`, message([]), acme],
    ["POST", `${own}/events`, output("nope", "x"), acme],
    ["POST", `${own}/events`, output("a", 7), acme],
    ["POST", `${own}/events`, output("a", "x"), token],
    ["POST", `${own}/events`, output("a", "x".repeat(4 * 1024 * 1024 + 1)), acme],
    ["POST", `${own}/tokens`, { scopes: [] }, acme],
    ["POST", `${own}/fork`, { up_to_response_id: "resp_x" }, acme],
    ["PATCH", own, { titel: "x" }, acme],
    ["DELETE", own, undefined, token],
    ["GET", `${own}/items?after=item_x`, undefined, acme],
    ["GET", `${own}/stream?after=000000.1.0.0`, undefined, acme],
    ["GET", `${own}/events?after=x`, undefined, acme],
    ["DELETE", `${own}/queue/item_x`, undefined, acme],
    ["DELETE", `${own}/calls/nope`, undefined, acme],
  ];
  const normal = new Normal();
  const answers = [];
  for (const [method, path, body, headers] of cases) {
    const { status, body: answer } = await request(server, method, path, body, headers);
    const what = `${method} ${path.replace(own, "…")} ${JSON.stringify(body ?? "").slice(0, 80)}`;
    answers.push([what, status, normal.of(answer)]);
  }
  await session.give("a", "x");
  for (const again of ["x", "y"]) {
    const { status, body } = await session.request("POST", "/events", output("a", again));
    answers.push([`again ${again}`, status, normal.of(body)]);
  }
  check("errors", answers);
  if (process.env.GOLDEN_RECORD === "1") writeFileSync(FILE, `${JSON.stringify(golden, null, 1)}\n`);
});
