// Gets everything that a build needs, once. Runs on any Node from 18 on; safe to run again (0.4 s when nothing is missing).
//   node scripts/setup.mjs          sets up
//   node scripts/setup.mjs --env    also prints the build's environment as export lines
// LAYBY_TOOLCHAIN=auto|rustup|debian picks where the compiler for wasm32 comes from (auto: rustup, else Debian).
// LAYBY_APT=1 allows the use of apt-get where there is no rustup.
// LAYBY_CACHE names another folder for what is built here once.
import { spawnSync } from "node:child_process";
import * as fs from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const cache = process.env.LAYBY_CACHE ?? join(root, ".cache");
const wanted = process.env.LAYBY_TOOLCHAIN ?? "auto";
const TARGET = "wasm32-unknown-unknown";
const WORKER_BUILD = "0.8.7";

const say = (message) => console.error(`[setup] ${message}`);

/** Runs a command to its end. `optional`: a failure is an answer, not an error. */
function run(command, args, { optional = false, env = {}, ...options } = {}) {
  const result = spawnSync(command, args, {
    cwd: root,
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
    ...options,
    env: { ...process.env, ...env },
  });
  const ok = result.status === 0;
  if (!ok && !optional) {
    const why = result.error?.message ?? `exit ${result.status ?? result.signal}`;
    throw new Error(`${command} ${args.join(" ")}: ${why}\n${(result.stderr ?? "").slice(-4000)}`);
  }
  return { ok, out: (result.stdout ?? "").trim() };
}

/** Does something that takes long, and says so before and after. */
function slowly(what, work) {
  const began = Date.now();
  say(`${what} …`);
  const result = work();
  say(`${what}: ${((Date.now() - began) / 1000).toFixed(0)} s`);
  return result;
}

function packages() {
  const mark = join(root, "node_modules", ".package-lock.json");
  const lock = join(root, "package-lock.json");
  const fresh = fs.existsSync(mark) && fs.statSync(mark).mtimeMs >= fs.statSync(lock).mtimeMs;
  if (!fresh) slowly("npm packages", () => run("npm", ["ci", "--no-audit", "--no-fund", "--ignore-scripts=false"]));
}

/** The compiler of rustup's toolchain, with the sources of its standard library. */
function fromRustup() {
  if (!run("rustup", ["--version"], { optional: true }).ok) return null;
  const rustc = run("rustup", ["which", "rustc"]).out;
  const sysroot = run(rustc, ["--print", "sysroot"]).out;
  const sources = join(sysroot, "lib/rustlib/src/rust/library/Cargo.toml");
  if (!fs.existsSync(sources)) run("rustup", ["component", "add", "rust-src"], { optional: true, timeout: 90_000 });
  if (!fs.existsSync(sources)) return null;
  return { name: "rustup", rustc, cargo: join(dirname(rustc), "cargo"), sysroot, env: {} };
}

/** The compiler of Debian's packages, likewise. */
function fromDebian() {
  const linker = () =>
    fs
      .readdirSync("/usr/bin")
      .filter((name) => /^wasm-ld-\d+$/.test(name))
      .sort((a, b) => a.split("-")[2] - b.split("-")[2])
      .pop();
  const there = ["/usr/bin/rustc", "/usr/lib/rustlib/src/rust/library/Cargo.toml"].every((path) => fs.existsSync(path));
  if (!there || !linker()) {
    if (process.env.LAYBY_APT !== "1")
      throw new Error("no compiler for wasm32: install rustup, or allow Debian's packages with LAYBY_APT=1");
    slowly("Debian packages for the wasm compiler", () => {
      const env = { DEBIAN_FRONTEND: "noninteractive" };
      const wants = ["rustc-web", "cargo-web", "rust-web-src", "lld-22"];
      run("apt-get", ["update", "-q"], { env });
      run("apt-get", ["install", "-y", "-q", "--no-install-recommends", ...wants], { env });
    });
  }
  const env = { CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER: linker() };
  return { name: "debian", rustc: "/usr/bin/rustc", cargo: "/usr/bin/cargo", sysroot: "/usr", env };
}

/**
 * A private sysroot: the host's libraries by symlink, the wasm32 library built once, for size and with panic=unwind, so
 * that a panic in one session is one failed request and not the end of the isolate.
 */
function toolchain() {
  const compiler = (wanted !== "debian" && fromRustup()) || (wanted !== "rustup" && fromDebian());
  if (!compiler) throw new Error("rustup could not provide the component rust-src (LAYBY_TOOLCHAIN=rustup)");
  const version = run(compiler.rustc, ["--version"]).out;
  const name = `std-${version.split(" ")[1]}-${compiler.name}-small`;
  const home = join(cache, name);
  const bin = join(home, "bin");
  if (!fs.existsSync(join(home, "ready"))) {
    slowly(`standard library for ${TARGET}`, () => {
      fs.rmSync(home, { recursive: true, force: true });
      buildLibrary(compiler, home);
      writeWrappers(compiler, home, bin);
      fs.writeFileSync(join(home, "ready"), version);
    });
  }
  // What was compiled against one library cannot be linked with another.
  return { bin, env: { ...compiler.env, CARGO_TARGET_DIR: join(root, "target", name) } };
}

