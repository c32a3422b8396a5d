// What takes minutes because the platform's own times are waited for. All of it at once.
import assert from "node:assert/strict";
import { request as http } from "node:http";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Session, eventually, model, serve } from "./kit.mjs";

test("minutes", { concurrency: true }, async (t) => {
  await Promise.all([
    t.test("an answer that takes longer than an object is left in memory is not cut off, though nobody listens", async (t) => {
      const server = await serve(t);
      const text = "a word. ".repeat(32);
      const llm = await model(t, [{ text, chunk: 8, pause: 5000 }]);
      const session = await Session.on(server, llm);
      await session.say("go");
      // Nobody asks the object for anything until the model has finished: workerd puts it out after 70 to 140 seconds.
      await eventually(() => llm.requests[0]?.over, "the end of the answer", 200);
      const snapshot = await session.status("idle", "failed");
      assert.deepEqual([snapshot.status, llm.requests.length], ["idle", 1]);
      assert.equal(snapshot.items.at(-1).content[0].text, text);
    }),
    t.test("a body that does not arrive is not waited for without end", async (t) => {
      const server = await serve(t);
      const session = await Session.create(server, {});
      const path = `/v1/sessions/${session.id}/events`;
      const headers = { "content-type": "application/json", "transfer-encoding": "chunked" };
      const answer = await new Promise((resolve, reject) => {
        const sent = http({ host: "127.0.0.1", port: server.port, method: "POST", path, headers }, resolve);
        sent.on("error", reject);
        sent.write("{");
        t.after(() => sent.destroy());
      });
      let body = "";
      for await (const chunk of answer) body += chunk;
      assert.equal(answer.statusCode, 400);
      assert.match(body, /did not arrive within 60 s/);
    }),
    t.test("an alarm of the same second is not put off", async (t) => {
      const server = await serve(t);
      const busy = { status: 503, headers: { "retry-after": "3" }, raw: "{}" };
      const llm = await model(t, [busy, { text: "ok" }]);
      const session = await Session.on(server, llm);
      await session.say("go");
      await eventually(() => llm.requests.length === 1, "the first request");
      const began = Date.now();
      // Whatever comes in the second in which the request is to be made again must not put that off.
      for (; llm.requests.length === 1 && Date.now() - began < 15_000; await sleep(50))
        await session.request("POST", "/events", { type: "message", data: { role: "user", content: "x" } });
      assert.equal(llm.requests.length > 1, true, "asked again within 15 s");
    }),
  ]);
});
