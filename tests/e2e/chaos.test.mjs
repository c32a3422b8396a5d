// Sessions at work while the server is killed again and again. `npm run chaos` does it fifty times, `npm test` a few.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { LOOK, Session, eventually, model, serve } from "./kit.mjs";

const KILLS = Number(process.env.CHAOS_KILLS ?? 6);
const SESSIONS = 5;
const TERMINAL = ["response.completed", "response.failed", "response.incomplete", "response.cancelled"];

/** Calls a tool when a message asks for it, answers with a slow text otherwise. */
function answers() {
  let calls = 0;
  return (body) => {
    const last = body.input.at(-1);
    const text = last.content?.[0]?.text ?? "";
    if (text.includes("tool"))
      return { text: "Let me see. ", pause: 3, calls: [{ id: `call_${++calls}`, name: "look" }] };
    return { text: `Here it is: ${"word ".repeat(20)}`, pause: 3 };
  };
}

/** Does a request until it is answered; the key makes that safe. */
async function until(session, key, event) {
  return eventually(
    async () => {
      const answer = await session.request("POST", "/events", event, { "idempotency-key": key }).catch(() => null);
      return answer && answer.status !== 503 && answer;
    },
    `an answer to ${key}`,
    60,
  );
}

test(`nothing acknowledged is lost and nothing is done twice over ${KILLS} deaths`, async (t) => {
  const server = await serve(t);
  const llm = await model(t, answers());
  const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => Session.on(server, llm)));
  let over = false;

  /** One session's client: messages, some of which park, and the answers to what has parked. */
  async function work(session) {
    const turns = [];
    let messages = 0;
    for (let n = 0; !over; n++) {
      const content = n % 2 ? `use the tool ${n}` : `say something ${n}`;
      const event = { type: "message", data: { role: "user", content }, tools: [LOOK] };
      const { status, body } = await until(session, `m-${n}`, event);
      assert.equal(status, 202, JSON.stringify(body));
      turns.push(body.response_id);
      messages++;
      if (n % 3 === 2) {
        // Another one while the model answers, with a text or with a call: it waits or joins.
        const on_busy = Math.floor(n / 6) % 2 ? "steer" : "queue";
        const more = { type: "message", data: { role: "user", content: `and this ${n}` }, on_busy };
        const { status, body } = await until(session, `more-${n}`, more);
        assert.equal(status, 202, JSON.stringify(body));
        if (body.status !== "steered") turns.push(body.response_id);
        messages++;
      }
      await eventually(
        async () => {
          const snapshot = await session.snapshot().catch(() => null);
          for (const call of snapshot?.pending_tool_calls ?? []) {
            const output = {
              type: "function_call_output",
              data: { call_id: call.call_id, output: `out ${call.call_id}` },
            };
            const answer = await session.request("POST", "/events", output).catch(() => null);
            assert.ok(!answer || [202, 503].includes(answer.status), JSON.stringify(answer?.body));
          }
          return snapshot?.status === "idle" || snapshot?.status === "failed";
        },
        `the end of turn ${n}`,
        60,
      );
    }
    return { turns, messages };
  }

  const working = sessions.map(work);
  for (let kill = 0; kill < KILLS; kill++) {
    await sleep(150 + ((kill * 97) % 400));
    await server.kill();
  }
  over = true;
  const done = await Promise.all(working);

  for (const [n, session] of sessions.entries()) {
    const snapshot = await session.status("idle", "failed");
    assert.deepEqual([snapshot.pending_tool_calls, snapshot.queue], [[], []]);
    const events = [];
    for (let after = "start", more = true; more;) {
      const { body } = await session.request("GET", `/events?after=${after}&limit=1000`);
      events.push(...body.data);
      [after, more] = [body.cursor, body.has_more];
    }
    const ended = events.filter(({ type }) => TERMINAL.includes(type)).map(({ response }) => response.id);
    assert.deepEqual(ended, done[n].turns, "every acknowledged message has one turn, and each turn one end, in order");
    const cursors = events.map(({ cursor }) => cursor);
    assert.equal(new Set(cursors).size, cursors.length);
    const { body } = await session.request("GET", "/items?limit=1000");
    const ids = (type) =>
      body.data
        .filter((item) => item.type === type)
        .map((item) => item.call_id)
        .sort();
    assert.deepEqual(ids("function_call_output"), ids("function_call"), "every call has one output");
    const users = body.data.filter((item) => item.role === "user").length;
    assert.equal(users, done[n].messages, "every message is there once");
    const cut = cursors[Math.floor(cursors.length / 2)];
    const { body: rest } = await session.request("GET", `/events?after=${cut}&limit=1000`);
    assert.deepEqual(
      rest.data.map(({ type }) => type),
      events.slice(cursors.indexOf(cut) + 1).map(({ type }) => type),
    );
  }
  for (const { body } of llm.requests) {
    const count = (type) => body.input.filter((item) => item.type === type).length;
    assert.equal(count("function_call"), count("function_call_output"), "the model was asked while a call was parked");
  }
  t.diagnostic(`${done.flatMap(({ turns }) => turns).length} turns, ${llm.requests.length} model requests`);
});
