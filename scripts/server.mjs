// The built worker on a local workerd: what `npm start` serves and what the end-to-end tests drive.
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
// miniflare comes with wrangler, in the version that wrangler was made with.
const fromWrangler = createRequire(createRequire(join(root, "package.json")).resolve("wrangler/package.json"));
const { Miniflare } = await import(pathToFileURL(fromWrangler.resolve("miniflare")).href);

const wrangler = readFileSync(join(root, "wrangler.toml"), "utf8");
const compatibilityDate = /^compatibility_date\s*=\s*"([^"]+)"/m.exec(wrangler)?.[1];

const each = (list, entry) => Object.fromEntries(list.map(entry));

/** Process ids of the workerds that this process runs. */
function workerds() {
  try {
    const found = execFileSync("pgrep", ["-P", String(process.pid), "-x", "workerd"], { encoding: "utf8" });
    return found.trim().split("\n").map(Number);
  } catch {
    return [];
  }
}

/** A worker as workerd takes it: its modules, the one that it begins with, and the classes of its objects. */
export const built = () => ({
  main: "index.js",
  modules: {
    "index.js": { type: "esm", contents: readFileSync(join(root, "build", "index.js"), "utf8") },
    "index_bg.wasm": { type: "wasm", contents: new Uint8Array(readFileSync(join(root, "build", "index_bg.wasm"))) },
  },
  objects: ["Session", "Directory"],
});

/**
 * A served worker. `vars` are its variables; `port` 0 picks a free one, which is kept over `kill` and `restart`. `beside`
 * are other workers that stand in for services of the platform, by the name of their binding: the source of a module.
 */
export class Server {
  /** Structured logs of the worker, newest last. */
  logs = [];

  constructor({ storage, vars = {}, port = 0, beside = {}, worker = built(), inspectorPort, onLog }) {
    Object.assign(this, { storage, vars, port, beside, worker, inspectorPort, onLog });
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  async start() {
    const before = workerds();
    this.miniflare = new Miniflare(this.#options());
    this.port = Number((await this.miniflare.ready).port);
    this.pid = workerds().find((pid) => !before.includes(pid));
    return this;
  }

  async stop() {
    await this.miniflare?.dispose();
    this.miniflare = undefined;
  }

  async restart() {
    await this.stop();
    await this.start();
  }

  /** Puts a session's object out of memory. Its sockets sleep on ("hibernate") or are closed ("close"). */
  async evict(session, webSockets = "hibernate") {
    await this.miniflare.unsafeEvictDurableObject("layby", "Session", { name: `default/${session}`, webSockets });
  }

  /** SIGKILLs workerd and waits until a new one serves on the same port and storage. */
  async kill() {
    const before = workerds();
    process.kill(this.pid, "SIGKILL");
    for (let tries = 0; tries < 400; tries++, await sleep(25)) {
      const pid = workerds().find((pid) => !before.includes(pid));
      if (!pid) continue;
      try {
        const answer = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(1000) });
        if (answer.ok) return void (this.pid = pid);
      } catch {
        // not yet
      }
    }
    throw new Error("workerd did not come back within 10 s");
  }

  #options() {
    const modulesRoot = join(root, "build");
    const { main, modules, objects } = this.worker;
    const bindings = {
      ...each(objects, (name) => [name.toUpperCase(), { type: "durable-object", worker: "layby", exportName: name }]),
      ...each(Object.entries(this.vars), ([name, value]) => [name, { type: "text", value }]),
      ...each(Object.keys(this.beside), (name) => [name, { type: "worker", worker: name }]),
    };
    return {
      host: "127.0.0.1",
      port: this.port,
      inspectorPort: this.inspectorPort,
      resourcePersistencePath: this.storage,
      cf: false,
      telemetry: { enabled: false },
      handleStructuredLogs: (log) => {
        this.logs.push(log);
        if (this.logs.length > 5000) this.logs.shift();
        this.onLog?.(log);
      },
      workers: [
        {
          config: {
            name: "layby",
            compatibilityDate,
            compatibilityFlags: [],
            manifest: { mainModule: main, modulesRoot, modules },
            env: bindings,
            exports: each(objects, (name) => [name, { type: "durable-object", storage: "sqlite" }]),
          },
        },
        ...Object.entries(this.beside).map(([name, source]) => ({
          config: {
            name,
            compatibilityDate,
            manifest: {
              mainModule: "index.js",
              modulesRoot,
              modules: { "index.js": { type: "esm", contents: source } },
            },
          },
        })),
      ],
    };
  }
}
