// `npm start`, as a person runs it.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { eventually } from "./kit.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

/** All processes below one, with their command lines. */
function below(pid) {
  const list = execFileSync("ps", ["-eo", "pid=,ppid=,args="], { encoding: "utf8" }).trim().split("\n");
  const all = list.map((line) => /^\s*(\d+)\s+(\d+)\s+(.*)$/.exec(line)).filter(Boolean);
  const children = (parent) => all.filter((m) => Number(m[2]) === parent).map((m) => Number(m[1]));
  const found = children(pid);
  for (const child of found) found.push(...children(child));
  return found;
}

const alive = (pid) => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

for (const signal of ["SIGTERM", "SIGINT"]) {
  test(`npm start serves, keeps its storage, and ${signal} ends everything that it started`, async (t) => {
    const storage = mkdtempSync(join(tmpdir(), "layby-start-"));
    t.after(() => rmSync(storage, { recursive: true, force: true }));
    const port = await freePort();
    const url = `http://127.0.0.1:${port}`;
    const start = async () => {
      const env = { ...process.env, PORT: String(port), LAYBY_STATE: storage };
      const npm = spawn("npm", ["start"], { cwd: root, env, stdio: "ignore" });
      t.after(() => npm.kill("SIGKILL"));
      await eventually(
        () =>
          fetch(`${url}/health`).then(
            (answer) => answer.ok,
            () => false,
          ),
        "it serves",
        60,
      );
      return npm;
    };
    const stop = async (npm) => {
      const started = below(npm.pid);
      assert.ok(started.length >= 2, "npm has started a server and workerd");
      npm.kill(signal);
      await eventually(() => !started.some(alive), "everything has ended");
    };
    let npm = await start();
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
    const { id } = await (await fetch(`${url}/v1/sessions`, init)).json();
    await stop(npm);
    npm = await start();
    assert.equal((await fetch(`${url}/v1/sessions/${id}`)).status, 200);
    await stop(npm);
  });
}
