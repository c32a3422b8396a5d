// Real gateways between the session and the model: a tool turn, a switch of provider, an interrupt and an error through each.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { portkey } from "../../scripts/portkey.mjs";
import { litellm } from "../../scripts/python.mjs";
import { DIALECTS, LOOK, Session, eventually, model, serve } from "./kit.mjs";

/** The key of the proxy. It takes no short one. */
const KEY = "sk-0123456789abcdef0123456789abcdef";

/** Portkey's gateway adds headers to what it fetched, which newer versions of Node do not let it. */
const MUTABLE = `data:text/javascript,${encodeURIComponent(`
  const own = globalThis.fetch;
  globalThis.fetch = async (...args) => {
    const { body, status, statusText, headers } = await own(...args);
    return new Response(body, { status, statusText, headers });
  };`)}`;

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => server.once("listening", done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Starts a gateway, and waits until `ready` answers. Returns its address. */
async function start(t, command, args, port, ready, env = {}) {
  const child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (chunk) => (said = (said + chunk).slice(-4000)));
  t.after(() => child.kill("SIGKILL"));
  const url = `http://127.0.0.1:${port}`;
  await eventually(
    async () => {
      assert.equal(child.exitCode, null, said);
      return fetch(url + ready).then(
        ({ ok }) => ok,
        () => false,
      );
    },
    `an answer of the gateway: ${said}`,
    120,
  );
  return url;
}

const GATEWAYS = {
  /** LiteLLM's proxy: the model's name chooses what is behind it. */
  litellm: {
    missing: () => litellm().why,
    async providers(t, origin) {
      const folder = mkdtempSync(join(tmpdir(), "layby-litellm-"));
      t.after(() => rmSync(folder, { recursive: true, force: true }));
      const entry = (name, at, base) => ({
        model_name: name,
        litellm_params: { model: at, api_base: base, api_key: "key", max_retries: 0 },
      });
      const config = {
        model_list: [
          entry("claude", "anthropic/claude-sonnet-4-5", origin),
          entry("gpt", "openai/gpt-4o", `${origin}/v1`),
        ],
        litellm_settings: { num_retries: 0, telemetry: false },
      };
      writeFileSync(join(folder, "config.yaml"), JSON.stringify(config));
      const port = await freePort();
      const run = ["-c", "from litellm import run_server; run_server()", "--config", join(folder, "config.yaml")];
      const url = await start(
        t,
        litellm().python,
        [...run, "--host", "127.0.0.1", "--port", `${port}`],
        port,
        "/health/liveliness",
        { LITELLM_LOCAL_MODEL_COST_MAP: "True", LITELLM_MODE: "PRODUCTION", LITELLM_MASTER_KEY: KEY },
      );
      const provider = { type: "openai-chat", base_url: `${url}/v1`, api_key: KEY };
      return { claude: provider, gpt: provider };
    },
  },
  /** Portkey's gateway: headers choose what is behind it. */
  portkey: {
    missing: () => portkey().why,
    async providers(t, origin) {
      const port = await freePort();
      const args = ["--import", MUTABLE, portkey().script];
      const url = await start(t, process.execPath, [...args, `--port=${port}`, "--headless"], port, "/");
      const through = (provider) => ({
        type: "openai-chat",
        base_url: `${url}/v1`,
        api_key: "key",
        headers: { "x-portkey-provider": provider, "x-portkey-custom-host": `${origin}/v1` },
      });
      return { claude: through("anthropic"), gpt: through("openai") };
    },
  },
};

for (const [name, gateway] of Object.entries(GATEWAYS)) {
  const why = gateway.missing();
  const skip = why && process.env.LAYBY_REQUIRE_ALL !== "1" ? why : false;
  test(`${name}: tools, a switch of provider, an interrupt and an error go through it`, { skip }, async (t) => {
    assert.equal(why, undefined);
    let script = [];
    const llm = await model(t, () => script.shift());
    const providers = await gateway.providers(t, llm.origin);
    const server = await serve(t, { LAYBY_OPEN: "true", LAYBY_PROVIDERS: JSON.stringify(providers) });
    const agent = { name: "test", model: "claude:claude", provider: { type: "named", name: "claude" } };
    const session = await Session.create(server, { agent });
    const stream = session.follow(t);
    await stream.type("session.heartbeat");
    const say = (content, more = {}) => session.post({ type: "message", data: { role: "user", content }, ...more });
    const last = () => {
      const { body, url } = llm.requests.at(-1);
      const dialect = Object.values(DIALECTS).find(({ path }) => url.endsWith(path));
      return { dialect, body };
    };

    // A tool turn, on the Messages API behind the gateway.
    const calls = [
      { id: "toolu_1", name: "look", arguments: '{"q":1}' },
      { id: "toolu_2", name: "look", arguments: '{"q":2}' },
    ];
    script = [{ text: "Let me see.", calls }, { text: "Both seen." }];
    await session.say("go", [LOOK]);
    const waiting = await session.status("waiting", "failed");
    assert.equal(waiting.last_task_error, null);
    const pending = waiting.pending_tool_calls;
    assert.deepEqual(
      pending.map((call) => JSON.parse(call.arguments)),
      [{ q: 1 }, { q: 2 }],
    );
    for (const [n, { call_id }] of pending.entries()) await session.give(call_id, `out ${n}`);
    const answered = await session.status("idle");
    assert.equal(answered.items.at(-1).content[0].text, "Both seen.");
    assert.equal(last().dialect, DIALECTS.anthropic);
    assert.equal(last().dialect.outputs(last().body).length, 2);

    // Another provider, and back: both read the whole transcript.
    script = [{ text: "From the other." }, { text: "Back again." }];
    await say("you?", { model_override: "gpt:gpt" });
    await session.status("idle");
    assert.notEqual(last().dialect, DIALECTS.anthropic);
    await say("and you?");
    const both = await session.status("idle");
    assert.equal(both.items.at(-1).content[0].text, "Back again.");
    assert.ok(JSON.stringify(last().body).includes("From the other."));
    assert.equal(last().dialect, DIALECTS.anthropic);

    // An interrupt in the middle of an answer.
    let release;
    script = [{ text: "This goes on and on", hold: new Promise((done) => (release = done)) }, { text: "Stopped." }];
    await say("talk");
    await eventually(() => stream.text.includes("This goes"), "the beginning of the answer");
    await session.post({ type: "interrupt" });
    await session.status("idle");
    release();
    await say("stop");
    const stopped = await session.status("idle");
    assert.equal(stopped.items.at(-1).content[0].text, "Stopped.");

    // An error of the model's host, with its code and its words.
    const refusal = { type: "error", error: { type: "authentication_error", message: "no such key" } };
    script = [{ status: 401, raw: JSON.stringify(refusal), headers: { "content-type": "application/json" } }];
    await say("again");
    const { last_task_error: error } = await session.status("failed");
    assert.equal(error.code, "upstream_auth", error.message);
    assert.match(error.message, /no such key/);
    script = [{ text: "Still here." }];
    await say("once more");
    const after = await session.status("idle");
    assert.equal(after.items.at(-1).content[0].text, "Still here.");
    assert.ok(JSON.stringify(last().body).includes("again"));
  });
}
