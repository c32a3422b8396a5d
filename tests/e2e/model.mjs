// A model server on loopback that speaks every dialect, and a stand-in for the platform's binding AI that asks it.
import { once } from "node:events";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const frame = (event) => `data: ${JSON.stringify(event)}\n\n`;
const named = (event) => `event: ${event.type}\n${frame(event)}`;
const cut = (text, size) => text.match(new RegExp(`.{1,${size}}`, "gsu")) ?? [];

/** Content of the Messages API as blocks. */
const blocks = (content) => (typeof content === "string" ? [{ type: "text", text: content }] : content);

/**
 * How each dialect is spoken. `path` tells a request; `provider` is what an agent needs; `answer` yields the pieces of an
 * answer, `undefined` where its text has no end yet, and `null` before its own end; `failure` is an error inside of one; `calls`, `outputs`, `texts` read what a request holds.
 */
export const DIALECTS = {
  "openai-responses": {
    path: "/v1/responses",
    provider: (url) => ({ type: "openai-responses", base_url: `${url}/v1`, api_key: "secret-key" }),
    *answer({ text, thought, calls = [], chunk = 8, reason }, n) {
      const output = [];
      const done = (item) => {
        output.push(item);
        return named({ type: "response.output_item.done", output_index: output.length - 1, item });
      };
      if (thought !== undefined) {
        const item = { id: `rs_${n}`, type: "reasoning", encrypted_content: `opaque ${n}`, summary: [] };
        yield named({ type: "response.output_item.added", output_index: 0, item });
        yield named({
          type: "response.reasoning_summary_text.delta",
          output_index: 0,
          summary_index: 0,
          delta: thought,
        });
        yield done({ ...item, summary: [{ type: "summary_text", text: thought }] });
      }
      if (text !== undefined) {
        const item = { id: `msg_${n}`, type: "message", role: "assistant", content: [] };
        const output_index = output.length;
        yield named({ type: "response.output_item.added", output_index, item });
        for (const delta of cut(text, chunk))
          yield named({ type: "response.output_text.delta", output_index, content_index: 0, delta });
        yield undefined;
        yield done({ ...item, content: [{ type: "output_text", text }] });
      }
      for (const { id, name, arguments: given = "{}" } of calls) {
        const item = { type: "function_call", call_id: id, name, arguments: given };
        const output_index = output.length;
        yield named({ type: "response.output_item.added", output_index, item: { ...item, arguments: "" } });
        yield done(item);
      }
      yield null;
      const usage = { input_tokens: 10, output_tokens: 5, total_tokens: 15 };
      const status = reason ? "incomplete" : "completed";
      const incomplete_details = reason ? { reason: "max_output_tokens" } : null;
      yield named({ type: `response.${status}`, response: { status, incomplete_details, output, usage } });
    },
    failure: (message) => named({ type: "error", code: "server_error", message }),
    calls: (body) => body.input.filter(({ type }) => type === "function_call").map(({ call_id }) => call_id),
    outputs: (body) =>
      body.input.filter(({ type }) => type === "function_call_output").map(({ call_id, output }) => [call_id, output]),
    texts: (body) =>
      body.input.filter(({ type }) => type === "message").map(({ role, content }) => [role, content[0].text]),
  },
  "openai-chat": {
    path: "/v1/chat/completions",
    provider: (url) => ({ type: "openai-chat", base_url: `${url}/v1`, api_key: "secret-key" }),
    *answer({ text, thought, calls = [], chunk = 8, reason }) {
      const say = (delta, finish_reason = null) => frame({ choices: [{ index: 0, delta, finish_reason }] });
      if (thought !== undefined) yield say({ reasoning_content: thought });
      for (const content of cut(text ?? "", chunk)) yield say({ content });
      yield undefined;
      for (const [index, { id, name, arguments: given = "{}" }] of calls.entries()) {
        yield say({ tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }] });
        yield say({ tool_calls: [{ index, function: { arguments: given } }] });
      }
      yield null;
      yield say({}, reason ? "length" : calls.length > 0 ? "tool_calls" : "stop");
      yield frame({ choices: [], usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } });
      yield "data: [DONE]\n\n";
    },
    failure: (message) => frame({ choices: [], error: { code: 502, message } }),
    calls: (body) => body.messages.flatMap(({ tool_calls = [] }) => tool_calls.map(({ id }) => id)),
    outputs: (body) =>
      body.messages.filter(({ role }) => role === "tool").map(({ tool_call_id, content }) => [tool_call_id, content]),
    texts: (body) =>
      body.messages
        .filter(({ role, content }) => ["user", "assistant"].includes(role) && content)
        .map(({ role, content }) => [role, content]),
  },
  anthropic: {
    path: "/v1/messages",
    provider: (url) => ({ type: "anthropic", base_url: `${url}/v1`, api_key: "secret-key" }),
    *answer({ text, thought, calls = [], chunk = 8, reason }, n) {
      let index = -1;
      const begin = (content_block) => named({ type: "content_block_start", index: ++index, content_block });
      const delta = (delta) => named({ type: "content_block_delta", index, delta });
      const stop = () => named({ type: "content_block_stop", index });
      yield named({ type: "message_start", message: { content: [], usage: { input_tokens: 10, output_tokens: 1 } } });
      yield named({ type: "ping" });
      if (thought !== undefined) {
        yield begin({ type: "thinking", thinking: "", signature: "" });
        yield delta({ type: "thinking_delta", thinking: thought });
        yield delta({ type: "signature_delta", signature: `opaque ${n}` });
        yield stop();
      }
      if (text !== undefined) {
        yield begin({ type: "text", text: "" });
        for (const piece of cut(text, chunk)) yield delta({ type: "text_delta", text: piece });
        yield undefined;
        yield stop();
      }
      for (const { id, name, arguments: given = "{}" } of calls) {
        yield begin({ type: "tool_use", id, name, input: {} });
        yield delta({ type: "input_json_delta", partial_json: given });
        yield stop();
      }
      yield null;
      const stop_reason = reason ? "max_tokens" : calls.length > 0 ? "tool_use" : "end_turn";
      yield named({ type: "message_delta", delta: { stop_reason }, usage: { output_tokens: 5 } });
      yield named({ type: "message_stop" });
    },
    failure: (message) => named({ type: "error", error: { type: "overloaded_error", message } }),
    calls: (body) =>
      body.messages.flatMap(({ content }) =>
        blocks(content)
          .filter(({ type }) => type === "tool_use")
          .map(({ id }) => id),
      ),
    outputs: (body) =>
      body.messages.flatMap(({ content }) =>
        blocks(content)
          .filter(({ type }) => type === "tool_result")
          .map(({ tool_use_id, content }) => [tool_use_id, content]),
      ),
    texts: (body) =>
      body.messages.flatMap(({ role, content }) =>
        blocks(content)
          .filter(({ type }) => type === "text")
          .map(({ text }) => [role, text]),
      ),
  },
  "workers-ai": {
    path: "/ai",
    provider: () => ({ type: "workers-ai", gateway: "gate" }),
    *answer({ text, calls = [], chunk = 8 }) {
      for (const response of cut(text ?? "", chunk)) yield frame({ response });
      yield undefined;
      const tool_calls = calls.map(({ name, arguments: given = "{}" }) => ({ name, arguments: JSON.parse(given) }));
      if (calls.length > 0) yield frame({ response: null, tool_calls });
      yield null;
      yield frame({ response: "", usage: { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 } });
      yield "data: [DONE]\n\n";
    },
    failure: (message) => frame({ error: { message } }),
    calls: (body) => DIALECTS["openai-chat"].calls(body),
    outputs: (body) => DIALECTS["openai-chat"].outputs(body),
    texts: (body) => DIALECTS["openai-chat"].texts(body),
  },
};

