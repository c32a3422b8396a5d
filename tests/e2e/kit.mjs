// What the end-to-end tests share: a served worker, a model server (model.mjs), and readers of streams. Everything on loopback,
// on free ports, in a folder of its own, and gone when the test process ends.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Server } from "../../scripts/server.mjs";
import * as described from "./described.mjs";

export { AI, DIALECTS, model } from "./model.mjs";

/** Calls `probe` until it gives something true. */
export async function eventually(probe, what, seconds = 20) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`not within ${seconds} s: ${what}`);
    await sleep(20);
  }
}

/** A served worker on storage of its own. Ends with the test `t`. */
export async function serve(t, vars = { LAYBY_OPEN: "true" }, beside = {}, worker = undefined) {
  const storage = mkdtempSync(join(tmpdir(), "layby-"));
  const server = new Server({ storage, vars, beside, worker });
  t.after(async () => {
    await server.stop();
    rmSync(storage, { recursive: true, force: true });
  });
  await server.start();
  described.watch(server.url);
  return server;
}

/** A session on a served worker. */
export class Session {
  constructor(server, id, headers = {}) {
    Object.assign(this, { server, id, headers });
  }

  static async create(server, body, headers = {}) {
    const answer = await request(server, "POST", "/v1/sessions", body, headers);
    if (answer.status !== 201) throw new Error(`create: ${answer.status} ${JSON.stringify(answer.body)}`);
    return new Session(server, answer.body.id, headers);
  }

  /** A session whose agent asks the model server `model`. */
  static on(server, model, agent = {}, more = {}) {
    const provider = { type: "openai-responses", base_url: model.url, api_key: "secret-key" };
    return Session.create(server, { agent: { name: "test", model: "test-model", provider, ...agent }, ...more });
  }

  request(method, path = "", body = undefined, headers = {}) {
    return request(this.server, method, `/v1/sessions/${this.id}${path}`, body, { ...this.headers, ...headers });
  }

  async post(event) {
    const answer = await this.request("POST", "/events", event);
    if (answer.status !== 202) throw new Error(`${event.type}: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  say(content, tools) {
    return this.post({ type: "message", data: { role: "user", content }, tools });
  }

  give(call_id, output) {
    return this.post({ type: "function_call_output", data: { call_id, output } });
  }

  async snapshot() {
    return (await this.request("GET")).body;
  }

  status(...wanted) {
    return eventually(
      async () => {
        const snapshot = await this.snapshot();
        return wanted.includes(snapshot.status) && snapshot;
      },
      `status ${wanted.join(" or ")}`,
    );
  }

  stream(t, cursor) {
    return new Stream(t, this, cursor);
  }

  /** A stream that resumes when it is cut off, as a client does. A server that sends faster than this process reads may do so. */
  follow(t, cursor) {
    return new Stream(t, this, cursor, true);
  }
}

export async function request(server, method, path, body, headers = {}) {
  const init = { method, headers: { ...headers } };
  if (body !== undefined) {
    init.headers["content-type"] ??= "application/json";
    init.body = typeof body === "string" ? body : JSON.stringify(body);
  }
  const answer = await fetch(server.url + path, init);
  const text = await answer.text();
  let json = text;
  try {
    json = JSON.parse(text);
  } catch {
    // not JSON: the text itself
  }
  return { status: answer.status, headers: answer.headers, body: json };
}

/** One open event stream. Collects its events until it is closed. */
export class Stream {
  events = [];
  ended = false;
  done = false;

  constructor(t, session, cursor, follows = false) {
    this.abort = new AbortController();
    this.lastId = cursor;
    t.after(() => this.close());
    this.reading = this.#run(`${session.server.url}/v1/sessions/${session.id}/stream`, session.headers, follows);
  }

  async #run(url, own, follows) {
    do {
      const headers = { ...own, ...(this.lastId ? { "last-event-id": this.lastId } : {}) };
      await this.#read(url, headers);
    } while (follows && !this.done && !this.abort.signal.aborted);
    this.ended = true;
  }

  async #read(url, headers) {
    try {
      const answer = await fetch(url, { headers, signal: this.abort.signal });
      if (answer.status !== 200) throw new Error(`stream: ${answer.status} ${await answer.text()}`);
      const decoder = new TextDecoder();
      let buffer = "";
      for await (const chunk of answer.body) {
        buffer += decoder.decode(chunk, { stream: true });
        if (!buffer.includes("\n\n")) continue;
        const frames = buffer.split("\n\n");
        buffer = frames.pop();
        for (const frame of frames) this.#frame(frame);
      }
    } catch (error) {
      this.error = error;
    }
  }

  #frame(frame) {
    const field = (name) =>
      frame
        .split("\n")
        .find((line) => line.startsWith(`${name}: `))
        ?.slice(name.length + 2);
    const data = field("data");
    const id = field("id");
    if (id) this.lastId = id;
    if (data === "[DONE]") this.done = true;
    else if (data) {
      const event = { id, ...described.event(JSON.parse(data)) };
      this.events.push(event);
      this.onEvent?.(event);
    }
  }

  /** The first event for which `test` holds. */
  wait(test, what, seconds) {
    return eventually(
      () => {
        const found = this.events.find(test);
        if (!found && this.ended) throw new Error(`the stream ended before ${what}: ${this.error ?? "orderly"}`);
        return found;
      },
      what,
      seconds,
    );
  }

  type(type, seconds) {
    return this.wait((event) => event.type === type, type, seconds);
  }

  call(call_id) {
    const test = ({ item }) => item?.status === "action_required" && item.call_id === call_id;
    return this.wait(test, `call ${call_id} asks for action`);
  }

  /** The status of the log, not the one that greets a new reader. */
  status(status) {
    return this.wait(
      (event) => event.type === "session.status" && event.status === status && event.id,
      `status ${status}`,
    );
  }

  get text() {
    return this.events
      .filter((event) => event.type === "response.output_text.delta")
      .map((event) => event.delta)
      .join("");
  }

  /** The events of the log, however their texts were cut: neighbouring deltas of one text are one. */
  get content() {
    return joined(this.events.filter((event) => event.id));
  }

  /** Types and statuses of the events of the log, deltas aside: what has to be the same for every reader. */
  get shape() {
    return this.events
      .filter((event) => event.id && !event.type.endsWith(".delta"))
      .map((event) =>
        [event.type, event.status ?? event.item?.status ?? event.response?.status].filter(Boolean).join(" "),
      );
  }

  async close() {
    this.abort.abort();
    await this.reading;
  }
}

/** Events without their ids, with neighbouring deltas of one text joined. */
export function joined(events) {
  const whole = [];
  for (const { id, cursor, ...event } of events) {
    const last = whole.at(-1);
    if (event.delta !== undefined && last?.type === event.type && last.item_id === event.item_id)
      last.delta += event.delta;
    else whole.push({ ...event });
  }
  return whole;
}

export const LOOK = { type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } };
