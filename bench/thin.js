// The thinnest session server that the platform allows, to measure layby against: an object that stores what is posted,
// asks the model with all that it has stored, and passes the model's events on. No checks, no ids, no resume, no recovery.
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";

const encoder = new TextEncoder();

export default class extends WorkerEntrypoint {
  fetch(request) {
    const path = new URL(request.url).pathname.split("/");
    const id = path[3] ?? crypto.randomUUID();
    return this.env.SESSION.getByName(`default/${id}`).fetch(request, { headers: { "x-session": id } });
  }
}

export class Session extends DurableObject {
  subscribers = new Set();

  constructor(ctx, env) {
    super(ctx, env);
    this.sql = ctx.storage.sql;
    this.sql.exec("CREATE TABLE IF NOT EXISTS item (seq INTEGER PRIMARY KEY, json TEXT NOT NULL)");
  }

  async fetch(request) {
    if (request.method === "GET") return this.subscribe();
    const event = await request.json();
    const id = request.headers.get("x-session");
    if (new URL(request.url).pathname === "/v1/sessions") {
      for (const { data } of event.initial_items ?? []) this.store(data);
      return Response.json({ id }, { status: 201 });
    }
    this.store({ type: event.type, ...event.data });
    this.ctx.waitUntil(this.turn());
    return Response.json({ status: "started" }, { status: 202 });
  }

  subscribe() {
    const { readable, writable } = new IdentityTransformStream();
    const writer = writable.getWriter();
    this.subscribers.add(writer);
    writer.closed.catch(() => this.subscribers.delete(writer));
    writer.write(encoder.encode('data: {"type":"session.heartbeat"}\n\n')).catch(() => {});
    return new Response(readable, { headers: { "content-type": "text/event-stream" } });
  }

  async turn() {
    const stored = this.sql.exec("SELECT json FROM item ORDER BY seq").toArray();
    const input = stored.map(({ json }) => json).join(",");
    const body = `{"model":"test","stream":true,"input":[${input}]}`;
    const answer = await fetch(this.env.MODEL, { method: "POST", body });
    let rest = "";
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      const frames = (rest + text).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) this.pass(frame);
    }
  }

  /** Passes an event on, as it is. The last one of an answer has all that is to be stored. */
  pass(frame) {
    if (frame.startsWith("event: response.completed\n")) {
      const { output } = JSON.parse(frame.slice(frame.indexOf("data: ") + 6)).response;
      output.forEach((item) => this.store(item));
      const parked = output.some(({ type }) => type === "function_call");
      if (parked) frame = 'data: {"type":"session.status","status":"waiting"}';
    }
    const bytes = encoder.encode(`${frame}\n\n`);
    for (const writer of this.subscribers) writer.write(bytes).catch(() => {});
  }

  store(item) {
    this.sql.exec("INSERT INTO item (json) VALUES (?)", JSON.stringify(item));
  }
}
