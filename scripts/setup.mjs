// Gets everything a build needs, once. Run on any Node >= 18; safe to run again (~0.1 s when nothing is missing).
//   node scripts/setup.mjs          set up        node scripts/setup.mjs --env   print the environment as export lines
// LAYBY_TOOLCHAIN=auto|rustup|debian picks where the compiler for wasm32 comes from (default auto: rustup, else Debian).
import { execFileSync, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");
const cache = process.env.LAYBY_CACHE ?? join(root, ".cache");
const want = process.env.LAYBY_TOOLCHAIN ?? "auto";
const TARGET = "wasm32-unknown-unknown",
  WORKER_BUILD = "0.8.7";
const bin = (name) => join(root, "node_modules", ".bin", name);
const say = (m) => console.error(`[setup] ${m}`);

function run(cmd, args, o = {}) {
  const t = Date.now(),
    r = spawnSync(cmd, args, {
      cwd: root,
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
      ...o,
      env: { ...process.env, ...o.env },
    });
  const ok = r.status === 0;
  if (!ok && !o.optional)
    throw new Error(
      `${cmd} ${args.join(" ")}: ${r.error?.message ?? "exit " + (r.status ?? r.signal)}\n${(r.stderr ?? "").slice(-4000)}`,
    );
  return { ok, out: r.stdout ?? "", err: r.stderr ?? "", s: ((Date.now() - t) / 1000).toFixed(1) };
}
// Two places can supply a compiler together with the sources of its standard library.
function fromRustup() {
  if (!run("rustup", ["--version"], { optional: true }).ok) return null;
  const rustc = run("rustup", ["which", "rustc"]).out.trim(),
    sysroot = run(rustc, ["--print", "sysroot"]).out.trim();
  const src = join(sysroot, "lib/rustlib/src/rust/library/Cargo.toml");
  if (!existsSync(src)) run("rustup", ["component", "add", "rust-src"], { optional: true, timeout: 90_000 });
  return existsSync(src) ? { rustc, cargo: join(dirname(rustc), "cargo"), sysroot, env: {} } : null;
}
function fromDebian() {
  const lld = () =>
    readdirSync("/usr/bin")
      .filter((f) => /^wasm-ld-\d+$/.test(f))
      .sort((a, b) => a.split("-")[2] - b.split("-")[2])
      .pop();
  if (!existsSync("/usr/bin/rustc") || !existsSync("/usr/lib/rustlib/src/rust/library/Cargo.toml") || !lld()) {
    const apt = (args) => run("apt-get", args, { env: { DEBIAN_FRONTEND: "noninteractive" } });
    apt(["update", "-q"]);
    const r = apt([
      "install",
      "-y",
      "-q",
      "--no-install-recommends",
      "rustc-web",
      "cargo-web",
      "rust-web-src",
      "lld-22",
    ]);
    say(`Debian packages rustc-web cargo-web rust-web-src lld-22 in ${r.s} s`);
  }
  return {
    rustc: "/usr/bin/rustc",
    cargo: "/usr/bin/cargo",
    sysroot: "/usr",
    env: { CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER: lld() },
  };
}
// A private sysroot: the host's libraries by symlink, the wasm32 library built once with panic=unwind.
function toolchain() {
  const c = (want !== "debian" && fromRustup()) || (want !== "rustup" && fromDebian());
  if (!c) throw new Error("rustup could not provide the component rust-src");
  const version = run(c.rustc, ["--version"]).out.trim(),
    home = join(cache, `std-${version.split(" ")[1]}-${c.sysroot === "/usr" ? "debian" : "rustup"}`);
  const sysroot = join(home, "sysroot"),
    out = join(sysroot, "lib/rustlib", TARGET, "lib"),
    bindir = join(home, "bin");
  if (!existsSync(join(home, "ready"))) {
    say(`building the ${TARGET} standard library for ${version} (once)`);
    rmSync(home, { recursive: true, force: true });
    const seed = join(home, "seed");
    mkdirSync(join(seed, "src"), { recursive: true });
    writeFileSync(
      join(seed, "Cargo.toml"),
      '[package]\nname = "seed"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n',
    );
    writeFileSync(join(seed, "src/lib.rs"), "");
    const r = run(c.cargo, ["build", "--release", "--target", TARGET, "-Zbuild-std=std,panic_unwind,panic_abort"], {
      cwd: seed,
      env: {
        ...c.env,
        RUSTC: c.rustc,
        RUSTC_BOOTSTRAP: "1",
        RUSTFLAGS: "-Cpanic=unwind -Cembed-bitcode=yes",
        CARGO_TARGET_DIR: join(seed, "target"),
      },
    });
    mkdirSync(out, { recursive: true });
    const deps = join(seed, "target", TARGET, "release/deps");
    for (const f of readdirSync(deps))
      if (f.endsWith(".rlib") && !f.startsWith("libseed")) cpSync(join(deps, f), join(out, f));
    const from = join(c.sysroot, "lib/rustlib");
    for (const d of readdirSync(from)) if (d !== TARGET) symlinkSync(join(from, d), join(sysroot, "lib/rustlib", d));
    rmSync(seed, { recursive: true, force: true });
    mkdirSync(bindir);
    const sh = (name, body) => writeFileSync(join(bindir, name), `#!/bin/bash\n${body}\n`, { mode: 0o755 });
    sh("rustc", `[[ $1 == +* ]] && shift\nexec '${c.rustc}' --sysroot '${sysroot}' "$@"`);
    // worker-build asks for "cargo +nightly ... -Z build-std=..."; the library is built already, so both go.
    sh(
      "cargo",
      `[[ $1 == +* ]] && shift\nargs=()\nwhile (($#)); do if [[ $1 == -Z && $2 == build-std* ]]; then shift 2; else args+=("$1"); shift; fi; done\nRUSTC='${join(bindir, "rustc")}' exec '${c.cargo}' "\${args[@]}"`,
    );
    // It also asks rustup whether nightly has the sources.
    sh("rustup", `[[ "$1 $2" == "component list" ]] && echo "rust-src (installed)"\nexit 0`);
    writeFileSync(join(home, "ready"), version);
    say(`standard library built in ${r.s} s`);
  }
  return { path: [bindir], env: { ...c.env, CARGO_TARGET_DIR: join(root, "target", "worker") } };
}
function npm() {
  const mark = join(root, "node_modules", ".package-lock.json"),
    lock = join(root, "package-lock.json");
  if (existsSync(mark) && (!existsSync(lock) || statSync(mark).mtimeMs >= statSync(lock).mtimeMs)) return;
  const r = run("npm", [existsSync(lock) ? "ci" : "install", "--no-audit", "--no-fund", "--ignore-scripts=false"]);
  say(`npm packages in ${r.s} s`);
}
function cargoTools() {
  const dir = join(cache, "tools"),
    fast = {
      CARGO_PROFILE_RELEASE_OPT_LEVEL: "0",
      CARGO_PROFILE_RELEASE_LTO: "off",
      CARGO_PROFILE_RELEASE_CODEGEN_UNITS: "16",
      CARGO_PROFILE_RELEASE_DEBUG: "0",
      CARGO_TARGET_DIR: join(cache, "tools-target"),
    };
  const wb = join(dir, "bin", "worker-build");
  if (!existsSync(wb) || run(wb, ["--version"], { optional: true }).out.trim() !== WORKER_BUILD) {
    const r = run("cargo", ["install", "--quiet", "--root", dir, "worker-build", "--version", WORKER_BUILD], {
      env: fast,
    });
    say(`worker-build ${WORKER_BUILD} in ${r.s} s`);
  }
  // Same workspace as the worker, so cargo itself keeps the tool and the library on one wasm-bindgen version.
  const t = join(cache, "bindgen-target"),
    r = run("cargo", ["build", "--quiet", "-p", "layby-bindgen"], { env: { CARGO_TARGET_DIR: t } });
  if (r.s > 2) say(`bindgen tool in ${r.s} s`);
  return { wb: dir, bindgen: join(t, "debug", "layby-bindgen") };
}

export function setup() {
  npm();
  const t = toolchain(),
    c = cargoTools();
  return {
    ...t.env,
    WASM_BINDGEN_BIN: c.bindgen,
    ESBUILD_BIN: bin("esbuild"),
    WASM_OPT_BIN: bin("wasm-opt"),
    PATH: [...(t.path ?? []), join(c.wb, "bin"), join(root, "node_modules", ".bin"), process.env.PATH].join(delimiter),
  };
}
if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const env = setup();
  if (process.argv.includes("--env")) for (const [k, v] of Object.entries(env)) console.log(`export ${k}='${v}'`);
}
