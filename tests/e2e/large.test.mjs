// What is large: pages, events and model requests have budgets of bytes, and what goes beyond one is said and not lost.
import assert from "node:assert/strict";
import { test } from "node:test";
import { LOOK, Session, model, serve } from "./kit.mjs";

const quiet = (turns) => ({ agent: { name: "quiet", provider: { type: "scripted", script: Array(turns).fill({}) } } });

async function items(session, order) {
  const pages = [];
  for (let more = true; more; ) {
    const after = pages.length ? `&after=${pages.at(-1).at(-1).id}` : "";
    const page = (await session.request("GET", `/items?limit=1000&order=${order}${after}`)).body;
    assert.ok(page.data.length > 0);
    pages.push(page.data);
    more = page.has_more;
  }
  return pages;
}

test("items come in pages of bytes, and the snapshot says that there are older ones", async (t) => {
  const server = await serve(t);
  const session = await Session.create(server, quiet(12));
  const texts = Array.from({ length: 12 }, (_, n) => `${n} ${"ü".repeat(n % 3 ? 400_000 : 10)}`);
  for (const text of texts) await session.say(text);
  const snapshot = await session.status("idle");
  assert.equal(snapshot.items_has_more, true);
  assert.ok(snapshot.items.length > 3 && JSON.stringify(snapshot.items).length < 10_000_000);
  assert.equal((await session.request("GET", "?item_limit=1")).body.items_has_more, true);
  await server.evict(session.id);
  for (const order of ["asc", "desc"]) {
    const pages = await items(session, order);
    assert.ok(pages.length > 1, `${pages.length} pages`);
    for (const page of pages) assert.ok(JSON.stringify(page).length < 4_200_000);
    const read = pages.flat().filter(({ role }) => role === "user");
    if (order === "desc") read.reverse();
    assert.deepEqual(read.map(({ content }) => content[0].text.length), texts.map((text) => text.length));
    assert.ok(read.every(({ content }, n) => content[0].text === texts[n]));
  }
  const small = await Session.create(server, quiet(1));
  await small.say("hi");
  assert.equal((await small.status("idle")).items_has_more, false);
});

test("the end of a turn names what it has no room for, live and in a replay", async (t) => {
  const server = await serve(t);
  const calls = [1, 2, 3, 4].map((n) => ({ id: `c${n}`, name: "look" }));
  const llm = await model(t, [{ calls }, { text: "seen" }]);
  const session = await Session.on(server, llm);
  const live = session.stream(t);
  await live.type("session.heartbeat");
  await session.say("go", [LOOK]);
  await live.call("c4");
  const output = "北".repeat(133_000);
  for (const { id } of calls) await session.give(id, output);
  await live.status("idle");
  const shown = live.events.filter(({ item }) => item?.type === "function_call_output").map(({ item }) => item);
  assert.equal(shown.length, 4);
  for (const item of shown) {
    assert.equal(item.truncated, true);
    assert.ok(output.startsWith(item.output) && item.output.length > 87_000);
  }
  const ended = (await live.type("response.completed")).response.output;
  assert.deepEqual(
    ended.map(({ type, truncated }) => (truncated ? `(${type})` : type)),
    [
      ...Array(4).fill("function_call"),
      ...Array(2).fill("function_call_output"),
      ...Array(2).fill("(function_call_output)"),
      "message",
    ],
  );
  assert.equal(ended[4].output, output);
  assert.equal(ended.at(-1).content[0].text, "seen");
  await server.evict(session.id);
  const again = session.stream(t, "start");
  await again.status("idle");
  assert.deepEqual(again.content, live.content);
  const whole = (await items(session, "asc")).flat().filter(({ type }) => type === "function_call_output");
  assert.ok(whole.length === 4 && whole.every((item) => item.output === output));
});

test("a transcript that is too large for a model request fails its turns, and the session lives on", async (t) => {
  const server = await serve(t);
  const llm = await model(t, Array(8).fill({ text: "ok" }));
  const session = await Session.on(server, llm);
  for (let n = 0; n < 4; n++) await session.say("x".repeat(4_000_000));
  await session.say("and now?");
  const before = await session.status("idle");
  const asked = llm.requests.length;
  assert.equal(asked, 5);
  const live = session.stream(t);
  await live.type("session.heartbeat");
  await session.say("y".repeat(4_194_304));
  for (const more of [undefined, "again"]) {
    if (more) await session.say(more);
    const failed = await session.status("failed");
    assert.equal(failed.last_task_error.code, "context_length_exceeded");
    assert.match(failed.last_task_error.message, /has 2019\d{4} bytes, the limit is 16777216; start a new session/);
  }
  assert.equal(llm.requests.length, asked, "no model was asked");
  assert.ok(!live.events.some(({ type }) => type === "response.retry"), "not retried");
  const turn = before.last_response.id;
  const fork = await session.request("POST", "/fork", { up_to_response_id: turn });
  assert.equal(fork.status, 201);
  const copy = new Session(server, fork.body.id);
  await copy.say("smaller");
  await copy.status("idle");
  assert.equal(llm.requests.length, asked + 1);
});