/** The source of a worker in place of the binding AI. It asks the model server at `url`. */
export const AI = (url) => `
  import { WorkerEntrypoint } from "cloudflare:workers";
  export default class extends WorkerEntrypoint {
    async run(model, input, options) {
      return fetch("${url}/ai", { method: "POST", body: JSON.stringify({ model, options, ...input }) });
    }
  }`;

/**
 * A model server that answers with `script`, entry by entry, or by what it makes of a request. An entry: `text`, `thought`,
 * `calls`, in pieces of `chunk` characters with a `pause` between; `hold` before the end; `reason`: stopped by a limit;
 * `cut`: the connection ends before the end; `linger`: it ends so many ms after the answer, or never; `failure`: an error inside the answer; `status`, `headers` and `raw`: an answer
 * of another kind; `respond`: writes the answer itself, given the response.
 */
export async function model(t, script) {
  const requests = [];
  const server = createServer(async (req, res) => {
    if (req.method !== "POST") return res.writeHead(404).end(); // gateways probe with other methods
    let body = "";
    req.setEncoding("utf8");
    try {
      for await (const chunk of req) body += chunk;
    } catch {
      return; // the server died while it asked
    }
    const record = { body: JSON.parse(body), headers: req.headers, url: req.url, at: Date.now(), closed: false };
    record.port = req.socket.remotePort; // names the connection
    requests.push(record);
    const n = requests.length;
    res.on("close", () => {
      record.closed = !res.writableFinished;
      record.over = true;
    });
    const entry = (typeof script === "function" ? script(record.body) : script[n - 1]) ?? {
      text: "past the end of the script",
    };
    if (entry.respond) return entry.respond(res);
    res.writeHead(entry.status ?? 200, { "content-type": "text/event-stream", ...entry.headers });
    if (entry.raw !== undefined) return res.end(entry.raw);
    const path = req.url.split("?")[0];
    const dialect = Object.values(DIALECTS).find((dialect) => path.endsWith(dialect.path));
    for (const piece of dialect.answer(entry, n)) {
      if (res.destroyed) return;
      if (piece) {
        res.write(piece);
        if (entry.pause) await sleep(entry.pause);
      } else if (piece === undefined && entry.failure) {
        res.write(dialect.failure(entry.failure));
        break;
      } else if (piece === null) {
        if (entry.hold) await entry.hold;
        if (entry.cut) break;
      }
    }
    if (entry.linger) await sleep(Math.min(entry.linger, 60_000), undefined, { ref: false });
    res.end();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const origin = `http://127.0.0.1:${server.address().port}`;
  return { requests, origin, url: `${origin}/v1` };
}
