// Alarms over the server's death: what was to be done is done, half a minute later.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { built } from "../../scripts/server.mjs";
import { LOOK, Session, eventually, model, request, serve } from "./kit.mjs";

/** The worker, with directories that do not answer from `/hang` on, until the server is started again. */
function hanging() {
  const { modules, objects } = built();
  const contents = `
    import Worker, { Session as Object, Directory } from "./index.js";
    export { Directory };
    let hangs = false;
    const never = { fetch: () => new Promise(() => {}) };
    const without = (env) => ({ ...env, DIRECTORY: { getByName: (name) => hangs ? never : env.DIRECTORY.getByName(name) } });
    export class Session extends Object {
      constructor(state, env) {
        super(state, without(env));
      }
    }
    export default class extends Worker {
      async fetch(request) {
        if (new URL(request.url).pathname !== "/hang") return super.fetch(request);
        hangs = true;
        return new Response("ok");
      }
    }`;
  return { main: "front.js", modules: { ...modules, "front.js": { type: "esm", contents } }, objects };
}

/** How many sessions' databases have a log. */
function stored(server) {
  const folder = join(server.storage, "do", "layby-Session");
  const files = existsSync(folder) ? readdirSync(folder).filter((name) => /^[0-9a-f]{64}\.sqlite$/.test(name)) : [];
  return files.filter((name) => {
    const database = new DatabaseSync(join(folder, name), { readOnly: true });
    try {
      return database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'log'").all().length > 0;
    } catch {
      return false; // it is being written
    } finally {
      database.close();
    }
  }).length;
}

const listed = async (server) => (await request(server, "GET", "/v1/sessions")).body.data;

test("a session whose making was cut short is listed all the same", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true" }, {}, hanging());
  await fetch(`${server.url}/hang`);
  const making = request(server, "POST", "/v1/sessions", { title: "cut short" }).catch(() => {});
  // It is stored before the directory is told, and that never ends.
  await eventually(() => stored(server) > 0, "it is stored");
  await server.kill();
  await making;
  assert.deepEqual(await listed(server), []);
  await eventually(async () => (await listed(server)).length === 1, "the alarm has told the directory", 60);
});

test("an alarm that is set is not put off by an instance that does not know of it", async (t) => {
  const server = await serve(t, { LAYBY_OPEN: "true" }, {}, hanging());
  const llm = await model(t, [{ calls: [{ id: "a", name: "look" }] }]);
  const session = await Session.on(server, llm, { tool_timeout_s: 3600 });
  await fetch(`${server.url}/hang`); // the directory never hears that the call waits
  await session.say("go", [LOOK]);
  await session.status("waiting");
  await server.kill();
  assert.equal((await session.snapshot()).status, "waiting");
  assert.equal((await listed(server))[0].status, "idle");
  await eventually(async () => (await listed(server))[0].status === "waiting", "the alarm has told the directory", 60);
});
