// What the platform bills: rows written and calls of objects, counted around the worker, not by it (bench/count.js).
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test from "node:test";
import { counted } from "../../bench/side.mjs";
import { Server, built } from "../../scripts/server.mjs";
import { LOOK, Session, eventually, model } from "./kit.mjs";

/** A served worker that counts. */
async function serve(t) {
  const storage = mkdtempSync(join(tmpdir(), "layby-"));
  const server = new Server({ storage, vars: { LAYBY_OPEN: "true" }, worker: counted(built()) });
  t.after(async () => {
    await server.stop();
    rmSync(storage, { recursive: true, force: true });
  });
  return server.start();
}

const count = async (server) => (await fetch(`${server.url}/count`)).json();

/** What was counted until the directory had heard as often as it should, and what came after. */
async function billed(server, told) {
  const sum = { calls: {}, read: {}, written: {} };
  const add = async () => {
    const more = await count(server);
    for (const [kind, figures] of Object.entries(more))
      for (const [name, n] of Object.entries(figures)) sum[kind][name] = (sum[kind][name] ?? 0) + n;
    return (sum.calls["Directory.fetch"] ?? 0) >= told;
  };
  await eventually(add, `the directory is told ${told} times`);
  return sum;
}

test("a plain turn: one call and six rows of the session, one call and two rows of the directory", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ text: "one" }, { text: "two" }, { text: "many ".repeat(3000), chunk: 5 }]);
  const session = await Session.on(server, llm);
  const streams = Array.from({ length: 10 }, () => session.stream(t));
  await Promise.all(streams.map((stream) => stream.type("session.heartbeat")));
  for (const alarm of [1, 0, 0]) {
    await count(server);
    await session.say("go");
    const { calls, written } = await billed(server, 1);
    // Polling would count, so the end is read from a stream.
    assert.deepEqual(calls, { "Session.fetch": 1, "Directory.fetch": 1 });
    // A turn that takes its time writes one row more: a checkpoint of its text.
    assert.ok(written.Session <= 6 + alarm, `the session wrote ${written.Session} rows`);
    assert.ok(written.Directory <= 2, `the directory wrote ${written.Directory} rows`);
    assert.ok(written.Session + written.Directory <= 8);
  }
});

test("a turn with a tool: two calls and twelve rows of the session; nothing while it is parked", async (t) => {
  const server = await serve(t);
  const llm = await model(t, [{ calls: [{ id: "c", name: "look" }] }, { text: "done" }]);
  const session = await Session.on(server, llm);
  const stream = session.stream(t);
  await stream.type("session.heartbeat");
  await count(server);
  await session.say("go", [LOOK]);
  await stream.call("c");
  const parked = await billed(server, 1);
  // Nothing but the one alarm that the request had set, which finds nothing to do and sets none.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  assert.deepEqual(await count(server), { calls: {}, read: {}, written: {} });
  await session.give("c", "42");
  await stream.status("idle");
  const { calls, written } = await billed(server, 1);
  assert.equal(parked.calls["Session.fetch"] + calls["Session.fetch"], 2);
  const rows = parked.written.Session + written.Session;
  assert.ok(rows <= 12, `the session wrote ${rows} rows`);
  assert.ok(parked.written.Directory + written.Directory <= 4);
});
