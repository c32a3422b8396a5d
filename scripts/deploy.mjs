// `npm run deploy`: preflight checks, then `wrangler deploy`. A failed check prints the command that fixes it. Arguments go to
// wrangler: `npm run deploy -- --env staging`. With `--dry-run`, checks that need an account are skipped.
import { spawnSync } from "node:child_process";
import { delimiter, dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "..");

/** Options that say which worker is meant, with a value. Whoever asks for its secrets has to pass them on. */
const WHICH = ["--env", "-e", "--config", "-c", "--name", "--profile", "--env-file", "--cwd"];
/** Settings that are JSON, and those that may be. */
const OBJECTS = ["LAYBY_PROVIDERS", "LAYBY_AGENT"];
const NAME_OR_OBJECT = "LAYBY_PROVIDER";

/** What is wrong with the variables of wrangler.toml. `secrets` are the names of the secrets; null: not known. */
export function check(vars, secrets = null) {
  const problems = [];
  const text = (name) => (typeof vars[name] === "string" ? vars[name].trim() : "");
  if (vars.LAYBY_OPEN !== undefined && !["", "false", "0"].includes(String(vars.LAYBY_OPEN).trim()))
    problems.push(
      "LAYBY_OPEN is set in wrangler.toml: the deployment would be open to everybody. Take it out of [vars].",
    );
  if (secrets?.includes("LAYBY_OPEN"))
    problems.push(
      "LAYBY_OPEN is a secret of the deployment, which may open it to everybody: npx wrangler secret delete LAYBY_OPEN",
    );
  if (vars.LAYBY_API_KEYS !== undefined)
    problems.push(
      "LAYBY_API_KEYS is in wrangler.toml, where everybody who sees the file can read it. Take it out of [vars] and make it a secret: npx wrangler secret put LAYBY_API_KEYS",
    );
  else if (secrets && !secrets.includes("LAYBY_API_KEYS"))
    problems.push(
      "there is no API key yet: npx wrangler secret put LAYBY_API_KEYS (tenant:key, several separated by commas)",
    );
  for (const [name, value] of Object.entries(vars))
    if (name.startsWith("LAYBY_") && typeof value !== "string")
      problems.push(`${name} in wrangler.toml must be a text, in quotes.`);
  for (const name of [...OBJECTS, NAME_OR_OBJECT]) {
    const json = text(name);
    if (!json || (name === NAME_OR_OBJECT && !json.startsWith("{"))) continue;
    const why = notAnObject(json);
    if (why) problems.push(`${name} in wrangler.toml must be a JSON object: ${why}`);
    else if (secrets)
      for (const [, secret] of json.matchAll(/"\$(\w+)"/g))
        if (!secrets.includes(secret) && vars[secret] === undefined)
          problems.push(`${name} needs the secret ${secret}: npx wrangler secret put ${secret}`);
  }
  return [...new Set(problems)];
}

function notAnObject(json) {
  try {
    const value = JSON.parse(json);
    return value && typeof value === "object" && !Array.isArray(value) ? null : `it is ${json.slice(0, 40)}`;
  } catch (error) {
    return error.message;
  }
}

/** Those of the arguments that say which worker is meant. */
export function which(args) {
  return args.filter(
    (arg, n) =>
      WHICH.includes(args[n - 1]) || WHICH.includes(arg) || WHICH.some((option) => arg.startsWith(`${option}=`)),
  );
}

/** The value of an option. */
export function option(args, ...names) {
  for (const [n, arg] of args.entries()) {
    if (names.includes(arg)) return args[n + 1];
    const name = names.find((name) => arg.startsWith(`${name}=`));
    if (name) return arg.slice(name.length + 1);
  }
  return undefined;
}

/** The names of the secrets that the worker has, or what wrangler says instead of them. */
export function secretNames({ status, stdout, stderr, error }) {
  if (status === 0) {
    try {
      return { secrets: JSON.parse(stdout.slice(stdout.search(/^\[/m))).map(({ name }) => name) };
    } catch {
      return { why: stdout };
    }
  }
  // A worker that was never deployed has none.
  if (/10007|does not exist/i.test(`${stdout}${stderr}`)) return { secrets: [] };
  return { why: error?.message ?? (stderr || stdout) };
}

/**
 * Checks and deploys; returns the exit code. `wrangler(args)` runs wrangler and returns `{status, stdout, stderr}`, with
 * `{show: true}` on the terminal; `vars` are those of wrangler.toml.
 */
export function deploy(args, { vars, wrangler, say }) {
  const dry = args.includes("--dry-run");
  let secrets = null;
  if (!dry) {
    if (wrangler(["whoami", "--json", ...which(args)]).status !== 0) {
      say("wrangler is not logged in: npx wrangler login (or, without a browser, set CLOUDFLARE_API_TOKEN)");
      return 1;
    }
    const listed = secretNames(wrangler(["secret", "list", "--format", "json", ...which(args)]));
    if (listed.why !== undefined) {
      say(`wrangler does not list the secrets:\n${listed.why.trim()}`);
      return 1;
    }
    secrets = listed.secrets;
  }
  const problems = check(vars, secrets);
  for (const problem of problems) say(problem);
  if (problems.length > 0) return 1;
  return wrangler(["deploy", ...args], { show: true }).status ?? 1;
}

async function main() {
  const args = process.argv.slice(2);
  const { unstable_readConfig: read } = await import("wrangler");
  const config = option(args, "--config", "-c") ?? join(root, "wrangler.toml");
  const { vars } = read({ config, env: option(args, "--env", "-e") });
  const path = [join(root, "node_modules", ".bin"), process.env.PATH].join(delimiter);
  const wrangler = (args, { show = false } = {}) =>
    spawnSync("wrangler", args, {
      cwd: root,
      encoding: "utf8",
      env: { ...process.env, PATH: path },
      stdio: show ? "inherit" : ["ignore", "pipe", "pipe"],
    });
  return deploy(args, { vars, wrangler, say: (line) => console.error(`[deploy] ${line}`) });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.exitCode = await main();
}
