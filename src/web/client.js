/**
 * The browser client of layby: one ES module without dependencies, for browsers and Node 20 or newer. Types: client.d.ts.
 *
 *     const session = await Session.open({ baseUrl, sessionId, token: async () => (await fetch("/my/token")).text() });
 *     session.tool("read_page", { description: "Text of an element" }, ({ selector }) => $(selector).innerText);
 *     const response = await session.ask("What is on this page?");
 *
 * What always holds:
 * - A session has one stream, however many listeners and iterators; it begins with the first of them. It resumes by
 *   itself at the last event's cursor, so each of them gets every event of the log once, in order.
 * - A request that is repeated carries the same Idempotency-Key, so nothing is done twice.
 * - A call is run at most once per `Session`, and never when it is known to be resolved already.
 *
 * What it deliberately does not do: keep a transcript (`items` has it), or make session tokens (that needs the API key).
 */

/** Requests are repeated this often before they fail; outputs of tools until the session is closed. */
const ATTEMPTS = 8;
/** Milliseconds: the first and the longest pause between two attempts. */
const PAUSE = 250;
const LONGEST_PAUSE = 15_000;
const TERMINAL = ["response.completed", "response.failed", "response.incomplete", "response.cancelled"];

/** A request that the server refused. `code` is the contract's, such as `not_found`. */
export class LaybyError extends Error {
  constructor(status, error, retryAfterS) {
    super(error?.message ?? `the server answered with status ${status}`);
    this.name = "LaybyError";
    const { code = "unknown", param = null, request_id = null } = error ?? {};
    Object.assign(this, { status, code, param, requestId: request_id, retryAfterS });
  }

  /** Whether the same request may work later. Whatever is not the server's word is the network's, which comes back. */
  static isTransient(error) {
    if (!(error instanceof LaybyError)) return true;
    const { status, code } = error;
    return [408, 425, 429].includes(status) || (status >= 500 && code !== "auth_not_configured");
  }
}

/** One session on a server. Made with `Session.open` or `Session.create`. */
export class Session {
  #options;
  #start; // where the shared stream begins; none: now
  #bearer; // the promise of a token
  #closed = new AbortController();
  #live; // the shared feed
  #feeds = new Set();
  #listeners = new Map();
  #tools = new Map();
  #parked = new Map(); // calls that wait for an output, as far as the shared feed has told
  #run = new Set(); // ids of calls that were given to a tool
  #running = new Map();

  /** Use `Session.open` or `Session.create`. */
  constructor(
    id,
    { baseUrl = "", token, silenceMs = 40_000, fetch = (url, init) => globalThis.fetch(url, init) },
    cursor,
  ) {
    this.id = id;
    this.#options = { baseUrl: baseUrl.replace(/\/+$/, ""), token, silenceMs, fetch };
    this.#start = cursor;
  }

  /**
   * Attaches to a session. `token`: a session token or an API key, or a function that gets a fresh one (asked again after
   * a 401); none for an open server. `silenceMs`: a stream that is silent for longer is dead (the server's heartbeat comes
   * every 15 s). Rejects if the session is not there or may not be read.
   */
  static async open({ sessionId, ...options }) {
    const session = new Session(sessionId, options);
    await session.request("GET", "?include_items=false");
    return session;
  }

  /** Makes a session, with the API key: for servers and for local use. All other keys are the body's (`agent`, …). */
  static async create({ baseUrl, apiKey, silenceMs, fetch, ...body } = {}) {
    const options = { baseUrl, token: apiKey, silenceMs, fetch };
    const { id, cursor } = await new Session(undefined, options).request("POST", "", body);
    return new Session(id, options, cursor);
  }

  /** The cursor after the last event of the shared stream: where `events({ after })` or another client can go on. */
  get cursor() {
    return this.#live?.cursor ?? this.#start;
  }

