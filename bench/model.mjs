// A model server for benchmarks: answers at once what it was told to, in the Responses dialect.
import { once } from "node:events";
import { createServer } from "node:http";
import { setImmediate as tick } from "node:timers/promises";
import { DIALECTS } from "../tests/e2e/model.mjs";

/** The events of an answer. */
function events({ deltas, call }) {
  const text = deltas && "A token ".repeat(deltas);
  const calls = call ? [{ id: call, name: "look" }] : [];
  const answer = [...DIALECTS["openai-responses"].answer({ text, calls }, 1)];
  return answer.filter(Boolean).map((piece) => Buffer.from(piece));
}

/** Answers with so many `deltas`, after a `call` if there is to be one. `separate`: every event is sent for itself. */
export class Model {
  /** When the last request was there, in milliseconds of the process. */
  asked = 0;
  answer = { deltas: 10 };
  #calls = 0;
  #texts = new Map();

  async start() {
    this.server = createServer({ keepAliveTimeout: 600_000 }, (req, res) => this.#answer(req, res));
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.url = `http://127.0.0.1:${this.server.address().port}/v1`;
    return this;
  }

  stop() {
    this.server.closeAllConnections();
    this.server.close();
  }

  async #answer(req, res) {
    let tail = "";
    req.setEncoding("latin1");
    req.on("data", (text) => (tail = (tail + text).slice(-200)));
    await once(req, "end");
    this.asked = performance.now();
    const { deltas, call, separate } = this.answer;
    const calls = call && !tail.includes("function_call_output");
    if (calls) this.call = `call_${++this.#calls}`;
    const pieces = calls ? events({ call: this.call }) : this.#text(deltas);
    res.writeHead(200, { "content-type": "text/event-stream" });
    if (!separate) return res.end(Buffer.concat(pieces));
    res.socket.setNoDelay(true);
    for (const piece of pieces) {
      res.write(piece);
      await tick();
    }
    res.end();
  }

  #text(deltas) {
    if (!this.#texts.has(deltas)) this.#texts.set(deltas, events({ deltas }));
    return this.#texts.get(deltas);
  }
}