function buildLibrary(compiler, home) {
  const seed = join(home, "seed");
  fs.mkdirSync(join(seed, "src"), { recursive: true });
  fs.writeFileSync(
    join(seed, "Cargo.toml"),
    '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n',
  );
  fs.writeFileSync(join(seed, "src/lib.rs"), "");
  const features = "-Zbuild-std-features=panic-unwind,optimize_for_size";
  const args = ["build", "--release", "--target", TARGET, "-Zbuild-std=std,panic_unwind,panic_abort", features];
  const env = {
    ...compiler.env,
    CARGO_PROFILE_RELEASE_OPT_LEVEL: "s",
    RUSTC: compiler.rustc,
    RUSTC_BOOTSTRAP: "1",
    RUSTFLAGS: "-Cpanic=unwind -Cembed-bitcode=yes",
    CARGO_TARGET_DIR: join(seed, "target"),
  };
  run(compiler.cargo, args, { cwd: seed, env });

  const libraries = join(home, "sysroot", "lib/rustlib");
  const out = join(libraries, TARGET, "lib");
  const built = join(seed, "target", TARGET, "release/deps");
  fs.mkdirSync(out, { recursive: true });
  for (const name of fs.readdirSync(built)) {
    if (name.endsWith(".rlib") && !name.startsWith("libseed")) fs.cpSync(join(built, name), join(out, name));
  }
  const own = join(compiler.sysroot, "lib/rustlib");
  for (const name of fs.readdirSync(own)) {
    if (name !== TARGET) fs.symlinkSync(join(own, name), join(libraries, name));
  }
  fs.rmSync(seed, { recursive: true, force: true });
}

/** worker-build asks for `cargo +nightly … -Z build-std=…` and asks rustup about nightly. The library is built already. */
function writeWrappers(compiler, home, bin) {
  fs.mkdirSync(bin);
  const script = (name, body) => fs.writeFileSync(join(bin, name), `#!/bin/bash\n${body}\n`, { mode: 0o755 });
  script("rustc", `[[ $1 == +* ]] && shift\nexec '${compiler.rustc}' --sysroot '${join(home, "sysroot")}' "$@"`);
  script(
    "cargo",
    `[[ $1 == +* ]] && shift
args=()
while (($#)); do if [[ $1 == -Z && $2 == build-std* ]]; then shift 2; else args+=("$1"); shift; fi; done
RUSTC='${join(bin, "rustc")}' exec '${compiler.cargo}' "\${args[@]}"`,
  );
  script("rustup", `[[ "$1 $2" == "component list" ]] && echo "rust-src (installed)"\nexit 0`);
}

function cargoTools() {
  const tools = join(cache, "tools");
  const workerBuild = join(tools, "bin", "worker-build");
  const installed = fs.existsSync(workerBuild) ? run(workerBuild, ["--version"], { optional: true }).out : "";
  if (installed !== WORKER_BUILD) {
    // Used for seconds, so compiled fast rather than well.
    const env = {
      CARGO_PROFILE_RELEASE_OPT_LEVEL: "0",
      CARGO_PROFILE_RELEASE_LTO: "off",
      CARGO_PROFILE_RELEASE_CODEGEN_UNITS: "16",
      CARGO_PROFILE_RELEASE_DEBUG: "0",
      CARGO_TARGET_DIR: join(cache, "tools-target"),
    };
    const args = ["install", "--quiet", "--root", tools, "worker-build", "--version", WORKER_BUILD];
    slowly(`worker-build ${WORKER_BUILD}`, () => run("cargo", args, { env }));
  }
  // A member of the worker's workspace, so that cargo itself keeps tool and library on one version of wasm-bindgen.
  const target = join(cache, "bindgen-target");
  const bindgen = join(target, "debug", "layby-bindgen");
  const build = () => run("cargo", ["build", "--quiet", "-p", "layby-bindgen"], { env: { CARGO_TARGET_DIR: target } });
  if (fs.existsSync(bindgen)) build();
  else slowly("bindgen tool", build);
  return { bin: join(tools, "bin"), bindgen };
}

/** Sets up and returns the environment of a build. */
export function setup() {
  packages();
  const compiler = toolchain();
  const tools = cargoTools();
  const modules = join(root, "node_modules", ".bin");
  return {
    ...compiler.env,
    WASM_BINDGEN_BIN: tools.bindgen,
    ESBUILD_BIN: join(modules, "esbuild"),
    WASM_OPT_BIN: join(modules, "wasm-opt"),
    PATH: [compiler.bin, tools.bin, modules, process.env.PATH].join(delimiter),
  };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  try {
    const env = setup();
    if (process.argv.includes("--env")) {
      for (const [name, value] of Object.entries(env)) console.log(`export ${name}='${value}'`);
    }
  } catch (error) {
    console.error(`[setup] ${error.message}`);
    process.exit(1);
  }
}
