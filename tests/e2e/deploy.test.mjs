// What `npm run deploy` looks at before it deploys, with a stand-in for wrangler.
import assert from "node:assert/strict";
import { test } from "node:test";
import { check, deploy, option, secretNames, which } from "../../scripts/deploy.mjs";

const listed = (...names) => JSON.stringify(names.map((name) => ({ name, type: "secret_text" })));
const SET = listed("LAYBY_API_KEYS");

/** Deploys with a wrangler that answers so; what it was asked, what was said, and the exit code. */
function run(args, { vars = {}, whoami = 0, secrets = { status: 0, stdout: SET, stderr: "" }, deployed = 0 } = {}) {
  const asked = [];
  const said = [];
  const wrangler = (args) => {
    asked.push(args.join(" "));
    if (args[0] === "whoami") return { status: whoami, stdout: "", stderr: "" };
    if (args[0] === "secret") return secrets;
    return { status: deployed };
  };
  const code = deploy(args, { vars, wrangler, say: (line) => said.push(line) });
  return { asked, said: said.join("\n"), code };
}

test("variables that would make a deployment useless or open are named", () => {
  const ready = ["LAYBY_API_KEYS"];
  const cases = [
    [{}, ready, []],
    [{}, null, []],
    [{}, [], [/no API key yet: npx wrangler secret put LAYBY_API_KEYS/]],
    [{ LAYBY_OPEN: "true" }, ready, [/LAYBY_OPEN .* open to everybody/]],
    [{ LAYBY_OPEN: "true" }, null, [/LAYBY_OPEN .* open to everybody/]],
    [{ LAYBY_OPEN: "false" }, ready, []],
    [{ LAYBY_OPEN: true }, ready, [/LAYBY_OPEN .* open to everybody/, /LAYBY_OPEN .* in quotes/]],
    [{}, [...ready, "LAYBY_OPEN"], [/secret delete LAYBY_OPEN/]],
    [{ LAYBY_API_KEYS: "acme:12345678" }, ready, [/LAYBY_API_KEYS is in wrangler.toml/]],
    [{ LAYBY_PROVIDERS: "{" }, ready, [/LAYBY_PROVIDERS .* JSON object/]],
    [{ LAYBY_PROVIDERS: "[]" }, ready, [/LAYBY_PROVIDERS .* JSON object: it is \[\]/]],
    [{ LAYBY_PROVIDERS: { a: {} } }, ready, [/LAYBY_PROVIDERS .* in quotes/]],
    [{ LAYBY_PROVIDERS: '{"a": {"type": "openai-chat", "api_key": "$A_KEY"}}' }, ready, [/secret put A_KEY/]],
    [{ LAYBY_PROVIDERS: '{"a": {"api_key": "$A_KEY"}}' }, [...ready, "A_KEY"], []],
    [{ LAYBY_PROVIDERS: '{"a": {"api_key": "$A_KEY"}}' }, null, []],
    [{ LAYBY_PROVIDERS: '{"a": {"query": {"v": "$A_VERSION"}}}', A_VERSION: "1" }, ready, []],
    [{ LAYBY_PROVIDER: "openai" }, ready, []],
    [{ LAYBY_PROVIDER: '{"type": ' }, ready, [/LAYBY_PROVIDER .* JSON object/]],
    [{ LAYBY_AGENT: "helper" }, ready, [/LAYBY_AGENT .* JSON object/]],
  ];
  for (const [vars, secrets, wanted] of cases) {
    const found = check(vars, secrets);
    const what = `${JSON.stringify([vars, secrets])} → ${JSON.stringify(found)}`;
    assert.equal(found.length, wanted.length, what);
    for (const [n, pattern] of wanted.entries()) assert.match(found[n], pattern, what);
  }
});

test("what says which worker is meant is passed on, and nothing else", () => {
  const args = ["--env", "staging", "--minify", "-c", "other.toml", "--name=x", "--message", "deploy it"];
  assert.deepEqual(which(args), ["--env", "staging", "-c", "other.toml", "--name=x"]);
  assert.equal(option(args, "--env", "-e"), "staging");
  assert.equal(option(args, "--name"), "x");
  assert.equal(option(args, "--outdir"), undefined);
});

test("secrets are read from what wrangler lists; a worker that is not there has none", () => {
  const read = (status, stdout, stderr = "") => secretNames({ status, stdout, stderr });
  assert.deepEqual(read(0, `a notice\n${SET}`), { secrets: ["LAYBY_API_KEYS"] });
  assert.deepEqual(read(0, "[]"), { secrets: [] });
  assert.deepEqual(read(1, "", "Worker does not exist on your account. [code: 10007]"), { secrets: [] });
  assert.deepEqual(read(1, "", "no network"), { why: "no network" });
});

test("a deployment that is well is made, with the arguments and the exit code of wrangler", () => {
  const { asked, said, code } = run(["--env", "staging", "--minify"]);
  assert.deepEqual(asked, [
    "whoami --json --env staging",
    "secret list --format json --env staging",
    "deploy --env staging --minify",
  ]);
  assert.deepEqual([said, code], ["", 0]);
  assert.equal(run([], { deployed: 3 }).code, 3);
});

test("one that is not is not made, and what is missing is said", () => {
  const cases = [
    [{ whoami: 1 }, /npx wrangler login/],
    [{ secrets: { status: 0, stdout: "[]", stderr: "" } }, /secret put LAYBY_API_KEYS/],
    [{ secrets: { status: 1, stdout: "", stderr: "no network" } }, /does not list the secrets:\nno network/],
    [{ vars: { LAYBY_OPEN: "true" } }, /LAYBY_OPEN/],
  ];
  for (const [given, pattern] of cases) {
    const { asked, said, code } = run([], given);
    assert.match(said, pattern);
    assert.equal(code, 1);
    assert.ok(!asked.some((args) => args.startsWith("deploy")), asked.join());
  }
});

test("--dry-run asks no account, but looks at the variables", () => {
  assert.deepEqual(run(["--dry-run"], { whoami: 1 }), { asked: ["deploy --dry-run"], said: "", code: 0 });
  const { asked, code } = run(["--dry-run"], { vars: { LAYBY_PROVIDERS: "{" } });
  assert.deepEqual([asked, code], [[], 1]);
});
