// The two sides of a comparison, driven in the same way: layby, and the thin worker or another build of layby.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Server, built } from "../scripts/server.mjs";
import { Reader, post } from "./client.mjs";

const file = (name) => readFileSync(new URL(name, import.meta.url), "utf8");
const KEY = { authorization: "Bearer bench-key" };
const LOOK = { type: "function", name: "look", parameters: { type: "object", properties: {} } };
const ticks = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

/** Words by which a stream shows how far a turn is. */
export const FIRST = "output_text.delta";
export const DONE = "response.completed";
export const PARKED = '"status":"waiting"';

const layby = {
  worker: built,
  vars: (model, log) => ({
    LAYBY_API_KEYS: "default:bench-key",
    LAYBY_PROVIDER: JSON.stringify({ type: "openai-responses", base_url: model.url }),
    LAYBY_AGENT: JSON.stringify({ name: "bench", model: "test", tools: [LOOK] }),
    LAYBY_SESSION_RATE: "0",
    LAYBY_LOG: log, // the thin worker logs nothing
  }),
  sleeps: true,
};
const thin = {
  worker: () => ({
    main: "index.js",
    modules: { "index.js": { type: "esm", contents: file("thin.js") } },
    objects: ["Session"],
  }),
  vars: (model) => ({ MODEL: `${model.url}/responses` }),
};

/** What is compared: layby, and the thin worker or another build of layby. */
export const kinds = { layby, other: thin };

/** Compares with another build of layby, of which `worker` gives the files. */
export function compareWith(worker) {
  kinds.other = { ...layby, worker };
}

/** The same worker, which counts what is billed. */
export function counted({ modules, objects }) {
  const classes = objects.map((name) => `export const ${name} = count("${name}", worker.${name});`);
  const contents = [file("count.js"), ...classes].join("\n");
  return { main: "count.js", modules: { ...modules, "count.js": { type: "esm", contents } }, objects };
}

export class Side {
  constructor(name, model, { counts = false, log = "errors", inspectorPort } = {}) {
    const { worker, vars } = kinds[name];
    this.name = name;
    this.storage = mkdtempSync(join(tmpdir(), "layby-bench-"));
    const files = counts ? counted(worker()) : worker();
    this.server = new Server({ storage: this.storage, vars: vars(model, log), worker: files, inspectorPort });
  }

  async start() {
    await this.server.start();
    return this;
  }

  async stop() {
    await this.server.stop();
    rmSync(this.storage, { recursive: true, force: true });
  }

  /** CPU time that workerd has used, in milliseconds. */
  cpu() {
    const fields = readFileSync(`/proc/${this.server.pid}/stat`, "utf8").split(") ")[1].split(" ");
    return ((Number(fields[11]) + Number(fields[12])) * 1000) / ticks;
  }

  /** Memory of workerd, in KB. */
  memory() {
    return Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${this.server.pid}/status`, "utf8"))[1]);
  }

  /** A session with so many items, and a reader unless `mute`. */
  async session(items = 0, { mute = false } = {}) {
    const item = (n) => ({
      type: "message",
      data: {
        role: n % 2 ? "assistant" : "user",
        content: [
          { type: n % 2 ? "output_text" : "input_text", text: `This is item number ${n} of a long talk. `.repeat(5) },
        ],
      },
    });
    const initial_items = Array.from({ length: items }, (_, n) => item(n));
    const { id } = await post(`${this.server.url}/v1/sessions`, { initial_items }, KEY);
    const session = new Session(`${this.server.url}/v1/sessions/${id}`, id);
    if (!mute) await session.open();
    return session;
  }

  /** What was counted since the last time. */
  async count() {
    return (await fetch(`${this.server.url}/count`)).json();
  }
}

export class Session {
  constructor(url, id) {
    Object.assign(this, { url, id });
  }

  /** Opens the stream, up to its first frame. */
  async open() {
    this.reader = await Reader.open(`${this.url}/stream`, KEY);
    await this.reader.when("session.");
    return this.reader;
  }

  post(type, data) {
    return post(`${this.url}/events`, { type, data }, KEY);
  }

  say() {
    return this.post("message", { role: "user", content: [{ type: "input_text", text: "Go on, please." }] });
  }

  /** One turn. Milliseconds until it was accepted, until its first delta, and until it was over. */
  async turn() {
    const began = performance.now();
    const first = this.reader.when(FIRST);
    const done = this.reader.when(DONE);
    await this.say();
    const ack = performance.now() - began;
    return { ack, first: (await first) - began, done: (await done) - began };
  }

  /** A turn up to its call. */
  async park() {
    const parked = this.reader.when(PARKED);
    await this.say();
    await parked;
  }

  /** A turn up to its call, then the output: until the model is asked again, and until it is over. */
  async toolTurn(model) {
    await this.park();
    const began = performance.now();
    const first = this.reader.when(FIRST);
    const done = this.reader.when(DONE);
    await this.post("function_call_output", { call_id: model.call, output: "42" });
    const ack = performance.now() - began;
    await first;
    return { ack, asked: model.asked - began, first: (await first) - began, done: (await done) - began };
  }
}

/** The model itself, asked like a session would, for an answer with text. */
export async function direct(model) {
  const began = performance.now();
  const body = '{"model":"test","stream":true,"input":[{"type":"function_call_output"}]}';
  const headers = { "content-length": body.length };
  const reader = await Reader.open(`${model.url}/responses`, headers, "POST", body);
  const first = reader.when(FIRST);
  const done = reader.when(DONE);
  const ack = performance.now() - began;
  return { ack, first: (await first) - began, done: (await done) - began };
}
