// Nothing that a user, a model or an agent's author writes can break a frame: checked with parsers that are not ours.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createParser } from "eventsource-parser";
import { python } from "../../scripts/python.mjs";
import { Session, model, serve } from "./kit.mjs";

const HOSTILE = 'x\nevent: response.completed\ndata: {}\n\nid: 9\r\rdata: y\r\n\u2028\u2029\u0085\u0000\ufeff: z "\\';
const LOOK = { type: "function", function: { name: "look", description: HOSTILE } };

/** A session through which the hostile text went as message, call id, arguments, output, answer and agent's name. */
async function session(t) {
  const server = await serve(t);
  const llm = await model(t, [
    {
      text: HOSTILE,
      chunk: 1,
      calls: [
        { id: HOSTILE, name: "look", arguments: JSON.stringify({ HOSTILE }) },
        { id: "b", name: HOSTILE },
      ],
    },
    { text: HOSTILE, chunk: 3 },
  ]);
  const session = await Session.on(server, llm, { name: HOSTILE.slice(0, 60), instructions: HOSTILE });
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await session.say(HOSTILE, [LOOK]);
  const snapshot = await session.status("waiting");
  await session.give(snapshot.pending_tool_calls[0].call_id, HOSTILE);
  await stream.status("idle");
  return { server, session, last: stream.lastId };
}

function check(events) {
  const parsed = events.map(({ id, event, data }) => ({ id, event, data: JSON.parse(data) }));
  for (const { id, event, data } of parsed) {
    assert.equal(event, data.type);
    assert.ok(!/[\r\n\0]/.test(`${id ?? ""}${event}`));
  }
  const text = parsed.filter(({ event }) => event === "response.output_text.delta").map(({ data }) => data.delta);
  assert.equal(text.join(""), HOSTILE + HOSTILE);
  assert.equal(parsed.filter(({ event }) => event === "response.completed").length, 1);
  const output = parsed.find(({ data }) => data.item?.type === "function_call_output" && data.item.output === HOSTILE);
  assert.ok(output, "the output is not what was posted");
}

test("eventsource-parser reads hostile content as it was written", async (t) => {
  const {
    server,
    session: { id },
    last,
  } = await session(t);
  const abort = new AbortController();
  t.after(() => abort.abort());
  const answer = await fetch(`${server.url}/v1/sessions/${id}/stream?after=start`, { signal: abort.signal });
  const events = [];
  const parser = createParser({ onEvent: (event) => events.push(event), onError: (error) => assert.fail(error) });
  const decoder = new TextDecoder();
  for await (const chunk of answer.body) {
    parser.feed(decoder.decode(chunk, { stream: true }));
    if (events.at(-1)?.id === last) break;
  }
  check(events);
});

test("httpx-sse reads hostile content as it was written", async (t) => {
  const { python: interpreter, why } = python();
  if (!interpreter) return t.skip(`no Python with httpx-sse: ${why}`);
  const {
    server,
    session: { id },
    last,
  } = await session(t);
  const script = fileURLToPath(new URL("read_stream.py", import.meta.url));
  const url = `${server.url}/v1/sessions/${id}/stream`;
  const { stdout } = await promisify(execFile)(interpreter, [script, url, last], { maxBuffer: 1 << 26 });
  check(JSON.parse(stdout));
});