  /** Any request to the session, `path` below it: the answer as JSON. Repeated over network failures, nothing done twice. */
  async request(method, path = "", body, { signal, attempts = ATTEMPTS } = {}) {
    const headers = method === "GET" ? {} : { "idempotency-key": randomKey() };
    const init = { method, headers, signal };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(body);
    }
    for (let attempt = 0; ; attempt++) {
      try {
        return await (await this.#fetch(path, init)).json();
      } catch (error) {
        if (signal?.aborted || !LaybyError.isTransient(error) || attempt + 1 >= attempts) throw error;
        await nap(pause(attempt, error), this.#closed.signal, signal);
        if (this.#closed.signal.aborted || signal?.aborted) throw error;
      }
    }
  }

  /**
   * Posts a message: text, or content parts. It offers the registered tools, and `tools` of this message alone. `onBusy`:
   * `queue` (default), `steer`, `interrupt` or `reject`. Other keys go into the body (`model_override`, …).
   */
  async send(content, { tools = [], onBusy, id, signal, ...more } = {}) {
    await this.#live?.attached; // or the stream may begin behind what this causes
    const names = tools.map((tool) => tool.function?.name ?? tool.name);
    const registered = [...this.#tools.values()].map(({ offer }) => offer);
    const offered = [...registered.filter((tool) => !names.includes(tool.function.name)), ...tools];
    const body = { type: "message", data: { role: "user", content, id }, on_busy: onBusy, ...more };
    if (offered.length > 0) body.tools = offered;
    const answer = await this.request("POST", "/events", body, { signal });
    this.#live?.startAt(answer.cursor);
    return answer;
  }

  /** Posts a message and waits for the end of its turn: the response, with its text as `output_text`. */
  async ask(content, options = {}) {
    const events = this.events();
    try {
      const { response_id } = await this.send(content, options);
      // The end of a turn only names the items that it has no room for.
      const contents = new Map();
      for await (const { type, item, response } of events) {
        if (type === "response.output_item.done" && item.role === "assistant") contents.set(item.id, item.content);
        if (response?.id !== response_id || !TERMINAL.includes(type)) continue;
        const parts = response.output.flatMap(
          ({ id, role, content }) => contents.get(id) ?? (role === "assistant" ? content : []),
        );
        return { ...response, output_text: parts.map(({ text = "" }) => text).join("") };
      }
      throw new Error("the session was closed before the turn's end");
    } finally {
      events.return();
    }
  }

  /** Stops the running turn, or the one named, if it runs. */
  interrupt(responseId) {
    return this.request("POST", "/events", { type: "interrupt", data: { response_id: responseId } });
  }

  /** Cancels a parked call: the model is told, the turn goes on. */
  cancelCall(callId) {
    return this.request("DELETE", `/calls/${encodeURIComponent(callId)}`);
  }

  /** The session as it is now. Query: `include_items`, `item_limit`. */
  snapshot(query = {}) {
    return this.request("GET", `?${new URLSearchParams(query)}`);
  }

  /** A page of the transcript. Query: `limit`, `after`, `before`, `order`. */
  items(query = {}) {
    return this.request("GET", `/items?${new URLSearchParams(query)}`);
  }

  /**
   * Registers a tool: offered with every message from now on, and `run(args, call)` for its calls, those that are parked
   * already included. What `run` gives is posted: a string or content parts as they are, anything else as JSON. What it
   * throws is posted as an error, and so are arguments that are not JSON. `call.signal` aborts when the answer is no longer
   * wanted. If another client was first, `layby.answer_lost` tells, and nothing is thrown. Returns what unregisters it.
   */
  tool(name, { description, parameters, timeoutS } = {}, run) {
    const offer = { type: "function", function: { name, description, parameters }, tool_timeout_s: timeoutS };
    const tool = { offer, run };
    this.#tools.set(name, tool);
    this.#feed();
    for (const call of this.#parked.values()) this.#offer(call);
    return () => void (this.#tools.get(name) === tool && this.#tools.delete(name));
  }

  /** Calls `listener` for every event of a type (`*`: all), the client's own `layby.…` included. Returns what stops it. */
  on(type, listener) {
    if (!this.#listeners.has(type)) this.#listeners.set(type, new Set());
    this.#listeners.get(type).add(listener);
    this.#feed();
    return () => void this.#listeners.get(type).delete(listener);
  }

  /**
   * Iterates over the session's events from now on; the first iterator also gets how the session stands (its status, its
   * parked calls, the text so far). With `after` (a cursor, or `start`) it begins there, on a stream of its own, so that
   * nobody else sees old events again. Ends with the session; throws if the stream cannot go on.
   */
  events({ after } = {}) {
    if (after === undefined) return this.#feed().read();
    const feed = this.#newFeed(after, () => {});
    return feed.read(() => (feed.end(), this.#feeds.delete(feed)));
  }

  /** Ends the stream and all iterators. The session itself goes on at the server. */
  close() {
    this.#closed.abort();
    for (const feed of this.#feeds) feed.end();
    for (const running of this.#running.values()) running.abort();
  }

  #feed() {
    this.#live ??= this.#newFeed(this.#start, (event) => this.#see(event));
    return this.#live;
  }

  #newFeed(cursor, onEvent) {
    const { silenceMs } = this.#options;
    const feed = new Feed({ cursor, silenceMs, onEvent, open: (query, signal) => this.#fetch(query, { signal }) });
    this.#feeds.add(feed);
    if (this.#closed.signal.aborted) feed.end();
    else feed.run();
    return feed;
  }

  /** One attempt, and another one with a fresh token if the token was refused. Throws unless the answer is good. */
  async #fetch(path, init) {
    const { baseUrl, token, fetch } = this.#options;
    const address = this.id === undefined ? "" : `/${encodeURIComponent(this.id)}`;
    for (let again = false; ; again = true) {
      const bearer = (this.#bearer ??= Promise.resolve(typeof token === "function" ? token() : token));
      const forget = () => {
        if (this.#bearer === bearer) this.#bearer = undefined; // else another request has asked for a new one
      };
      const text = await bearer.catch((error) => (forget(), Promise.reject(error)));
      const headers = { ...init.headers, ...(text ? { authorization: `Bearer ${text}` } : {}) };
      const answer = await fetch(`${baseUrl}/v1/sessions${address}${path}`, { ...init, headers, cache: "no-store" });
      if (answer.ok) return answer;
      const body = await answer.json().catch(() => ({}));
      if (answer.status === 401) forget();
      if (answer.status === 401 && typeof token === "function" && !again) continue;
      throw new LaybyError(answer.status, body.error, Number(answer.headers.get("retry-after")));
    }
  }

  #emit(event) {
    for (const listener of [...(this.#listeners.get(event.type) ?? []), ...(this.#listeners.get("*") ?? [])]) {
      try {
        listener(event);
      } catch (error) {
        (globalThis.reportError ?? console.error)(error); // a listener's fault is not the stream's
      }
    }
  }

  /** An event of the shared feed: first for the tools, then for the listeners. */
  #see(event) {
    const { item } = event;
    if (event.type === "response.output_item.done" && item.type === "function_call") {
      if (item.status === "action_required") {
        this.#parked.set(item.call_id, item);
        this.#offer(item);
      } else if (item.status !== "in_progress") {
        this.#parked.delete(item.call_id);
        this.#running.get(item.call_id)?.abort();
      }
    }
    this.#emit(event);
  }

  /** Has a parked call's tool run, if it is registered here and the call was not run yet. */
  async #offer({ call_id, name, arguments: given, response_id }) {
    const tool = this.#tools.get(name);
    if (!tool || this.#run.has(call_id)) return;
    this.#run.add(call_id);
    const abort = new AbortController();
    this.#running.set(call_id, abort);
    const call = { call_id, name, arguments: given, response_id, signal: abort.signal };
    try {
      if (!this.#live.isCurrent) {
        // The stream tells what was missed. Whether the call still waits may stand further on in it.
        const now = await this.request("GET", "?include_items=false", undefined, { attempts: Infinity });
        if (!now.pending_tool_calls.some((parked) => parked.call_id === call_id)) return;
      }
      const data = await outcome(tool.run, call);
      const { status } = await this.#answer({ call_id, ...data });
      this.#emit({ type: "layby.answered", call_id, name, status, is_error: data.is_error === true });
    } catch (error) {
      this.#emit({ type: "layby.answer_lost", call_id, name, code: error.code ?? "network", error });
    } finally {
      this.#running.delete(call_id);
    }
  }

  /** Posts an output. One that the server cannot take becomes an error, so that the call does not wait forever. */
  async #answer(data) {
    const post = (data) =>
      this.request("POST", "/events", { type: "function_call_output", data }, { attempts: Infinity });
    try {
      return await post(data);
    } catch (error) {
      if (![400, 413].includes(error.status)) throw error;
      return await post({ call_id: data.call_id, output: `this output was refused: ${error.message}`, is_error: true });
    }
  }
}

/** A resumable stream: reads the log from a cursor on, over as many connections as it takes. */
class Feed {
  #readers = new Set();
  #attempt = new AbortController();
  #ended = false;
  #error;
  #heardAt = 0;
  #attach;
  /** Whether what comes now is news, not what was missed: it began live, or there was nothing to tell for a while. */
  isCurrent = false;
  /** Settles when the first attempt to attach has succeeded or failed. */
  attached = new Promise((resolve) => (this.#attach = resolve));

  constructor({ cursor, silenceMs, onEvent, open }) {
    Object.assign(this, { cursor, silenceMs, onEvent, open });
  }

  async run() {
    globalThis.addEventListener?.("online", this.#reconnect);
    globalThis.document?.addEventListener("visibilitychange", this.#visible);
    for (let failures = 0; !this.#ended; failures++) {
      this.#attempt = new AbortController();
      const began = this.#heardAt;
      const failure = await this.#follow(this.#attempt).catch((error) => error);
      if (!failure || !LaybyError.isTransient(failure)) return this.end(failure);
      if (this.#ended) return;
      if (this.#heardAt > began) failures = 0;
      this.#attach();
      this.#attempt = new AbortController();
      const delay = failure === RECONNECT ? 0 : pause(failures, failure);
      this.onEvent({ type: "layby.connection", state: "retrying", error: failure, delay_ms: Math.round(delay) });
      await nap(delay, this.#attempt.signal);
    }
  }

  /** Follows one connection to its orderly end. Throws when it ends in another way. */
  async #follow(attempt) {
    let timer;
    let beats = 0;
    const held = []; // until the position is known to which they belong
    const die = () => attempt.abort(new Error(`no sign of life for ${this.silenceMs} ms`));
    const watch = () => (clearTimeout(timer), (timer = setTimeout(die, this.silenceMs)));
    const alive = () => ((this.#heardAt = Date.now()), watch());
    watch();
    try {
      this.isCurrent = this.cursor === undefined;
      const after = this.cursor === undefined ? "" : `?after=${encodeURIComponent(this.cursor)}`;
      const answer = await this.open(`/stream${after}`, attempt.signal);
      for await (const { id, data } of frames(answer.body, alive)) {
        if (attempt.signal.aborted) throw attempt.signal.reason;
        if (data === "[DONE]") return;
        const event = data && JSON.parse(data);
        if (id) this.cursor = id;
        if (event?.type === "session.heartbeat") {
          if (++beats === 1) this.onEvent({ type: "layby.connection", state: "open" });
          else this.isCurrent = true; // the first one greets, others mean that there was nothing to tell
          this.onEvent(event);
        } else if (event) held.push(id ? { ...event, cursor: id } : event);
        if (this.cursor === undefined) continue;
        for (const event of held.splice(0)) {
          for (const reader of this.#readers) reader.push(event);
          this.onEvent(event);
        }
        this.#attach();
      }
      throw attempt.signal.reason ?? new Error("the stream was cut off");
    } finally {
      clearTimeout(timer);
      attempt.abort();
      this.isCurrent = false;
    }
  }

  /** Where to begin, for a feed that did not get that far by itself. */
  startAt(cursor) {
    if (this.cursor === undefined) ((this.cursor = cursor), this.#reconnect());
  }

  #reconnect = () => this.#attempt.abort(RECONNECT); // an old connection may be one of another network
  #visible = () => {
    const silent = Date.now() - this.#heardAt > this.silenceMs / 2;
    if (globalThis.document.visibilityState === "visible" && silent) this.#reconnect();
  };

  end(error) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    globalThis.removeEventListener?.("online", this.#reconnect);
    globalThis.document?.removeEventListener("visibilitychange", this.#visible);
    this.#attempt.abort();
    this.#attach();
    this.onEvent({ type: "layby.connection", state: "ended", error });
    for (const reader of this.#readers) reader.settle();
  }

  /** An iterator over the events from now on. */
  read(onReturn = () => {}) {
    const queue = [];
    const waiting = [];
    let left = false;
    const settle = () => {
      while (waiting.length > 0 && (queue.length > 0 || left || this.#ended)) {
        const { resolve, reject } = waiting.shift();
        if (queue.length > 0) resolve({ value: queue.shift(), done: false });
        else if (this.#error && !left) ((left = true), reject(this.#error));
        else resolve({ value: undefined, done: true });
      }
    };
    const reader = { push: (event) => (queue.push(event), settle()), settle };
    this.#readers.add(reader);
    return {
      next: () => new Promise((resolve, reject) => (waiting.push({ resolve, reject }), settle())),
      return: async () => {
        this.#readers.delete(reader);
        queue.length = 0;
        left = true;
        settle();
        onReturn();
        return { value: undefined, done: true };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }
}

/** Why a connection is left for another one at once. */
const RECONNECT = new Error("the network has changed");

/** The frames of a stream of server-sent events, however its bytes are cut. A frame that is not whole is none. */
async function* frames(body, onBytes) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      onBytes();
      let from = Math.max(0, text.length - 1); // a large frame is not searched again with every piece
      text += decoder.decode(value, { stream: true });
      let begin = 0;
      for (let end; (end = text.indexOf("\n\n", from)) >= 0; begin = from = end + 2)
        yield frame(text.slice(begin, end));
      text = text.slice(begin);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The fields of a frame. */
function frame(text) {
  const fields = {};
  for (const line of text.split("\n")) {
    const [, name, value] = /^(\w+): ?(.*)$/s.exec(line) ?? [];
    if (name) fields[name] = name === "data" && name in fields ? `${fields.data}\n${value}` : value;
  }
  return fields;
}

/** What a tool makes of a call, as the data of its output. */
async function outcome(run, call) {
  try {
    let args;
    try {
      args = JSON.parse(call.arguments || "{}");
    } catch (error) {
      throw new Error(`the arguments are not JSON: ${error.message}`);
    }
    const output = await run(args, call);
    const type = /^input_(text|image|file)$/;
    const isParts = Array.isArray(output) && output.length > 0 && output.every((part) => type.test(part?.type));
    if (isParts) return { output };
    const text = typeof output === "string" ? output : (JSON.stringify(output) ?? "null");
    return { output: text.toWellFormed?.() ?? text }; // half a character, from text cut by length, is no JSON
  } catch (error) {
    return { output: String(error?.message ?? error), is_error: true };
  }
}

/** Not `randomUUID`, which pages without TLS do not have. */
function randomKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** How long to wait after so many failures: longer each time, never quite the same, and as long as the server asks. */
function pause(failures, error) {
  const most = Math.min(LONGEST_PAUSE, PAUSE * 2 ** failures);
  return Math.max(most * (0.5 + Math.random() / 2), (error?.retryAfterS || 0) * 1000);
}

/** Waits, or until one of the signals aborts. */
function nap(ms, ...signals) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      for (const signal of signals) signal?.removeEventListener("abort", done);
      resolve(undefined);
    };
    const timer = setTimeout(done, ms);
    for (const signal of signals) signal?.addEventListener("abort", done);
    if (signals.some((signal) => signal?.aborted)) done();
  });
}
