// Portkey's gateway for the end-to-end tests: in the cache, so that who only starts the server does not install it.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const cache = process.env.LAYBY_CACHE ?? join(root, ".cache");
const VERSION = "1.15.2";

/** `{script}` that starts it, or `{why}` there is none. */
export function portkey() {
  const home = join(cache, `portkey-${VERSION}`);
  const script = join(home, "node_modules", "@portkey-ai", "gateway", "build", "start-server.js");
  if (existsSync(script)) return { script };
  const made = join(cache, `portkey.${process.pid}`);
  mkdirSync(made, { recursive: true });
  const args = ["install", "--silent", "--no-audit", "--no-fund", "--prefix", made, `@portkey-ai/gateway@${VERSION}`];
  try {
    const { status, stderr, error } = spawnSync("npm", args, { encoding: "utf8", timeout: 300_000 });
    if (status !== 0) return { why: `npm install: ${error?.message ?? (stderr ?? "").trim().split("\n").at(-1)}` };
    try {
      renameSync(made, home);
    } catch (error) {
      if (!existsSync(script)) throw error;
    }
    return { script };
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
}
