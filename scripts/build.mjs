// Builds the worker into build/. Does nothing when the last build is of the same sources.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { setup } from "./setup.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const stamp = join(root, "build", ".sources");

function sources(path) {
  const full = join(root, path);
  if (!existsSync(full)) return [];
  return statSync(full).isDirectory()
    ? readdirSync(full)
        .sort()
        .flatMap((name) => sources(join(path, name)))
    : [path];
}

function fingerprint() {
  const hash = createHash("sha256");
  for (const path of ["src", "Cargo.toml", "Cargo.lock", "scripts/setup.mjs", "tools"].flatMap(sources)) {
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update("\0");
  }
  return hash.digest("hex");
}

/** Builds if needed and returns the folder of the built worker. */
export function build() {
  const wanted = fingerprint();
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return join(root, "build");
  const env = { ...process.env, ...setup() };
  console.error("[build] compiling the worker (about two minutes the first time, seconds after a change)");
  const began = Date.now();
  const result = spawnSync("worker-build", ["--release", "--panic-unwind"], {
    cwd: root,
    stdio: ["ignore", "inherit", "inherit"],
    env,
  });
  if (result.status !== 0)
    throw new Error(`worker-build failed: ${result.error?.message ?? `exit ${result.status ?? result.signal}`}`);
  writeFileSync(stamp, wanted);
  console.error(`[build] done in ${((Date.now() - began) / 1000).toFixed(0)} s`);
  return join(root, "build");
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    build();
  } catch (error) {
    console.error(`[build] ${error.message}`);
    process.exit(1);
  }
}
