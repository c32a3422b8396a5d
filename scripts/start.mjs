// `npm start`: builds what is not built and serves the worker on loopback. PORT and LAYBY_STATE choose port and storage.
import { mkdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "./build.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const port = Number(process.env.PORT ?? 8787);
const storage = resolve(process.env.LAYBY_STATE ?? join(root, ".layby"));

/** The worker's settings, from the environment as a deployment has them from its variables and secrets. */
function settings(env) {
  const ours = ["LAYBY_STATE", "LAYBY_TOOLCHAIN", "LAYBY_RESTART_CMD"];
  const named = [...`${env.LAYBY_PROVIDERS ?? ""} ${env.LAYBY_PROVIDER ?? ""}`.matchAll(/"\$(\w+)"/g)].map(
    ([, name]) => name,
  );
  const wanted = (name) =>
    (name.startsWith("LAYBY_") && !ours.includes(name)) ||
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", ...named].includes(name);
  return Object.fromEntries(Object.entries(env).filter(([name]) => wanted(name)));
}

async function main() {
  if (!Number.isInteger(port) || port < 0 || port > 65535)
    throw new Error(`PORT must be a port number, not ${process.env.PORT}`);
  build();
  mkdirSync(storage, { recursive: true });
  const { Server } = await import("./server.mjs");
  const given = settings(process.env);
  const vars = { LAYBY_OPEN: "true", LAYBY_PRIVATE_HOSTS: "true", ...given };
  const onLog = (log) => log.level !== "debug" && console.error(`[${log.level}] ${log.message}`);
  const server = await new Server({ storage, vars, port, onLog }).start();

  const keys = vars.LAYBY_API_KEYS
    ? "API keys from LAYBY_API_KEYS"
    : "open: no API key is asked for (local development)";
  console.log(`
layby is serving on ${server.url}
  storage  ${storage}
  access   ${keys}
  console  ${server.url}/  (open it in a browser)
  model    built in, no key needed: it echoes, and calls an offered tool that a message names

Try it:
  curl -s ${server.url}/v1/sessions -H 'content-type: application/json' -d '{}'

Ctrl-C stops it. The README has the whole tour.`);

  const stop = async () => {
    await server.stop();
    process.exit(0);
  };
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  process.once("SIGHUP", stop);
}

main().catch((error) => {
  const taken = /EADDRINUSE|address already in use/i.test(String(error?.message ?? error));
  console.error(
    taken
      ? `port ${port} is taken; choose another: PORT=8788 npm start`
      : `npm start failed: ${error?.message ?? error}`,
  );
  process.exit(1);
});
