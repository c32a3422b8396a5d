// Builds the worker into build/. Does nothing when the last build is of the same sources.
// LAYBY_NAMES=1 keeps the names of functions in the wasm, for profiles and for measuring sizes.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { setup } from "./setup.mjs";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const stamp = join(root, "build", ".sources");
const names = process.env.LAYBY_NAMES === "1";

// What workerd understands and rustc uses.
const FEATURES = [
  ...["mutable-globals", "sign-ext", "nontrapping-float-to-int", "bulk-memory", "multivalue"],
  ...["reference-types", "exception-handling"],
];
// A function with a large frame stays a function of its own: the platform compiles a function when it is first called, all
// of it, and the first session of an isolate needs a quarter of what there is.
const RUSTFLAGS = "-Cllvm-args=-inline-max-stacksize=128";
// The compiler has optimised already. What `wasm-opt -O` does beyond these makes the file 5 % smaller, but 5 % larger when
// it is compressed, and nothing faster.
const PASSES = [
  ...["duplicate-function-elimination", "optimize-instructions", "vacuum", "remove-unused-brs", "dae-optimizing"],
  ...["dealign", "remove-unused-module-elements", "reorder-functions", "strip-producers"],
];

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
  const hash = createHash("sha256").update(`names ${names}\0`);
  const scripts = ["scripts/setup.mjs", "scripts/build.mjs"];
  for (const path of ["src", "build.rs", "Cargo.toml", "Cargo.lock", ...scripts, "tools"].flatMap(sources)) {
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update("\0");
  }
  return hash.digest("hex");
}

function run(command, args, env) {
  const result = spawnSync(command, args, { cwd: root, stdio: ["ignore", "inherit", "inherit"], env });
  if (result.status === 0) return;
  throw new Error(`${command} failed: ${result.error?.message ?? `exit ${result.status ?? result.signal}`}`);
}

/** Builds if needed and returns the folder of the built worker. */
export function build() {
  const wanted = fingerprint();
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return join(root, "build");
  const env = { ...process.env, RUSTFLAGS, ...setup() };
  console.error("[build] compiling the worker (about two minutes the first time, seconds after a change)");
  const began = Date.now();
  run("worker-build", ["--release", "--panic-unwind"], env);
  const wasm = join(root, "build", "index_bg.wasm");
  const options = [...FEATURES.map((name) => `enable-${name}`), ...PASSES, names ? "debuginfo" : "strip-debug"];
  run(env.WASM_OPT_BIN, [wasm, "-o", wasm, ...options.map((name) => `--${name}`)], env);
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
