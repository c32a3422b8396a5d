// Where the time of turns goes: a CPU profile of the worker under load, by function.
//   node bench/profile.mjs [layby|other] [file.cpuprofile]
import { createServer } from "node:net";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { Model } from "./model.mjs";
import { Side } from "./side.mjs";

const [name = "layby", file] = process.argv.slice(2);
const TURNS = 40;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  return port;
}

/** A connection to the inspector of the worker. */
class Inspector {
  #waiting = new Map();
  #id = 0;

  async open(port) {
    const [{ webSocketDebuggerUrl }] = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
    this.socket = new WebSocket(webSocketDebuggerUrl);
    this.socket.onmessage = ({ data }) => {
      const { id, result } = JSON.parse(data);
      this.#waiting.get(id)?.(result);
    };
    await new Promise((resolve) => (this.socket.onopen = resolve));
    return this;
  }

  ask(method, params = {}) {
    const id = ++this.#id;
    this.socket.send(JSON.stringify({ id, method, params }));
    return new Promise((resolve) => this.#waiting.set(id, resolve));
  }
}

const model = await new Model().start();
const inspectorPort = await freePort();
const side = await new Side(name, model, { inspectorPort }).start();
const sessions = await Promise.all(Array.from({ length: 8 }, () => side.session()));
const turns = (count) =>
  Promise.all(
    sessions.map(async (session) => {
      for (let n = 0; n < count; n++) await session.turn();
    }),
  );
await turns(30);
const inspector = await new Inspector().open(inspectorPort);
await inspector.ask("Profiler.enable");
await inspector.ask("Profiler.setSamplingInterval", { interval: 250 });
await inspector.ask("Profiler.start");
await turns(TURNS);
const { profile } = await inspector.ask("Profiler.stop");
if (file) writeFileSync(file, JSON.stringify(profile));

const self = new Map();
const nameOf = ({ callFrame: { functionName, url, lineNumber } }) => functionName || `(anonymous) ${url}:${lineNumber}`;
const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
let total = 0;
profile.samples.forEach((id, n) => {
  const spent = profile.timeDeltas[n];
  const key = nameOf(nodes.get(id));
  self.set(key, (self.get(key) ?? 0) + spent);
  total += spent;
});
const top = [...self].sort(([, a], [, b]) => b - a).slice(0, 60);
for (const [key, spent] of top)
  console.log(
    `${((spent / total) * 100).toFixed(1).padStart(5)} %  ${(spent / 1000 / TURNS / sessions.length).toFixed(3)} ms  ${key.slice(0, 150)}`,
  );
await side.stop();
model.stop();
process.exit(0);
